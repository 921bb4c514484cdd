// Sums of rows, written once over a vector type (see array_vector.h for what it offers).
#pragma once

#include "kernels/pool/rows.h"

namespace backops {
namespace {

// The weight of a source row: its own, the same for all, or none.
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
// Any of these, told apart row by row: of long runs that costs little, and saves most of the code.
template <class V>
struct AnyWeights {
  const typename V::Sum* weights;
  V weight;
  BACKOPS_INLINE V of(std::int64_t row) const {
    return weights == nullptr ? weight : V::fill(weights[row]);
  }
};
struct NoWeight {
  struct Weight {};
  BACKOPS_INLINE Weight of(std::int64_t) const { return {}; }
};
template <class V>
BACKOPS_INLINE V operator*(V value, NoWeight::Weight) {
  return value;
}

// Runs alike: as long as each other, each starting one row after the one before, and put equally
// far apart.
struct Stretch {
  std::int64_t first, length;  // of the first run
  std::int64_t runs;
  std::int64_t target, step;  // in rows of the target
};

// Takes every period-th run from `next` on, as far as they are alike.
template <bool kToSums>
inline Stretch take_stretch(const CombineArgs& a, std::int64_t period, std::int64_t& next) {
  const Run* const runs = a.runs;
  const auto target = [&](std::int64_t r) { return kToSums ? r : runs[r].target; };
  const Run& run = runs[next];
  Stretch all{run.first, run.count, 1, target(next), period};
  const std::int64_t second = next + period;
  if (second < a.run_count) all.step = target(second) - all.target;
  for (next = second; next < a.run_count; next += period, ++all.runs) {
    if (runs[next].first != all.first + all.runs || runs[next].count != all.length) break;
    if (target(next) != all.target + all.runs * all.step) break;
  }
  return all;
}

// The rows of one plane, and what is done with them: they become rows of sums, or of elements.
template <class V, class S, class W, bool kToSums>
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
    if (!kToSums || !column_weights) return sum;
    return sum * load<V>(kind, column_weights + j, count);
  }

  // Goes down the rows, vector by vector: each row is read and widened once for all runs it is in.
  template <int kRows, class To>
  BACKOPS_INLINE void sum_few(std::int64_t first, std::int64_t runs, const To target,
                              std::int64_t step_bytes) const {
    const auto* const factors = kToSums ? column_weights : nullptr;
    for_overlapping_vectors<V>(columns, [&](auto kind, std::int64_t j, int count) {
      const auto term = [&](std::int64_t r) {
        return load<V>(kind, row(r) + j, count) * weights.of(r);
      };
      V factor;
      if (factors) factor = load<V>(kind, factors + j, count);
      V terms[kRows];
      for (int i = 0; i < kRows - 1; ++i) terms[i] = term(first + i);
      To to = target;
      for (std::int64_t q = 0; q < runs; ++q, to.move(step_bytes)) {
        terms[kRows - 1] = term(first + q + kRows - 1);
        V sum = terms[0];
        for (int i = 1; i < kRows; ++i) sum = sum + terms[i];
        if (factors) sum = sum * factor;
        to.put(kind, sum, j, count);
        for (int i = 0; i < kRows - 1; ++i) terms[i] = terms[i + 1];
      }
    });
  }

  template <class To>
  void sum_none(const To target) const {
    for_overlapping_vectors<V>(columns, [&](auto kind, std::int64_t j, int count) {
      target.put(kind, V::fill(0), j, count);
    });
  }

  template <class To>
  BACKOPS_INLINE void sum(const Stretch& all, To target, std::int64_t step_bytes) const {
    switch (all.length) {
      case 1: return sum_few<1>(all.first, all.runs, target, step_bytes);
      case 2: return sum_few<2>(all.first, all.runs, target, step_bytes);
      case 3: return sum_few<3>(all.first, all.runs, target, step_bytes);
      case 4: return sum_few<4>(all.first, all.runs, target, step_bytes);
      case 5: return sum_few<5>(all.first, all.runs, target, step_bytes);
      case 6: return sum_few<6>(all.first, all.runs, target, step_bytes);
      default: break;  // runs of no row: longer ones are summed by blocks
    }
    for (std::int64_t q = 0; q < all.runs; ++q, target.move(step_bytes)) sum_none(target);
  }
};

