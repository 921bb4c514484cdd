// What "precision" means to the operators (CANN calls it cubeMathType).
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/export.h"

namespace backops {

struct ConvertKernels;

enum class Precision : std::uint8_t { keep, allow_fp32_down, fp16, hf32 };

// How float32 operands are rounded before use. HF32 keeps 11 mantissa bits on Atlas A2 and A3, 10
// on Ascend 950.
enum class Rounding : std::uint8_t { none, float16, hf32_11, hf32_10 };

// The rounding of operands, as one product does it in pooling, an Atlas A2. Throws Error where the
// dtype refuses the precision.
BACKOPS_API Rounding rounding_of(Precision precision, DType dtype);

constexpr const char* name_of(Precision precision) {
  switch (precision) {
    case Precision::keep: return "keep";
    case Precision::allow_fp32_down: return "allow_fp32_down";
    case Precision::fp16: return "fp16";
    default: return "hf32";
  }
}

// To nearest with ties away from zero, keeping `mantissa_bits`; infinity and NaN stay.
void round_to_hf32(float* values, std::int64_t count, int mantissa_bits);

void round_operands(float* values, std::int64_t count, Rounding rounding,
                    const ConvertKernels& kernels);

}  // namespace backops
