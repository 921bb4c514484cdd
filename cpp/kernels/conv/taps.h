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
constexpr int kGatherSums = 8;
constexpr int kCorrelateSums = 14;

// Taps of neighbours along a row read the same vectors: each is loaded once for all of them. Their
// weights are kept in registers, too. Kernels are odd: an even number is an odd one and one more,
// which halves the code.
template <class V>
constexpr int kMostNeighbours = V::registers >= 32 ? 7 : 5;
// Elements that are converted in pieces leave no registers for that.
template <class V>
constexpr int kElementNeighbours = kIsPortable<V> ? 1 : kMostNeighbours<V>;

// Recursive where a loop would do: compilers then keep the sums in registers.
template <class V, int kLast, int kTap, int kTaps, int kCount>
BACKOPS_INLINE void add_value(const V& value, const V (&weights)[kTaps], V (&sums)[kCount]) {
  if constexpr (kLast + kTap >= 0 && kLast + kTap < kCount) {
    sums[kLast + kTap] = sums[kLast + kTap].plus_product(weights[kTap], value);
  }
  if constexpr (kTap + 1 < kTaps) add_value<V, kLast, kTap + 1>(value, weights, sums);
}

// Where vectors lie `step` apart, and all of them are there.
template <class V, class AnyTap, class Step>
struct WholeSource {
  using Tap = AnyTap;
  static constexpr int kMostTaps =
      std::is_same_v<Tap, ElementTap> ? kElementNeighbours<V> : kMostNeighbours<V>;
  Step step;

  BACKOPS_INLINE bool are_neighbours(const Tap& one, const Tap& next) const {
    return next.source == one.source - step;
  }
  BACKOPS_INLINE static std::int64_t column_of(const Tap&, int) { return 0; }
  BACKOPS_INLINE static std::int64_t column_before(std::int64_t column) { return column; }
  BACKOPS_INLINE static bool has(std::int64_t) { return true; }
  template <class E>
  BACKOPS_INLINE static V load(const E* from) {
    return V::load(from);
  }
};

// Side by side, which the compiler then knows.
template <class V>
struct DenseStep {
  BACKOPS_INLINE constexpr operator std::int64_t() const { return V::width; }
};

// Where some columns are not there, or some lanes.
template <class V, class Kind>
struct BorderSource {
  using Tap = ElementTap;
  // Few vectors have lanes that are not there: no code for them where masks are slow.
  static constexpr int kMostTaps =
      std::is_same_v<Kind, Part> && !V::has_masked_stores ? 1 : kElementNeighbours<V>;
  std::int64_t step, column_step, columns;
  Kind kind;
  int lanes;
  std::int64_t first;  // column, that those of taps are counted from