// Long runs, as the sum of a block's tail and the next block's head (van Herk's idea): subtracting
// what leaves a running sum would be cheaper still, but lets one NaN or infinity reach everything
// behind it. Goes down the rows for kVectors vectors of columns, `count` columns in all.
template <class V, class S, class W, bool kToSums, int kVectors>
class Blocks {
 public:
  using Sum = typename V::Sum;

  BACKOPS_INLINE Blocks(const CombineArgs& a, const Rows<V, S, W, kToSums>& rows,
                        std::int64_t column, int count)
      : rows_(rows),
        column_(column),
        block_(a.block),
        first_row_(a.first_row),
        axis_rows_(a.axis_rows),
        tails_(static_cast<Sum*>(a.scratch)) {
    for (int& own : counts_) {
      own = count < V::width ? count : V::width;
      count -= own;
    }
  }

  template <class To>
  BACKOPS_INLINE void sum(const Stretch& all, To target, std::int64_t step_bytes) {
    const std::int64_t first = all.first + first_row_, length = all.length;
    if (start_ < 0) start_ = first / block_ * block_;
    for (std::int64_t q = 0; q < all.runs;) {
      const std::int64_t begin = first + q, end = begin + length;
      while (begin >= start_ + block_) start_ += block_;
      const std::int64_t block_end = start_ + block_ < axis_rows_ ? start_ + block_ : axis_rows_;
      if (length > kLongestDirectRun && end > block_end) {
        const std::int64_t left = all.runs - q, in_block = block_end - begin;
        const std::int64_t runs = left < in_block ? left : in_block;
        sum_across(begin, block_end, end, runs, target, step_bytes);
        q += runs;
        target.move(step_bytes, runs);
      } else {
        sum_within(begin, block_end, end, target);
        ++q;
        target.move(step_bytes);
      }
    }
  }

 private:
  BACKOPS_INLINE V term(std::int64_t r, int i) const {
    const std::int64_t row = r - first_row_;
    return load<V>(Part{}, rows_.row(row) + column_ + i * V::width, counts_[i]) *
           rows_.weights.of(row);
  }

  BACKOPS_INLINE V tail(std::int64_t r, int i) const {
    return V::load(tails_ + ((r - start_) * kVectors + i) * V::width);
  }

  template <class To, class Value>
  BACKOPS_INLINE void put(const To target, const Value& value) const {
    for (int i = 0; i < kVectors; ++i) {
      const std::int64_t j = column_ + i * V::width;
      target.put(Part{}, rows_.finished(Part{}, value(i), j, counts_[i]), j, counts_[i]);
    }
  }

  BACKOPS_INLINE V direct(std::int64_t begin, std::int64_t end, int i) const {
    V sum = V::fill(0);
    for (std::int64_t r = begin; r < end; ++r) sum = sum + term(r, i);
    return sum;
  }

  // Runs that begin in the block and end beyond it, each one row after the one before.
  template <class To>
  BACKOPS_INLINE void sum_across(std::int64_t begin, std::int64_t block_end, std::int64_t end,
                                 std::int64_t runs, To target, std::int64_t step_bytes) {
    make_tails(begin, block_end);
    move_head(block_end, end - 1);
    const std::int64_t known = head_end_ - (end - 1);  // 1 if another stretch ended here
    for (std::int64_t q = 0; q < runs; ++q, target.move(step_bytes)) {
      if (q >= known) {
        for (int i = 0; i < kVectors; ++i) head_[i] = head_[i] + term(end - 1 + q, i);
      }
      put(target, [&](int i) { return tail(begin + q, i) + head_[i]; });
    }
    head_end_ = end + runs - 1;
  }

  template <class To>
  BACKOPS_INLINE void sum_within(std::int64_t begin, std::int64_t block_end, std::int64_t end,
                                 const To target) {
    if (end - begin > kLongestDirectRun && end == block_end) {
      make_tails(begin, block_end);
      put(target, [&](int i) { return tail(begin, i); });
    } else if (end - begin > kLongestDirectRun && begin == start_) {
      move_head(begin, end);
      put(target, [&](int i) { return head_[i]; });
    } else {
      put(target, [&](int i) { return direct(begin, end, i); });
    }
  }

