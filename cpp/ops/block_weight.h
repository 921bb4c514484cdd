// The weight gradient of tiles in blocks. Sums are taken over the outputs whose window has the tap
// inside the input, so no zeros are needed around it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/conv/conv.h"
#include "ops/block_sizes.h"
#include "ops/block_tiles.h"
#include "ops/block_windows.h"
#include "ops/conv_engine.h"
#include "ops/lane_geometry.h"

namespace backops {

template <class Sum>
class BlockWeight {
 public:
  // Of a problem made of windows, if there are any.
  BlockWeight(const ConvShape& shape, const BlockSizes& sizes, const ConvKernels& kernels,
              const BlockWindows* windows)
      : s_(shape),
        n_(sizes),
        kernels_(kernels),
        windows_(windows),
        input_step_(windows ? windows->step() : n_.lanes),
        is_pointwise_(is_pointwise(s_)),
        kernel_rows_(s_.kernel[0] * s_.kernel[1]),
        rows_at_once_(std::max<std::int64_t>(1, kPositionsAtOnce / s_.out[2])),
        most_rows_(windows ? kPositionsAtOnce : rows_at_once_) {
    for (int axis = 0; axis < kMaxConvRank; ++axis) axes_.emplace_back(s_, axis);
  }

  // Where a tile lies, and what is to be made of it.
  struct Work {
    const Sum* grad;  // the blocks of these pairs of outputs
    std::int64_t grad_pitch;
    const Sum* input;
    std::int64_t input_pitch;
    Range pairs;
    Sum* sums;  // of all pairs
    char* lists;
  };

  // Lists of runs, how long they are, and columns.
  std::size_t list_bytes() const {
    return static_cast<std::size_t>(kernel_rows_ * most_rows_) * sizeof(BlockRun) +
           static_cast<std::size_t>(kernel_rows_) * sizeof(std::int64_t) +
           static_cast<std::size_t>(most_columns()) * sizeof(TapColumns);
  }

  // A few rows of outputs at a time, or a part of one, which stay in the first-level cache.
  void add_tile(const Work& work, const Tile& tile, bool is_first) const {
    if (windows_) return add_windows(work, tile, is_first);
    for_pieces(tile.outputs[2], [&](const Range& columns) {
      for (std::int64_t tap = 0; tap < s_.kernel[2]; ++tap) {
        tap_columns(work)[tap] = columns_of(columns, tap);
      }
      const bool is_first_piece = columns.begin == tile.outputs[2].begin;
      add_columns(work, tile, s_.kernel[2], rows_at_once_, is_first && is_first_piece);
    });
  }

 private:
  static constexpr std::int64_t kPositionsAtOnce = 200;

  // Outputs of a row whose windows have a tap inside the input, where that is, and which of its
  // numbers that is true of.
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

  std::int64_t most_columns() const { return windows_ ? windows_->most_borders() : s_.kernel[2]; }

  template <class Body>
  static void for_pieces(const Range& row, const Body& body) {
    const std::int64_t pieces = ceil_divide(row.size(), kPositionsAtOnce);
    for (std::int64_t piece = 0; piece < pieces; ++piece) {
      body(Range{row.begin + piece * row.size() / pieces,
                 row.begin + (piece + 1) * row.size() / pieces});
    }
  }

  // Whole windows like the columns of a tap, then those that lie only partly inside the input: one
  // by one, but many rows at a time.
  void add_windows(const Work& work, const Tile& tile, bool is_first) const {
    if (is_first) {
      const std::int64_t first = n_.sums_of_pair(work.pairs.begin);
      std::fill_n(work.sums + first, n_.sums_of_pair(work.pairs.end) - first, Sum{0});
    }
    const Range &row = tile.outputs[2], whole = windows_->whole(row);
    TapColumns* const list = tap_columns(work);
    for_pieces(whole, [&](const Range& own) {
      list[0] = {0, own.begin, own.begin, own.size(), {0, n_.inputs}};
      add_columns(work, tile, 1, rows_at_once_, false);
    });
    std::int64_t count = 0;
    const auto list_borders = [&](const Range& own) {
      for (std::int64_t output = own.begin; output < own.end; ++output) {
        const Range inside = windows_->inside(output);
        if (inside.size() > 0) list[count++] = {0, output, output, 1, inside};
      }
    };
    list_borders({row.begin, whole.begin});
    list_borders({whole.end, row.end});
    add_columns(work, tile, count, most_rows_, false);
  }

