// Few input channels would leave most of a vector empty. The numbers of a window along one row,
// (columns of the kernel, channels), fill more of it, and they lie side by side in rows of the
// input that have the channels innermost. Such a row of numbers is a fold. To the blocks engine
// they are the channels of a problem whose kernels have one column, and whose input has the columns
// of the outputs.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/conv/conv.h"
#include "ops/conv/copy.h"
#include "ops/conv/engine.h"
#include "ops/conv/tiles.h"

namespace backops {

class FoldedTaps {
 public:
  static constexpr std::int64_t kMostNumbers = 1024;

  // A turned problem, which has no strides then, is one whose taps go the other way.
  FoldedTaps(const ConvShape& shape, std::int64_t width) : s_(shape), asked_(shape), width_(width) {
    if (s_.is_turned) s_.padding[2] = s_.kernel[2] - 1 - s_.padding[2];
  }

  // The problem that the engine is given.
  ConvShape problem() const {
    ConvShape p = asked_;
    p.inputs = numbers();
    p.in[2] = p.out[2];
    p.kernel[2] = p.stride[2] = p.dilation[2] = 1;
    p.padding[2] = 0;
    return p;
  }

  // What its rows are cut by, if they are too long for a tile: folds that overlap are needed on
  // both sides of a cut, as if a kernel of as many columns met one step of the input each.
  ConvShape cut_problem() const {
    ConvShape p = problem();
    p.kernel[2] = overlaps() + 1;
    p.in[2] = p.out[2] + overlaps();
    if (p.is_turned) p.padding[2] = overlaps();
    return p;
  }

  std::int64_t channels() const { return s_.inputs; }
  std::int64_t numbers() const { return s_.kernel[2] * s_.inputs; }
  std::int64_t step() const { return s_.stride[2] * s_.inputs; }  // between folds

  // Outputs whose whole windows lie inside the input.
  Range whole(const Range& outputs) const {
    const std::int64_t room = s_.in[2] + s_.padding[2] - s_.kernel[2];
    const std::int64_t begin = ceil_divide(s_.padding[2], s_.stride[2]);
    const std::int64_t end = room < 0 ? 0 : room / s_.stride[2] + 1;
    const std::int64_t first = std::clamp(begin, outputs.begin, outputs.end);
    return {first, std::clamp(end, first, outputs.end)};
  }
  // Numbers of a window that lie inside. Of few windows these are some, but not all.
  Range inside(std::int64_t output) const {
    const std::int64_t start = output * s_.stride[2] - s_.padding[2];
    const std::int64_t begin = std::clamp<std::int64_t>(-start, 0, s_.kernel[2]);
    const std::int64_t end = std::clamp<std::int64_t>(s_.in[2] - start, begin, s_.kernel[2]);
    return {begin * s_.inputs, end * s_.inputs};
  }

  std::int64_t most_borders() const { return 2 * s_.kernel[2]; }

  // Some numbers of an output's weights; those of a kernel row lie `row_pitch` behind those of the
  // one before.
  template <class Sum>
  void bring_weights(const TileCopy<Sum>& copy, const Weights& weight, std::int64_t output,
                     const Range& numbers, Sum* to, std::int64_t row_pitch) const {
    Sum all[kMostNumbers];
    const std::int64_t column = weight.stride_bytes[2];
    const std::int64_t first = s_.is_turned ? (s_.kernel[2] - 1) * column : 0;
    for_kernel_rows(weight, [&](std::int64_t row, std::int64_t offset) {
      copy.kernels().to_lanes({weight.at(output, 0) + offset + first, weight.input_stride_bytes,
                               s_.is_turned ? -column : column, all, s_.inputs, width_, s_.inputs,
                               s_.kernel[2]});
      std::copy(all + numbers.begin, all + numbers.end, to + row * row_pitch);
    });
  }

  // Sums are (numbers, kernel rows, outputs of `width` together).
  template <class Sum>
  void put_weights(const TileCopy<Sum>& copy, const Weights& weight, const Range& outputs,
                   const Range& numbers, Sum* from, std::int64_t width) const {
    const std::int64_t rows = s_.kernel[0] * s_.kernel[1];
    for_kernel_rows(weight, [&](std::int64_t row, std::int64_t offset) {
      for (std::int64_t i = numbers.begin; i < numbers.end; ++i) {
        char* const elements = weight.at(outputs.begin, i % s_.inputs) + offset +
                               i / s_.inputs * weight.stride_bytes[2];
        copy.put_line(elements, weight.output_stride_bytes, outputs.size(),
                      from + ((i - numbers.begin) * rows + row) * width);
      }
    });
  }