  // Sums of the rows from each one, of `begin` and those after it, to the end of the block.
  BACKOPS_INLINE void make_tails(std::int64_t begin, std::int64_t block_end) {
    if (start_ == tail_start_) return;
    tail_start_ = start_;
    V sums[kVectors];
    for (int i = 0; i < kVectors; ++i) sums[i] = V::fill(0);
    for (std::int64_t r = block_end - 1; r >= begin; --r) {
      for (int i = 0; i < kVectors; ++i) {
        sums[i] = sums[i] + term(r, i);
        sums[i].store(tails_ + ((r - start_) * kVectors + i) * V::width);
      }
    }
  }

  // Makes head_ the sum of the rows from `begin` to before `end`, which never goes back.
  BACKOPS_INLINE void move_head(std::int64_t begin, std::int64_t end) {
    if (begin != head_start_) {
      head_start_ = head_end_ = begin;
      for (int i = 0; i < kVectors; ++i) head_[i] = V::fill(0);
    }
    for (; head_end_ < end; ++head_end_) {
      for (int i = 0; i < kVectors; ++i) head_[i] = head_[i] + term(head_end_, i);
    }
  }

  const Rows<V, S, W, kToSums> rows_;
  const std::int64_t column_;
  const std::int64_t block_, first_row_, axis_rows_;
  Sum* const tails_;
  V head_[kVectors];
  int counts_[kVectors];
  std::int64_t start_ = -1;                      // of the current block
  std::int64_t tail_start_ = -1;                 // of the block that tails_ are of
  std::int64_t head_start_ = -1, head_end_ = 0;  // of the rows in head_
};

// Rows of the target from `row` on, with or without factors that finish their sums.
template <bool kFinishes, class T, class Sum>
BACKOPS_INLINE auto finished_rows(T* row, std::int64_t target, std::int64_t step,
                                  const CombineArgs& a, std::int64_t plane) {
  if constexpr (kFinishes) {
    const auto* const runs = static_cast<const Sum*>(a.run_factors);
    const auto* const planes = static_cast<const Sum*>(a.plane_factors);
    return FinishedRows<T, Sum>{row, runs ? runs + target : nullptr, step,
                                planes ? planes[plane] : Sum{1}};
  } else {
    return Row<T>{row};
  }
}

template <bool kFinishes, class T, class Sum>
BACKOPS_INLINE auto first_row_of(const Stretch& all, const CombineArgs& a, std::int64_t plane) {
  char* const target = a.target + a.target_offsets[plane];
  return finished_rows<kFinishes, T, Sum>(
      reinterpret_cast<T*>(target + all.target * a.target_pitch_bytes), all.target, all.step, a,
      plane);
}

// Copies the first row of each run to the others.
template <class T>
BACKOPS_INLINE void repeat_rows(const CombineArgs& a, std::int64_t plane) {
  const std::int64_t pitch = a.target_pitch_bytes;
  const std::int64_t bytes = a.columns * static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t r = 0; r < a.run_count; ++r) {
    char* const row = a.target + a.target_offsets[plane] + a.runs[r].target * pitch;
    for (std::int64_t q = 1; q < a.runs[r].repeat; ++q) copy_row(row + q * pitch, row, bytes);
  }
}

template <class V, class S, class W, bool kToSums>
BACKOPS_INLINE Rows<V, S, W, kToSums> rows_of(const CombineArgs& a, std::int64_t plane,
                                              const W& weights) {
  return {a.source + a.source_offsets[plane], a.source_pitch_bytes, weights,
          static_cast<const typename V::Sum*>(a.column_weights), a.columns};
}