  TapColumns columns_of(const Range& outputs, std::int64_t tap) const {
    const Range numbers{0, n_.inputs};
    if (is_pointwise_) return {tap, outputs.begin, outputs.begin, outputs.size(), numbers};
    const LaneAxis& a = axes_[2];
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
    const LaneAxis &depth = axes_[0], &height = axes_[1];
    const std::int64_t right = tile.grad.place(image, d, h, 0) * n_.lanes;
    for (std::int64_t row = 0; row < kernel_rows_; ++row) {
      const std::int64_t input_d =
          d * depth.stride - depth.padding + row / height.kernel * depth.dilation;
      const std::int64_t input_h =
          h * height.stride - height.padding + row % height.kernel * height.dilation;
      if (input_d < 0 || input_d >= depth.in || input_h < 0 || input_h >= height.in) continue;
      runs(work, row)[run_counts(work)[row]++] = {
          tile.input.place(image, input_d, input_h, 0) * input_step_, right};
    }
  }

  void add_rows(const Work& work, std::int64_t columns, bool is_first) const {
    const std::int64_t first = n_.first_block(work.pairs.begin);
    for (std::int64_t pair = work.pairs.begin; pair < work.pairs.end; ++pair) {
      const std::int64_t group = pair / n_.output_pairs();
      const int vectors = n_.blocks_of_output_pair(pair);
      const Sum* const grad = work.grad + (n_.first_block(pair) - first) * work.grad_pitch;
      const std::int64_t block_sums = n_.lanes * n_.taps * vectors * n_.lanes;
      Sum* sums = work.sums + n_.sums_of_pair(pair);
      for (std::int64_t block = 0; block < n_.input_blocks; ++block, sums += block_sums) {
        const Sum* const input = work.input + (group * n_.input_blocks + block) * work.input_pitch;
        for (std::int64_t i = 0; i < kernel_rows_ * columns; ++i) {
          const TapColumns& own = tap_columns(work)[i % columns];
          const Range rows{std::max<std::int64_t>(own.numbers.begin - block * n_.lanes, 0),
                           std::min(own.numbers.end - block * n_.lanes, n_.lanes)};
          if (rows.size() <= 0) continue;
          add_tap(work, i / columns, own, rows, grad, input, vectors, is_first, sums);
        }
      }
    }
  }

  // Some numbers of a block.
  void add_tap(const Work& work, std::int64_t kernel_row, const TapColumns& columns,
               const Range& rows, const Sum* grad, const Sum* input, int vectors, bool is_first,
               Sum* sums) const {
    const std::int64_t tap = kernel_row * s_.kernel[2] + columns.tap;
    BlockProducts products{};
    products.left = input + columns.input * input_step_ + rows.begin;
    products.left_step = s_.stride[2] * input_step_;
    products.right = grad + columns.output * n_.lanes;
    products.right_step = n_.lanes;
    products.right_pitch = work.grad_pitch;
    products.runs = runs(work, kernel_row);
    products.run_count = columns.count == 0 ? 0 : run_counts(work)[kernel_row];
    products.run_length = columns.count;
    products.sum_step = n_.taps * vectors * n_.lanes;
    products.sums = sums + tap * vectors * n_.lanes + rows.begin * products.sum_step;
    products.sum_pitch = n_.lanes;
    products.rows = rows.size();
    products.vectors = vectors;
    products.adds = !is_first;
    kernels_.multiply_channels(products);
  }

  const ConvShape s_;
  const BlockSizes n_;
  const ConvKernels& kernels_;
  const BlockWindows* const windows_;
  const std::int64_t input_step_;  // sums between positions
  const bool is_pointwise_;
  const std::int64_t kernel_rows_, rows_at_once_, most_rows_;
  std::vector<LaneAxis> axes_;
};

}  // namespace backops
