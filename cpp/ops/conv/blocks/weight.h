// The weight product of tiles in blocks. Sums are taken over the outputs whose window has the tap
// inside the input, so no zeros are needed around it.
//
// A product adds numbers of one tensor, the channels of a block as rows, times vectors of the
// other. Which of the two has the vectors is a choice: the one whose channels fill them better.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/conv/conv.h"
#include "ops/conv/axes.h"
#include "ops/conv/blocks/folds.h"
#include "ops/conv/blocks/sizes.h"
#include "ops/conv/tiles.h"

namespace backops {

template <class Sum>
class BlockWeight {
 public:
  BlockWeight(const ConvShape& shape, const BlockSizes& sizes, const ConvKernels& kernels,
              const FoldedTaps* folds)
      : s_(shape),
        n_(sizes),
        kernels_(kernels),
        folds_(folds),
        input_step_(folds ? folds->step() : n_.width),
        is_pointwise_(s_.is_pointwise()),
        kernel_rows_(s_.kernel[0] * s_.kernel[1]),
        rows_at_once_(std::max<std::int64_t>(1, kPositionsAtOnce / s_.out[2])),
        most_rows_(folds ? kPositionsAtOnce : rows_at_once_) {
    for (int axis = 0; axis < kMaxConvRank; ++axis) axes_.emplace_back(s_, axis);
  }

  // Where a tile lies, and what is to be made of it.
  struct Work {
    const Sum* output;  // the blocks of these pairs, if lanes are outputs; else all
    std::int64_t output_pitch;
    const Sum* input;
    std::int64_t input_pitch, input_step;  // between blocks and between positions
    Range pairs;                           // of blocks of lanes
    Sum* sums;                             // of all pairs
    char* lists;
  };

  // In blocks, or between folds.
  std::int64_t input_step() const { return input_step_; }

  // Lists of runs, how long they are, and columns.
  std::size_t list_bytes() const {
    return static_cast<std::size_t>(kernel_rows_ * most_rows_) * sizeof(BlockRun) +
           static_cast<std::size_t>(kernel_rows_) * sizeof(std::int64_t) +
           static_cast<std::size_t>(most_columns()) * sizeof(TapColumns);
  }

  // A few rows of outputs at a time, or a part of one, which stay in the first-level cache.
  void add_tile(const Work& work, const Tile& tile, bool is_first) const {
    if (folds_) return add_folds(work, tile, is_first);
    for_shares(tile.outputs[2], kPositionsAtOnce, [&](const Range& columns) {
      for (std::int64_t tap = 0; tap < s_.kernel[2]; ++tap) {
        tap_columns(work)[tap] = columns_of(columns, tap);
      }
      const bool is_first_piece = columns.begin == tile.outputs[2].begin;
      add_columns(work, tile, s_.kernel[2], rows_at_once_, is_first && is_first_piece);
    });
  }

 private:
  static constexpr std::int64_t kPositionsAtOnce = 200;

  // Outputs of a row whose windows have a tap inside the input, where that is, and which rows of
  // sums that is true of.
  struct TapColumns {
    std::int64_t tap, output, input, count;
    Range numbers;
  };

  // One list for each kernel row.
  BlockRun* runs(const Work& work, std::int64_t row) const {
    return reinterpret_cast<BlockRun*>(work.lists) + row * most_rows_;
  }
  std::int64_t* run_counts(const Work& work) const {
    return reinterpret_cast<std::int64_t*>(runs(work, kernel_rows_));
  }
  TapColumns* tap_columns(const Work& work) const {
    return reinterpret_cast<TapColumns*>(run_counts(work) + kernel_rows_);
  }

  std::int64_t most_columns() const { return folds_ ? folds_->most_borders() : s_.kernel[2]; }

  // Whole folds like the columns of a tap, then those that lie only partly inside the input: one
  // by one, but many rows at a time.
  void add_folds(const Work& work, const Tile& tile, bool is_first) const {
    if (is_first) {
      const std::int64_t first = n_.sums_of_pair(work.pairs.begin);
      std::fill_n(work.sums + first, n_.sums_of_pair(work.pairs.end) - first, Sum{0});
    }
    const Range &row = tile.outputs[2], whole = folds_->whole(row);
    TapColumns* const list = tap_columns(work);
    for_shares(whole, kPositionsAtOnce, [&](const Range& own) {
      list[0] = {0, own.begin, own.begin, own.size(), {0, n_.inputs.channels}};
      add_columns(work, tile, 1, rows_at_once_, false);
    });
    std::int64_t count = 0;
    const auto list_borders = [&](const Range& own) {
      for (std::int64_t output = own.begin; output < own.end; ++output) {
        const Range inside = folds_->inside(output);
        if (inside.size() > 0) list[count++] = {0, output, output, 1, inside};
      }
    };
    list_borders({row.begin, whole.begin});
    list_borders({whole.end, row.end});
    add_columns(work, tile, count, most_rows_, false);
  }

  TapColumns columns_of(const Range& outputs, std::int64_t tap) const {
    const Range numbers{0, n_.sum_rows.channels};
    if (is_pointwise_) return {tap, outputs.begin, outputs.begin, outputs.size(), numbers};
    const ConvAxis& a = axes_[2];
    const std::int64_t shift = tap * a.dilation - a.padding;
    const std::int64_t begin =
        std::max(outputs.begin, shift < 0 ? ceil_divide(-shift, a.stride) : 0);
    const std::int64_t end =
        a.in <= shift ? 0 : std::min(outputs.end, (a.in - 1 - shift) / a.stride + 1);
    return {tap, begin, begin * a.stride + shift, std::max<std::int64_t>(0, end - begin), numbers};
  }

