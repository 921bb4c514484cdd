// Matrix products of blocked tensors, whose innermost axis is a vector of channels: numbers of one
// side times vectors of the other, summed in registers.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/conv/conv.h"
#include "kernels/vectors/loops.h"

namespace backops {
namespace {

// Of two vectors each: a register for each sum, for each vector on the right and for the number on
// the left.
template <class V>
constexpr int kSumRows = kIsPortable<V> ? 4 : (V::registers - 3) / 2;

// Of one vector each: where registers are few, sums of as many rows would wait for each other.
template <class V>
constexpr int kSumRowsOfOne = V::registers > 16 || kIsPortable<V> ? kSumRows<V> : 2 * kSumRows<V>;

// Numbers on the left, one for all lanes: sums, or what a vector says that it takes instead.
template <class V, class = void>
struct LeftOf {
  using Number = typename V::Sum;
  BACKOPS_INLINE static V spread(const Number* number) { return V::fill(*number); }
};
template <class V>
struct LeftOf<V, std::void_t<typename V::Left>> {
  using Number = typename V::Left;
  BACKOPS_INLINE static V spread(const Number* number) { return V::spread(number); }
};
template <class V>
using LeftNumber = typename LeftOf<V>::Number;

// The distance of rows on the left: known to the compiler, or any.
template <int kPitch>
struct LeftPitch {
  static constexpr bool has_bias_numbers = kPitch == 1;
  BACKOPS_INLINE explicit LeftPitch(const BlockProducts&) {}
  template <class Number>
  BACKOPS_INLINE const Number* next(const Number* row) const {
    return row + kPitch;
  }
};
struct AnyLeftPitch {
  static constexpr bool has_bias_numbers = false;
  const std::int64_t pitch;
  BACKOPS_INLINE explicit AnyLeftPitch(const BlockProducts& a) : pitch(a.left_pitch) {}
  template <class Number>
  BACKOPS_INLINE const Number* next(const Number* row) const {
    return row + pitch;
  }
};

// One vector per row or two. Members rather than arrays: compilers keep these in registers through
// loops in loops.
template <class V, int kRows, int kVectors>
struct Sums {
  V first = V::fill(0), second = V::fill(0);
  Sums<V, kRows - 1, kVectors> rest;

  // To all rows but the last ones.
  template <int kLeftOut = 0, class Pitch>
  BACKOPS_INLINE void add_products(const Pitch& pitch, const LeftNumber<V>* numbers, const V& right,
                                   const V& right_second) {
    if constexpr (kRows > kLeftOut) {
      const V number = LeftOf<V>::spread(numbers);
      first = first.plus_product(number, right);
      if constexpr (kVectors == 2) second = second.plus_product(number, right_second);
      rest.template add_products<kLeftOut>(pitch, pitch.next(numbers), right, right_second);
    }
  }

  template <Without kWithout, class Pitch>
  BACKOPS_INLINE void add_some(const Pitch& pitch, const LeftNumber<V>* numbers, const V& right,
                               const V& right_second) {
    if constexpr (kWithout == Without::first) {
      rest.add_products(pitch, pitch.next(numbers), right, right_second);
    } else {
      constexpr int kLeftOut = kWithout == Without::last ? 1 : 0;
      add_products<kLeftOut>(pitch, numbers, right, right_second);
    }
  }

  // A bias of numbers has one for each row.
  template <bool kNumbers>
  BACKOPS_INLINE void add_bias(const typename V::Sum* bias) {
    first = first + (kNumbers ? V::fill(*bias) : V::load(bias));
    if constexpr (kVectors == 2) {
      second = second + (kNumbers ? V::fill(*bias) : V::load(bias + V::width));
    }
    rest.template add_bias<kNumbers>(kNumbers ? bias + 1 : bias);
  }

