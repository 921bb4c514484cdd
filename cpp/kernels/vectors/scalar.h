// Conversions of single elements, exact on every CPU; the vector files must agree with these bit
// for bit. Internal linkage, because each instruction set compiles its own copy.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/dtype.h"

namespace backops {
namespace {

inline float float_from_bits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float widen(float value) { return value; }
inline double widen(double value) { return value; }
inline float widen(BFloat16 value) {
  return float_from_bits(static_cast<std::uint32_t>(value.bits) << 16);
}

inline float widen(Float16 value) {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000u) << 16;
  const std::uint32_t magnitude = value.bits & 0x7fffu;
  if (magnitude >= 0x7c00u) {  // infinity, or a NaN made quiet as the hardware does
    const std::uint32_t quiet = magnitude > 0x7c00u ? 0x00400000u : 0u;
    return float_from_bits(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13 | quiet);
  }
  if (magnitude < 0x0400u) {  // zero and subnormal: magnitude * 2^-24
    const float small = static_cast<float>(magnitude) * 5.9604644775390625e-8f;
    return float_from_bits(sign | bits_of(small));
  }
  return float_from_bits(sign | ((magnitude << 13) + 0x38000000u));
}

inline void narrow(float value, float* result) { *result = value; }
inline void narrow(double value, double* result) { *result = value; }

inline void narrow(float value, BFloat16* result) {
  const std::uint32_t bits = bits_of(value);
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const std::uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  const std::uint32_t quiet_nan = bits >> 16 | 0x40u;
  result->bits = static_cast<std::uint16_t>(is_nan ? quiet_nan : rounded);
}

inline void narrow(float value, Float16* result) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  std::uint32_t half;
  if (magnitude > 0x7f800000u) {  // NaN
    half = 0x7e00u | (magnitude >> 13 & 0x3ffu);
  } else if (magnitude >= 0x477ff000u) {  // rounds to 2^16 or is infinity
    half = 0x7c00u;
  } else if (magnitude >= 0x38800000u) {  // normal
    half = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  } else {  // adding 0.5 leaves the subnormal, rounded to even, in the lowest bits
    half = bits_of(float_from_bits(magnitude) + 0.5f) - bits_of(0.5f);
  }
  result->bits = static_cast<std::uint16_t>(sign | half);
}

template <class T>
inline T load_unaligned(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

}  // namespace
}  // namespace backops