// Rows of the target one after the other, as they lie in memory: that is worth more than to read
// each row of sums only once, which are in a cache. Short rows are not worth the calls.
template <class V, class S, class T, class W, bool kFinishes>
BACKOPS_FLATTEN void combine_in_order(const CombineArgs& args, W weights) {
  const CombineArgs a = args;
  for (std::int64_t plane = 0; plane < a.planes; ++plane) {
    const auto rows = rows_of<V, S, W, false>(a, plane, weights);
    char* const target = a.target + a.target_offsets[plane];
    for (std::int64_t r = 0; r < a.run_count; ++r) {
      const Run run = a.runs[r];
      write_rows<T>(
          target + run.target * a.target_pitch_bytes, a.target_pitch_bytes, run.repeat, a.columns,
          a.announce_bytes, [&](auto to) {
            rows.sum({run.first, run.count, 1, 0, 0},
                     finished_rows<kFinishes, T, typename V::Sum>(to.row, run.target, 0, a, plane),
                     0);
          });
    }
  }
}

template <class V, class S, class T, class W, bool kToSums, bool kFinishes>
BACKOPS_FLATTEN void combine_few(const CombineArgs& args, W weights) {
  const CombineArgs a = args;
  if constexpr (!kToSums) {
    if (a.columns > 2 * V::width) return combine_in_order<V, S, T, W, kFinishes>(a, weights);
  }
  // Windows that overlap in part make long and short runs in turn, but for the ends of the axis.
  const Run* const middle = a.runs + a.run_count / 2;
  const std::int64_t period = a.run_count > 2 && middle[-1].count != middle[0].count ? 2 : 1;
  for (std::int64_t start = 0; start < period; ++start) {
    for (std::int64_t next = start; next < a.run_count;) {
      const Stretch all = take_stretch<kToSums>(a, period, next);
      for (std::int64_t plane = 0; plane < a.planes; ++plane) {
        const auto rows = rows_of<V, S, W, kToSums>(a, plane, weights);
        rows.sum(all, first_row_of<kFinishes, T, typename V::Sum>(all, a, plane),
                 all.step * a.target_pitch_bytes);
      }
    }
  }
  if constexpr (!kToSums) {
    for (std::int64_t plane = 0; plane < a.planes; ++plane) repeat_rows<T>(a, plane);
  }
}

// Runs one by one, however long: a few vectors of columns go down all rows of a run.
template <class V, class S, class T, class W, bool kToSums, bool kFinishes>
BACKOPS_FLATTEN void combine_each(const CombineArgs& args, W weights) {
  constexpr int kVectors = 4;
  const CombineArgs a = args;
  const std::int64_t columns = a.columns;
  const auto* const factors =
      kToSums ? static_cast<const typename V::Sum*>(a.column_weights) : nullptr;
  for (std::int64_t plane = 0; plane < a.planes; ++plane) {
    const auto rows = rows_of<V, S, W, kToSums>(a, plane, weights);
    char* const target = a.target + a.target_offsets[plane];
    for (std::int64_t r = 0; r < a.run_count; ++r) {
      const Run run = a.runs[r];
      const std::int64_t row = kToSums ? r : run.target;
      const auto to = finished_rows<kFinishes, T, typename V::Sum>(
          reinterpret_cast<T*>(target + row * a.target_pitch_bytes), row, 0, a, plane);
      if (run.count == 0) {
        rows.sum_none(to);
        continue;
      }
      const auto term = [&](auto kind, std::int64_t q, std::int64_t j, int count) {
        return load<V>(kind, rows.row(q) + j, count) * rows.weights.of(q);
      };
      const auto put = [&](auto kind, V sum, std::int64_t j, int count) {
        if (factors) sum = sum * load<V>(kind, factors + j, count);
        to.put(kind, sum, j, count);
      };
      std::int64_t j = 0;
      for (; j + kVectors * V::width <= columns; j += kVectors * V::width) {
        V sums[kVectors];
        for (int i = 0; i < kVectors; ++i) {
          sums[i] = term(Whole{}, run.first, j + i * V::width, V::width);
        }
        for (std::int64_t q = run.first + 1; q < run.first + run.count; ++q) {
          for (int i = 0; i < kVectors; ++i) {
            sums[i] = sums[i] + term(Whole{}, q, j + i * V::width, V::width);
          }
        }
        for (int i = 0; i < kVectors; ++i) put(Whole{}, sums[i], j + i * V::width, V::width);
      }
      for_overlapping_vectors<V>(columns - j, [&](auto kind, std::int64_t more, int count) {
        V sum = term(kind, run.first, j + more, count);
        for (std::int64_t q = run.first + 1; q < run.first + run.count; ++q) {
          sum = sum + term(kind, q, j + more, count);
        }
        put(kind, sum, j + more, count);
      });
    }
    if constexpr (!kToSums) repeat_rows<T>(a, plane);
  }
}

