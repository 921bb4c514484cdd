// The input product of a tile whose lanes are groups, with zeros around its outputs.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/ints.h"
#include "kernels/conv/conv.h"
#include "ops/conv/engine.h"
#include "ops/conv/lanes/taps.h"
#include "ops/conv/tiles.h"

namespace backops {

// Channel `index` of every group, as if a group were a channel.
inline Activation of_each_group(const Activation& tensor, std::int64_t index,
                                std::int64_t per_group) {
  Activation own = tensor;
  own.data += index * tensor.channel_stride_bytes;
  own.channel_stride_bytes *= per_group;
  return own;
}

template <class Sum>
class LaneInput {
 public:
  // Outputs of a group lie `output_volume` sums apart.
  LaneInput(const ConvShape& shape, const ConvKernels& kernels, const LaneGroups& groups,
            const Tile& tile, std::int64_t output_volume)
      : s_(shape),
        kernels_(kernels),
        groups_(groups),
        width_(kernels.width),
        taps_(shape, tile.output, shape.group_outputs(), output_volume, width_) {
    constexpr std::int64_t kPositionsAtOnce = 128;  // of results that are written together
    constexpr std::int64_t kMostListed = 4096;      // taps, for them
    columns_ = tile.results.step[1];
    const std::int64_t row_taps = taps_.axis(2).stride * static_cast<std::int64_t>(taps_.most());
    rows_at_once_ = std::max<std::int64_t>(
        1, std::min({kPositionsAtOnce / columns_, kMostListed / std::max<std::int64_t>(row_taps, 1),
                     tile.results.axes[1].size()}));
  }

  // Scratch memory: for the results of a block, and for lists.
  std::int64_t result_sums() const { return rows_at_once_ * columns_ * width_; }
  std::size_t list_bytes() const {
    const auto lists = static_cast<std::size_t>(rows_at_once_ * taps_.axis(2).stride);
    return lists * (sizeof(GroupTaps::List) + taps_.most() * sizeof(GatherTap));
  }

  // Blocks of groups, their scratch memory, and their weights, of (outputs, inputs, taps), which
  // lie so far apart.
  struct Work {
    const ConvBuffers& buffers;
    Range blocks, groups;
    Sum* scratch;
    std::int64_t pitch, results_at;
    const Sum* weights;
    std::int64_t weight_pitch;
    const Sum* bias;    // a vector for each input, as far apart; null where there is none
    const Sum* finite;  // whether the weights are, as far apart: 0 if not
    char* list;
  };

  // A few rows at a time: they are still in the first-level cache when they are written. The taps
  // of a row are listed once for all images and blocks.
  void write(const Work& work, const Tile& tile) const {
    if (tile.results.axes[2].size() <= 0) return;
    const Range &slices = tile.results.axes[0], &rows = tile.results.axes[1];
    for (std::int64_t d = slices.begin; d < slices.end; ++d) {
      for (std::int64_t h = rows.begin; h < rows.end; h += rows_at_once_) {
        const Range own{h, std::min(h + rows_at_once_, rows.end)};
        list_taps(work, tile, d, own);
        for (std::int64_t image = tile.images.begin; image < tile.images.end; ++image) {
          for (std::int64_t i = 0; i < s_.group_inputs(); ++i) {
            for (std::int64_t block = 0; block < work.blocks.size(); ++block) {
              sum_rows(work, tile, block, i, {image, d, own});
            }
            put_rows(work, tile, i, {image, d, own});
          }
        }
      }
    }
  }

 private:
  struct Rows {
    std::int64_t image, d;
    Range h;
  };

  // For each row, those of each class of columns.
  static GroupTaps::List* tap_lists(const Work& work) {
    return reinterpret_cast<GroupTaps::List*>(work.list);
  }
  void list_taps(const Work& work, const Tile& tile, std::int64_t d, const Range& rows) const {
    GroupTaps::List* list = tap_lists(work);
    auto* kept = reinterpret_cast<GatherTap*>(list + rows_at_once_ * taps_.axis(2).stride);
    const Range& columns = tile.results.axes[2];
    for (std::int64_t h = rows.begin; h < rows.end; ++h) {
      for (std::int64_t i = 0; i < taps_.axis(2).stride; ++i) {
        if (columns.begin + i >= columns.end) break;
        list[i] = taps_.of(d, h, columns.begin + i, kept);
        kept += list[i].count;
      }
      list += taps_.axis(2).stride;
    }
  }

  static bool are_same(const GroupTaps::List* one, const GroupTaps::List* other,
                       std::int64_t count) {
    return std::equal(one, one + count, other, [](const auto& a, const auto& b) {
      return a.taps == b.taps && a.count == b.count;
    });
  }

  // Rows that follow each other and have the same taps together.
  void sum_rows(const Work& work, const Tile& tile, std::int64_t block, std::int64_t channel,
                const Rows& rows) const {
    Sum* const own = work.scratch + block * work.pitch;
    const Sum* const weights =
        work.weights + block * work.weight_pitch + channel * s_.taps() * width_;
    const Sum* const bias =
        work.bias == nullptr ? nullptr : work.bias + block * work.weight_pitch + channel * width_;
    const bool are_finite = work.finite[block * work.weight_pitch] != 0;
    const Range& columns = tile.results.axes[2];
    const ConvAxis& along = taps_.axis(2);
    const std::int64_t to_row = columns.size() * width_;
    Sum* to = own + work.results_at;
    for (std::int64_t h = rows.h.begin, next; h < rows.h.end; to += (next - h) * to_row, h = next) {
      const Sum* const output = own + tile.output.place(rows.image, taps_.axis(0).output_of(rows.d),
                                                        taps_.axis(1).output_of(h), 0) *
                                          width_;
      next = h + 1;
      if (!are_finite) {
        taps_.write_carefully(output, weights, bias, groups_, {rows.d, h, columns}, to);
        continue;
      }
      const GroupTaps::List* const list = tap_lists(work) + (h - rows.h.begin) * along.stride;
      const std::int64_t classes = std::min(along.stride, columns.size());
      while (next < rows.h.end && are_same(list, list + (next - h) * along.stride, classes)) ++next;
      for (std::int64_t i = 0; i < classes; ++i) {
        kernels_.gather({output + along.output_of(columns.begin + i) * width_, weights,
                         list[i].taps, list[i].count, to + i * width_, along.stride * width_,
                         ceil_divide(columns.size() - i, along.stride), bias, groups_, next - h,
                         tile.output.step[1] * width_, to_row});
      }
    }
  }

  void put_rows(const Work& work, const Tile& tile, std::int64_t channel, const Rows& rows) const {
    const Activation result = of_each_group(work.buffers.input_product, channel, s_.group_inputs());
    const Range& columns = tile.results.axes[2];
    const bool joins = result.stride_bytes[1] == columns.size() * result.stride_bytes[2];
    const std::int64_t at_once = joins ? rows.h.size() : 1;
    for (std::int64_t h = rows.h.begin; h < rows.h.end; h += at_once) {
      kernels_.from_lanes(
          {result.at(rows.image, work.groups.begin, rows.d, h, columns.begin),
           result.channel_stride_bytes, result.stride_bytes[2],
           work.scratch + work.results_at + (h - rows.h.begin) * columns.size() * width_, width_,
           work.pitch, work.groups.size(), at_once * columns.size()});
    }
  }

  const ConvShape s_;
  const ConvKernels& kernels_;
  const LaneGroups groups_;
  const std::int64_t width_;
  const GroupTaps taps_;
  std::int64_t columns_ = 0, rows_at_once_ = 1;
};

}  // namespace backops
