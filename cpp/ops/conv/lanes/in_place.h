// Products of depthwise convolutions where the channels of all tensors lie side by side: vectors
// are read and written in place. There are no zeros around tensors; positions near borders are
// worked on apart, by the taps that they have. Weight products want tensors of the type of the
// sums, and channels that fill vectors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/ints.h"
#include "kernels/conv/conv.h"
#include "ops/conv/axes.h"
#include "ops/conv/engine.h"

namespace backops {

template <class Sum>
class InPlace {
 public:
  InPlace(const ConvShape& shape, const ConvKernels& kernels)
      : batch_(shape.batch),
        channels_(shape.groups),
        kernels_(kernels),
        element_bytes_(static_cast<std::int64_t>(size_of(kernels.dtype))),
        height_axis_(height_of(shape)),
        height_(shape, height_axis_),
        row_(shape, 2),
        output_rows_(outputs_of(height_)),
        output_columns_(outputs_of(row_)) {
    for (const ResidueClass& own : height_.classes) input_rows_.push_back(inputs_of(height_, own));
    for (const ResidueClass& own : row_.classes) input_columns_.push_back(inputs_of(row_, own));
  }

  // One channel in each group, and few positions near borders: those have short runs.
  static bool fits(const ConvShape& s, const ConvKernels& kernels) {
    const bool are_sums = size_of(kernels.dtype) == sizeof(Sum);
    const bool fill_vectors = s.groups % kernels.width == 0;
    if ((s.makes_weight || s.makes_bias) && !(are_sums && fill_vectors)) return false;
    const ConvAxis height(s, height_of(s)), other(s, 1 - height_of(s)), row(s, 2);
    const auto has_few_borders = [](const ConvAxis& a) {
      return a.reach <= kMostReach && a.padding >= 0 && a.padding <= a.reach;
    };
    const auto is_long = [](const ConvAxis& a) { return a.in >= 2 * a.reach; };
    return s.inputs == s.groups && s.outputs == s.groups && other.is_trivial() &&
           has_few_borders(height) && has_few_borders(row) && (is_long(height) || is_long(row));
  }

  bool takes(const ConvBuffers& b) const {
    return takes(b.output) && takes(b.input) && takes(b.input_product);
  }

  std::size_t list_bytes() const {
    return static_cast<std::size_t>(height_.kernel * row_.kernel) * sizeof(GatherTap);
  }

  // Blocks of channels; weights and sums of neighbouring ones lie so far apart.
  struct Work {
    const ConvBuffers& buffers;
    std::int64_t first_block, blocks;
    const Sum* weights;  // of the first block; null unless the input product is wanted
    std::int64_t weight_pitch;
    const Sum* bias;   // likewise, as far apart; null where there is none
    Sum* weight_sums;  // likewise
    Sum* bias_sums;
    std::int64_t sum_pitch;
  };

  // One of `parts` shares of the rows of all images, a few rows at a time.
  void work(const Work& work, std::int64_t parts, std::int64_t part) const {
    const Range rows = share_of(batch_ * height_.out, parts, part);
    for (std::int64_t first = rows.begin; first < rows.end;) {
      const std::int64_t image = first / height_.out, begin = first % height_.out;
      const std::int64_t end =
          std::min({begin + kRowsAtOnce, begin + rows.end - first, height_.out});
      const Range outputs{begin, end};
      if (work.weight_sums != nullptr) sum_weights(work, image, outputs);
      if (work.bias_sums != nullptr) sum_bias(work, image, outputs);
      if (work.weights != nullptr) write_inputs(work, image, height_.finished_by(outputs));
      first += end - begin;
    }
  }

 private:
  static constexpr std::int64_t kMostReach = 64;
  static constexpr std::int64_t kRowsAtOnce = 8;
  // All channels of so many positions are read before those of the next ones, nearly as they lie in
  // memory; 8 were slower.
  static constexpr std::int64_t kPositionsAtOnce = 16;

  // Neighbours along an axis, of one residue class if they are inputs, that have the same taps: of
  // the kernel if they are outputs, of the class if they are inputs.
  struct Segment {
    std::int64_t first, count;
    Range taps;
  };
  using Segments = std::vector<Segment>;

  // Where a block of a tensor begins, and how far apart neighbours are, in elements.
  struct Plane {
    char* data;
    std::int64_t row, column, element_bytes;
    char* at(std::int64_t h, std::int64_t w) const {
      return data + (h * row + w * column) * element_bytes;
    }
  };

