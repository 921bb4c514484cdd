// Sums over the taps of a kernel. Every lane is a channel of its own, so these are the products of
// depthwise convolutions, and of grouped ones with a group per lane.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/announce.h"
#include "kernels/conv/conv.h"
#include "kernels/vectors/loops.h"

namespace backops {
namespace {

// Sums kept in registers: enough to hide the latency of a multiplication, and no more than fit.
constexpr int kCorrelateSums = 14;
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
  BACKOPS_INLINE static bool has(std::int64_t) { return true; }
  template <class E>
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

// Where some columns are not there. Finite weights may meet zeros in their place, which are chosen
// without a jump; others leave them out.
template <class V, class Kind, bool kReadsZeros>
struct BorderSource {
  using Tap = ElementTap;
  static constexpr int kMostTaps = kReadsZeros ? neighbours_for<V, ElementTap, Kind>() : 1;
  std::int64_t step, weight_pitch, column_step, columns;
  Kind kind;
  int lanes;
  std::int64_t first;  // column, that those of taps are counted from

  BACKOPS_INLINE std::int64_t column_of(const Tap& tap, int position) const {
    return first + tap.column + position * column_step;
  }
  BACKOPS_INLINE std::int64_t column_before(std::int64_t column) const {
    return column - column_step;
  }
  BACKOPS_INLINE bool is_there(std::int64_t column) const {
    return static_cast<std::uint64_t>(column) < static_cast<std::uint64_t>(columns);
  }
  BACKOPS_INLINE bool has(std::int64_t column) const { return kReadsZeros || is_there(column); }
  template <class E>
  BACKOPS_INLINE V load(const E* from, std::int64_t column) const {
    return backops::load<V>(kind, kReadsZeros ? or_zeros(from, column) : from, lanes);
  }
  template <class E>
  BACKOPS_INLINE const E* or_zeros(const E* from, std::int64_t column) const {
    alignas(64) static constexpr unsigned char kZeros[64] = {};
    const auto wanted = -static_cast<std::uintptr_t>(is_there(column));
    const auto zeros = reinterpret_cast<std::uintptr_t>(kZeros);
    return reinterpret_cast<const E*>(zeros +
                                      ((reinterpret_cast<std::uintptr_t>(from) - zeros) & wanted));
  }
};

// Of what is loaded, each lane is the one of its group that a pattern says. Less is shared, which
// keeps the code small: kernels of grouped layers are mostly 3x3.
template <class V, class Source>
struct SpreadSource : Source {
  static constexpr int kMostTaps = Source::kMostTaps < 3 ? Source::kMostTaps : 3;
  typename V::Pattern pattern;
  BACKOPS_INLINE SpreadSource(const Source& source, const std::int32_t* lanes)
      : Source(source), pattern(V::load_pattern(lanes)) {}
  template <class E>
  BACKOPS_INLINE V load(const E* from, std::int64_t column) const {
    return Source::load(from, column).permuted(pattern);
  }
};

template <class V, int kLast, class Source, class E, int kTaps, int kCount>
BACKOPS_INLINE void add_values(const Source& source, const E* from, std::int64_t column,
                               const V (&weights)[kTaps], V (&sums)[kCount]) {
  if (source.has(column)) {
    add_value<V, kLast, 0>(in_register(source.load(from, column)), weights, sums);
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

// Some positions of `vectors` vectors of channels. A function for each number of positions:
// compilers take twice as long for one that has them all. What the first tap reads at the next
// positions is asked for, because no other has read it before: without, 8x144x56x56 under 3x3 took
// 1.8 times as long (two cores of a Zen 3).
template <class V, class E, int kCount, class Lanes, class Source, class Kind>
BACKOPS_FLATTEN void gather_positions(Lanes groups, const Source& source, const GatherElements& a,
                                      std::int64_t first, std::int64_t first_vector,
                                      std::int64_t vectors, Kind kind, int lanes) {
  using Sum = typename V::Sum;
  // Copies, or each store would have them loaded again.
  const Source own = source;
  const LaneGroups own_groups = a.groups;
  const std::int64_t source_step = a.source_step, target_step = a.target_step;
  const std::int64_t ahead = a.ahead_bytes, tap_count = a.tap_count, pitch = a.weight_pitch;
  const ElementTap* const taps = a.taps;
  const auto* weights = static_cast<const Sum*>(a.weights) + first_vector * pitch;
  const auto* bias = static_cast<const Sum*>(a.bias);
  if (bias != nullptr) bias += first_vector * pitch;
  const std::int64_t channel = first_vector * (V::width / kBlocks<V>);
  const E* from = static_cast<const E*>(a.source) + first * source_step + channel;
  E* target = static_cast<E*>(a.target) + first * target_step + channel;
  const std::int64_t next = (tap_count > 0 ? taps[0].source : 0) + ahead / std::int64_t{sizeof(E)};
  for (std::int64_t v = 0; v < vectors; ++v) {
    V sums[kCount];
    begin_sums<V>(bias, pitch, sums);
    gather_some<V>(groups, own_groups, own, taps, tap_count, from, weights, sums);
    const E* read = from + next;
    E* to = target;
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) {
      announce_writing(to, ahead);
      __builtin_prefetch(read);
      store(kind, sums[i], to, lanes);
      to = advanced(to, target_step);
      read = advanced(read, source_step);
    }
    weights += kBlocks<V> * pitch;
    if (bias != nullptr) bias += kBlocks<V> * pitch;
    from += V::width;
    target += V::width;
  }
}

// Of some vectors from a block of sums on, whole ones or the one that has `lanes`.
struct VectorRange {
  std::int64_t first, count;
  int lanes;
};
template <class V, class E, class Lanes, class Source, class Kind>
void gather_vectors(Lanes groups, const Source& source, const GatherElements& a, std::int64_t first,
                    std::int64_t count, const VectorRange& vectors, Kind kind) {
  with_count<V>(count, [&](auto own) {
    gather_positions<V, E, decltype(own)::value>(groups, source, a, first, vectors.first,
                                                 vectors.count, kind, vectors.lanes);
  });
}

template <class V, class E, class Lanes, class Kind>
void gather_inside(Lanes groups, const GatherElements& a, std::int64_t first, std::int64_t count,
                   const VectorRange& vectors, Kind kind) {
  const WholeSource<V, ElementTap, std::int64_t, Kind> source{a.source_step, a.weight_pitch, kind,
                                                              vectors.lanes};
  gather_vectors<V, E>(groups, source, a, first, count, vectors, kind);
}
template <class V, class E, class Lanes, class Kind>
void gather_border(Lanes groups, const GatherElements& a, std::int64_t first, std::int64_t count,
                   const VectorRange& vectors, Kind kind) {
  const BorderSource<V, Kind, true> source{
      a.source_step, a.weight_pitch, a.column_step,        a.columns,
      kind,          vectors.lanes,  first * a.column_step};
  gather_vectors<V, E>(groups, source, a, first, count, vectors, kind);
}
// Weights that are not finite are rare: one position at a time will do.
template <class V, class E, class Lanes>
void gather_carefully(Lanes groups, const GatherElements& a, std::int64_t first, std::int64_t count,
                      const VectorRange& vectors) {
  for (std::int64_t j = first; j < first + count; ++j) {
    const BorderSource<V, Part, false> source{a.source_step,    a.weight_pitch, a.column_step,
                                              a.columns,        Part{},         vectors.lanes,
                                              j * a.column_step};
    gather_positions<V, E, 1>(groups, source, a, j, vectors.first, vectors.count, Part{},
                              vectors.lanes);
  }
}

struct ColumnRange {
  std::int64_t least, most;
};
inline ColumnRange columns_of(const ElementTap* taps, std::int64_t count) {
  ColumnRange range{0, 0};
  for (std::int64_t t = 0; t < count; ++t) {
    if (t == 0 || taps[t].column < range.least) range.least = taps[t].column;
    if (t == 0 || taps[t].column > range.most) range.most = taps[t].column;
  }
  return range;
}

// Blocks of sums as vectors: whole ones, and one of some lanes.
struct Vectors {
  VectorRange whole, last;
};
template <class V>
Vectors vectors_of(std::int64_t first, std::int64_t channels) {
  const std::int64_t count = channels / V::width;
  const auto rest = static_cast<int>(channels % V::width);
  return {{first, count, V::width}, {first + count * kBlocks<V>, rest > 0 ? 1 : 0, rest}};
}

template <class V, class E, class Lanes>
void gather_both(Lanes groups, const GatherElements& a, std::int64_t first, std::int64_t count,
                 const Vectors& vectors, bool is_inside) {
  if (vectors.whole.count > 0) {
    is_inside ? gather_inside<V, E>(groups, a, first, count, vectors.whole, Whole{})
              : gather_border<V, E>(groups, a, first, count, vectors.whole, Whole{});
  }
  if (vectors.last.count == 0) return;
  if (V::has_masked_stores && is_inside) {
    gather_inside<V, E>(groups, a, first, count, vectors.last, Part{});
  } else {
    gather_border<V, E>(groups, a, first, count, vectors.last, Part{});
  }
}

// All vectors of a few positions, then the next ones: as they lie in memory. Positions near borders
// have no parts of their own: shorter ones, which share less, took more time than they saved.
template <class V, class E, class Lanes>
void gather_each(Lanes groups, const GatherElements& a) {
  using Wide = typename WideFor<V, E>::Type;
  constexpr bool kHasWide = std::is_same_v<Lanes, Alone> && !std::is_void_v<Wide>;
  const std::int64_t channels =
      a.vectors * V::width - (a.last_lanes == 0 ? 0 : V::width - a.last_lanes);
  std::int64_t wide = 0;  // channels
  if constexpr (kHasWide) {
    wide = channels / Wide::width * Wide::width;
    if (channels - wide > V::width) wide = channels;  // a wide one of some lanes
  }
  const Vectors own = vectors_of<V>(wide / V::width, channels - wide);
  const ColumnRange columns = columns_of(a.taps, a.tap_count);
  for_counts<V>(a.count, [&](std::int64_t first, std::int64_t count) {
    const bool is_inside = columns.least + first * a.column_step >= 0 &&
                           columns.most + (first + count - 1) * a.column_step < a.columns;
    if (!is_inside && !a.are_weights_finite) {
      const Vectors all = vectors_of<V>(0, channels);
      gather_carefully<V, E>(groups, a, first, count, all.whole);
      gather_carefully<V, E>(groups, a, first, count, all.last);
      return;
    }
    if constexpr (kHasWide) {
      gather_both<Wide, E>(groups, a, first, count, vectors_of<Wide>(0, wide), is_inside);
    }
    gather_both<V, E>(groups, a, first, count, own, is_inside);
  });
}
template <class V, class E>
void gather_elements(const GatherElements& a) {
  if constexpr (kHasGroups<V>) {
    if (a.groups.count > 0) return gather_each<V, E>(Grouped{}, a);
  }
  gather_each<V, E>(Alone{}, a);
}

// What the input is multiplied with: each lane with its own.
template <class V>
struct WholeGrad {
  static constexpr int products = 1, most_rows = 8, most_columns = 8;
  static constexpr bool knows_dense = !kIsPortable<V>;
  BACKOPS_INLINE explicit WholeGrad(const LaneGroups&) {}
  BACKOPS_INLINE void load(const typename V::Sum* from, V (&values)[products]) const {
    values[0] = V::load(from);
  }
};
// Or with others of its group, by the first patterns: as many products at once as there are
// registers for. Kernels are mostly 3x3, and dense columns have no code of their own.
template <class V>
struct SpreadGrad {
  static constexpr int most_rows = 4, most_columns = 3;
  static constexpr int products = V::registers >= 32 ? 2 : 1;
  static constexpr bool knows_dense = false;
  typename V::Pattern patterns[products];
  BACKOPS_INLINE explicit SpreadGrad(const LaneGroups& groups) {
    for (int k = 0; k < products; ++k) {
      patterns[k] = V::load_pattern(groups.patterns + k * V::width);
    }
  }
  BACKOPS_INLINE void load(const typename V::Sum* from, V (&values)[products]) const {
    const V all = V::load(from);
    for (int k = 0; k < products; ++k) values[k] = all.permuted(patterns[k]);
  }
};

// kDense: columns of the input are side by side.
template <class V, class Grad, int kRows, int kColumns, bool kDense>
void correlate_some(const CorrelateTaps& a, const std::int64_t* row_offsets,
                    const typename V::Sum* input, typename V::Sum* sums) {
  constexpr int kProducts = Grad::products;
  const Grad own_grad(a.groups);
  const std::int64_t column_step = kDense ? V::width : a.column_step;
  V own[kRows][kColumns][kProducts];
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) {
      for (int k = 0; k < kProducts; ++k) own[r][c][k] = V::fill(0);
    }
  }
  for (std::int64_t line = 0; line < a.lines; ++line) {
    const auto* grad = static_cast<const typename V::Sum*>(a.grad) + line * a.grad_line;
    const typename V::Sum* rows[kRows];
    for (int r = 0; r < kRows; ++r) rows[r] = input + line * a.input_line + row_offsets[r];
    for (std::int64_t j = 0; j < a.count; ++j, grad += a.grad_step) {
      V values[kProducts];
      own_grad.load(grad, values);
      for (int r = 0; r < kRows; ++r) {
        for (int c = 0; c < kColumns; ++c) {
          const V other = V::load(rows[r] + c * column_step);
          for (int k = 0; k < kProducts; ++k) {
            own[r][c][k] = own[r][c][k].plus_product(values[k], other);
          }
        }
        rows[r] += a.input_step;
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) {
      for (int k = 0; k < kProducts; ++k) {
        auto* const to = sums + k * a.groups.pitch + (r * a.sum_columns + c) * V::width;
        (V::load(to) + own[r][c][k]).store(to);
      }
    }
  }
}

template <class V, class Grad, int kRows, int kColumns>
void correlate_rows(const CorrelateTaps& a, std::int64_t first_row, std::int64_t row_count,
                    std::int64_t first_column) {
  if (row_count < kRows) {
    if constexpr (kRows > 1) {
      correlate_rows<V, Grad, kRows - 1, kColumns>(a, first_row, row_count, first_column);
    }
    return;
  }
  const auto* const input =
      static_cast<const typename V::Sum*>(a.input) + first_column * a.column_step;
  auto* const sums =
      static_cast<typename V::Sum*>(a.sums) + (first_row * a.sum_columns + first_column) * V::width;
  const std::int64_t* const offsets = a.row_offsets + first_row;
  if constexpr (Grad::knows_dense) {
    if (a.column_step == V::width) {
      return correlate_some<V, Grad, kRows, kColumns, true>(a, offsets, input, sums);
    }
  }
  correlate_some<V, Grad, kRows, kColumns, false>(a, offsets, input, sums);
}

// As many rows at once as there are registers for.
template <class V, class Grad, int kColumns>
void correlate_columns(const CorrelateTaps& a, std::int64_t columns, std::int64_t first_column) {
  if (columns < kColumns) {
    if constexpr (kColumns > 1) {
      correlate_columns<V, Grad, kColumns - 1>(a, columns, first_column);
    }
    return;
  }
  constexpr int kFit = kCorrelateSums / kColumns;
  constexpr int kMostRows = kFit < Grad::most_rows ? kFit : Grad::most_rows;
  for_even_parts(a.rows, kMostRows, [&](std::int64_t row, std::int64_t rows) {
    correlate_rows<V, Grad, kMostRows, kColumns>(a, row, rows, first_column);
  });
}

template <class V, class Grad>
void correlate_vector(const CorrelateTaps& a) {
  for_even_parts(a.columns, Grad::most_columns, [&](std::int64_t column, std::int64_t columns) {
    correlate_columns<V, Grad, Grad::most_columns>(a, columns, column);
  });
}

// All products of groups while what they read is in the first-level cache.
template <class V>
void correlate_grouped(const CorrelateTaps& args) {
  CorrelateTaps a = args;
  for (int k = 0; k < args.groups.count; k += SpreadGrad<V>::products) {
    a.groups.patterns = args.groups.patterns + k * V::width;
    a.sums = static_cast<typename V::Sum*>(args.sums) + k * args.groups.pitch;
    correlate_vector<V, SpreadGrad<V>>(a);
  }
}

template <class V>
void correlate_taps(const CorrelateTaps& args) {
  for_even_parts(args.count, args.at_once, [&](std::int64_t first, std::int64_t count) {
    CorrelateTaps a = args;
    const auto* grad = static_cast<const typename V::Sum*>(a.grad) + first * a.grad_step;
    const auto* input = static_cast<const typename V::Sum*>(a.input) + first * a.input_step;
    a.count = count;
    for (std::int64_t v = 0; v < a.vectors; ++v) {
      a.grad = grad + v * V::width;
      a.input = input + v * V::width;
      a.sums = static_cast<typename V::Sum*>(args.sums) + v * a.sum_pitch;
      if constexpr (kHasGroups<V>) {
        if (a.groups.count > 0) {
          correlate_grouped<V>(a);
          continue;
        }
      }
      correlate_vector<V, WholeGrad<V>>(a);
    }
  });
}

template <class V>
void sum_lanes(const SumLanes& args) {
  const SumLanes a = copied(args);
  constexpr int kChains = 4;  // additions that do not wait for each other
  const auto* from = static_cast<const typename V::Sum*>(a.source);
  auto* const to = static_cast<typename V::Sum*>(a.sums);
  V own[kChains] = {V::fill(0), V::fill(0), V::fill(0), V::fill(0)};
  std::int64_t j = 0;
  for (; j + kChains <= a.count; j += kChains) {
    for (int i = 0; i < kChains; ++i) own[i] = own[i] + V::load(from + (j + i) * a.pitch);
  }
  for (; j < a.count; ++j) own[0] = own[0] + V::load(from + j * a.pitch);
  // The sum so far is added last: it is the largest, and rounds the most.
  (V::load(to) + ((own[0] + own[1]) + (own[2] + own[3]))).store(to);
}

}  // namespace
}  // namespace backops
