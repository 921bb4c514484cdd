// The weight product of kernels of one tap, in inputs of the sums' type whose positions lie side
// by side: numbers of the input as it is, times vectors of outputs. Only outputs are copied.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/conv/conv.h"
#include "ops/conv/blocks/runs.h"
#include "ops/conv/blocks/sizes.h"
#include "ops/conv/engine.h"
#include "ops/conv/tiles.h"

namespace backops {

template <class Sum>
class BlockWeightInPlace {
 public:
  BlockWeightInPlace(const ConvShape& shape, const BlockSizes& sizes, const ConvKernels& kernels,
                     std::int64_t level2_bytes)
      : s_(shape),
        n_(sizes),
        kernels_(kernels),
        input_sums_(level2_bytes / 4 / static_cast<std::int64_t>(sizeof(Sum))) {}

  // Whether an input lies like that.
  bool reads(const Activation& input) const {
    if (!has_whole_sums<Sum>(input)) return false;
    std::int64_t next = sizeof(Sum);
    for (int axis = kMaxConvRank - 1; axis >= 0; --axis) {
      if (s_.in[axis] > 1 && input.stride_bytes[axis] != next) return false;
      next *= s_.in[axis];
    }
    return next >= kLeastPositions * static_cast<std::int64_t>(sizeof(Sum));
  }

  struct Work {
    const Activation& input;
    const Sum* output;  // the blocks of these pairs
    std::int64_t output_pitch;
    Range pairs;  // of output blocks
    Sum* sums;    // of all pairs
  };

  // Some positions at a time: as many images as they are, or a part of one.
  void add_tile(const Work& work, const Tile& tile, bool is_first) const {
    const int joined = joined_axes(tile);
    const std::int64_t length = run_length(tile.input, joined);
    BlockRun runs[kMostRuns];
    std::int64_t count = 0;
    bool adds = !is_first;
    const auto add_runs = [&](std::int64_t own_length) {
      add(work, runs, count, own_length, adds);
      count = 0;
      adds = true;
    };
    for_runs(tile.input, joined,
             [&](std::int64_t image, std::int64_t d, std::int64_t h, std::int64_t w) {
               const std::int64_t left =
                   in_sums(work.input.at(image, 0, d, h, w) - work.input.data);
               const std::int64_t right = tile.output.place(image, d, h, w) * n_.width;
               if (length <= kPositionsAtOnce) {
                 runs[count++] = {left, right};
                 if (count == kMostRuns || (count + 1) * length > kPositionsAtOnce)
                   add_runs(length);
                 return;
               }
               for_shares({0, length}, kPositionsAtOnce, [&](const Range& own) {
                 runs[count++] = {left + own.begin, right + own.begin * n_.width};
                 add_runs(own.size());
               });
             });
    if (count > 0) add_runs(length);
  }

 private:
  static constexpr std::int64_t kLeastPositions = 16;
  // Enough for adding to sums to cost little. Both sides are read in order, so that they need not
  // stay in the first-level cache.
  static constexpr std::int64_t kPositionsAtOnce = 400;
  static constexpr std::int64_t kMostRuns = 32;

  static std::int64_t in_sums(std::int64_t bytes) {
    return bytes / static_cast<std::int64_t>(sizeof(Sum));
  }

  // How many of the last axes are one run, in a tile that has all of the later ones.
  int joined_axes(const Tile& tile) const {
    int joined = 1;
    for (int axis = kMaxConvRank - 1; axis > 0; --axis, ++joined) {
      if (tile.input.axes[axis].size() != s_.in[axis]) break;
    }
    return tile.output.has_gaps() ? 1 : joined;
  }

  // Some inputs at a time: their positions stay in the second-level cache for all pairs.
  void add(const Work& work, const BlockRun* runs, std::int64_t count, std::int64_t length,
           bool adds) const {
    constexpr std::int64_t kLeastInputs = 24;
    const std::int64_t fitting = std::max(kLeastInputs, input_sums_ / (count * length));
    const std::int64_t most = work.pairs.size() > 1 ? fitting : n_.inputs.channels;
    BlockProducts p{};
    p.runs = runs;
    p.run_count = count;
    p.run_length = length;
    p.adds = adds;
    for_shares({0, n_.inputs.channels}, most, [&](const Range& inputs) {
      for (std::int64_t pair = work.pairs.begin; pair < work.pairs.end; ++pair) {
        add_pair(work, pair, inputs, p);
      }
    });
  }

  void add_pair(const Work& work, std::int64_t pair, const Range& inputs, BlockProducts p) const {
    const std::int64_t channel = in_sums(work.input.channel_stride_bytes);
    const std::int64_t first = n_.outputs.first_block(work.pairs.begin);
    const std::int64_t first_input =
        n_.outputs.group_of_pair(pair) * n_.inputs.channels + inputs.begin;
    p.left = reinterpret_cast<const Sum*>(work.input.data) + first_input * channel;
    p.left_step = 1;
    p.left_pitch = channel;
    p.right = work.output + (n_.outputs.first_block(pair) - first) * work.output_pitch;
    p.right_step = n_.width;
    p.right_pitch = work.output_pitch;
    p.rows = inputs.size();
    p.vectors = n_.outputs.blocks_of_pair(pair);
    p.sum_step = p.vectors * n_.width;
    p.sum_pitch = n_.width;
    p.sums = work.sums + n_.sums_of_pair(pair) + inputs.begin * p.sum_step;
    kernels_.multiply_apart(p);
  }

  const ConvShape s_;
  const BlockSizes n_;
  const ConvKernels& kernels_;
  const std::int64_t input_sums_;  // of inputs that are worked on together
};

}  // namespace backops
