// The input product of tiles that lie in scratch memory: made pair by pair of blocks, and written
// to the caller's tensor. Results that are folds are added up where these overlap first.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/conv/blocks/folds.h"
#include "ops/conv/blocks/memory.h"
#include "ops/conv/blocks/schedule.h"
#include "ops/conv/blocks/sizes.h"
#include "ops/conv/copy.h"
#include "ops/conv/engine.h"
#include "ops/conv/tiles.h"

namespace backops {

template <class Sum>
class BlockResults {
 public:
  BlockResults(const ConvShape& shape, const BlockSizes& sizes, const BlockSchedule<Sum>& plan,
               const BlockMemory<Sum>& memory, const TileCopy<Sum>& copy, const FoldedTaps* folds)
      : n_(sizes),
        plan_(plan),
        at_(memory),
        copy_(copy),
        folds_(folds),
        is_pointwise_(!folds && shape.is_pointwise()) {}

  // Where the tile lies, which pairs of blocks are made, and whether weights that the task has to
  // itself are finite.
  struct Work {
    const BlockLayout<Sum>& layout;
    Range pairs;
    const Sum* output;
    bool are_own_finite;
  };

  void write_tile(const ConvBuffers& b, const Work& work, const Tile& tile) const {
    folds_ ? write_folds(b, work.layout, tile) : write_blocks(b, work, tile);
  }

 private:
  void write_blocks(const ConvBuffers& b, const Work& work, const Tile& tile) const {
    const BlockLayout<Sum>& layout = work.layout;
    const Tile positions = is_pointwise_ ? in_one_row(tile) : tile;
    Sum* const results = layout.results(b.scratch);
    const Sum* const bias = at_.bias(b);
    for (std::int64_t pair = work.pairs.begin; pair < work.pairs.end; ++pair) {
      const std::int64_t group = n_.inputs.group_of_pair(pair);
      const Sum* const weights = plan_.packs_all() ? at_.packed_weights(b) + n_.packed_pair(pair)
                                                   : layout.own_weights(b.scratch);
      const bool are_finite =
          is_pointwise_ || (plan_.packs_all() ? are_weights_finite(b, pair) : work.are_own_finite);
      layout.input_product->write_tile(
          {work.output + group * n_.outputs.blocks() * layout.output_pitch, weights,
           n_.inputs.blocks_of_pair(pair), are_finite, results, at_.lists(b)},
          positions);
      copy_.put(b.input_product, tile.results, n_.inputs.channels_of_pair(pair), results,
                layout.result_pitch,
                bias != nullptr ? bias + n_.inputs.first_block(pair) * n_.width : nullptr);
    }
  }

  // Row by row: they are still in the first-level cache when they are folded.
  void write_folds(const ConvBuffers& b, const BlockLayout<Sum>& layout, const Tile& tile) const {
    Sum* const results = layout.results(b.scratch);
    Sum* const folded = layout.folded(b.scratch);
    Tile row = tile;
    row.results.axes[2] = folds_->reaching(tile);
    const std::int64_t count = row.results.axes[2].size();
    const auto write_row = [&](std::int64_t image, std::int64_t d, std::int64_t h) {
      row.images = row.results.images = {image, image + 1};
      row.results.axes[0] = {d, d + 1};
      row.results.axes[1] = {h, h + 1};
      folds_->begin_row(at_.bias(b), layout.folds, folded);
      for (std::int64_t pair = 0; pair < n_.inputs.pairs(); ++pair) {
        const int blocks = n_.inputs.blocks_of_pair(pair);
        layout.input_product->write_tile(
            {layout.output(b.scratch), at_.packed_weights(b) + n_.packed_pair(pair), blocks, true,
             results, at_.lists(b)},
            row);
        for (int i = 0; i < blocks; ++i) {
          folds_->fold(copy_.kernels(), results + i * layout.result_pitch, count,
                       pair * BlockSizes::kPair + i, folded);
        }
      }
      folds_->put(copy_, b.input_product, tile, {image, d, h}, folded);
    };
    for_rows(tile.images, tile.results.axes, write_row);
  }

  bool are_weights_finite(const ConvBuffers& b, std::int64_t pair) const {
    const Sum* const flags = at_.finite_flags(b) + pair * n_.outputs.blocks();
    return std::all_of(flags, flags + n_.outputs.blocks(), [](Sum flag) { return flag != 0; });
  }

  const BlockSizes& n_;
  const BlockSchedule<Sum>& plan_;
  const BlockMemory<Sum>& at_;
  const TileCopy<Sum>& copy_;
  const FoldedTaps* const folds_;
  const bool is_pointwise_;
};

}  // namespace backops
