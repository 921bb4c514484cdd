// Numbers where a rounding to 16 bits could go wrong.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/dtype.h"
#include "tests/elements.h"

namespace backops {
namespace test {

constexpr std::int64_t kPatterns = 65536;

inline float float_of_bits(std::uint64_t bits) {
  const auto low = static_cast<std::uint32_t>(bits);
  return read_as<float>(&low);
}

// Numbers where a rounding could go wrong: halfway between neighbours and next to it, around the
// ends of the normal and the subnormal range, NaNs, and any bits at all.
inline std::vector<float> awkward_floats(DType dtype) {
  std::vector<float> values;
  const Format format = format_of(dtype);
  const float infinity = std::numeric_limits<float>::infinity();
  for (std::int64_t i = 0; i < kPatterns; ++i) {
    const double value = half_value(static_cast<std::uint16_t>(i), format);
    if (!std::isfinite(value)) continue;
    const auto halfway = static_cast<float>(value + unit_around(value, format) / 2);
    for (const float near : {std::nextafterf(halfway, -infinity), halfway,
                             std::nextafterf(halfway, infinity), static_cast<float>(value)}) {
      values.push_back(near);
    }
  }
  for (const std::uint32_t nan : {0x7f800001u, 0x7fbfffffu, 0x7fc00000u, 0x7fffffffu, 0xff801fffu,
                                  0xffffe000u, 0x7f802000u, 0x7f810000u}) {
    values.push_back(float_of_bits(nan));
  }
  for (const float end : {infinity, -infinity, 65504.0f, 65519.996f, 65520.0f, -65520.0f, 1e30f}) {
    values.push_back(end);
  }
  Random random(31);
  for (int i = 0; i < 300000; ++i) values.push_back(float_of_bits(random.bits()));
  while (values.size() % 1024 != 0) values.push_back(0.0f);
  if (dtype == DType::bfloat16) {
    // The only NaNs that sums of bfloat16 can be: quiet, their low half zero.
    for (float& value : values) {
      if (std::isnan(value))
        value = float_of_bits(
            (read_as<std::uint32_t>(reinterpret_cast<const char*>(&value)) | 0x400000u) & ~0xffffu);
    }
  }
  return values;
}

}  // namespace test
}  // namespace backops
