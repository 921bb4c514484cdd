// A vector of sums as an array of eight: the portable model of what a vector type offers to the
// passes.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/vectors/scalar.h"

namespace backops {
namespace {

template <class T>
struct ArrayVector {
  using Sum = T;
  static constexpr int lanes = 8;
  static constexpr int registers = 16;
  T lane[lanes];

  static ArrayVector fill(T value) {
    ArrayVector result;
    for (int i = 0; i < lanes; ++i) result.lane[i] = value;
    return result;
  }

  template <class E>
  static ArrayVector load(const E* from) {
    E elements[lanes];
    std::memcpy(elements, from, sizeof elements);
    ArrayVector result;
    for (int i = 0; i < lanes; ++i) result.lane[i] = widen(elements[i]);
    return result;
  }

  // The first `count` elements; the other lanes are 0.
  template <class E>
  static ArrayVector load_some(const E* from, int count) {
    E elements[lanes] = {};
    std::memcpy(elements, from, static_cast<std::size_t>(count) * sizeof(E));
    return load(elements);
  }

  // Elements from `from + shift` on; see Place in spread.h.
  using Shift = std::int64_t;
  static Shift shift(std::int64_t elements) { return elements; }
  static ArrayVector load_shifted(const T* from, Shift shift) { return load(from + shift); }
  static constexpr bool shifts_in_registers = false;

  template <class E>
  void store(E* to) const {
    store_some(to, lanes);
  }

  template <class E>
  void store_some(E* to, int count) const {
    E elements[lanes];
    for (int i = 0; i < lanes; ++i) narrow(lane[i], &elements[i]);
    std::memcpy(to, elements, static_cast<std::size_t>(count) * sizeof(E));
  }

  ArrayVector operator+(const ArrayVector& other) const {
    ArrayVector result;
    for (int i = 0; i < lanes; ++i) result.lane[i] = lane[i] + other.lane[i];
    return result;
  }

  ArrayVector operator*(const ArrayVector& other) const {
    ArrayVector result;
    for (int i = 0; i < lanes; ++i) result.lane[i] = lane[i] * other.lane[i];
    return result;
  }

  // this + a * b; other vectors round it once
  ArrayVector plus_product(const ArrayVector& a, const ArrayVector& b) const {
    return *this + a * b;
  }
  // The first, or the last, halves of a and b, lane by lane in turn.
  static ArrayVector low(const ArrayVector& a, const ArrayVector& b) { return in_turn(a, b, 0); }
  static ArrayVector high(const ArrayVector& a, const ArrayVector& b) {
    return in_turn(a, b, lanes / 2);
  }
  static ArrayVector in_turn(const ArrayVector& a, const ArrayVector& b, int first) {
    ArrayVector result;
    for (int i = 0; i < lanes / 2; ++i) {
      result.lane[2 * i] = a.lane[first + i];
      result.lane[2 * i + 1] = b.lane[first + i];
    }
    return result;
  }

  // this + other in the lanes of `mask`, this in the others.
  using Mask = std::uint32_t;
  static Mask mask(std::uint32_t lanes_with_bits) { return lanes_with_bits; }
  ArrayVector add_masked(const ArrayVector& other, Mask chosen) const {
    ArrayVector result;
    for (int i = 0; i < lanes; ++i) {
      result.lane[i] = (chosen >> i & 1u) != 0 ? lane[i] + other.lane[i] : lane[i];
    }
    return result;
  }
  // 0 in the lanes that are not in `mask`.
  ArrayVector only(Mask chosen) const {
    ArrayVector result;
    for (int i = 0; i < lanes; ++i) result.lane[i] = (chosen >> i & 1u) != 0 ? lane[i] : T{0};
    return result;
  }

  using Pattern = const std::int32_t*;
  static Pattern load_pattern(const std::int32_t* pattern) { return pattern; }

  // Lane i is from[pattern[i]]. The three differ in how far a pattern may reach.
  static ArrayVector gather(const T* from, Pattern pattern) {
    ArrayVector result;
    for (int i = 0; i < lanes; ++i) result.lane[i] = from[pattern[i]];
    return result;
  }
  static ArrayVector permute_one(const T* from, Pattern pattern) { return gather(from, pattern); }
  static ArrayVector permute_two(const T* from, Pattern pattern) { return gather(from, pattern); }

  static void stream(void* to, const void* from, std::size_t bytes) {
    std::memcpy(to, from, bytes);
  }
  static void stream_fence() {}

  static constexpr bool has_masked_stores = false;
};

}  // namespace
}  // namespace backops
