// How the rows engine is cut into tasks, and where it keeps things: rows of the tensor that is
// read, with the channels innermost, and the results of the windows that begin in them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/ints.h"
#include "kernels/conv/conv.h"
#include "kernels/matrix/matrix.h"
#include "ops/conv/blocks/sizes.h"
#include "ops/conv/copy.h"
#include "ops/conv/engine.h"
#include "ops/conv/parts.h"

namespace backops {

// Results of a slice of an image.
struct WindowCut {
  std::int64_t image, d;
  Range h, w;
};

// Rows hold sums; or other numbers, which are multiplied in pairs.
template <class Sum, class Number>
class RowsLayout {
 public:
  static constexpr bool has_pairs = !std::is_same_v<Sum, Number>;
  static constexpr std::int64_t kNumbersAtOnce = has_pairs ? 2 : 1;

  RowsLayout(const ConvTask& task, std::int64_t width)
      : inputs{width, 1, task.shape.inputs},
        numbers(round_up(task.shape.kernel[2] * task.shape.outputs, kNumbersAtOnce)),
        kernel_rows(task.shape.kernel[0] * task.shape.kernel[1]),
        s_(task.shape) {
    make_cuts(kTileShare * static_cast<double>(task.cpu.level2_bytes) / sizeof(Sum),
              tasks_per_thread(s_, task.cuts.threads) * task.cuts.threads);
  }

  const BlockSide inputs;
  const std::int64_t numbers, kernel_rows;  // numbers of a window in one row
  bool fits = true;
  std::int64_t row_numbers = 0;  // of a row in scratch memory

  std::int64_t cuts() const { return s_.batch * s_.in[0] * row_cuts_ * column_cuts_; }
  WindowCut cut(std::int64_t index) const {
    WindowCut cut{};
    const std::int64_t column = index % column_cuts_ * columns_;
    cut.w = {column, std::min(column + columns_, s_.in[2])};
    index /= column_cuts_;
    const std::int64_t row = index % row_cuts_ * rows_at_once_;
    cut.h = {row, std::min(row + rows_at_once_, s_.in[1])};
    index /= row_cuts_;
    cut.d = index % s_.in[0];
    cut.image = index / s_.in[0];
    return cut;
  }

  // Where tap i of a window that begins there is along an axis; outside of the tensor for some.
  std::int64_t output_of(int axis, std::int64_t input, std::int64_t tap) const {
    return input * s_.stride[axis] - s_.padding[axis] + tap * s_.dilation[axis];
  }
  bool is_inside(int axis, std::int64_t output) const {
    return output >= 0 && output < s_.out[axis];
  }
  // Of a window that begins there.
  Range taps_inside(std::int64_t w) const {
    const std::int64_t first = output_of(2, w, 0);
    const std::int64_t begin = std::clamp<std::int64_t>(-first, 0, s_.kernel[2]);
    return {begin, std::clamp(s_.out[2] - first, begin, s_.kernel[2])};
  }
  // Of a row of the source in scratch memory, from the first column of the cut on.
  std::int64_t row_at(const WindowCut& cut, std::int64_t slice, std::int64_t h) const {
    return (slice * source_rows(rows_at_once_) + h - output_of(1, cut.h.begin, 0)) * row_numbers;
  }

  // Memory of the engine: for each pair of blocks, (kernel rows, numbers or pairs, inputs of the
  // pair of blocks); a number for each that tells whether its weights are finite; the bias;
  // magnitudes of what each task has seen.
  std::int64_t steps() const { return numbers / kNumbersAtOnce; }
  Sum* weights(const ConvBuffers& b, std::int64_t pair) const {
    return reinterpret_cast<Sum*>(b.memory) +
           inputs.first_block(pair) * inputs.width * kernel_rows * steps();
  }
  Sum* flags(const ConvBuffers& b) const { return weights(b, inputs.pairs()); }
  std::int64_t bias_at() const {
    return round_up(inputs.padded() * kernel_rows * steps() + inputs.pairs(), inputs.width);
  }
  Sum* bias(const ConvBuffers& b) const { return reinterpret_cast<Sum*>(b.memory) + bias_at(); }
  std::size_t magnitudes_at() const {
    return whole_lines(static_cast<std::size_t>(bias_at() + (s_.adds_bias ? inputs.padded() : 0)) *
                       sizeof(Sum));
  }
  Magnitudes* magnitudes(const ConvBuffers& b) const {
    return reinterpret_cast<Magnitudes*>(b.memory + magnitudes_at());
  }
  std::size_t engine_bytes() const {
    const std::int64_t watched = has_pairs ? inputs.pairs() + cuts() : 0;
    return magnitudes_at() + static_cast<std::size_t>(watched) * sizeof(Magnitudes);
  }

