// The kernels of pairs in plain loops, with what the instruction does to subnormal numbers. For
// builds with sanitizers and for CPUs without the instruction, so that the engines around them are
// tested; too slow for anything else.
#include <cmath>
#include <limits>

#include "kernels/pairs/body.h"

namespace backops {
namespace {

float without_subnormals(float number) {
  const bool is_subnormal = std::fabs(number) < std::numeric_limits<float>::min();
  return is_subnormal ? std::copysign(0.0f, number) : number;
}

// An array of sums; or of pairs, whose bits those of a sum are.
template <int kWidth>
struct PlainVector {
  using Sum = float;
  static constexpr int width = kWidth;
  static constexpr int registers = 32;
  float value[kWidth];

  template <class Lane>
  static PlainVector of(const Lane& lane) {
    PlainVector result;
    for (int i = 0; i < kWidth; ++i) result.value[i] = lane(i);
    return result;
  }
  static PlainVector fill(float x) {
    return of([x](int) { return x; });
  }
  template <class E>
  static PlainVector load(const E* from) {
    return load_some(from, kWidth);
  }
  template <class E>
  static PlainVector load_some(const E* from, int count) {
    return of([&](int i) { return i < count ? widen(load_unaligned<E>(from + i)) : 0.0f; });
  }
  void store(float* to) const { store_some(to, kWidth); }
  void store_some(float* to, int count) const {
    std::memcpy(to, value, static_cast<std::size_t>(count) * sizeof(float));
  }
  static PlainVector low(const PlainVector& a, const PlainVector& b) {
    return of([&](int i) { return (i % 2 == 0 ? a : b).value[i / 2]; });
  }
  static PlainVector high(const PlainVector& a, const PlainVector& b) {
    return of([&](int i) { return (i % 2 == 0 ? a : b).value[kWidth / 2 + i / 2]; });
  }
  PlainVector operator+(const PlainVector& other) const {
    return of([&](int i) { return value[i] + other.value[i]; });
  }
};

template <int kWidth, class Left_>
struct PlainPairs {
  using Sum = float;
  using Left = Left_;
  static constexpr int width = kWidth;
  static constexpr int registers = 32;
  PlainVector<kWidth> lanes;

  static PlainPairs fill(float x) { return {PlainVector<kWidth>::fill(x)}; }
  static PlainPairs spread(const Left* pair) { return fill(load_unaligned<float>(pair)); }
  static PlainPairs load(const float* from) { return {PlainVector<kWidth>::load(from)}; }
  void store(float* to) const { lanes.store(to); }
  void store(BFloat16* to) const {
    for (int i = 0; i < kWidth; ++i) narrow(lanes.value[i], to + i);
  }
  PlainPairs operator+(const PlainPairs& other) const { return {lanes + other.lanes}; }
  PlainPairs plus_product(const PlainPairs& a, const PlainPairs& b) const {
    const auto number = [](float pair, int shift) {
      return without_subnormals(float_from_bits(bits_of(pair) >> shift << 16));
    };
    return {PlainVector<kWidth>::of([&](int i) {
      const float x = a.lanes.value[i], y = b.lanes.value[i];
      const float odd = without_subnormals(number(x, 16) * number(y, 16) + lanes.value[i]);
      return without_subnormals(number(x, 0) * number(y, 0) + odd);
    })};
  }
};

void watch_numbers(const WatchNumbers& a) {
  for (std::int64_t i = 0; i < a.count; ++i) {
    const auto bits = load_unaligned<std::uint16_t>(static_cast<const char*>(a.numbers) + 2 * i);
    const auto magnitude = static_cast<std::uint16_t>(bits & 0x7fff);
    const auto less_one = static_cast<std::uint16_t>(magnitude - 1);
    if (less_one < a.found->least[0]) a.found->least[0] = less_one;
    if (magnitude > a.found->most[0]) a.found->most[0] = magnitude;
  }
}

template <int kWidth>
struct PairOps<PlainVector<kWidth>> {
  using V = PlainVector<kWidth>;
  static V pair(const V& even, const V& odd) {
    return V::of([&](int i) {
      return float_from_bits(bits_of(even.value[i]) >> 16 | bits_of(odd.value[i]));
    });
  }
  static V join(const V& low, bool low_is_upper, const V& high, bool high_is_upper) {
    const auto number = [](float word, bool is_upper) {
      return bits_of(word) >> (is_upper ? 16 : 0) & 0xffff;
    };
    return V::of([&](int i) {
      return float_from_bits(number(low.value[i], low_is_upper) |
                             number(high.value[i], high_is_upper) << 16);
    });
  }
  static void copy(const char* from, float* to, int count) {
    std::uint16_t numbers[2 * kWidth] = {};
    std::memcpy(numbers, from, static_cast<std::size_t>(count) * sizeof(BFloat16));
    std::memcpy(to, numbers, static_cast<std::size_t>((count + 1) / 2) * sizeof(float));
  }
  static constexpr auto watch = watch_numbers;
};

template <class Left>
using FullPairs = PlainPairs<16, Left>;
template <class Left>
using HalfPairs = PlainPairs<8, Left>;

}  // namespace

extern const PairKernels pairs_generic_full, pairs_generic_half;
const PairKernels pairs_generic_full = make_pair_kernels<PlainVector<16>, FullPairs>(
    "pairs_generic_full", Isa::generic, VectorSize::full);
const PairKernels pairs_generic_half = make_pair_kernels<PlainVector<8>, HalfPairs>(
    "pairs_generic_half", Isa::generic, VectorSize::half);

}  // namespace backops
