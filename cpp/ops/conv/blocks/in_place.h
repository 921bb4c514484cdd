// The input product of kernels of one tap, in tensors of the sums' type whose channels or whose
// positions lie side by side: a matrix product of the tensors as they are. Nothing is copied but
// the weights.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/conv/conv.h"
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
        panel_(std::max<std::int64_t>(
            n_.width, level1_bytes / 2 / (2 * n_.width * std::int64_t{sizeof(Sum)}))) {}

  static bool fits(const ConvTask& task) {
    const ConvShape& s = task.shape;
    return s.is_pointwise() && s.makes_input && !s.makes_weight && !s.makes_bias &&
           size_of(task.dtype) == sizeof(Sum) && task.rounding == Rounding::none;
  }

  // Packed weights of all pairs of input blocks, and a bias in blocks of inputs or null.
  struct Work {
    const ConvBuffers& buffers;
    const Sum* weights;
    const Sum* bias;
  };

  // False if the tensors do not lie like that: then nothing was written.
  bool write_tile(const Work& work, const Tile& tile) const {
    const Activation &from = work.buffers.output, &to = work.buffers.input_product;
    if (!is_whole(from) || !is_whole(to)) return false;
    const bool has_channels = from.channel_stride_bytes == sizeof(Sum) &&
                              to.channel_stride_bytes == sizeof(Sum) &&
                              n_.inputs.channels % n_.width == 0;
    const bool has_positions =
        from.stride_bytes[2] == sizeof(Sum) && to.stride_bytes[2] == sizeof(Sum);
    if (!has_channels && !has_positions) return false;
    const int joined = joined_axes(from, to, tile);
    if (!has_channels && !fills_vectors(run_length(tile, joined))) return false;
    for_runs(tile, joined, [&](std::int64_t image, std::int64_t d, std::int64_t h, std::int64_t w) {
      const Run run{reinterpret_cast<const Sum*>(from.at(image, 0, d, h, w)),
                    reinterpret_cast<Sum*>(to.at(image, 0, d, h, w)), run_length(tile, joined)};
      has_channels ? by_channels(work, run) : by_positions(work, run);
    });
    return true;
  }

 private:
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
  };

  static bool is_whole(const Activation& tensor) {
    const auto whole = [](std::int64_t bytes) {
      return bytes % static_cast<std::int64_t>(sizeof(Sum)) == 0;
    };
    return whole(tensor.image_stride_bytes) && whole(tensor.channel_stride_bytes) &&
           std::all_of(tensor.stride_bytes, tensor.stride_bytes + kMaxConvRank, whole) &&
           reinterpret_cast<std::uintptr_t>(tensor.data) % sizeof(Sum) == 0;
  }
  static std::int64_t in_sums(std::int64_t bytes) {
    return bytes / static_cast<std::int64_t>(sizeof(Sum));
  }

  // How many of the last axes are one run, in a tile that has all of the later ones.
  int joined_axes(const Activation& from, const Activation& to, const Tile& tile) const {
    int joined = 1;
    for (int axis = kMaxConvRank - 1; axis > 0; --axis, ++joined) {
      const std::int64_t size = s_.out[axis];
      const auto follows = [&](const Activation& tensor) {
        return tensor.stride_bytes[axis - 1] == size * tensor.stride_bytes[axis];
      };
      if (tile.outputs[axis].size() != size || !follows(from) || !follows(to)) break;
    }
    return joined;
  }
  static std::int64_t run_length(const Tile& tile, int joined) {
    std::int64_t count = 1;
    for (int i = 0; i < joined; ++i) count *= tile.outputs[kMaxConvRank - 1 - i].size();
    return count;
  }
  // Calls body(image, d, h, w) where runs begin.
  template <class Body>
  static void for_runs(const Tile& tile, int joined, const Body& body) {
    Range axes[kMaxConvRank] = {tile.outputs[0], tile.outputs[1], tile.outputs[2]};
    for (int i = 0; i < joined; ++i) {
      Range& own = axes[kMaxConvRank - 1 - i];
      own.end = std::min(own.end, own.begin + 1);
    }
    for_rows(tile.images, axes, [&](std::int64_t image, std::int64_t d, std::int64_t h) {
      if (axes[2].size() > 0) body(image, d, h, axes[2].begin);
    });
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

  // Numbers of positions times vectors of weights.
  void by_channels(const Work& work, const Run& run) const {
    const std::int64_t from_step = in_sums(work.buffers.output.stride_bytes[2]);
    const std::int64_t to_step = in_sums(work.buffers.input_product.stride_bytes[2]);
    for (std::int64_t i = 0; i < n_.inputs.all_pairs(); ++i) {
      const Pair pair = pair_of(work, i);
      for_panels([&](const Range& outputs) {
        BlockProducts p = products_of(pair, outputs);
        p.left = run.from + pair.first_output + outputs.begin;
        p.left_step = 1;
        p.left_pitch = from_step;
        p.right = pair.weights + outputs.begin * pair.width;
        p.right_step = pair.width;
        p.sums = run.to + pair.channels.begin;
        p.sum_step = to_step;
        p.rows = run.count;
        p.vectors = pair.blocks;
        kernels_.multiply_apart(p);
      });
    }
  }

  // Numbers of weights times vectors of positions. The last vectors overlap those before.
  void by_positions(const Work& work, const Run& run) const {
    const std::int64_t pair_width = BlockSizes::kPair * n_.width;
    const std::int64_t width = run.count >= pair_width ? pair_width : n_.width;
    for (std::int64_t next = 0; next < run.count; next += width) {
      const std::int64_t first = std::min(next, run.count - width);
      for (std::int64_t i = 0; i < n_.inputs.all_pairs(); ++i) {
        multiply_positions(work, pair_of(work, i), {run.from + first, run.to + first, width});
      }
    }
  }

  void multiply_positions(const Work& work, const Pair& pair, const Run& run) const {
    const std::int64_t from_channel = in_sums(work.buffers.output.channel_stride_bytes);
    const std::int64_t to_channel = in_sums(work.buffers.input_product.channel_stride_bytes);
    for_panels([&](const Range& outputs) {
      BlockProducts p = products_of(pair, outputs);
      p.left = pair.weights + outputs.begin * pair.width;
      p.left_step = pair.width;
      p.right = run.from + (pair.first_output + outputs.begin) * from_channel;
      p.right_step = from_channel;
      p.sums = run.to + pair.channels.begin * to_channel;
      p.sum_step = to_channel;
      p.rows = pair.channels.size();
      p.vectors = static_cast<int>(run.count / n_.width);
      kernels_.multiply_channels(p);
    });
  }

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
  const std::int64_t panel_;  // outputs
};

}  // namespace backops
