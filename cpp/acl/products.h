// What the products of the documents allow. The product is the one that BACKOPS_SOC names.
#pragma once

#include <cstdint>
#include <string>

#include "base/dtype.h"
#include "ops/common/precision.h"

namespace backops::acl {

// How cubeMathType acts on operands.
struct CubeRules {
  bool keeps_float32;        // KEEP_DTYPE with float32
  Rounding down;             // ALLOW_FP32_DOWN_PRECISION with float32
  bool has_hf32;             // USE_HF32
  bool global_pooling_only;  // pooling: the rules for HF32 and bfloat16 hold in global pooling only
};

struct Product {
  const char* series;
  bool has_bfloat16;
  bool has_avg_pool2d;
  std::int64_t most_divisor;  // of AvgPool2d, either way; 0: any
  CubeRules cube;
};

// The name as it was given. Read from the environment when the library is first asked, and by
// read_soc_name().
const std::string& soc_name();
void read_soc_name();

// Throws Failure where no product has the name.
const Product& current_product();

enum class Operation : std::uint8_t { global_pooling, other_pooling, convolution };

// The rounding of operands. Throws Failure where cubeMathType is refused. What Python calls
// precision is this for one product (rounding_of in ops/precision.h): in pooling, an Atlas A2.
Rounding product_rounding(const Product& product, Operation operation, DType dtype,
                          std::int8_t cube_math_type);

}  // namespace backops::acl