template <class T, class Sum, bool kToSums, bool kFinishes, class B>
BACKOPS_INLINE void sum_blocks(const CombineArgs& a, std::int64_t plane, B blocks) {
  for (std::int64_t next = 0; next < a.run_count;) {
    const Stretch all = take_stretch<kToSums>(a, 1, next);
    blocks.sum(all, first_row_of<kFinishes, T, Sum>(all, a, plane),
               all.step * a.target_pitch_bytes);
  }
}

template <class V, class S, class T, class W, bool kToSums, bool kFinishes>
BACKOPS_FLATTEN void combine_blocks(const CombineArgs& args, W weights) {
  using Sum = typename V::Sum;
  constexpr int kVectors = 4;
  static_assert(kVectors * V::width <= kMostBlockColumns && V::width <= kFewestBlockColumns,
                "scratch is made for no more");
  const CombineArgs a = args;
  const std::int64_t columns = a.columns;
  const bool wide = block_columns(a.block) == kMostBlockColumns;
  for (std::int64_t plane = 0; plane < a.planes; ++plane) {
    const auto rows = rows_of<V, S, W, kToSums>(a, plane, weights);
    for (std::int64_t j = 0; j < columns;) {
      const int most = wide && columns - j > V::width ? kVectors * V::width : V::width;
      const int count = columns - j < most ? static_cast<int>(columns - j) : most;
      if (most > V::width) {
        sum_blocks<T, Sum, kToSums, kFinishes>(
            a, plane, Blocks<V, S, W, kToSums, kVectors>(a, rows, j, count));
      } else {
        sum_blocks<T, Sum, kToSums, kFinishes>(a, plane,
                                               Blocks<V, S, W, kToSums, 1>(a, rows, j, count));
      }
      j += count;
    }
    if constexpr (!kToSums) repeat_rows<T>(a, plane);
  }
}

template <class V, class S, class T, bool kToSums>
void combine_long(const CombineArgs& a, typename V::Sum scale) {
  using Sum = typename V::Sum;
  const AnyWeights<V> weights{static_cast<const Sum*>(a.weights), V::fill(scale)};
  if (a.block == 0) return combine_each<V, S, T, AnyWeights<V>, kToSums, !kToSums>(a, weights);
  combine_blocks<V, S, T, AnyWeights<V>, kToSums, !kToSums>(a, weights);
}

inline bool has_long_runs(const CombineArgs& a) {
  return a.block == 0 || a.block > kLongestDirectRun;
}

// Elements are multiplied even by one: that makes their NaNs quiet, on every CPU.
template <class V, class S>
void combine_to_sums(const CombineArgs& a) {
  using Sum = typename V::Sum;
  const auto scale = static_cast<Sum>(a.scale);
  if (has_long_runs(a)) {
    combine_long<V, S, Sum, true>(a, scale);
  } else if (a.weights) {
    const OwnWeights<V> weights{static_cast<const Sum*>(a.weights)};
    combine_few<V, S, Sum, OwnWeights<V>, true, false>(a, weights);
  } else {
    combine_few<V, S, Sum, OneWeight<V>, true, false>(a, OneWeight<V>{V::fill(scale)});
  }
}

template <class V, class T>
void combine_to_elements(const CombineArgs& a) {
  using Sum = typename V::Sum;
  if (has_long_runs(a)) {
    combine_long<V, Sum, T, false>(a, 1);
  } else if (a.weights) {
    const OwnWeights<V> weights{static_cast<const Sum*>(a.weights)};
    combine_few<V, Sum, T, OwnWeights<V>, false, false>(a, weights);
  } else if (a.run_factors || a.plane_factors) {
    combine_few<V, Sum, T, NoWeight, false, true>(a, NoWeight{});
  } else {
    combine_few<V, Sum, T, NoWeight, false, false>(a, NoWeight{});
  }
}

}  // namespace
}  // namespace backops
