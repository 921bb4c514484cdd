// Sums of rows, written once over a vector type (see array_vector.h for what it offers).
#pragma once

#include "kernels/pool/rows.h"

namespace backops {
namespace {

// The weight of a source row: its own, or the same for all.
template <class V>
struct OwnWeights {
  const typename V::Sum* weights;
  BACKOPS_INLINE V of(std::int64_t row) const { return V::fill(weights[row]); }
};
template <class V>
struct OneWeight {
  V weight;
  BACKOPS_INLINE V of(std::int64_t) const { return weight; }
};

// The rows of one plane.
template <class V, class S, class W>
struct Rows {
  const char* source;
  std::int64_t pitch;
  W weights;
  const typename V::Sum* column_weights;
  std::int64_t columns;

  BACKOPS_INLINE const S* row(std::int64_t r) const {
    return reinterpret_cast<const S*>(source + r * pitch);
  }

  template <class Kind>
  BACKOPS_INLINE V finished(Kind kind, V sum, std::int64_t j, int count) const {
    return column_weights ? sum * load<V>(kind, column_weights + j, count) : sum;
  }

  template <int kRows, class T>
  BACKOPS_INLINE void sum_few(std::int64_t first, const Target<T> target) const {
    const S* rows[kRows];
    V weight[kRows];
    for (int i = 0; i < kRows; ++i) {
      rows[i] = row(first + i);
      weight[i] = weights.of(first + i);
    }
    const auto* const factors = column_weights;
    for_vectors<V>(columns, [&](auto kind, std::int64_t j, int count) {
      V sum = load<V>(kind, rows[0] + j, count) * weight[0];
      for (int i = 1; i < kRows; ++i) sum = sum + load<V>(kind, rows[i] + j, count) * weight[i];
      if (factors) sum = sum * load<V>(kind, factors + j, count);
      target.put(kind, sum, j, count);
    });
  }

  template <class T>
  void sum_none(const Target<T> target) const {
    for_vectors<V>(columns, [&](auto kind, std::int64_t j, int count) {
      target.put(kind, V::fill(0), j, count);
    });
  }

  template <class T>
  void sum_many(std::int64_t first, std::int64_t row_count, const Target<T> target) const {
    for_vectors<V>(columns, [&](auto kind, std::int64_t j, int count) {
      V sum = load<V>(kind, row(first) + j, count) * weights.of(first);
      for (std::int64_t r = first + 1; r < first + row_count; ++r) {
        sum = sum + load<V>(kind, row(r) + j, count) * weights.of(r);
      }
      target.put(kind, finished(kind, sum, j, count), j, count);
    });
  }

  template <class T>
  BACKOPS_INLINE void sum(const Run& run, const Target<T> target) const {
    switch (run.count) {
      case 0: return sum_none(target);
      case 1: return sum_few<1>(run.first, target);
      case 2: return sum_few<2>(run.first, target);
      case 3: return sum_few<3>(run.first, target);
      case 4: return sum_few<4>(run.first, target);
      case 5: return sum_few<5>(run.first, target);
      case 6: return sum_few<6>(run.first, target);
      default: return sum_many(run.first, run.count, target);
    }
  }
};

// Long runs, as the sum of a block's tail and the next block's head (van Herk's idea): subtracting
// what leaves a running sum would be cheaper still, but lets one NaN or infinity reach everything
// behind it.
template <class V, class S, class W>
class Blocks {
 public:
  using Sum = typename V::Sum;

  Blocks(const Rows<V, S, W>& rows, const CombineArgs& a)
      : rows_(rows),
        block_(a.block),
        first_row_(a.first_row),
        axis_rows_(a.axis_rows),
        pitch_((a.columns + V::lanes - 1) / V::lanes * V::lanes),
        tails_(static_cast<Sum*>(a.scratch)),
        head_(static_cast<Sum*>(a.scratch) + a.block * pitch_) {}

  template <class T>
  void sum(const Run& run, const Target<T> target) {
    if (run.count <= kLongestDirectRun) return rows_.sum(run, target);
    const std::int64_t begin = run.first + first_row_, end = begin + run.count;
    while (begin >= start_ + block_) start_ += block_;
    const std::int64_t block_end = start_ + block_ < axis_rows_ ? start_ + block_ : axis_rows_;
    if (end == block_end) {
      put(tail(begin, block_end), target);
    } else if (end > block_end) {
      put_with_head(tail(begin, block_end), head_before(block_end, end), end - 1, target);
    } else if (begin == start_) {
      put_with_head(nullptr, head_before(begin, end), end - 1, target);
    } else {
      rows_.sum_many(run.first, run.count, target);
    }
  }

