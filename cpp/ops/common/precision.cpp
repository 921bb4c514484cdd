#include "ops/common/precision.h"

#include <cstring>
#include <string>

#include "base/error.h"
#include "kernels/convert/convert.h"

namespace backops {

Rounding rounding_of(Precision precision, DType dtype) {
  if (precision == Precision::keep) return Rounding::none;
  if (dtype == DType::float32) {
    return precision == Precision::fp16 ? Rounding::float16 : Rounding::hf32_11;
  }
  // float16 computes as float16 under "fp16" already; "allow" forces nothing on anybody.
  const bool no_effect = precision == Precision::allow_fp32_down ||
                         (precision == Precision::fp16 && dtype == DType::float16);
  if (no_effect) return Rounding::none;
  const std::string expected =
      dtype == DType::float16 ? "keep, allow_fp32_down or fp16" : "keep or allow_fp32_down";
  throw Error(ErrorKind::param, "{precision}", "'" + std::string(name_of(precision)) + "'",
              "expected " + expected + " for " + name_of(dtype));
}

void round_to_hf32(float* values, std::int64_t count, int mantissa_bits) {
  const std::uint32_t unit = 1u << (23 - mantissa_bits);
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint32_t bits;
    std::memcpy(&bits, values + i, sizeof bits);
    const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
    const std::uint32_t rounded = (bits + unit / 2) & ~(unit - 1);
    bits = finite ? rounded : bits;
    std::memcpy(values + i, &bits, sizeof bits);
  }
}

void round_operands(float* values, std::int64_t count, Rounding rounding,
                    const ConvertKernels& kernels) {
  switch (rounding) {
    case Rounding::none: return;
    case Rounding::float16: return kernels.round_to_float16(values, count);
    case Rounding::hf32_11: return round_to_hf32(values, count, 11);
    case Rounding::hf32_10: return round_to_hf32(values, count, 10);
  }
}

}  // namespace backops
