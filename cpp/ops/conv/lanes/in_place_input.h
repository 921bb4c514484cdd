// The input product of depthwise convolutions in place; see in_place.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "kernels/conv/conv.h"
#include "ops/conv/lanes/in_place.h"

namespace backops {

template <class Sum>
class InPlaceInput {
 public:
  InPlaceInput(const ConvShape& shape, const ConvKernels& kernels, const LaneGroups& groups,
               std::int64_t ahead_bytes)
      : s_(shape),
        kernels_(kernels),
        groups_(groups),
        ahead_bytes_(ahead_bytes),
        element_bytes_(static_cast<std::int64_t>(size_of(kernels.dtype))),
        rows_axis_(rows_axis(shape)) {
    for (int axis = 0; axis < kMaxConvRank; ++axis) {
      axes_.emplace_back(shape, axis);
      segments_.emplace_back();
      for (const ResidueClass& own : axes_.back().classes) {
        segments_.back().push_back(inputs_of(axes_.back(), own));
      }
    }
  }

  // Runs go along rows; kernels see for themselves where those end.
  static bool fits(const ConvShape& s) {
    constexpr std::int64_t kShortest = 4;
    return is_depthwise(s) && s.in[2] >= kShortest && has_few_borders(ConvAxis(s, 0)) &&
           has_few_borders(ConvAxis(s, 1));
  }

  bool takes(const ConvBuffers& b) const {
    return has_channels_together(b.output, element_bytes_) &&
           has_channels_together(b.input_product, element_bytes_);
  }

  std::size_t list_bytes() const {
    return static_cast<std::size_t>(s_.taps()) * sizeof(ElementTap);
  }

  // Blocks of channels; weights of neighbouring ones lie so far apart.
  struct Work {
    const ConvBuffers& buffers;
    std::int64_t first_block, blocks;
    const Sum* weights;
    std::int64_t weight_pitch;
    const Sum* bias;  // as far apart; null where there is none
    bool are_weights_finite;
  };

  // These rows of an image, as rows_axis() counts them, in all slices.
  void write(const Work& work, std::int64_t image, const Range& rows) const {
    const int other = 1 - rows_axis_;
    for_segments(other, {0, s_.in[other]}, [&](const Outer& slices) {
      for_segments(rows_axis_, rows, [&](const Outer& own) {
        for (const ResidueClass& columns : axes_[2].classes) {
          rows_axis_ == 1 ? gather(work, image, slices, own, columns)
                          : gather(work, image, own, slices, columns);
        }
      });
    });
  }

 private:
  // Neighbours of a class that have the same taps, along an axis other than the row.
  struct Outer {
    const ResidueClass& own;
    Range positions, taps;
  };

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
    return segments_of(
        own.count, {before(own.backs.back()), before(a.all_outputs + own.backs.front())}, taps_of);
  }

  template <class Body>
  void for_segments(int axis, const Range& results, const Body& body) const {
    const auto index = static_cast<std::size_t>(axis);
    const ConvAxis& a = axes_[index];
    for (std::size_t i = 0; i < a.classes.size(); ++i) {
      const auto before = [&](std::int64_t result) {  // of the class
        return ceil_divide(result - a.classes[i].first_input, a.stride);
      };
      const Range wanted{before(results.begin), before(results.end)};
      for (const Segment& segment : segments_[index][i]) {
        const Range own = common(wanted, {segment.first, segment.first + segment.count});
        if (own.size() > 0) body(Outer{a.classes[i], own, segment.taps});
      }
    }
  }