  // Places that a row of so many folds takes, one step each: fewer columns than a step are left
  // over behind the last one.
  std::int64_t row_places(std::int64_t folds) const {
    return folds + overlaps() + 1 + ceil_divide(width_, s_.stride[2]);
  }
  std::int64_t row_sums(std::int64_t folds) const { return row_places(folds) * step(); }
  // A box of folds, in such rows.
  Box rows_of(const Box& box, std::int64_t folds) const {
    const auto longer = [&](std::int64_t step) { return step / box.step[1] * row_places(folds); };
    Box rows = box;
    rows.image_step = longer(box.image_step);
    rows.step[0] = longer(box.step[0]);
    rows.step[1] = longer(box.step[1]);
    return rows;
  }

  static constexpr std::int64_t kSpareSums = kRowSpareSums;

  template <class Sum>
  void bring(const TileCopy<Sum>& copy, const Activation& input, const Box& rows,
             const Range& outputs, Sum* to, Sum* spare) const {
    const std::int64_t first = outputs.begin * s_.stride[2] - s_.padding[2];
    const std::int64_t end = first + (outputs.size() - 1) * s_.stride[2] + s_.kernel[2];
    const std::int64_t begin = std::clamp<std::int64_t>(0, first, end);
    const Range inside{begin, std::clamp(s_.in[2], begin, end)};
    for_rows(rows.images, rows.axes, [&](std::int64_t image, std::int64_t d, std::int64_t h) {
      Sum* const row = to + rows.place(image, d, h, outputs.begin) * step();
      std::fill(row, row + (inside.begin - first) * s_.inputs, Sum{0});
      std::fill(row + (inside.end - first) * s_.inputs, row + (end - first) * s_.inputs, Sum{0});
      ChannelRows<Sum>(copy, s_.inputs)
          .bring(input, {image, d, h}, inside, row + (inside.begin - first) * s_.inputs, spare);
    });
  }

  // Outputs whose folds reach the results of a tile.
  Range reaching(const Tile& tile) const { return common(tile.output.axes[2], {0, s_.out[2]}); }

  // A row that nothing was added to yet, but a bias that is not null.
  template <class Sum>
  void begin_row(const Sum* bias, std::int64_t folds, Sum* row) const {
    Sum* const end = row + row_sums(folds);
    if (bias == nullptr) return std::fill(row, end, Sum{0});
    for (; row != end; row += s_.inputs) std::copy_n(bias, s_.inputs, row);  // whole steps
  }

  // Adds the numbers of a block, of some folds, to a row that starts with the first one.
  template <class Sum>
  void fold(const ConvKernels& kernels, const Sum* folds, std::int64_t count, std::int64_t block,
            Sum* row) const {
    kernels.fold(
        {folds, row + block * width_, step(), count, std::min(width_, numbers() - block * width_)});
  }

  // The columns that are finished by a tile.
  template <class Sum>
  void put(const TileCopy<Sum>& copy, const Activation& result, const Tile& tile,
           const TensorRow& at, Sum* row) const {
    const Range& steps = tile.results.axes[2];
    const bool is_last = tile.outputs[2].end == s_.out[2];
    const std::int64_t begin = column_of(steps.begin);
    const Range columns{begin, is_last ? s_.in[2] : std::max(begin, column_of(steps.end))};
    const std::int64_t start = reaching(tile).begin * s_.stride[2] - s_.padding[2];
    Sum* const own = row + (columns.begin - start) * s_.inputs;
    if (columns.size() <= 0) return;
    char* const elements = result.at(at.image, 0, at.d, at.h, columns.begin);
    if (const std::int64_t stride = line_stride(result, s_.inputs)) {
      return copy.put_line(elements, stride, columns.size() * s_.inputs, own);
    }
    copy.kernels().from_lanes({elements, result.channel_stride_bytes, result.stride_bytes[2], own,
                               s_.inputs, 0, s_.inputs, columns.size()});
  }

 private:
  // Further folds that one overlaps with.
  std::int64_t overlaps() const { return (s_.kernel[2] - 1) / s_.stride[2]; }
  // Of the input, where a step begins.
  std::int64_t column_of(std::int64_t step) const {
    return std::clamp<std::int64_t>(step * s_.stride[2] - s_.padding[2], 0, s_.in[2]);
  }

  // Calls body(kernel row, its offset).
  template <class Body>
  void for_kernel_rows(const Weights& weight, const Body& body) const {
    for (std::int64_t d = 0; d < s_.kernel[0]; ++d) {
      for (std::int64_t h = 0; h < s_.kernel[1]; ++h) {
        body(d * s_.kernel[1] + h, d * weight.stride_bytes[0] + h * weight.stride_bytes[1]);
      }
    }
  }

  ConvShape s_;
  const ConvShape asked_;
  const std::int64_t width_;
};

}  // namespace backops
