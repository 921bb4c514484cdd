// The input product of kernels of one tap, of tensors whose channels lie side by side: their pairs
// are multiplied where they are.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/pairs/pairs.h"
#include "ops/conv/blocks/sizes.h"
#include "ops/conv/copy.h"
#include "ops/conv/engine.h"
#include "ops/conv/tiles.h"

namespace backops {

class PairInPlace {
 public:
  // The shape is that of the numbers, the sizes are those of pairs.
  PairInPlace(const ConvShape& shape, const BlockSizes& sizes, const PairKernels& kernels,
              const TileCopy<float>& copy, std::int64_t level1_bytes)
      : s_(shape),
        n_(sizes),
        kernels_(kernels),
        copy_(copy),
        positions_(std::max<std::int64_t>(
            1, level1_bytes / 4 / (BlockSizes::kPair * n_.width * std::int64_t{sizeof(float)}))) {}

  // Whether results have one product each, of whole pairs.
  static bool fits(const ConvShape& s) {
    for (int axis = 0; axis < kMaxConvRank; ++axis) {
      const bool has_outputs = s.is_turned || s.stride[axis] == 1;
      if (s.kernel[axis] != 1 || s.padding[axis] != 0 || !has_outputs) return false;
      if ((s.in[axis] - 1) * s.stride[axis] >= s.out[axis]) return false;
    }
    return s.group_outputs() % 2 == 0;
  }

  bool takes(const Activation& output) const {
    const auto is_even = [](std::int64_t bytes) { return bytes % kBytes == 0; };
    return output.channel_stride_bytes == kBytes &&
           std::all_of(output.stride_bytes, output.stride_bytes + kMaxConvRank, is_even);
  }

  // Of some positions.
  std::int64_t result_sums() const { return BlockSizes::kPair * positions_ * n_.width; }

  struct Work {
    const ConvBuffers& buffers;
    const float* weights;  // of all pairs of input blocks
    const float* bias;     // in blocks of inputs, or null
    float* results;
    PairMagnitudes& found;
  };

  void write_tile(const Work& work, const Tile& tile) const {
    const Activation &from = work.buffers.output, &to = work.buffers.input_product;
    const Range &rows = tile.results.axes[1], &columns = tile.results.axes[2];
    const bool joins = s_.stride[1] == 1 && s_.stride[2] == 1 && columns.size() == s_.in[2] &&
                       from.stride_bytes[1] == columns.size() * from.stride_bytes[2] &&
                       to.stride_bytes[1] == columns.size() * to.stride_bytes[2];
    Range axes[kMaxConvRank] = {tile.results.axes[0], rows, columns};
    if (joins) axes[1].end = std::min(axes[1].end, axes[1].begin + 1);
    const std::int64_t count = joins ? rows.size() * columns.size() : columns.size();
    if (columns.size() <= 0) return;
    for_rows(tile.results.images, axes, [&](std::int64_t image, std::int64_t d, std::int64_t h) {
      const char* const own =
          from.at(image, 0, d * s_.stride[0], h * s_.stride[1], columns.begin * s_.stride[2]);
      write_run(work, own, to.at(image, 0, d, h, columns.begin), count);
    });
  }

 private:
  static constexpr std::int64_t kBytes = sizeof(BFloat16);

  // Positions that are as far apart as those of a row.
  void write_run(const Work& work, const char* from, char* to, std::int64_t count) const {
    const std::int64_t from_step = s_.stride[2] * work.buffers.output.stride_bytes[2];
    const std::int64_t to_step = work.buffers.input_product.stride_bytes[2];
    for (std::int64_t first = 0; first < count; first += positions_) {
      const std::int64_t some = std::min(positions_, count - first);
      const char* const own = from + first * from_step;
      watch(work, own, from_step, some);
      for (std::int64_t pair = 0; pair < n_.inputs.all_pairs(); ++pair) {
        BlockProducts products = products_of(work, pair, own, from_step, some);
        if (writes_numbers(work.buffers.input_product)) {
          const Range channels = n_.inputs.channels_of_pair(pair);
          products.sums = to + first * to_step + channels.begin * kBytes;
          products.sum_step = to_step / kBytes;
          products.sum_pitch = n_.width;
          products.bias = bias_of(work, pair);
          kernels_.multiply_to_numbers(products);
        } else {
          kernels_.conv.multiply_apart(products);
          put(work, pair, to + first * to_step, some);
        }
      }
    }
  }

  void watch(const Work& work, const char* from, std::int64_t step, std::int64_t count) const {
    if (step == s_.outputs * kBytes) {
      return kernels_.watch({from, count * s_.outputs, &work.found});
    }
    for (std::int64_t i = 0; i < count; ++i) {
      kernels_.watch({from + i * step, s_.outputs, &work.found});
    }
  }

  // Whether whole vectors of channels lie side by side in the results.
  bool writes_numbers(const Activation& results) const {
    return results.channel_stride_bytes == kBytes && results.stride_bytes[2] % kBytes == 0 &&
           n_.inputs.channels % n_.width == 0;
  }
  const float* bias_of(const Work& work, std::int64_t pair) const {
    return work.bias == nullptr ? nullptr : work.bias + n_.inputs.first_block(pair) * n_.width;
  }

  BlockProducts products_of(const Work& work, std::int64_t pair, const char* from,
                            std::int64_t step, std::int64_t count) const {
    static constexpr BlockRun kOnce{0, 0};
    const std::int64_t group = n_.inputs.group_of_pair(pair);
    BlockProducts p{};
    p.left = from + group * s_.group_outputs() * kBytes;
    p.left_step = 2;
    p.left_pitch = step / kBytes;
    p.right = work.weights + n_.packed_pair(pair);
    p.vectors = n_.inputs.blocks_of_pair(pair);
    p.right_step = p.vectors * n_.width;
    p.right_pitch = n_.width;
    p.runs = &kOnce;
    p.run_count = 1;
    p.run_length = n_.outputs.channels;
    p.sums = work.results;
    p.sum_step = n_.width;
    p.sum_pitch = positions_ * n_.width;
    p.rows = count;
    return p;
  }

  void put(const Work& work, std::int64_t pair, char* to, std::int64_t count) const {
    const Activation& tensor = work.buffers.input_product;
    const Range channels = n_.inputs.channels_of_pair(pair);
    copy_.kernels().from_lanes({to + channels.begin * tensor.channel_stride_bytes,
                                tensor.channel_stride_bytes, tensor.stride_bytes[2], work.results,
                                n_.width, positions_ * n_.width, channels.size(), count, 0, 0,
                                bias_of(work, pair)});
  }

  const ConvShape s_;
  const BlockSizes n_;
  const PairKernels& kernels_;
  const TileCopy<float>& copy_;
  const std::int64_t positions_;  // whose results stay in the first-level cache
};

}  // namespace backops