  // The last tap of a row and the first of the next may lie as far apart.
  BACKOPS_INLINE bool are_neighbours(const Tap& one, const Tap& next) const {
    return next.source == one.source - step && next.column == one.column - column_step;
  }
  BACKOPS_INLINE std::int64_t column_of(const Tap& tap, int position) const {
    return first + tap.column + position * column_step;
  }
  BACKOPS_INLINE std::int64_t column_before(std::int64_t column) const {
    return column - column_step;
  }
  BACKOPS_INLINE bool has(std::int64_t column) const {
    return static_cast<std::uint64_t>(column) < static_cast<std::uint64_t>(columns);
  }
  template <class E>
  BACKOPS_INLINE V load(const E* from) const {
    return backops::load<V>(kind, from, lanes);
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
  BACKOPS_INLINE V load(const E* from) const {
    return Source::load(from).permuted(pattern);
  }
};

template <class V, int kLast, class Source, class E, int kTaps, int kCount>
BACKOPS_INLINE void add_values(const Source& source, const E* from, std::int64_t column,
                               const V (&weights)[kTaps], V (&sums)[kCount]) {
  if (source.has(column)) add_value<V, kLast, 0>(source.load(from), weights, sums);
  if constexpr (kLast > 1 - kTaps) {
    add_values<V, kLast - 1>(source, from - source.step, source.column_before(column), weights,
                             sums);
  }
}

// The same sums in the same order as one tap after the other.
template <class V, int kTaps, class Source, class E, int kCount>
BACKOPS_INLINE void add_neighbours(const Source& source, const typename Source::Tap* taps,
                                   const E* first, const typename V::Sum* weights,
                                   V (&sums)[kCount]) {
  V own[kTaps];
#pragma GCC unroll 8
  for (int t = 0; t < kTaps; ++t) own[t] = V::load(weights + taps[t].weight);
  add_values<V, kCount - 1>(source, first + taps[0].source + (kCount - 1) * source.step,
                            source.column_of(taps[0], kCount - 1), own, sums);
}

template <class V, int kTaps, class Source, class E, int kCount>
BACKOPS_INLINE void add_up_to(const Source& source, int count, const typename Source::Tap* taps,
                              const E* first, const typename V::Sum* weights, V (&sums)[kCount]) {
  if (count == kTaps) return add_neighbours<V, kTaps>(source, taps, first, weights, sums);
  if constexpr (kTaps > 1) add_up_to<V, kTaps - 2>(source, count, taps, first, weights, sums);
}

template <class V, class Source, class E, int kCount>
BACKOPS_INLINE void add_taps(const Source& source, const typename Source::Tap* tap,
                             std::int64_t tap_count, const E* first, const typename V::Sum* weights,
                             V (&sums)[kCount]) {
  constexpr int kMost = kCount < 4 ? 1 : Source::kMostTaps;  // few sums share little
  for (const typename Source::Tap* const end = tap + tap_count; tap != end;) {
    int count = 1;
    while (count < kMost && tap + count != end &&
           source.are_neighbours(tap[count - 1], tap[count])) {
      ++count;
    }
    if (count % 2 == 0) --count;
    add_up_to<V, kMost>(source, count, tap, first, weights, sums);
    tap += count;
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
BACKOPS_INLINE void begin_sums(const typename V::Sum* bias, V (&sums)[kCount]) {
  const V start = bias == nullptr ? V::fill(0) : V::load(bias);
#pragma GCC unroll 8
  for (int i = 0; i < kCount; ++i) sums[i] = start;
}

template <class V, int kCount, class Lanes>
BACKOPS_INLINE void gather_sums(Lanes lanes, const GatherTaps& a, std::int64_t first,
                                std::int64_t count) {
  if (count != kCount) {
    if constexpr (kCount > 1) gather_sums<V, kCount - 1>(lanes, a, first, count);
    return;
  }
  using Sum = typename V::Sum;
  V sums[kCount];
  begin_sums<V>(static_cast<const Sum*>(a.bias), sums);
  gather_some<V>(lanes, a.groups, WholeSource<V, GatherTap, DenseStep<V>>{}, a.taps, a.tap_count,
                 static_cast<const Sum*>(a.source) + first * V::width,
                 static_cast<const Sum*>(a.weights), sums);
  auto* const target = static_cast<Sum*>(a.target) + first * a.target_step;
#pragma GCC unroll 8
  for (int i = 0; i < kCount; ++i) sums[i].store(target + i * a.target_step);
}

template <class V, class Lanes>
BACKOPS_FLATTEN void gather_all(Lanes lanes, const GatherTaps& args) {
  const GatherTaps a = args;
  for_even_parts(a.count, kGatherSums, [&](std::int64_t first, std::int64_t count) {
    gather_sums<V, kGatherSums>(lanes, a, first, count);
  });
}
template <class V>
void gather_taps(const GatherTaps& a) {
  a.groups.count == 0 ? gather_all<V>(Alone{}, a) : gather_all<V>(Grouped{}, a);
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
  const std::int64_t next = (a.tap_count > 0 ? a.taps[0].source : 0) + kGatherSums * a.source_step;
  for (std::int64_t v = first_vector; v < first_vector + vectors; ++v) {
    V sums[kCount];
    const E* const from = static_cast<const E*>(a.source) + first * a.source_step + v * V::width;
    const auto* const bias = static_cast<const Sum*>(a.bias);
    begin_sums<V>(bias == nullptr ? nullptr : bias + v * a.weight_pitch, sums);
    gather_some<V>(groups, a.groups, source, a.taps, a.tap_count, from,
                   static_cast<const Sum*>(a.weights) + v * a.weight_pitch, sums);
    E* const target = static_cast<E*>(a.target) + first * a.target_step + v * V::width;
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) {
      announce_writing(target + i * a.target_step,
                       kGatherSums * a.target_step * std::int64_t{sizeof(E)});
      __builtin_prefetch(from + next + i * a.source_step);
      store(kind, sums[i], target + i * a.target_step, lanes);
    }
  }
}

template <class V, class E, int kCount, class Lanes, class Source, class Kind>
void gather_vectors(Lanes groups, const Source& source, const GatherElements& a, std::int64_t first,
                    std::int64_t count, std::int64_t first_vector, std::int64_t vectors, Kind kind,
                    int lanes) {
  if (count == kCount) {
    gather_positions<V, E, kCount>(groups, source, a, first, first_vector, vectors, kind, lanes);
  } else if constexpr (kCount > 1) {
    gather_vectors<V, E, kCount - 1>(groups, source, a, first, count, first_vector, vectors, kind,
                                     lanes);
  }
}

template <class V, class E, class Lanes, class Kind>
void gather_border(Lanes groups, const GatherElements& a, std::int64_t first, std::int64_t count,
                   std::int64_t first_vector, std::int64_t vectors, Kind kind, int lanes) {
  const BorderSource<V, Kind> source{a.source_step, a.column_step, a.columns,
                                     kind,          lanes,         first * a.column_step};
  gather_vectors<V, E, kGatherSums>(groups, source, a, first, count, first_vector, vectors, kind,
                                    lanes);
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

// All vectors of a few positions, then the next ones: as they lie in memory. Positions near borders
// have no parts of their own: shorter ones, which share less, took more time than they saved.
template <class V, class E, class Lanes>
void gather_each(Lanes groups, const GatherElements& args) {
  const GatherElements a = args;
  const std::int64_t whole = a.last_lanes == 0 ? a.vectors : a.vectors - 1;
  const ColumnRange columns = columns_of(a.taps, a.tap_count);
  for_even_parts(a.count, kGatherSums, [&](std::int64_t first, std::int64_t count) {
    const bool is_inside = columns.least + first * a.column_step >= 0 &&
                           columns.most + (first + count - 1) * a.column_step < a.columns;
    if (is_inside) {
      const WholeSource<V, ElementTap, std::int64_t> source{a.source_step};
      gather_vectors<V, E, kGatherSums>(groups, source, a, first, count, 0, whole, Whole{},
                                        V::width);
    } else if constexpr (V::has_masked_stores) {  // the same code as for lanes
      gather_border<V, E>(groups, a, first, count, 0, whole, Part{}, V::width);
    } else {
      gather_border<V, E>(groups, a, first, count, 0, whole, Whole{}, V::width);
    }
    if (a.last_lanes != 0) {
      gather_border<V, E>(groups, a, first, count, whole, 1, Part{}, a.last_lanes);
    }
  });
}
template <class V, class E>
void gather_elements(const GatherElements& a) {
  a.groups.count == 0 ? gather_each<V, E>(Alone{}, a) : gather_each<V, E>(Grouped{}, a);
}

// What the input is multiplied with: each lane with its own.
template <class V>
struct WholeGrad {
  static constexpr int products = 1;
  static constexpr bool knows_dense = !kIsPortable<V>;
  BACKOPS_INLINE explicit WholeGrad(const LaneGroups&) {}
  BACKOPS_INLINE void load(const typename V::Sum* from, V (&values)[products]) const {
    values[0] = V::load(from);
  }
};
// Or with others of its group, by the first patterns: as many products at once as there are
// registers for. Dense columns have no code of their own.
template <class V>
struct SpreadGrad {
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
  constexpr int kMostRows = kCorrelateSums / kColumns < 8 ? kCorrelateSums / kColumns : 8;
  for_even_parts(a.rows, kMostRows, [&](std::int64_t row, std::int64_t rows) {
    correlate_rows<V, Grad, kMostRows, kColumns>(a, row, rows, first_column);
  });
}

template <class V, class Grad>
void correlate_vector(const CorrelateTaps& a) {
  constexpr int kMostColumns = 8;
  for_even_parts(a.columns, kMostColumns, [&](std::int64_t column, std::int64_t columns) {
    correlate_columns<V, Grad, kMostColumns>(a, columns, column);
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
      a.groups.count == 0 ? correlate_vector<V, WholeGrad<V>>(a) : correlate_grouped<V>(a);
    }
  });
}

template <class V>
void sum_lanes(const SumLanes& args) {
  const SumLanes a = args;
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
