// The same sums of a tensor's elements in place, where some columns may not be there.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/announce.h"
#include "kernels/conv/conv.h"
#include "kernels/conv/gather.h"
#include "kernels/vectors/loops.h"

namespace backops {
namespace {

// Where some columns are not there. Finite weights may meet zeros in their place, which are chosen
// without a jump where few taps would multiply them; others leave them out.
template <class V, class Kind, bool kMayReadZeros>
struct BorderSource {
  using Tap = ElementTap;
  static constexpr int kMostTaps = kMayReadZeros ? neighbours_for<V, ElementTap, Kind>() : 1;
  template <int kTaps>
  static constexpr bool kReadsZeros = kMayReadZeros && kTaps <= 3;
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
  template <int kTaps>
  BACKOPS_INLINE bool has(std::int64_t column) const {
    return kReadsZeros<kTaps> || is_there(column);
  }
  template <int kTaps, class E>
  BACKOPS_INLINE V load(const E* from, std::int64_t column) const {
    return backops::load<V>(kind, kReadsZeros<kTaps> ? or_zeros(from, column) : from, lanes);
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

}  // namespace
}  // namespace backops