  bool takes(const Activation& tensor) const {
    const auto is_whole = [this](std::int64_t bytes) { return bytes % element_bytes_ == 0; };
    return tensor.data == nullptr ||
           (tensor.channel_stride_bytes == element_bytes_ && is_whole(tensor.image_stride_bytes) &&
            std::all_of(tensor.stride_bytes, tensor.stride_bytes + kMaxConvRank, is_whole) &&
            is_whole(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(tensor.data))));
  }

  // Those of `whole` have all taps; the others are listed one by one.
  template <class TapsOf>
  static Segments listed(std::int64_t count, const Range& whole, const TapsOf& taps_of) {
    Segments list;
    const std::int64_t begin = std::clamp<std::int64_t>(whole.begin, 0, count);
    const std::int64_t end = std::clamp(whole.end, begin, count);
    for (std::int64_t i = 0; i < begin; ++i) list.push_back({i, 1, taps_of(i)});
    if (begin < end) list.push_back({begin, end - begin, taps_of(begin)});
    for (std::int64_t i = end; i < count; ++i) list.push_back({i, 1, taps_of(i)});
    return list;
  }

  static Segments outputs_of(const ConvAxis& a) {
    const auto taps_of = [&a](std::int64_t output) {
      const std::int64_t window = output * a.stride - a.padding;
      const std::int64_t begin = window < 0 ? (a.dilation - 1 - window) / a.dilation : 0;
      const std::int64_t inside = a.in - window;  // from the window's begin on
      const std::int64_t end = inside <= 0 ? 0 : ceil_divide(inside, a.dilation);
      return Range{begin, std::max(begin, std::min(end, a.kernel))};
    };
    const std::int64_t last = a.in - 1 - a.reach + a.padding;  // where a whole window may begin
    return listed(a.out, {ceil_divide(a.padding, a.stride), last < 0 ? 0 : last / a.stride + 1},
                  taps_of);
  }

  static Segments inputs_of(const ConvAxis& a, const ResidueClass& own) {
    if (own.taps.empty()) return {{0, own.count, {0, 0}}};
    const std::int64_t first = a.start_of(own.first_input), step = a.plane_stride;
    const auto taps_of = [&](std::int64_t i) {
      const auto up_to = [&](std::int64_t back) {
        const auto& all = own.backs;
        return std::upper_bound(all.begin(), all.end(), back) - all.begin();
      };
      return Range{up_to(first + i * step - a.all_outputs), up_to(first + i * step)};
    };
    const auto before = [&](std::int64_t output) {  // inputs of the class that start there
      return ceil_divide(std::max<std::int64_t>(0, output - first), step);
    };
    return listed(own.count, {before(own.backs.back()), before(a.all_outputs + own.backs.front())},
                  taps_of);
  }

  // Volumes of one row have slices instead of rows.
  static int height_of(const ConvShape& s) { return ConvAxis(s, 0).is_trivial() ? 1 : 0; }

