// Sums over the taps of a kernel, some positions at a time. Every lane is a channel of its own, so
// these are the input products of depthwise convolutions, and of grouped ones.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/conv/conv.h"
#include "kernels/vectors/loops.h"

namespace backops {
namespace {

// Sums kept in registers: enough to hide the latency of a multiplication, and no more than fit.
template <class V>
constexpr int kGatherSums = kIsPortable<V> ? 2 : 8;

// Whether lanes may be channels of groups: code for vectors of half the width, or portable ones,
// would be larger by half and hardly run.
template <class V>
constexpr bool kHasGroups = !kIsPortable<V> && !kIsHalf<V>;

// Each number of positions has code of its own, so there are few numbers: rows are eight at a time,
// or seven where these leave nothing over, and the last ones of a row are summed with some of those
// before them once more, to the same bits.
template <int kCount>
struct Count {
  static constexpr int value = kCount;
};

template <class V, class Body>
BACKOPS_INLINE void with_count(std::int64_t count, const Body& body) {
  if constexpr (kGatherSums<V> >= 8) {
    if (count == 8) return body(Count<8>{});
    if (count == 7) return body(Count<7>{});
    if (count == 4) return body(Count<4>{});
  }
  if (count == 2) return body(Count<2>{});
  body(Count<1>{});
}

// Calls body(first, count) for positions that may be worked on twice.
template <class V, class Body>
BACKOPS_INLINE void for_counts(std::int64_t total, const Body& body) {
  const std::int64_t most = total % 7 == 0 && total % 8 != 0 ? 7 : 8;
  for (std::int64_t first = 0; first < total;) {
    const std::int64_t left = total - first;
    std::int64_t count = total > 1 ? 2 : 1;
    if constexpr (kGatherSums<V> >= 8) {
      if (total >= 4) count = 4;
      if (total >= most && left > 4) count = most;
    }
    body(count <= left ? first : total - count, count);
    first += count;
  }
}

// Taps of neighbours along a row read the same vectors: each is loaded once for all of them. Their
// weights are kept in registers, too. Kernels are odd, and have two taps for each residue under a
// stride of 2: other even numbers are an odd one and one more, which halves the code.
template <class V>
constexpr int kMostNeighbours = V::registers / kBlocks<V> >= 32 ? 7 : 5;
// Elements that are converted in pieces leave no registers for that. Few vectors have lanes that
// are not there: no code for them where masks are slow.
template <class V, class Tap, class Kind>
constexpr int neighbours_for() {
  const bool are_few = std::is_same_v<Kind, Part> && !V::has_masked_stores;
  const bool are_pieces = std::is_same_v<Tap, ElementTap> && kIsPortable<V>;
  return are_few || are_pieces ? 1 : kMostNeighbours<V>;
}

// Recursive where a loop would do: compilers then keep the sums in registers.
template <class V, int kLast, int kTap, int kTaps, int kCount>
BACKOPS_INLINE void add_value(const V& value, const V (&weights)[kTaps], V (&sums)[kCount]) {
  if constexpr (kLast + kTap >= 0 && kLast + kTap < kCount) {
    sums[kLast + kTap] = sums[kLast + kTap].plus_product(weights[kTap], value);
  }
  if constexpr (kTap + 1 < kTaps) add_value<V, kLast, kTap + 1>(value, weights, sums);
}

// Where vectors lie `step` apart, and all of them are there, or some lanes of all.
template <class V, class AnyTap, class Step, class Kind = Whole>
struct WholeSource {
  using Tap = AnyTap;
  static constexpr int kMostTaps = neighbours_for<V, AnyTap, Kind>();
  Step step;
  std::int64_t weight_pitch;  // of blocks
  Kind kind;
  int lanes;

