// Few input channels would leave most of a vector empty. The numbers of a window along one row,
// (columns of the kernel, channels), fill more of it, and they lie side by side in rows of the
// input that have the channels innermost. To the blocks engine these numbers are the channels of a
// problem whose kernels have one column and whose input has the columns of the outputs.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/conv/conv.h"
#include "ops/block_copy.h"
#include "ops/block_tiles.h"
#include "ops/conv_engine.h"

namespace backops {

// Of an image.
struct BlockRow {
  std::int64_t image, d, h;
};

class BlockWindows {
 public:
  BlockWindows(const ConvShape& shape, std::int64_t lanes) : s_(shape), lanes_(lanes) {}

  // Where this was measured to be faster than the engines for few channels.
  static bool fits(const ConvShape& s, std::int64_t lanes) {
    const bool is_asked = s.wants_input || s.wants_weight;
    return is_asked && s.groups == 1 && s.channels < lanes && 2 * s.outputs >= lanes &&
           s.dilation[2] == 1 && s.kernel[2] > 1 && s.kernel[2] <= kMostNumbers / s.channels;
  }

  // The problem that the engine is given.
  ConvShape problem() const {
    ConvShape p = s_;
    p.channels = numbers();
    p.in[2] = p.out[2];
    p.kernel[2] = p.stride[2] = p.dilation[2] = 1;
    p.padding[2] = 0;
    return p;
  }

  // What its rows are cut by, if they are too long for a tile: windows that overlap are needed on
  // both sides of a cut, as if a kernel of as many columns met one step of the input each.
  ConvShape cut_problem() const {
    ConvShape p = problem();
    p.kernel[2] = overlaps() + 1;
    p.in[2] = p.out[2] + overlaps();
    return p;
  }

  std::int64_t numbers() const { return s_.kernel[2] * s_.channels; }
  std::int64_t step() const { return s_.stride[2] * s_.channels; }  // between windows

  // Outputs whose whole windows lie inside the input.
  Range whole(const Range& outputs) const {
    const std::int64_t room = s_.in[2] + s_.padding[2] - s_.kernel[2];
    const std::int64_t begin = (s_.padding[2] + s_.stride[2] - 1) / s_.stride[2];
    const std::int64_t end = room < 0 ? 0 : room / s_.stride[2] + 1;
    const std::int64_t first = std::clamp(begin, outputs.begin, outputs.end);
    return {first, std::clamp(end, first, outputs.end)};
  }
  // Numbers of a window that lie inside. Of few windows these are some, but not all.
  Range inside(std::int64_t output) const {
    const std::int64_t start = output * s_.stride[2] - s_.padding[2];
    const std::int64_t begin = std::clamp<std::int64_t>(-start, 0, s_.kernel[2]);
    const std::int64_t end = std::clamp<std::int64_t>(s_.in[2] - start, begin, s_.kernel[2]);
    return {begin * s_.channels, end * s_.channels};
  }

  std::int64_t most_borders() const { return 2 * s_.kernel[2]; }

  // Calls body(output, number, kernel row, place in the weights).
  template <class Body>
  void for_weights(const Range& outputs, const Range& numbers, const Body& body) const {
    const std::int64_t rows = s_.kernel[0] * s_.kernel[1];
    for (std::int64_t o = outputs.begin; o < outputs.end; ++o) {
      for (std::int64_t i = numbers.begin; i < numbers.end; ++i) {
        const std::int64_t column = i / s_.channels, channel = i % s_.channels;
        for (std::int64_t row = 0; row < rows; ++row) {
          body(o, i, row, ((o * s_.channels + channel) * rows + row) * s_.kernel[2] + column);
        }
      }
    }
  }

  // Places that a row of so many windows takes, one step each: fewer columns than a step are left
  // over behind the last window.
  std::int64_t row_places(std::int64_t windows) const {
    return windows + overlaps() + 1 + (lanes_ + s_.stride[2] - 1) / s_.stride[2];
  }
  std::int64_t row_sums(std::int64_t windows) const { return row_places(windows) * step(); }
  // A box of windows, in such rows.
  Box rows_of(const Box& box, std::int64_t windows) const {
    const auto longer = [&](std::int64_t step) { return step / box.step[1] * row_places(windows); };
    Box rows = box;
    rows.image_step = longer(box.image_step);
    rows.step[0] = longer(box.step[0]);
    rows.step[1] = longer(box.step[1]);
    return rows;
  }

  // Of sums, for some columns of a channel.
  static constexpr std::int64_t kSpareSums = 1024;