  Plane plane_of(const Activation& tensor, std::int64_t image, std::int64_t block) const {
    char* const data = tensor.data + image * tensor.image_stride_bytes;
    return {data + block * kernels_.width * element_bytes_,
            tensor.stride_bytes[height_axis_] / element_bytes_,
            tensor.stride_bytes[2] / element_bytes_, element_bytes_};
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

  void sum_weights(const Work& work, std::int64_t image, const Range& outputs) const {
    for (const Segment& rows : output_rows_) {
      const Range own = common(outputs, {rows.first, rows.first + rows.count});
      if (own.size() <= 0 || rows.taps.size() == 0) continue;
      for (const Segment& columns : output_columns_) {
        if (columns.taps.size() > 0) correlate(work, image, own, rows.taps, columns);
      }
    }
  }

  void correlate(const Work& work, std::int64_t image, const Range& rows, const Range& row_taps,
                 const Segment& columns) const {
    const ConvAxis &y = height_, &x = row_;
    const Plane output = plane_of(work.buffers.output, image, work.first_block);
    const Plane input = plane_of(work.buffers.input, image, work.first_block);
    auto* const offsets = reinterpret_cast<std::int64_t*>(work.buffers.scratch);
    for (std::int64_t tap = row_taps.begin; tap < row_taps.end; ++tap) {
      offsets[tap - row_taps.begin] = tap * y.dilation * input.row;
    }
    Sum* const sums =
        work.weight_sums + (row_taps.begin * x.kernel + columns.taps.begin) * kernels_.width;
    for_runs(rows, columns, [&](std::int64_t h, std::int64_t w, bool down, std::int64_t count) {
      const char* const window = input.at(
          h * y.stride - y.padding, w * x.stride - x.padding + columns.taps.begin * x.dilation);
      kernels_.correlate({output.at(h, w), window, offsets, row_taps.size(), columns.taps.size(),
                          x.dilation * input.column, down ? output.row : output.column,
                          down ? y.stride * input.row : x.stride * input.column, count, sums,
                          x.kernel, work.blocks, work.sum_pitch, kPositionsAtOnce});
    });
  }

  void sum_bias(const Work& work, std::int64_t image, const Range& outputs) const {
    for (std::int64_t block = 0; block < work.blocks; ++block) {
      const Plane output = plane_of(work.buffers.output, image, work.first_block + block);
      for (std::int64_t h = outputs.begin; h < outputs.end; ++h) {
        kernels_.sum(
            {output.at(h, 0), output.column, row_.out, work.bias_sums + block * work.sum_pitch});
      }
    }
  }

  void write_inputs(const Work& work, std::int64_t image, const Range& results) const {
    for (std::size_t i = 0; i < input_rows_.size(); ++i) {
      const ResidueClass& y = height_.classes[i];
      const auto before = [&](std::int64_t h) {  // of the class
        return ceil_divide(h - y.first_input, height_.stride);
      };
      const Range wanted{before(results.begin), before(results.end)};
      for (std::size_t j = 0; j < input_columns_.size(); ++j) {
        for (const Segment& rows : input_rows_[i]) {
          const Range own = common(wanted, {rows.first, rows.first + rows.count});
          if (own.size() <= 0) continue;
          for (const Segment& columns : input_columns_[j]) {
            gather(work, image, y, row_.classes[j], own, rows.taps, columns);
          }
        }
      }
    }
  }

  void gather(const Work& work, std::int64_t image, const ResidueClass& y, const ResidueClass& x,
              const Range& rows, const Range& row_taps, const Segment& columns) const {
    const Plane output = plane_of(work.buffers.output, image, work.first_block);
    auto* const taps = reinterpret_cast<GatherTap*>(work.buffers.scratch);
    std::int64_t tap_count = 0;
    for (auto i = static_cast<std::size_t>(row_taps.begin);
         i < static_cast<std::size_t>(row_taps.end); ++i) {
      for (auto j = static_cast<std::size_t>(columns.taps.begin);
           j < static_cast<std::size_t>(columns.taps.end); ++j) {
        taps[tap_count++] = {-y.backs[i] * output.row - x.backs[j] * output.column,
                             (y.taps[i] * row_.kernel + x.taps[j]) * kernels_.width};
      }
    }
    const std::int64_t first_row = height_.start_of(y.first_input);
    const std::int64_t first_column = row_.start_of(x.first_input);
    const std::int64_t row_step = height_.plane_stride * output.row;
    const std::int64_t column_step = row_.plane_stride * output.column;
    const Plane result = plane_of(work.buffers.input_product, image, work.first_block);
    for_runs(rows, columns, [&](std::int64_t h, std::int64_t w, bool down, std::int64_t count) {
      kernels_.gather_elements(
          {output.at(first_row, first_column) + (h * row_step + w * column_step) * element_bytes_,
           work.weights, taps, tap_count, down ? row_step : column_step,
           result.at(y.first_input + h * height_.stride, x.first_input + w * row_.stride),
           down ? height_.stride * result.row : row_.stride * result.column, count, work.blocks,
           work.weight_pitch, work.bias, last_lanes(work)});
    });
  }
  // Of the last block, if it is not whole.
  int last_lanes(const Work& work) const {
    const std::int64_t left = channels_ - (work.first_block + work.blocks - 1) * kernels_.width;
    return left < kernels_.width ? static_cast<int>(left) : 0;
  }

  const std::int64_t batch_, channels_;
  const ConvKernels& kernels_;
  const std::int64_t element_bytes_;
  const int height_axis_;
  const ConvAxis height_, row_;
  const Segments output_rows_, output_columns_;
  std::vector<Segments> input_rows_, input_columns_;  // by residue class
};

}  // namespace backops