  void gather(const Work& work, std::int64_t image, const Outer& slices, const Outer& rows,
              const ResidueClass& columns) const {
    const std::int64_t channel = work.first_block * kernels_.width;
    const ElementImage source(work.buffers.output, image, channel, element_bytes_);
    const ElementImage target(work.buffers.input_product, image, channel, element_bytes_);
    const auto* const taps = reinterpret_cast<const ElementTap*>(work.buffers.scratch);
    const std::int64_t tap_count = list_taps(work, source, slices, rows, columns);
    const ConvAxis& along = axes_[2];
    const std::int64_t source_step = along.plane_stride * source.step[2];
    // Positions of many channels are as far apart.
    constexpr std::int64_t kPositionsAhead = 8;
    const std::int64_t ahead =
        std::max(ahead_bytes_, kPositionsAhead * std::abs(source_step) * element_bytes_);
    for (std::int64_t d = slices.positions.begin; d < slices.positions.end; ++d) {
      for (std::int64_t h = rows.positions.begin; h < rows.positions.end; ++h) {
        const std::int64_t from = start_of(0, slices.own, d) * source.step[0] +
                                  start_of(1, rows.own, h) * source.step[1] +
                                  start_of(2, columns, 0) * source.step[2];
        const std::int64_t to = result_of(0, slices.own, d) * target.step[0] +
                                result_of(1, rows.own, h) * target.step[1] +
                                result_of(2, columns, 0) * target.step[2];
        kernels_.gather_elements({source.at(from), work.weights, taps, tap_count,
                                  along.plane_stride * source.step[2], along.plane_stride,
                                  along.all_outputs, target.at(to), along.stride * target.step[2],
                                  columns.count, work.blocks, work.weight_pitch, work.bias,
                                  last_lanes(work), groups_, ahead, work.are_weights_finite});
      }
    }
  }

  // Of position i of a class: the output that its taps are counted from, and the input.
  std::int64_t start_of(int axis, const ResidueClass& own, std::int64_t i) const {
    const ConvAxis& a = axes_[static_cast<std::size_t>(axis)];
    return a.start_of(own.first_input) + i * a.plane_stride;
  }
  std::int64_t result_of(int axis, const ResidueClass& own, std::int64_t i) const {
    return own.first_input + i * axes_[static_cast<std::size_t>(axis)].stride;
  }

  std::int64_t list_taps(const Work& work, const ElementImage& source, const Outer& slices,
                         const Outer& rows, const ResidueClass& columns) const {
    auto* const taps = reinterpret_cast<ElementTap*>(work.buffers.scratch);
    const std::int64_t first = start_of(2, columns, 0);
    const auto step = static_cast<std::size_t>(axes_[2].plane_stride);
    std::int64_t count = 0;
    for (std::int64_t i = slices.taps.begin; i < slices.taps.end; ++i) {
      for (std::int64_t j = rows.taps.begin; j < rows.taps.end; ++j) {
        const auto d = static_cast<std::size_t>(i), h = static_cast<std::size_t>(j);
        const std::int64_t row =
            (slices.own.taps[d] * s_.kernel[1] + rows.own.taps[h]) * s_.kernel[2];
        const std::int64_t back =
            slices.own.backs[d] * source.step[0] + rows.own.backs[h] * source.step[1];
        // Those that neighbours share follow each other.
        for (std::size_t begin = 0; begin < std::min(step, columns.taps.size()); ++begin) {
          for (std::size_t w = begin; w < columns.taps.size(); w += step) {
            taps[count++] = {-back - columns.backs[w] * source.step[2], first - columns.backs[w],
                             (row + columns.taps[w]) * kernels_.width, 1};
          }
        }
      }
    }
    // The last tap of a row and the first of the next may lie as far apart.
    count_neighbours(taps, count, [&](const ElementTap& one, const ElementTap& next) {
      return next.source == one.source - axes_[2].plane_stride * source.step[2] &&
             next.column == one.column - axes_[2].plane_stride;
    });
    return count;
  }

  // Of the last block, if it is not whole.
  int last_lanes(const Work& work) const {
    const std::int64_t left = s_.groups - (work.first_block + work.blocks - 1) * kernels_.width;
    return left < kernels_.width ? static_cast<int>(left) : 0;
  }

  const ConvShape s_;
  const ConvKernels& kernels_;
  const LaneGroups groups_;
  const std::int64_t ahead_bytes_;
  const std::int64_t element_bytes_;
  const int rows_axis_;
  std::vector<ConvAxis> axes_;
  std::vector<std::vector<Segments>> segments_;  // by axis and residue class
};

}  // namespace backops