  template <class Sum>
  void bring(const BlockCopy<Sum>& copy, const Activation& input, const Box& rows,
             const Range& windows, Sum* to, Sum* spare) const {
    const std::int64_t first = windows.begin * s_.stride[2] - s_.padding[2];
    const std::int64_t end = first + (windows.size() - 1) * s_.stride[2] + s_.kernel[2];
    const std::int64_t begin = std::clamp<std::int64_t>(0, first, end);
    const Range inside{begin, std::clamp(s_.in[2], begin, end)};
    for_rows(rows.images, rows.axes, [&](std::int64_t image, std::int64_t d, std::int64_t h) {
      Sum* const row = to + rows.place(image, d, h, windows.begin) * step();
      std::fill(row, row + (inside.begin - first) * s_.channels, Sum{0});
      std::fill(row + (inside.end - first) * s_.channels, row + (end - first) * s_.channels,
                Sum{0});
      bring_row(copy, input, {image, d, h}, inside, row + (inside.begin - first) * s_.channels,
                spare);
    });
  }

  // Windows that reach the results of a tile.
  Range reaching(const Tile& tile) const {
    const Range& grad = tile.grad.axes[2];
    return {std::max<std::int64_t>(grad.begin, 0), std::min(grad.end, s_.out[2])};
  }

  // Adds the numbers of a block, of some windows, to a row that starts with the first one.
  template <class Sum>
  void fold(const ConvKernels& kernels, const Sum* windows, std::int64_t count, std::int64_t block,
            Sum* row) const {
    kernels.fold({windows, row + block * lanes_, step(), count,
                  std::min(lanes_, numbers() - block * lanes_)});
  }

  // The columns that are finished by a tile.
  template <class Sum>
  void put(const BlockCopy<Sum>& copy, const Activation& grad_input, const Tile& tile,
           const BlockRow& at, Sum* row, Sum* spare) const {
    const Range& steps = tile.results.axes[2];
    const bool is_last = tile.outputs[2].end == s_.out[2];
    const std::int64_t begin = column_of(steps.begin);
    const Range columns{begin, is_last ? s_.in[2] : std::max(begin, column_of(steps.end))};
    const std::int64_t start = reaching(tile).begin * s_.stride[2] - s_.padding[2];
    const auto element = [&](std::int64_t channel, std::int64_t column) {
      return copy.element(grad_input, channel, at.image, at.d, at.h, column);
    };
    Sum* const own = row + (columns.begin - start) * s_.channels;
    if (columns.size() <= 0) return;
    if (const std::int64_t stride = line_stride(grad_input)) {
      return copy.put_line(element(0, columns.begin), stride, columns.size() * s_.channels, own);
    }
    for_pieces(columns, [&](std::int64_t channel, std::int64_t column, std::int64_t count) {
      const Sum* const from = own + (column - columns.begin) * s_.channels + channel;
      for (std::int64_t i = 0; i < count; ++i) spare[i] = from[i * s_.channels];
      copy.put_line(element(channel, column), grad_input.stride_bytes[2], count, spare);
    });
  }

 private:
  static constexpr std::int64_t kMostNumbers = 1024;

  // Further windows that one overlaps with.
  std::int64_t overlaps() const { return (s_.kernel[2] - 1) / s_.stride[2]; }
  // Of the input, where a step begins.
  std::int64_t column_of(std::int64_t step) const {
    return std::clamp<std::int64_t>(step * s_.stride[2] - s_.padding[2], 0, s_.in[2]);
  }

  template <class Sum>
  void bring_row(const BlockCopy<Sum>& copy, const Activation& input, const BlockRow& row,
                 const Range& columns, Sum* to, Sum* spare) const {
    const auto element = [&](std::int64_t channel, std::int64_t column) {
      return copy.element(input, channel, row.image, row.d, row.h, column);
    };
    if (columns.size() == 0) return;
    if (const std::int64_t stride = line_stride(input)) {
      return copy.bring_line(element(0, columns.begin), stride, columns.size() * s_.channels, to);
    }
    for_pieces(columns, [&](std::int64_t channel, std::int64_t column, std::int64_t count) {
      copy.bring_line(element(channel, column), input.stride_bytes[2], count, spare);
      Sum* const own = to + (column - columns.begin) * s_.channels + channel;
      for (std::int64_t i = 0; i < count; ++i) own[i * s_.channels] = spare[i];
    });
  }

  // Between the elements of a row that already has the channels innermost; 0 for others.
  std::int64_t line_stride(const Activation& tensor) const {
    if (s_.channels == 1) return tensor.stride_bytes[2];
    const std::int64_t stride = tensor.channel_stride_bytes;
    return tensor.stride_bytes[2] == s_.channels * stride ? stride : 0;
  }

  // Calls body(channel, first column, columns).
  template <class Body>
  void for_pieces(const Range& columns, const Body& body) const {
    for (std::int64_t column = columns.begin; column < columns.end; column += kSpareSums) {
      const std::int64_t count = std::min(columns.end - column, kSpareSums);
      for (std::int64_t channel = 0; channel < s_.channels; ++channel) body(channel, column, count);
    }
  }

  const ConvShape s_;
  const std::int64_t lanes_;
};

}  // namespace backops