 private:
  // *to = weight * row r (+ *from). Partial sums are kept in whole vectors: a load waits long for a
  // store of part of one.
  BACKOPS_INLINE void add_row(std::int64_t r, const Sum* from, Sum* to) const {
    const S* const source = rows_.row(r - first_row_);
    const V weight = rows_.weights.of(r - first_row_);
    for_vectors<V>(rows_.columns, [&](auto kind, std::int64_t j, int count) {
      V sum = load<V>(kind, source + j, count) * weight;
      if (from) sum = V::load(from + j) + sum;
      sum.store(to + j);
    });
  }

  // Sum of the rows from `row` to the end of the current block.
  const Sum* tail(std::int64_t row, std::int64_t block_end) {
    if (start_ != tail_start_) {
      const Sum* from = nullptr;
      for (std::int64_t r = block_end - 1; r >= row; --r) {
        Sum* const to = tails_ + (r - start_) * pitch_;
        add_row(r, from, to);
        from = to;
      }
      tail_start_ = start_;
    }
    return tails_ + (row - start_) * pitch_;
  }

  // Makes head_ the sum of the rows from `start` to before `end`'s last; null if that is none.
  const Sum* head_before(std::int64_t start, std::int64_t end) {
    if (start != head_start_ || head_end_ >= end) {
      head_start_ = start;
      head_end_ = start;
    }
    for (; head_end_ < end - 1; ++head_end_) {
      add_row(head_end_, head_end_ == start ? nullptr : head_, head_);
    }
    return head_end_ == start ? nullptr : head_;
  }

  template <class T>
  BACKOPS_INLINE void put(const Sum* sums, const Target<T> target) const {
    for_vectors<V>(rows_.columns, [&](auto kind, std::int64_t j, int count) {
      target.put(kind, rows_.finished(kind, V::load(sums + j), j, count), j, count);
    });
  }

  // target = tail + (head + row r), and head_ becomes what stands in brackets.
  template <class T>
  BACKOPS_INLINE void put_with_head(const Sum* tail, const Sum* head, std::int64_t r,
                                    const Target<T> target) {
    const S* const source = rows_.row(r - first_row_);
    const V weight = rows_.weights.of(r - first_row_);
    Sum* const new_head = head_;
    const Rows<V, S, W> rows = rows_;
    for_vectors<V>(rows.columns, [&](auto kind, std::int64_t j, int count) {
      V sum = load<V>(kind, source + j, count) * weight;
      if (head) sum = V::load(head + j) + sum;
      sum.store(new_head + j);
      if (tail) sum = V::load(tail + j) + sum;
      target.put(kind, rows.finished(kind, sum, j, count), j, count);
    });
    head_end_ = r + 1;
  }

  const Rows<V, S, W> rows_;
  const std::int64_t block_, first_row_, axis_rows_;
  const std::int64_t pitch_;  // of partial sums
  Sum* const tails_;
  Sum* const head_;
  std::int64_t start_ = 0;                       // of the current block
  std::int64_t tail_start_ = -1;                 // of the block that tails_ are of
  std::int64_t head_start_ = -1, head_end_ = 0;  // of the rows in head_
};

template <class V, class S, class T, class W>
BACKOPS_FLATTEN void combine_weighted(const CombineArgs& args, W weights) {
  const CombineArgs a = args;
  for (std::int64_t plane = 0; plane < a.planes; ++plane) {
    char* const target = a.target + a.target_offsets[plane];
    const Rows<V, S, W> rows{a.source + a.source_offsets[plane], a.source_pitch_bytes, weights,
                             static_cast<const typename V::Sum*>(a.column_weights), a.columns};
    const auto target_of = [&](std::int64_t r) {
      const Run& run = a.runs[r];
      return a.compact ? Target<T>{target + r * a.target_pitch_bytes, 0, 1}
                       : Target<T>{target + run.target * a.target_pitch_bytes, a.target_pitch_bytes,
                                   run.repeat};
    };
    if (a.block <= kLongestDirectRun) {
      for (std::int64_t r = 0; r < a.run_count; ++r) rows.sum(a.runs[r], target_of(r));
    } else {
      Blocks<V, S, W> blocks(rows, a);
      for (std::int64_t r = 0; r < a.run_count; ++r) blocks.sum(a.runs[r], target_of(r));
    }
  }
}

template <class V, class S, class T>
void combine(const CombineArgs& a) {
  using Sum = typename V::Sum;
  if (a.weights) {
    combine_weighted<V, S, T>(a, OwnWeights<V>{static_cast<const Sum*>(a.weights)});
  } else {
    combine_weighted<V, S, T>(a, OneWeight<V>{V::fill(static_cast<Sum>(a.scale))});
  }
}

}  // namespace
}  // namespace backops