  void add_columns(const Work& work, const Tile& tile, std::int64_t columns,
                   std::int64_t rows_at_once, bool is_first) const {
    const Range(&o)[kMaxConvRank] = tile.outputs;
    const std::int64_t per_image = o[0].size() * o[1].size();
    const std::int64_t rows = tile.images.size() * per_image;
    for (std::int64_t first = 0; first < rows; first += rows_at_once) {
      std::fill_n(run_counts(work), kernel_rows_, std::int64_t{0});
      for (std::int64_t row = first; row < std::min(first + rows_at_once, rows); ++row) {
        list_row(work, tile, tile.images.begin + row / per_image,
                 o[0].begin + row % per_image / o[1].size(), o[1].begin + row % o[1].size());
      }
      add_rows(work, columns, is_first && first == 0);
    }
  }

  // In the lists of those kernel rows that meet the input there.
  void list_row(const Work& work, const Tile& tile, std::int64_t image, std::int64_t d,
                std::int64_t h) const {
    const ConvAxis &depth = axes_[0], &height = axes_[1];
    const std::int64_t output = tile.output.place(image, d, h, 0) * n_.width;
    for (std::int64_t row = 0; row < kernel_rows_; ++row) {
      const std::int64_t input_d =
          d * depth.stride - depth.padding + row / height.kernel * depth.dilation;
      const std::int64_t input_h =
          h * height.stride - height.padding + row % height.kernel * height.dilation;
      if (input_d < 0 || input_d >= depth.in || input_h < 0 || input_h >= height.in) continue;
      const std::int64_t input = tile.input.place(image, input_d, input_h, 0) * work.input_step;
      runs(work, row)[run_counts(work)[row]++] =
          n_.has_lanes_on_inputs ? BlockRun{output, input} : BlockRun{input, output};
    }
  }

  void add_rows(const Work& work, std::int64_t columns, bool is_first) const {
    const std::int64_t first = n_.sum_lanes.first_block(work.pairs.begin);
    const Sum *lanes = work.output, *rows = work.input;
    std::int64_t lane_pitch = work.output_pitch, row_pitch = work.input_pitch;
    if (n_.has_lanes_on_inputs) {
      std::swap(lanes, rows);
      std::swap(lane_pitch, row_pitch);
    }
    // The numbers of a fold lie side by side, so that all of them are one block.
    const std::int64_t row_blocks = folds_ ? 1 : n_.sum_rows.blocks();
    const std::int64_t block_rows = folds_ ? n_.sum_rows.padded() : n_.width;
    for (std::int64_t pair = work.pairs.begin; pair < work.pairs.end; ++pair) {
      const std::int64_t group = n_.sum_lanes.group_of_pair(pair);
      const int vectors = n_.sum_lanes.blocks_of_pair(pair);
      const Sum* const right = lanes + (n_.sum_lanes.first_block(pair) - first) * lane_pitch;
      const std::int64_t block_sums = n_.width * n_.taps * vectors * n_.width;
      Sum* sums = work.sums + n_.sums_of_pair(pair);
      for (std::int64_t block = 0; block < row_blocks; ++block, sums += block_sums) {
        const Sum* const left = rows + (group * row_blocks + block) * row_pitch;
        for (std::int64_t i = 0; i < kernel_rows_ * columns; ++i) {
          const TapColumns& own = tap_columns(work)[i % columns];
          const Range numbers =
              common({own.numbers.begin - block * block_rows, own.numbers.end - block * block_rows},
                     {0, block_rows});
          if (numbers.size() <= 0) continue;
          add_tap(work, i / columns, own, numbers, {left, right, lane_pitch, vectors}, is_first,
                  sums);
        }
      }
    }
  }

  struct Operands {
    const Sum* left;   // a block
    const Sum* right;  // one or two, `right_pitch` apart
    std::int64_t right_pitch;
    int vectors;
  };

  // Some rows of a block.
  void add_tap(const Work& work, std::int64_t kernel_row, const TapColumns& columns,
               const Range& rows, const Operands& o, bool is_first, Sum* sums) const {
    const std::int64_t tap = kernel_row * s_.kernel[2] + columns.tap;
    const std::int64_t input_at = columns.input * work.input_step;
    const std::int64_t output_at = columns.output * n_.width;
    const std::int64_t input_step = s_.stride[2] * work.input_step;
    BlockProducts products{};
    products.left = o.left + rows.begin + (n_.has_lanes_on_inputs ? output_at : input_at);
    products.left_step = n_.has_lanes_on_inputs ? n_.width : input_step;
    products.right = o.right + (n_.has_lanes_on_inputs ? input_at : output_at);
    products.right_step = n_.has_lanes_on_inputs ? input_step : n_.width;
    products.right_pitch = o.right_pitch;
    products.runs = runs(work, kernel_row);
    products.run_count = columns.count == 0 ? 0 : run_counts(work)[kernel_row];
    products.run_length = columns.count;
    products.sum_step = n_.taps * o.vectors * n_.width;
    products.sums = sums + tap * o.vectors * n_.width + rows.begin * products.sum_step;
    products.sum_pitch = n_.width;
    products.rows = rows.size();
    products.vectors = o.vectors;
    products.adds = !is_first;
    kernels_.multiply_channels(products);
  }

  const ConvShape s_;
  const BlockSizes n_;
  const ConvKernels& kernels_;
  const FoldedTaps* const folds_;
  const std::int64_t input_step_;  // sums between positions
  const bool is_pointwise_;
  const std::int64_t kernel_rows_, rows_at_once_, most_rows_;
  std::vector<ConvAxis> axes_;
};

}  // namespace backops
