// The weight product and the bias sums of depthwise convolutions in place; see in_place.h. Tensors
// are of the type of the sums, and channels fill vectors.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/conv/conv.h"
#include "ops/conv/lanes/in_place.h"

namespace backops {

template <class Sum>
class InPlaceWeights {
 public:
  InPlaceWeights(const ConvShape& shape, const ConvKernels& kernels, const LaneGroups& groups)
      : kernels_(kernels),
        groups_(groups),
        element_bytes_(static_cast<std::int64_t>(size_of(kernels.dtype))),
        rows_axis_(rows_axis(shape)),
        rows_(shape, rows_axis_),
        columns_(shape, 2),
        row_segments_(outputs_of(rows_)),
        column_segments_(outputs_of(columns_)) {}

  // Few positions near borders: those have short runs.
  static bool fits(const ConvShape& s, const ConvKernels& kernels) {
    const ConvAxis rows(s, rows_axis(s)), other(s, 1 - rows_axis(s)), columns(s, 2);
    const auto is_long = [](const ConvAxis& a) { return a.in >= 2 * a.reach; };
    return is_depthwise(s) && size_of(kernels.dtype) == sizeof(Sum) &&
           s.groups % kernels.width == 0 && other.is_trivial() && has_few_borders(rows) &&
           has_few_borders(columns) && (is_long(rows) || is_long(columns));
  }

  bool takes(const ConvBuffers& b) const {
    return has_channels_together(b.output, element_bytes_) &&
           has_channels_together(b.input, element_bytes_);
  }

  std::size_t list_bytes() const {
    return static_cast<std::size_t>(rows_.kernel) * sizeof(std::int64_t);
  }

  // Blocks of channels; sums of neighbouring ones lie so far apart.
  struct Work {
    const ConvBuffers& buffers;
    std::int64_t first_block, blocks;
    Sum* weight_sums;  // null unless they are wanted
    Sum* bias_sums;    // likewise
    std::int64_t sum_pitch;
  };

  // These rows of outputs of an image.
  void sum(const Work& work, std::int64_t image, const Range& outputs) const {
    if (work.bias_sums != nullptr) sum_bias(work, image, outputs);
    if (work.weight_sums == nullptr) return;
    for (const Segment& rows : row_segments_) {
      const Range own = common(outputs, {rows.first, rows.first + rows.count});
      if (own.size() <= 0 || rows.taps.size() == 0) continue;
      for (const Segment& columns : column_segments_) {
        if (columns.taps.size() > 0) correlate(work, image, own, rows.taps, columns);
      }
    }
  }

 private:
  // All channels of so many positions are read before those of the next ones, nearly as they lie in
  // memory; 8 were slower. Groups of several channels read each position several times.
  static constexpr std::int64_t kPositionsAtOnce = 16, kGroupedPositionsAtOnce = 64;

  static Segments outputs_of(const ConvAxis& a) {
    const auto taps_of = [&a](std::int64_t output) {
      const std::int64_t window = output * a.stride - a.padding;
      const std::int64_t begin = window < 0 ? (a.dilation - 1 - window) / a.dilation : 0;
      const std::int64_t inside = a.in - window;  // from the window's begin on
      const std::int64_t end = inside <= 0 ? 0 : ceil_divide(inside, a.dilation);
      return Range{begin, std::max(begin, std::min(end, a.kernel))};
    };
    const std::int64_t last = a.in - 1 - a.reach + a.padding;  // where a whole window may begin
    return segments_of(
        a.out, {ceil_divide(a.padding, a.stride), last < 0 ? 0 : last / a.stride + 1}, taps_of);
  }

  // Calls body(h, w, goes down, count) for runs of a segment of columns in these rows: along rows
  // or, where there are more of them than columns, down the columns.
  template <class Body>
  static void for_runs(const Range& rows, const Segment& columns, const Body& body) {
    if (columns.count >= rows.size()) {
      for (std::int64_t h = rows.begin; h < rows.end; ++h) {
        body(h, columns.first, false, columns.count);
      }
    } else {
      for (std::int64_t i = 0; i < columns.count; ++i) {
        body(rows.begin, columns.first + i, true, rows.size());
      }
    }
  }

  ElementImage image_of(const Activation& tensor, std::int64_t image, std::int64_t block) const {
    return {tensor, image, block * kernels_.width, element_bytes_};
  }

  void correlate(const Work& work, std::int64_t image, const Range& rows, const Range& row_taps,
                 const Segment& columns) const {
    const ConvAxis &y = rows_, &x = columns_;
    const ElementImage output = image_of(work.buffers.output, image, work.first_block);
    const ElementImage input = image_of(work.buffers.input, image, work.first_block);
    const std::int64_t output_row = output.step[rows_axis_], output_column = output.step[2];
    const std::int64_t input_row = input.step[rows_axis_], input_column = input.step[2];
    auto* const offsets = reinterpret_cast<std::int64_t*>(work.buffers.scratch);
    for (std::int64_t tap = row_taps.begin; tap < row_taps.end; ++tap) {
      offsets[tap - row_taps.begin] = tap * y.dilation * input_row;
    }
    const std::int64_t at_once = groups_.count == 0 ? kPositionsAtOnce : kGroupedPositionsAtOnce;
    Sum* const sums =
        work.weight_sums + (row_taps.begin * x.kernel + columns.taps.begin) * kernels_.width;
    for_runs(rows, columns, [&](std::int64_t h, std::int64_t w, bool down, std::int64_t count) {
      const std::int64_t window =
          (h * y.stride - y.padding) * input_row +
          (w * x.stride - x.padding + columns.taps.begin * x.dilation) * input_column;
      kernels_.correlate({output.at(h * output_row + w * output_column), input.at(window), offsets,
                          row_taps.size(), columns.taps.size(), x.dilation * input_column,
                          down ? output_row : output_column,
                          down ? y.stride * input_row : x.stride * input_column, count, sums,
                          x.kernel, work.blocks, work.sum_pitch, at_once, groups_});
    });
  }

  void sum_bias(const Work& work, std::int64_t image, const Range& outputs) const {
    for (std::int64_t block = 0; block < work.blocks; ++block) {
      const ElementImage output = image_of(work.buffers.output, image, work.first_block + block);
      for (std::int64_t h = outputs.begin; h < outputs.end; ++h) {
        kernels_.sum({output.at(h * output.step[rows_axis_]), output.step[2], columns_.out,
                      work.bias_sums + block * work.sum_pitch});
      }
    }
  }

  const ConvKernels& kernels_;
  const LaneGroups groups_;
  const std::int64_t element_bytes_;
  const int rows_axis_;
  const ConvAxis rows_, columns_;
  const Segments row_segments_, column_segments_;
};

}  // namespace backops
