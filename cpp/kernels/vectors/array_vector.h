// A vector of eight sums as a few pieces of what the compiler's own vectors are: the portable model
// of what a vector type offers to the passes. Pieces instead of an array of eight, because loops
// over single lanes took a minute to compile.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/vectors/loops.h"
#include "kernels/vectors/pieces.h"
#include "kernels/vectors/scalar.h"

namespace backops {
namespace {

template <class T>
struct ArrayVector {
  using Sum = T;
  using Piece = typename Pieces<T>::Piece;
  using Integers = typename Pieces<T>::Integers;
  static constexpr int width = 8;
  static constexpr int registers = 16;
  static constexpr int own = Pieces<T>::width;  // of a piece
  static constexpr int pieces = width / own;
  static_assert(pieces >= 2, "halves of a vector are pieces");
  Piece piece[pieces];

  BACKOPS_INLINE static ArrayVector fill(T value) {
    ArrayVector result;
    for (Piece& each : result.piece) each = filled_piece(value);
    return result;
  }

  template <class E>
  static ArrayVector load(const E* from) {
    ArrayVector result;
    for (int i = 0; i < pieces; ++i) result.piece[i] = widen_piece(from + i * own);
    return result;
  }

  // The first `count` elements; the other lanes are 0.
  template <class E>
  static ArrayVector load_some(const E* from, int count) {
    E elements[width] = {};
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
    for (int i = 0; i < pieces; ++i) narrow_piece(piece[i], to + i * own);
  }

  template <class E>
  void store_some(E* to, int count) const {
    E elements[width];
    store(elements);
    std::memcpy(to, elements, static_cast<std::size_t>(count) * sizeof(E));
  }

  BACKOPS_INLINE ArrayVector operator+(const ArrayVector& other) const {
    ArrayVector result;
    for (int i = 0; i < pieces; ++i) result.piece[i] = piece[i] + other.piece[i];
    return result;
  }

  BACKOPS_INLINE ArrayVector operator*(const ArrayVector& other) const {
    ArrayVector result;
    for (int i = 0; i < pieces; ++i) result.piece[i] = piece[i] * other.piece[i];
    return result;
  }

  // this + a * b; other vectors round it once
  BACKOPS_INLINE ArrayVector plus_product(const ArrayVector& a, const ArrayVector& b) const {
    return *this + a * b;
  }
  // The first, or the last, halves of a and b, lane by lane in turn.
  static ArrayVector low(const ArrayVector& a, const ArrayVector& b) { return in_turn(a, b, 0); }
  static ArrayVector high(const ArrayVector& a, const ArrayVector& b) {
    return in_turn(a, b, pieces / 2);
  }
  static ArrayVector in_turn(const ArrayVector& a, const ArrayVector& b, int first) {
    ArrayVector result;
    for (int i = 0; i < pieces; i += 2) {
      const Piece& x = a.piece[first + i / 2];
      const Piece& y = b.piece[first + i / 2];
      result.piece[i] = pieces_in_turn<0>(x, y);
      result.piece[i + 1] = pieces_in_turn<own / 2>(x, y);
    }
    return result;
  }

  // this + other in the lanes of `mask`, this in the others.
  struct Mask {
    Integers piece[pieces];
  };
  static Mask mask(std::uint32_t lanes_with_bits) {
    Mask result;
    for (int i = 0; i < pieces; ++i) result.piece[i] = chosen_lanes<T>(lanes_with_bits >> i * own);
    return result;
  }
  ArrayVector add_masked(const ArrayVector& other, const Mask& chosen) const {
    ArrayVector result;
    for (int i = 0; i < pieces; ++i) {
      const Integers sum = reinterpret_cast<Integers>(piece[i] + other.piece[i]);
      const Integers old = reinterpret_cast<Integers>(piece[i]);
      result.piece[i] = reinterpret_cast<Piece>((sum & chosen.piece[i]) | (old & ~chosen.piece[i]));
    }
    return result;
  }
  // 0 in the lanes that are not in `mask`.
  ArrayVector only(const Mask& chosen) const {
    ArrayVector result;
    for (int i = 0; i < pieces; ++i) {
      result.piece[i] =
          reinterpret_cast<Piece>(reinterpret_cast<Integers>(piece[i]) & chosen.piece[i]);
    }
    return result;
  }

  using Pattern = const std::int32_t*;
  static Pattern load_pattern(const std::int32_t* pattern) { return pattern; }

  // Lane i is from[pattern[i]]. Other vectors have faster ways for patterns that reach no further
  // than one or two vectors.
  static constexpr bool only_gathers = true;
  static ArrayVector gather(const T* from, Pattern pattern) {
    ArrayVector result;
    for (int i = 0; i < pieces; ++i) result.piece[i] = gathered_piece(from, pattern + i * own);
    return result;
  }
  ArrayVector permuted(Pattern pattern) const {
    T lanes[width];
    store(lanes);
    return gather(lanes, pattern);
  }
  static ArrayVector permute_one(const T* from, Pattern pattern) { return gather(from, pattern); }
  static ArrayVector permute_two(const T* from, Pattern pattern) { return gather(from, pattern); }

  static void stream(void* to, const void* from, std::size_t bytes) {
    std::memcpy(to, from, bytes);
  }
  static void stream_fence() {}

  static constexpr bool has_masked_stores = false;
};

template <class T>
constexpr bool kIsPortable<ArrayVector<T>> = true;

}  // namespace
}  // namespace backops
