// The input product of kernels of one tap, in tensors of the sums' type whose channels or whose
// positions lie side by side: a matrix product of the tensors as they are. Nothing is copied but
// the weights. Output products may have strides.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/conv/conv.h"
#include "ops/conv/axes.h"
#include "ops/conv/blocks/runs.h"
#include "ops/conv/blocks/sizes.h"
#include "ops/conv/engine.h"
#include "ops/conv/tiles.h"

namespace backops {

template <class Sum>
class BlockInPlace {
 public:
  BlockInPlace(const ConvShape& shape, const BlockSizes& sizes, const ConvKernels& kernels,
               std::int64_t level1_bytes)
      : s_(shape),
        n_(sizes),
        kernels_(kernels),
        planes_(shape),
        panel_(std::max<std::int64_t>(
            n_.width, level1_bytes / 2 / (2 * n_.width * std::int64_t{sizeof(Sum)}))) {}

  static bool fits(const ConvTask& task) {
    const ConvShape& s = task.shape;
    bool has_one_tap = s.is_turned;
    for (int axis = 0; axis < kMaxConvRank; ++axis) {
      has_one_tap = has_one_tap && s.kernel[axis] == 1 && s.padding[axis] == 0;
    }
    return (has_one_tap || s.is_pointwise()) && s.makes_input &&
           size_of(task.dtype) == sizeof(Sum) && task.rounding == Rounding::none;
  }

  // Packed weights of all pairs of input blocks, and a bias in blocks of inputs or null.
  struct Work {
    const ConvBuffers& buffers;
    const Sum* weights;
    const Sum* bias;
    bool is_near;  // `output` is in the cache already
  };

  // False if the tensors do not lie like that: then nothing was written.
  bool write_tile(const Work& work, const Tile& tile) const {
    const Activation from = planes_.view(work.buffers.output, 0);
    const Activation& to = work.buffers.input_product;
    if (!has_whole_sums<Sum>(from) || !has_whole_sums<Sum>(to)) return false;
    const bool has_channels =
        from.channel_stride_bytes == sizeof(Sum) && to.channel_stride_bytes == sizeof(Sum);
    const bool has_positions =
        from.stride_bytes[2] == sizeof(Sum) && to.stride_bytes[2] == sizeof(Sum);
    if (!has_channels && !has_positions) return false;
    const int joined = joined_axes(from, to, tile);
    const std::int64_t length = run_length(tile.results, joined);
    if (has_channels ? is_too_short(length, tile) : !fills_vectors(length)) return false;
    const auto for_all = [&](const auto& body) {
      for_runs(tile.results, joined,
               [&](std::int64_t image, std::int64_t d, std::int64_t h, std::int64_t w) {
                 body(Run{reinterpret_cast<const Sum*>(from.at(image, 0, d, h, w)),
                          reinterpret_cast<Sum*>(to.at(image, 0, d, h, w)), length,
                          in_sums(from.stride_bytes[2]), in_sums(to.stride_bytes[2]),
                          in_sums(from.stride_bytes[1])});
               });
    };
    if (!has_channels) {
      for_all([&](const Run& run) { by_positions(work, run); });
    } else {
      for (std::int64_t i = 0; i < n_.inputs.all_pairs(); ++i) {
        const bool is_far = i == 0 && !work.is_near && n_.outputs.all_channels() >= panel_;
        for_all([&](const Run& run) { by_channels(pair_of(work, i), run, is_far, joined == 1); });
      }
    }
    return true;
  }

 private:
  // Positions of several runs would be summed together in scratch memory.
  static bool is_too_short(std::int64_t length, const Tile& tile) {
    constexpr std::int64_t kLeastPositions = 4;
    return length < kLeastPositions && length < tile.results.positions();
  }

  // Whether few positions are computed twice because the last vectors overlap.
  bool fills_vectors(std::int64_t positions) const {
    constexpr double kMostTwice = 1.1;
    const std::int64_t pair = BlockSizes::kPair * n_.width;
    return positions >= n_.width && static_cast<double>(round_up(positions, pair)) <
                                        kMostTwice * static_cast<double>(positions);
  }

  // Positions that lie one behind the other in both tensors.
  struct Run {
    const Sum* from;
    Sum* to;
    std::int64_t count;
    std::int64_t from_step, to_step;  // between positions
    std::int64_t from_row;            // to the next run of one row
  };

  static std::int64_t in_sums(std::int64_t bytes) {
    return bytes / static_cast<std::int64_t>(sizeof(Sum));
  }

  // How many of the last axes are one run, in a tile that has all of the later ones.
  int joined_axes(const Activation& from, const Activation& to, const Tile& tile) const {
    int joined = 1;
    for (int axis = kMaxConvRank - 1; axis > 0; --axis, ++joined) {
      const std::int64_t size = s_.in[axis];
      const auto follows = [&](const Activation& tensor) {
        return tensor.stride_bytes[axis - 1] == size * tensor.stride_bytes[axis];
      };
      if (tile.results.axes[axis].size() != size || !follows(from) || !follows(to)) break;
    }
    return joined;
  }
  // Some outputs of a group at a time: their weights, or their positions, stay in the first-level
  // cache.
  template <class Body>
  void for_panels(const Body& body) const {
    for_shares({0, n_.outputs.channels}, panel_, body);
  }

