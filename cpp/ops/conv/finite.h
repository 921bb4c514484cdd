#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace backops {

// Whether no exponent has all bits set, which adding one to it would carry on.
template <class Sum>
bool all_finite(const Sum* values, std::int64_t count) {
  using Bits = std::conditional_t<sizeof(Sum) == 8, std::uint64_t, std::uint32_t>;
  constexpr int kMantissaBits = std::numeric_limits<Sum>::digits - 1;
  constexpr Bits kSign = Bits{1} << (8 * sizeof(Sum) - 1);
  constexpr Bits kExponent = kSign - (Bits{1} << kMantissaBits);
  Bits carried = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, values + i, sizeof bits);
    carried |= (bits & kExponent) + (Bits{1} << kMantissaBits);
  }
  return (carried & kSign) == 0;
}

// The same of the first `lanes` of each vector of `width`; the others may hold anything.
template <class Sum>
bool all_finite(const Sum* values, std::int64_t vectors, std::int64_t width, std::int64_t lanes) {
  if (lanes == width) return all_finite(values, vectors * width);
  for (std::int64_t v = 0; v < vectors; ++v) {
    if (!all_finite(values + v * width, lanes)) return false;
  }
  return true;
}

}  // namespace backops