  BACKOPS_INLINE static std::int64_t column_of(const Tap&, int) { return 0; }
  BACKOPS_INLINE static std::int64_t column_before(std::int64_t column) { return column; }
  template <int kTaps>
  BACKOPS_INLINE static bool has(std::int64_t) {
    return true;
  }
  template <int kTaps, class E>
  BACKOPS_INLINE V load(const E* from, std::int64_t) const {
    return backops::load<V>(kind, from, lanes);
  }
};

// Side by side, which the compiler then knows.
template <class V>
struct DenseStep {};

template <class E>
BACKOPS_INLINE const E* before(const E* from, std::int64_t step) {
  return advanced(from, -step);
}
template <class V>
BACKOPS_INLINE const typename V::Sum* before(const typename V::Sum* from, DenseStep<V>) {
  return from - V::width;
}
template <class E>
BACKOPS_INLINE const E* behind(const E* from, int count, std::int64_t step) {
  return from + count * step;
}
template <class V>
BACKOPS_INLINE const typename V::Sum* behind(const typename V::Sum* from, int count, DenseStep<V>) {
  return from + count * V::width;
}

// Of what is loaded, each lane is the one of its group that a pattern says. Less is shared, which
// keeps the code small: kernels of grouped layers are mostly 3x3.
template <class V, class Source>
struct SpreadSource : Source {
  static constexpr int kMostTaps = Source::kMostTaps < 3 ? Source::kMostTaps : 3;
  typename V::Pattern pattern;
  BACKOPS_INLINE SpreadSource(const Source& source, const std::int32_t* lanes)
      : Source(source), pattern(V::load_pattern(lanes)) {}
  template <int kTaps, class E>
  BACKOPS_INLINE V load(const E* from, std::int64_t column) const {
    return Source::template load<kTaps>(from, column).permuted(pattern);
  }
};

template <class V, int kLast, class Source, class E, int kTaps, int kCount>
BACKOPS_INLINE void add_values(const Source& source, const E* from, std::int64_t column,
                               const V (&weights)[kTaps], V (&sums)[kCount]) {
  if (source.template has<kTaps>(column)) {
    const V value = in_register(source.template load<kTaps>(from, column));
    add_value<V, kLast, 0>(value, weights, sums);
  }
  if constexpr (kLast > 1 - kTaps) {
    add_values<V, kLast - 1>(source, before(from, source.step), source.column_before(column),
                             weights, sums);
  }
}

// The same sums in the same order as one tap after the other.
template <class V, int kTaps, class Source, class E, int kCount>
BACKOPS_INLINE void add_neighbours(const Source& source, const typename Source::Tap* taps,
                                   const E* first, const typename V::Sum* weights,
                                   V (&sums)[kCount]) {
  V own[kTaps];
#pragma GCC unroll 8
  for (int t = 0; t < kTaps; ++t) {
    own[t] = load_sums<V>(weights + taps[t].weight, source.weight_pitch);
  }
  add_values<V, kCount - 1>(source, behind(first + taps[0].source, kCount - 1, source.step),
                            source.column_of(taps[0], kCount - 1), own, sums);
}

// Of the neighbours that begin with this tap, how many are summed together.
template <int kMost, class Tap>
BACKOPS_INLINE int together(const Tap& tap) {
  const int count = tap.neighbours < kMost ? static_cast<int>(tap.neighbours) : kMost;
  return count > 2 && count % 2 == 0 ? count - 1 : count;
}

// As many rows of taps as have so many neighbours; where the next ones begin. Choosing the code
// anew for each row took longer than what it computes.
template <class V, int kTaps, class Source, class E, int kCount>
BACKOPS_INLINE const typename Source::Tap* add_rows(const Source& source, int count,
                                                    const typename Source::Tap* tap,
                                                    const typename Source::Tap* end, const E* first,
                                                    const typename V::Sum* weights,
                                                    V (&sums)[kCount]) {
  constexpr int kMost = kCount < 4 ? 1 : Source::kMostTaps;  // few sums share little
  if (count == kTaps) {
    do {
      add_neighbours<V, kTaps>(source, tap, first, weights, sums);
      tap += kTaps;
    } while (tap != end && together<kMost>(*tap) == kTaps);
    return tap;
  }
  if constexpr (kTaps > 1) {
    constexpr int kFewer = kTaps > 3 ? kTaps - 2 : kTaps - 1;
    return add_rows<V, kFewer>(source, count, tap, end, first, weights, sums);
  }
  return end;
}

template <class V, class Source, class E, int kCount>
BACKOPS_INLINE void add_taps(const Source& source, const typename Source::Tap* tap,
                             std::int64_t tap_count, const E* first, const typename V::Sum* weights,
                             V (&sums)[kCount]) {
  constexpr int kMost = kCount < 4 ? 1 : Source::kMostTaps;
  for (const typename Source::Tap* const end = tap + tap_count; tap != end;) {
    tap = add_rows<V, kMost>(source, together<kMost>(*tap), tap, end, first, weights, sums);
  }
}

// Whether lanes are of groups of several, which the compiler then knows.
struct Alone {};
struct Grouped {};

template <class V, class Source, class E, int kCount>
BACKOPS_INLINE void gather_some(Alone, const LaneGroups&, const Source& source,
                                const typename Source::Tap* taps, std::int64_t tap_count,
                                const E* first, const typename V::Sum* weights, V (&sums)[kCount]) {
  add_taps<V>(source, taps, tap_count, first, weights, sums);
}
template <class V, class Source, class E, int kCount>
BACKOPS_INLINE void gather_some(Grouped, const LaneGroups& groups, const Source& source,
                                const typename Source::Tap* taps, std::int64_t tap_count,
                                const E* first, const typename V::Sum* weights, V (&sums)[kCount]) {
  for (int k = 0; k < groups.count; ++k) {
    add_taps<V>(SpreadSource<V, Source>(source, groups.patterns + k * V::width), taps, tap_count,
                first, weights + k * groups.pitch, sums);
  }
}

template <class V, int kCount>
BACKOPS_INLINE void begin_sums(const typename V::Sum* bias, std::int64_t pitch, V (&sums)[kCount]) {
  const V start = bias == nullptr ? V::fill(0) : load_sums<V>(bias, pitch);
#pragma GCC unroll 8
  for (int i = 0; i < kCount; ++i) sums[i] = start;
}

template <class V, int kCount, class Lanes>
BACKOPS_INLINE void gather_sums(Lanes lanes, const GatherTaps& a, const typename V::Sum* source,
                                typename V::Sum* target) {
  using Sum = typename V::Sum;
  const std::int64_t target_step = a.target_step;
  V sums[kCount];
  begin_sums<V>(static_cast<const Sum*>(a.bias), 0, sums);
  gather_some<V>(lanes, a.groups, WholeSource<V, GatherTap, DenseStep<V>>{{}, 0, {}, V::width},
                 a.taps, a.tap_count, source, static_cast<const Sum*>(a.weights), sums);
#pragma GCC unroll 8
  for (int i = 0; i < kCount; ++i) sums[i].store(target + i * target_step);
}

// No copy of the arguments: rows are short, and vectors of what was written in smaller pieces just
// before are slow to load.
template <class V, class Lanes>
BACKOPS_FLATTEN void gather_all(Lanes lanes, const GatherTaps& a) {
  using Sum = typename V::Sum;
  for (std::int64_t line = 0; line < a.lines; ++line) {
    const auto* const source = static_cast<const Sum*>(a.source) + line * a.source_line;
    auto* const target = static_cast<Sum*>(a.target) + line * a.target_line;
    for_counts<V>(a.count, [&](std::int64_t first, std::int64_t count) {
      with_count<V>(count, [&](auto own) {
        gather_sums<V, decltype(own)::value>(lanes, a, source + first * V::width,
                                             target + first * a.target_step);
      });
    });
  }
}
template <class V>
void gather_taps(const GatherTaps& a) {
  if constexpr (kHasGroups<V>) {
    if (a.groups.count > 0) return gather_all<V>(Grouped{}, a);
  }
  gather_all<V>(Alone{}, a);
}

}  // namespace
}  // namespace backops