  struct Pair {
    const Sum* weights;  // of all outputs of its group
    const Sum* bias;
    Range channels;
    std::int64_t width, first_output;
    int blocks;
  };
  Pair pair_of(const Work& work, std::int64_t pair) const {
    const int blocks = n_.inputs.blocks_of_pair(pair);
    return {work.weights + n_.packed_pair(pair),
            work.bias == nullptr ? nullptr : work.bias + n_.inputs.first_block(pair) * n_.width,
            n_.inputs.channels_of_pair(pair),
            blocks * n_.width,
            n_.inputs.group_of_pair(pair) * n_.outputs.channels,
            blocks};
  }

  // Numbers of positions times vectors of weights. A few positions at a time while they come from
  // memory: the next ones are asked for, which CPUs do not foresee of many long rows at once.
  void by_channels(const Pair& pair, const Run& run, bool is_far, bool is_row) const {
    if (!is_far) return write_channels(pair, run);
    const std::int64_t few = 2 * kernels_.most_twins;
    for_shares({0, run.count}, few, [&](const Range& own) {
      const bool is_last = is_row && own.end == run.count;
      ask_for(run.from + (is_last ? run.from_row : own.end * run.from_step),
              std::min(few, run.count), run.from_step);
      write_channels(pair, {run.from + own.begin * run.from_step, run.to + own.begin * run.to_step,
                            own.size(), run.from_step, run.to_step, 0});
    });
  }

  // Lanes without a channel must not be written.
  void write_channels(const Pair& pair, const Run& run) const {
    Sum* const to = run.to + pair.channels.begin;
    if (pair.channels.size() == pair.width) {
      return multiply_channels(pair, run.from, run.from_step, run.count, to, run.to_step);
    }
    alignas(64) Sum sums[kMostPositions * BlockSizes::kPair * kMostWidth];
    for_shares({0, run.count}, kMostPositions, [&](const Range& own) {
      multiply_channels(pair, run.from + own.begin * run.from_step, run.from_step, own.size(), sums,
                        pair.width);
      for (std::int64_t i = 0; i < own.size(); ++i) {
        std::copy_n(sums + i * pair.width, pair.channels.size(),
                    to + (own.begin + i) * run.to_step);
      }
    });
  }

  void multiply_channels(const Pair& pair, const Sum* from, std::int64_t from_step,
                         std::int64_t positions, Sum* to, std::int64_t to_step) const {
    for_panels([&](const Range& outputs) {
      BlockProducts p = products_of(pair, outputs);
      p.left = from + pair.first_output + outputs.begin;
      p.left_step = 1;
      p.left_pitch = from_step;
      p.right = pair.weights + outputs.begin * pair.width;
      p.right_step = pair.width;
      p.sums = to;
      p.sum_step = to_step;
      p.rows = positions;
      p.vectors = pair.blocks;
      kernels_.multiply_apart(p);
    });
  }

  // All channels of these positions, into the second-level cache.
  void ask_for(const Sum* from, std::int64_t positions, std::int64_t step) const {
    constexpr std::int64_t kLine = 64 / sizeof(Sum);
    for (std::int64_t i = 0; i < positions; ++i, from += step) {
      for (std::int64_t at = 0; at < n_.outputs.all_channels(); at += kLine) {
        __builtin_prefetch(from + at, 0, 2);
      }
    }
  }

  // Numbers of weights times vectors of positions. The last vectors overlap those before.
  void by_positions(const Work& work, const Run& run) const {
    const std::int64_t pair_width = BlockSizes::kPair * n_.width;
    const std::int64_t width = run.count >= pair_width ? pair_width : n_.width;
    for (std::int64_t next = 0; next < run.count; next += width) {
      const std::int64_t first = std::min(next, run.count - width);
      for (std::int64_t i = 0; i < n_.inputs.all_pairs(); ++i) {
        multiply_positions(work, pair_of(work, i), run.from + first, run.to + first, width);
      }
    }
  }

  void multiply_positions(const Work& work, const Pair& pair, const Sum* from, Sum* to,
                          std::int64_t count) const {
    const std::int64_t from_channel = in_sums(work.buffers.output.channel_stride_bytes);
    const std::int64_t to_channel = in_sums(work.buffers.input_product.channel_stride_bytes);
    for_panels([&](const Range& outputs) {
      BlockProducts p = products_of(pair, outputs);
      p.left = pair.weights + outputs.begin * pair.width;
      p.left_step = pair.width;
      p.right = from + (pair.first_output + outputs.begin) * from_channel;
      p.right_step = from_channel;
      p.sums = to + pair.channels.begin * to_channel;
      p.sum_step = to_channel;
      p.rows = pair.channels.size();
      p.vectors = static_cast<int>(count / n_.width);
      kernels_.multiply_channels(p);
    });
  }

  static constexpr std::int64_t kMostPositions = 16;

  // What both have in common.
  BlockProducts products_of(const Pair& pair, const Range& outputs) const {
    static constexpr BlockRun kOnce{0, 0};
    BlockProducts p{};
    p.runs = &kOnce;
    p.run_count = 1;
    p.run_length = outputs.size();
    p.right_pitch = n_.width;
    p.sum_pitch = n_.width;
    p.adds = outputs.begin > 0;
    p.bias = outputs.begin > 0 ? nullptr : pair.bias;
    return p;
  }

  const ConvShape s_;
  const BlockSizes n_;
  const ConvKernels& kernels_;
  const OutputPlanes planes_;
  const std::int64_t panel_;  // outputs
};

}  // namespace backops