  template <class To>
  BACKOPS_INLINE void store(const BlockProducts& a, To* to) const {
    store_one(a, first, to);
    if constexpr (kVectors == 2) store_one(a, second, to + a.sum_pitch);
    rest.store(a, to + a.sum_step);
  }
  // Elements of tensors are not added to.
  template <class To>
  BACKOPS_INLINE static void store_one(const BlockProducts& a, const V& sums, To* to) {
    if constexpr (std::is_same_v<To, typename V::Sum>) {
      (a.adds ? V::load(to) + sums : sums).store(to);
    } else {
      sums.store(to);
    }
  }
};

template <class V, int kVectors>
struct Sums<V, 0, kVectors> {
  template <int kLeftOut = 0, class Pitch>
  BACKOPS_INLINE void add_products(const Pitch&, const LeftNumber<V>*, const V&, const V&) {}
  template <bool kNumbers>
  BACKOPS_INLINE void add_bias(const typename V::Sum*) {}
  template <class To>
  BACKOPS_INLINE void store(const BlockProducts&, To*) const {}
};

// Nothing, where there is only one half.
struct NoSums {
  template <Without, class Pitch, class Number, class V>
  BACKOPS_INLINE void add_some(const Pitch&, const Number*, const V&, const V&) {}
  template <class Number>
  BACKOPS_INLINE void store(const BlockProducts&, Number*) const {}
};

// Where the first and the last of some rows lie among all.
struct RowEnds {
  bool has_first, has_last;
};

template <Without kWithout>
using IsWithout = std::integral_constant<Without, kWithout>;

// Rows on the left a vector apart are positions, some of which lie beyond a border. Whether runs
// may leave them out: no code for that where it would save little.
template <class V, class Pitch, int kRows>
constexpr bool kMayLeaveOut =
    std::is_same_v<Pitch, LeftPitch<V::width>> && kRows >= 4 && !kIsPortable<V>;

template <bool kLeavesOut, class Body>
BACKOPS_INLINE void for_run(const BlockRun& run, const RowEnds& ends, const Body& body) {
  if constexpr (kLeavesOut) {
    if (ends.has_first && run.without == Without::first) return body(IsWithout<Without::first>{});
    if (ends.has_last && run.without == Without::last) return body(IsWithout<Without::last>{});
  }
  body(IsWithout<Without::nothing>{});
}

template <class V, class Pitch, int kRows, int kVectors, class Twins, class To>
void multiply_some(const BlockProducts& args, const RowEnds& ends, const LeftNumber<V>* left,
                   To* to, const typename V::Sum* bias) {
  const BlockProducts a = copied(args);
  const Pitch pitch(args);
  Sums<V, kRows, kVectors> sums;
  Twins twins;
  const BlockRun* const full_end = a.runs + a.run_count;
  for (const BlockRun *run = a.runs, *end = full_end + a.short_runs; run != end; ++run) {
    for_run<kMayLeaveOut<V, Pitch, kRows>>(*run, ends, [&](auto is_without) {
      constexpr Without kWithout = decltype(is_without)::value;
      const auto* numbers = left + run->left;
      const auto* right = static_cast<const typename V::Sum*>(a.right) + run->right;
      for (std::int64_t k = run < full_end ? a.run_length : a.short_length; k > 0; --k) {
        const V first = V::load(right);
        const V second = kVectors == 2 ? V::load(right + a.right_pitch) : first;
        sums.template add_some<kWithout>(pitch, numbers, first, second);
        twins.template add_some<kWithout>(pitch, numbers + a.left_twin, first, second);
        numbers += a.left_step;
        right += a.right_step;
      }
    });
  }
  if (bias != nullptr) sums.template add_bias<Pitch::has_bias_numbers>(bias);
  sums.store(a, to);
  twins.store(a, to + a.sum_twin);
}

template <class V, class Pitch, int kRows, int kVectors, bool kTwins, class To>
void multiply_up_to(const BlockProducts& a, const RowEnds& ends, std::int64_t rows,
                    const LeftNumber<V>* left, To* to, const typename V::Sum* bias) {
  using Twins = std::conditional_t<kTwins, Sums<V, kRows, kVectors>, NoSums>;
  if (rows == kRows) {
    multiply_some<V, Pitch, kRows, kVectors, Twins>(a, ends, left, to, bias);
  } else if constexpr (kRows > 1) {
    multiply_up_to<V, Pitch, kRows - 1, kVectors, kTwins>(a, ends, rows, left, to, bias);
  }
}

template <class V, class Pitch, int kMostRows, int kVectors, bool kTwins, class To>
void multiply_vectors(const BlockProducts& args) {
  const BlockProducts a = copied(args);
  const Pitch pitch(args);
  const auto* const left = static_cast<const LeftNumber<V>*>(a.left);
  auto* const to = static_cast<To*>(a.sums);
  const auto* const bias = static_cast<const typename V::Sum*>(a.bias);
  const std::int64_t left_pitch = pitch.next(left) - left;
  for_even_parts(a.rows, kMostRows, [&](std::int64_t first, std::int64_t rows) {
    const std::int64_t own = Pitch::has_bias_numbers ? first : 0;
    const RowEnds ends{a.leaves_out && first == 0, a.leaves_out && first + rows == a.rows};
    multiply_up_to<V, Pitch, kMostRows, kVectors, kTwins>(a, ends, rows, left + first * left_pitch,
                                                          to + first * a.sum_step,
                                                          bias == nullptr ? nullptr : bias + own);
  });
}

// At most so many rows at once, of one vector or of two.
template <class V, class Pitch, int kOfOne, int kOfTwo, bool kTwins, class To = typename V::Sum>
void multiply_rows(const BlockProducts& a) {
  if (a.vectors == 1) {
    multiply_vectors<V, Pitch, kOfOne, 1, kTwins, To>(a);
  } else {
    multiply_vectors<V, Pitch, kOfTwo, 2, kTwins, To>(a);
  }
}

template <class V>
void multiply_positions(const BlockProducts& a) {
  multiply_rows<V, LeftPitch<V::width>, kSumRowsOfOne<V>, kSumRows<V>, false>(a);
}

template <class V>
void multiply_twins(const BlockProducts& a) {
  multiply_rows<V, LeftPitch<V::width>, kSumRows<V> / 2, kSumRows<V> / 2, true>(a);
}

template <class V>
void multiply_apart(const BlockProducts& a) {
  multiply_rows<V, AnyLeftPitch, kSumRowsOfOne<V>, kSumRows<V>, false>(a);
}

// Rows are the channels of a block, a power of two, or of both blocks of a pair.
template <class V>
void multiply_channels(const BlockProducts& a) {
  constexpr int kOfOne = kSumRowsOfOne<V> < 8 ? 4 : 8, kOfTwo = kSumRows<V> < 8 ? kSumRows<V> : 8;
  multiply_rows<V, LeftPitch<1>, kOfOne, kOfTwo, false>(a);
}

}  // namespace
}  // namespace backops
