// The weight product and the bias sums of a tile whose lanes are groups, with zeros around its
// input.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/ints.h"
#include "kernels/conv/conv.h"
#include "ops/conv/shape.h"
#include "ops/conv/tiles.h"

namespace backops {

template <class Sum>
class LaneWeights {
 public:
  // Channels of `output` lie `output_volume` sums apart, and those of `input`, which follow,
  // `input_volume`.
  LaneWeights(const ConvShape& shape, const ConvKernels& kernels, const LaneGroups& groups,
              const Tile& tile, std::int64_t output_volume, std::int64_t input_volume)
      : s_(shape),
        kernels_(kernels),
        groups_(groups),
        width_(kernels.width),
        pairs_(shape.group_outputs() * shape.group_inputs()),
        output_volume_(output_volume),
        input_volume_(input_volume) {
    for (std::int64_t d = 0; d < s_.kernel[0]; ++d) {
      for (std::int64_t h = 0; h < s_.kernel[1]; ++h) {
        row_offsets_.push_back(
            (d * s_.dilation[0] * tile.input.step[0] + h * s_.dilation[1] * tile.input.step[1]) *
            width_);
      }
    }
  }

  // To sums in the order of LaneOrder. A few rows at a time, which stay in the first-level cache
  // while all sums are made of them.
  void add(const Sum* block, const Tile& tile, Sum* total) const {
    constexpr std::int64_t kPositionsAtOnce = 128;
    const Range &columns = tile.outputs[2], &rows = tile.outputs[1];
    const std::int64_t at_once =
        std::max<std::int64_t>(1, kPositionsAtOnce / std::max<std::int64_t>(1, columns.size()));
    const Range slices[] = {tile.outputs[0], {0, 1}, {0, 1}};
    for_rows(tile.images, slices, [&](std::int64_t image, std::int64_t d, std::int64_t) {
      for (std::int64_t h = rows.begin; h < rows.end; h += at_once) {
        add_rows(block, tile, {image, d, h}, std::min(at_once, rows.end - h), total);
      }
    });
  }

  // Tap by tap, over the outputs whose window has it inside the input.
  void add_carefully(const Sum* block, const Tile& tile, Sum* total) const {
    static constexpr std::int64_t kHere = 0;
    for_rows(tile.images, tile.outputs, [&](std::int64_t image, std::int64_t d, std::int64_t h) {
      for (std::int64_t tap = 0; tap < s_.taps(); ++tap) {
        const std::int64_t i = input_of(0, d, tap / (s_.kernel[1] * s_.kernel[2]));
        const std::int64_t j = input_of(1, h, tap / s_.kernel[2] % s_.kernel[1]);
        const Range columns = outputs_with(tap % s_.kernel[2], tile.outputs[2]);
        if (i < 0 || i >= s_.in[0] || j < 0 || j >= s_.in[1] || columns.size() <= 0) continue;
        const Sum* const output = block + tile.output.place(image, d, h, columns.begin) * width_;
        const std::int64_t window =
            tile.input.place(image, i, j, input_of(2, columns.begin, tap % s_.kernel[2]));
        for (std::int64_t pair = 0; pair < pairs_; ++pair) {
          kernels_.correlate({left_of(output, pair), right_of(block, pair) + window * width_,
                              &kHere, 1, 1, width_, width_, s_.stride[2] * width_, columns.size(),
                              total + (pair * s_.taps() + tap) * width_, 1, 1, 0, columns.size(),
                              groups_});
        }
      }
    });
  }

  // To one sum for each output.
  void add_bias(const Sum* block, const Tile& tile, Sum* total) const {
    const Range& columns = tile.outputs[2];
    for_rows(tile.images, tile.outputs, [&](std::int64_t image, std::int64_t d, std::int64_t h) {
      const Sum* row = block + tile.output.place(image, d, h, columns.begin) * width_;
      for (std::int64_t o = 0; o < s_.group_outputs(); ++o, row += output_volume_) {
        kernels_.sum({row, width_, columns.size(), total + o * width_});
      }
    });
  }

 private:
  struct Place {
    std::int64_t image, d, h;
  };

  void add_rows(const Sum* block, const Tile& tile, const Place& first, std::int64_t rows,
                Sum* total) const {
    const Range& columns = tile.outputs[2];
    const Sum* const output =
        block + tile.output.place(first.image, first.d, first.h, columns.begin) * width_;
    const std::int64_t window =
        tile.input.place(first.image, input_of(0, first.d, 0), input_of(1, first.h, 0),
                         input_of(2, columns.begin, 0));
    CorrelateTaps taps{};
    taps.row_offsets = row_offsets_.data();
    taps.rows = static_cast<std::int64_t>(row_offsets_.size());
    taps.columns = taps.sum_columns = s_.kernel[2];
    taps.column_step = s_.dilation[2] * width_;
    taps.grad_step = width_;
    taps.input_step = s_.stride[2] * width_;
    taps.count = taps.at_once = columns.size();
    taps.vectors = 1;
    taps.groups = groups_;
    taps.lines = rows;
    taps.grad_line = tile.output.step[1] * width_;
    taps.input_line = s_.stride[1] * tile.input.step[1] * width_;
    for (std::int64_t pair = 0; pair < pairs_; ++pair) {
      taps.grad = left_of(output, pair);
      taps.input = right_of(block, pair) + window * width_;
      taps.sums = total + pair * s_.taps() * width_;
      kernels_.correlate(taps);
    }
  }

  // Of an output and an input of every group.
  const Sum* left_of(const Sum* first, std::int64_t pair) const {
    return first + pair / s_.group_inputs() * output_volume_;
  }
  const Sum* right_of(const Sum* block, std::int64_t pair) const {
    return block + s_.group_outputs() * output_volume_ + pair % s_.group_inputs() * input_volume_;
  }

  std::int64_t input_of(int axis, std::int64_t output, std::int64_t tap) const {
    return output * s_.stride[axis] - s_.padding[axis] + tap * s_.dilation[axis];
  }
  // Of these, whose window has a tap along the row inside the input.
  Range outputs_with(std::int64_t tap, const Range& outputs) const {
    const std::int64_t shift = tap * s_.dilation[2] - s_.padding[2];
    const std::int64_t begin = ceil_divide(std::max<std::int64_t>(0, -shift), s_.stride[2]);
    const std::int64_t end = floor_divide(s_.in[2] - 1 - shift, s_.stride[2]) + 1;
    return common(outputs, {begin, end});
  }

  const ConvShape s_;
  const ConvKernels& kernels_;
  const LaneGroups groups_;
  const std::int64_t width_, pairs_, output_volume_, input_volume_;
  std::vector<std::int64_t> row_offsets_;  // of kernel rows
};

}  // namespace backops