  // Memory of a worker: rows of the source, results, what ChannelRows needs, a list. Or weights
  // that are not pairs yet.
  Number* source(const ConvBuffers& b) const { return reinterpret_cast<Number*>(b.scratch); }
  std::size_t results_at() const {
    return whole_lines(
        static_cast<std::size_t>(s_.kernel[0] * source_rows(rows_at_once_) * row_numbers) *
        sizeof(Number));
  }
  std::int64_t result_pitch() const { return ((rows_at_once_ * columns_) | 1) * inputs.width; }
  Sum* results(const ConvBuffers& b) const {
    return reinterpret_cast<Sum*>(b.scratch + results_at());
  }
  std::size_t spare_at() const {
    return results_at() + static_cast<std::size_t>(BlockSide::kPair * result_pitch()) * sizeof(Sum);
  }
  Sum* spare(const ConvBuffers& b) const { return reinterpret_cast<Sum*>(b.scratch + spare_at()); }
  BlockRun* list(const ConvBuffers& b) const {
    return reinterpret_cast<BlockRun*>(spare(b) + kSpareSums);
  }
  std::size_t worker_bytes() const {
    const std::size_t spare = static_cast<std::size_t>(kSpareSums) * sizeof(Sum);
    const std::size_t list = static_cast<std::size_t>(kernel_rows) * sizeof(BlockRun);
    return std::max(spare_at() + spare + list,
                    has_pairs ? static_cast<std::size_t>(most_weights()) * sizeof(Sum) : 0);
  }

 private:
  static constexpr double kTileShare = 0.375;  // of a second-level cache
  static constexpr std::int64_t kMostColumns = 512;
  static constexpr std::int64_t kSpareSums = kRowSpareSums;

  // Rows of the source and of the results fit a cache together.
  void make_cuts(double most_sums, std::int64_t least_tasks) {
    column_cuts_ = ceil_divide(s_.in[2], kMostColumns);
    columns_ = ceil_divide(s_.in[2], column_cuts_);
    row_numbers =
        round_up(((columns_ - 1) * s_.stride[2] + s_.kernel[2]) * s_.outputs + kNumbersAtOnce - 1,
                 inputs.width);
    const auto sums = [&](std::int64_t rows) {
      const double source = static_cast<double>(s_.kernel[0]) *
                            static_cast<double>(source_rows(rows)) *
                            static_cast<double>(row_numbers);
      return source * sizeof(Number) / sizeof(Sum) +
             static_cast<double>(rows * columns_ * BlockSide::kPair * inputs.width);
    };
    rows_at_once_ = s_.in[1];
    while (rows_at_once_ > 1 && sums(rows_at_once_) > most_sums) {
      rows_at_once_ = ceil_divide(rows_at_once_, 2);
    }
    fits = sums(rows_at_once_) <= 4 * most_sums;
    const std::int64_t others = s_.batch * s_.in[0] * column_cuts_;
    const std::int64_t wanted =
        std::min(s_.in[1], std::max(ceil_divide(s_.in[1], rows_at_once_),
                                    ceil_divide(least_tasks, std::max<std::int64_t>(1, others))));
    rows_at_once_ = ceil_divide(s_.in[1], wanted);
    row_cuts_ = ceil_divide(s_.in[1], rows_at_once_);
  }

  std::int64_t source_rows(std::int64_t rows) const {
    return (rows - 1) * s_.stride[1] + (s_.kernel[1] - 1) * s_.dilation[1] + 1;
  }

  // Of a pair of blocks, as sums.
  std::int64_t most_weights() const {
    return kernel_rows * numbers * BlockSide::kPair * inputs.width;
  }

  const ConvShape s_;
  std::int64_t rows_at_once_ = 1, row_cuts_ = 1;
  std::int64_t columns_ = 1, column_cuts_ = 1;
};

}  // namespace backops
