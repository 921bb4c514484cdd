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
  LaneWeights(const ConvShape& shape, const ConvKernels& kernels, const Tile& tile,
              std::int64_t output_volume, std::int64_t input_volume)
      : s_(shape),
        kernels_(kernels),
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

  // To sums of (outputs, inputs, taps).
  void add(const Sum* block, const Tile& tile, Sum* total) const {
    const Range& columns = tile.outputs[2];
    const auto rows = static_cast<std::int64_t>(row_offsets_.size());
    for_rows(tile.images, tile.outputs, [&](std::int64_t image, std::int64_t d, std::int64_t h) {
      const Sum* const output = block + tile.output.place(image, d, h, columns.begin) * width_;
      const std::int64_t window = tile.input.place(image, input_of(0, d, 0), input_of(1, h, 0),
                                                   input_of(2, columns.begin, 0));
      for (std::int64_t pair = 0; pair < pairs_; ++pair) {
        kernels_.correlate({left_of(output, pair), right_of(block, pair) + window * width_,
                            row_offsets_.data(), rows, s_.kernel[2], s_.dilation[2] * width_,
                            width_, s_.stride[2] * width_, columns.size(),
                            total + pair * s_.taps() * width_, s_.kernel[2], 1, 0, columns.size()});
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
                              total + (pair * s_.taps() + tap) * width_, 1, 1, 0, columns.size()});
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
  const std::int64_t width_, pairs_, output_volume_, input_volume_;
  std::vector<std::int64_t> row_offsets_;  // of kernel rows
};

}  // namespace backops
