// Vectors of the compiler's own, of 16 bytes, which any CPU with vectors has, and conversions
// of them that agree with those of single elements (scalar.h) bit for bit. All cases of a
// conversion are computed and one is chosen, so that nothing branches.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/dtype.h"

namespace backops {
namespace {

constexpr int kPieceBytes = 16;

template <class T>
struct Pieces;

template <>
struct Pieces<float> {
  static constexpr int width = kPieceBytes / 4;
  typedef float Piece __attribute__((vector_size(kPieceBytes)));
  typedef std::int32_t Integers __attribute__((vector_size(kPieceBytes)));
  typedef std::uint16_t Halves __attribute__((vector_size(kPieceBytes / 2)));
};

template <>
struct Pieces<double> {
  static constexpr int width = kPieceBytes / 8;
  typedef double Piece __attribute__((vector_size(kPieceBytes)));
  typedef std::int64_t Integers __attribute__((vector_size(kPieceBytes)));
};

using FloatPiece = Pieces<float>::Piece;
using IntegerPiece = Pieces<float>::Integers;
using HalfPiece = Pieces<float>::Halves;

template <class Piece>
inline Piece load_piece(const void* from) {
  Piece piece;
  std::memcpy(&piece, from, sizeof piece);
  return piece;
}

// Those of `a` where `condition` has all bits, those of `b` where it has none.
inline IntegerPiece choose(IntegerPiece condition, IntegerPiece a, IntegerPiece b) {
  return (condition & a) | (~condition & b);
}

inline FloatPiece widen_piece(const float* from) { return load_piece<FloatPiece>(from); }
inline Pieces<double>::Piece widen_piece(const double* from) {
  return load_piece<Pieces<double>::Piece>(from);
}

inline FloatPiece widen_piece(const BFloat16* from) {
  const auto words = __builtin_convertvector(load_piece<HalfPiece>(from), IntegerPiece);
  return reinterpret_cast<FloatPiece>(words << 16);
}

inline FloatPiece widen_piece(const Float16* from) {
  const auto words = __builtin_convertvector(load_piece<HalfPiece>(from), IntegerPiece);
  const IntegerPiece sign = (words & 0x8000) << 16, magnitude = words & 0x7fff;
  const IntegerPiece quiet = (magnitude > 0x7c00) & 0x00400000;
  const IntegerPiece special = (magnitude & 0x3ff) << 13 | 0x7f800000 | quiet;
  const FloatPiece small = __builtin_convertvector(magnitude, FloatPiece) * 5.9604644775390625e-8f;
  const IntegerPiece normal = (magnitude << 13) + 0x38000000;
  const IntegerPiece finite =
      choose(magnitude < 0x0400, reinterpret_cast<IntegerPiece>(small), normal);
  return reinterpret_cast<FloatPiece>(sign | choose(magnitude >= 0x7c00, special, finite));
}

inline void narrow_piece(FloatPiece value, float* to) { std::memcpy(to, &value, sizeof value); }
inline void narrow_piece(Pieces<double>::Piece value, double* to) {
  std::memcpy(to, &value, sizeof value);
}

// For sums that may wrap where they are not chosen.
typedef std::uint32_t Unsigned __attribute__((vector_size(kPieceBytes)));

inline void store_words(IntegerPiece words, void* to) {
  const auto halves = __builtin_convertvector(words, HalfPiece);
  std::memcpy(to, &halves, sizeof halves);
}

inline void narrow_piece(FloatPiece value, BFloat16* to) {
  const IntegerPiece bits = reinterpret_cast<IntegerPiece>(value);
  const IntegerPiece is_nan = (bits & 0x7fffffff) > 0x7f800000;
  const IntegerPiece even = bits >> 16 & 1;
  // unsigned, for the sum may carry into the sign of a NaN, which is not chosen then
  const Unsigned sum = reinterpret_cast<Unsigned>(bits) + reinterpret_cast<Unsigned>(even) + 0x7fff;
  store_words(choose(is_nan, bits >> 16 | 0x40, reinterpret_cast<IntegerPiece>(sum >> 16)), to);
}

inline void narrow_piece(FloatPiece value, Float16* to) {
  const IntegerPiece bits = reinterpret_cast<IntegerPiece>(value);
  const IntegerPiece sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  const IntegerPiece nan = 0x7e00 | (magnitude >> 13 & 0x3ff);
  const IntegerPiece infinite =
      (magnitude >= 0x477ff000) & 0x7c00;  // rounds to 2^16 or is infinity
  const Unsigned above = reinterpret_cast<Unsigned>(magnitude) - 0x38000000u;
  const Unsigned odd = reinterpret_cast<Unsigned>(magnitude) >> 13 & 1u;
  const auto normal = reinterpret_cast<IntegerPiece>((above + 0xfffu + odd) >> 13);
  // adding 0.5 leaves the subnormal, rounded to even, in the lowest bits
  const FloatPiece shifted = reinterpret_cast<FloatPiece>(magnitude) + 0.5f;
  const auto small =
      reinterpret_cast<IntegerPiece>(reinterpret_cast<Unsigned>(shifted) - 0x3f000000u);
  const IntegerPiece finite =
      choose(magnitude >= 0x477ff000, infinite, choose(magnitude >= 0x38800000, normal, small));
  store_words(sign | choose(magnitude > 0x7f800000, nan, finite), to);
}

// All bits in the lanes that `bits` has, none in the others.
template <class T>
inline typename Pieces<T>::Integers chosen_lanes(std::uint32_t bits) {
  using Integers = typename Pieces<T>::Integers;
  Integers bit;
  if constexpr (Pieces<T>::width == 2) {
    bit = Integers{1, 2};
  } else if constexpr (Pieces<T>::width == 4) {
    bit = Integers{1, 2, 4, 8};
  } else {
    bit = Integers{1, 2, 4, 8, 16, 32, 64, 128};
  }
  return (bit & static_cast<std::int32_t>(bits)) == bit;
}

template <class T>
inline typename Pieces<T>::Piece filled_piece(T value) {
  using Piece = typename Pieces<T>::Piece;
  if constexpr (Pieces<T>::width == 2) {
    return Piece{value, value};
  } else if constexpr (Pieces<T>::width == 4) {
    return Piece{value, value, value, value};
  } else {
    return Piece{value, value, value, value, value, value, value, value};
  }
}

template <class T>
inline typename Pieces<T>::Piece gathered_piece(const T* from, const std::int32_t* at) {
  using Piece = typename Pieces<T>::Piece;
  if constexpr (Pieces<T>::width == 2) {
    return Piece{from[at[0]], from[at[1]]};
  } else if constexpr (Pieces<T>::width == 4) {
    return Piece{from[at[0]], from[at[1]], from[at[2]], from[at[3]]};
  } else {
    return Piece{from[at[0]], from[at[1]], from[at[2]], from[at[3]],
                 from[at[4]], from[at[5]], from[at[6]], from[at[7]]};
  }
}

// Half a piece of each, from lane `first` on, lane by lane in turn.
template <int first, class Piece>
inline Piece pieces_in_turn(const Piece& a, const Piece& b) {
  constexpr int width = sizeof(Piece) / sizeof(a[0]);
  if constexpr (width == 2) {
    return Piece{a[first], b[first]};
  } else if constexpr (width == 4) {
    return Piece{a[first], b[first], a[first + 1], b[first + 1]};
  } else {
    return Piece{a[first],     b[first],     a[first + 1], b[first + 1],
                 a[first + 2], b[first + 2], a[first + 3], b[first + 3]};
  }
}

}  // namespace
}  // namespace backops
