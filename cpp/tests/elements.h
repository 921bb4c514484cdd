// What the tests know about element types: their own road from numbers to bits and back, by scaling
// in double, which shares nothing with the core's conversions.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>

#include "base/dtype.h"

namespace backops {
namespace test {

constexpr DType kDTypes[] = {DType::float16, DType::bfloat16, DType::float32, DType::float64};

inline std::int64_t bytes_of(DType dtype) { return static_cast<std::int64_t>(size_of(dtype)); }

struct Format {
  int precision;       // bits of the significand, the hidden one included
  int least_exponent;  // of the smallest positive number
  double largest;
};

inline Format format_of(DType dtype) {
  switch (dtype) {
    case DType::float16: return {11, -24, 65504.0};
    case DType::bfloat16: return {8, -133, std::ldexp(255.0, 120)};
    case DType::float32: return {24, -149, std::numeric_limits<float>::max()};
    default: return {53, -1074, std::numeric_limits<double>::max()};
  }
}

inline DType sum_dtype(DType dtype) {
  return dtype == DType::float64 ? DType::float64 : DType::float32;
}

// Distance of neighbouring numbers of the format around `value`.
inline double unit_around(double value, const Format& format) {
  int exponent = 0;
  std::frexp(value, &exponent);
  const bool tiny = value == 0 || exponent - format.precision < format.least_exponent;
  return std::ldexp(1.0, tiny ? format.least_exponent : exponent - format.precision);
}

// To nearest, ties to even.
inline double rounded_to(DType dtype, double value) {
  if (dtype == DType::float64 || !std::isfinite(value)) return value;
  const Format format = format_of(dtype);
  const double unit = unit_around(value, format);
  const double result = std::nearbyint(value / unit) * unit;
  if (std::fabs(result) <= format.largest) return std::copysign(result, value);
  return std::copysign(std::numeric_limits<double>::infinity(), value);
}

// The 16 bits of a number that the format holds exactly, and that is no NaN.
inline std::uint16_t half_bits(double value, const Format& format) {
  const std::uint32_t sign = std::signbit(value) ? 0x8000u : 0u;
  const int fraction_bits = format.precision - 1;
  if (std::isinf(value)) {
    return static_cast<std::uint16_t>(sign | (0x7fffu >> fraction_bits << fraction_bits));
  }
  const double unit = unit_around(value, format);
  const auto significand = static_cast<std::uint32_t>(std::fabs(value) / unit);
  // A significand with its hidden bit adds one to the exponent, a subnormal has none.
  const auto exponent = static_cast<std::uint32_t>(std::ilogb(unit) - format.least_exponent);
  return static_cast<std::uint16_t>(sign | ((exponent << fraction_bits) + significand));
}

inline double half_value(std::uint16_t bits, const Format& format) {
  const int fraction_bits = format.precision - 1;
  const int exponent = (bits & 0x7fff) >> fraction_bits;
  const int fraction = bits & ((1 << fraction_bits) - 1);
  double magnitude;
  if (exponent == 0x7fff >> fraction_bits) {
    magnitude = fraction == 0 ? std::numeric_limits<double>::infinity()
                              : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(fraction, format.least_exponent);
  } else {
    magnitude = std::ldexp(fraction + (1 << fraction_bits), exponent - 1 + format.least_exponent);
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

template <class T>
T read_as(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

inline double read_element(DType dtype, const void* from) {
  switch (dtype) {
    case DType::float64: return read_as<double>(from);
    case DType::float32: return static_cast<double>(read_as<float>(from));
    default: return half_value(read_as<std::uint16_t>(from), format_of(dtype));
  }
}

// Rounds to the element type first.
inline void write_element(DType dtype, double value, void* to) {
  if (dtype == DType::float64) {
    std::memcpy(to, &value, sizeof value);
  } else if (dtype == DType::float32) {
    const float single = static_cast<float>(value);
    std::memcpy(to, &single, sizeof single);
  } else {
    const std::uint16_t quiet_nan = dtype == DType::float16 ? 0x7e00 : 0x7fc0;
    const std::uint16_t bits =
        std::isnan(value) ? quiet_nan : half_bits(rounded_to(dtype, value), format_of(dtype));
    std::memcpy(to, &bits, sizeof bits);
  }
}

// How far a sum of `terms` products, taken in the sum type and rounded to `dtype` at the end, may
// lie from the exact one. `magnitude` is the sum of the products' absolute values.
inline double sum_tolerance(DType dtype, std::int64_t terms, double magnitude) {
  const double sum_epsilon = std::ldexp(1.0, -format_of(sum_dtype(dtype)).precision);
  // Each product has up to four rounded factors (two weights, a column weight, a scale).
  const double sum_error = static_cast<double>(terms + 5) * sum_epsilon * magnitude;
  return 1.01 * sum_error + unit_around(magnitude, format_of(dtype)) / 2;
}

// Whether two numbers agree within the tolerance; NaN and infinity must be the same.
inline bool is_close(double got, double expected, double tolerance) {
  if (std::isnan(expected)) return std::isnan(got);
  if (std::isinf(expected) || !std::isfinite(got)) return got == expected;
  return std::fabs(got - expected) <= tolerance;
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::uint64_t bits() { return engine_(); }
  std::int64_t integer(std::int64_t low, std::int64_t high) {  // both included
    return low + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool chance(double probability) { return real() < 2 * probability - 1; }
  double real() { return std::ldexp(static_cast<double>(engine_() >> 11), -52) - 1.0; }  // -1 to 1

 private:
  std::mt19937_64 engine_;
};

}  // namespace test
}  // namespace backops
