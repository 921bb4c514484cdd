// A tensor as a client describes it, and as the core sees it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/operand.h"
#include "infiniop/tensor_descriptor.h"

// As it was given: what an operator cannot use, the operator refuses.
struct InfiniopTensorDescriptor {
  infiniDtype_t dtype;
  std::vector<std::int64_t> shape;    // a size beyond 63 bits reads as negative
  std::vector<std::int64_t> strides;  // empty: contiguous
};

namespace backops::infini {

// Throws Error, naming `argument`, for what no operator takes.
Operand operand_of(const InfiniopTensorDescriptor& descriptor, const char* argument);
// The same of a tensor that may be missing.
std::optional<Operand> operand_of(const InfiniopTensorDescriptor* descriptor, const char* argument);

}  // namespace backops::infini
