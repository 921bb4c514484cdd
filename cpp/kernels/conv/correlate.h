// Weight products of depthwise convolutions, and of grouped ones: every lane is a channel of its
// own. Bias sums.
#pragma once

#include <cstdint>

#include "kernels/conv/conv.h"
#include "kernels/conv/gather.h"
#include "kernels/vectors/loops.h"

namespace backops {
namespace {

// Sums kept in registers: enough to hide the latency of a multiplication, and no more than fit.
constexpr int kCorrelateSums = 14;

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
