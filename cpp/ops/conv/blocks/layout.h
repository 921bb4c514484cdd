// What the blocks engine makes of a tile, and where the tile lies in a worker's scratch memory,
// counted in sums.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "ops/conv/blocks/folds.h"
#include "ops/conv/blocks/input.h"
#include "ops/conv/blocks/sizes.h"
#include "ops/conv/engine.h"
#include "ops/conv/tiles.h"

namespace backops {

// How much of a second-level cache things may take. Measured on a Xeon with 2 MB; tiles of 0.2 to
// 0.5 were as fast.
struct BlockBudget {
  BlockBudget(const Cpu& cpu, const ConvCuts& cuts)
      : level2(static_cast<double>(cpu.level2_bytes)), workers(cuts.parts()) {}

  double tile() const { return 0.375 * level2; }
  double panel() const { return 0.16 * level2; }  // of packed weights, used together
  double range() const { return 0.32 * level2; }  // of weight sums, where they are cut by outputs
  double parts() const { return level2; }         // of weight sums, all parts together

  double level2;
  std::int64_t workers;
};

template <class Sum>
struct BlockLayout {
  ConvTiles tiles;
  bool makes_weight, makes_bias;
  std::int64_t output_pitch = 0, input_pitch = 0, result_pitch = 0;  // of blocks
  std::int64_t plane_pitch = 0;                                      // of `output`
  std::int64_t input_at = 0, result_at = 0;
  // A task's own weights: sums of its outputs, or packed ones of its inputs.
  std::int64_t weights_at = 0;
  std::int64_t folds = 0;  // of a row; see FoldedTaps
  std::int64_t folded_at = 0, spare_at = 0;
  std::int64_t sums = 0;
  // Tiles of the input, or of the output if that is all there is to bring, in the engine's memory.
  bool is_shared = false;
  std::int64_t shared_at = 0, shared_blocks = 0, shared_pitch = 0;
  std::unique_ptr<const BlockInput<Sum>> input_product = nullptr;  // if there is one to be made

  bool brings_input() const { return makes_weight && !is_shared; }
  bool brings_output() const { return makes_weight || !is_shared; }

  static Sum* output(char* scratch) { return reinterpret_cast<Sum*>(scratch); }
  Sum* input(char* scratch) const { return output(scratch) + input_at; }
  Sum* results(char* scratch) const { return output(scratch) + result_at; }
  Sum* folded(char* scratch) const { return output(scratch) + folded_at; }
  Sum* spare(char* scratch) const { return output(scratch) + spare_at; }
  Sum* own_weights(char* scratch) const { return output(scratch) + weights_at; }
};

// What a layout is asked for.
struct BlockWork {
  std::int64_t most_output_blocks;  // that a task works on
  bool makes_input, makes_weight, makes_bias;
  // Tasks have weights of their own: sums of their outputs, or packed ones of a pair of inputs.
  bool has_own_weights;
  std::int64_t least_tiles;
};

template <class Sum>
class BlockLayouts {
 public:
  BlockLayouts(const ConvShape& shape, const BlockSizes& sizes, const BlockBudget& budget,
               const ConvKernels& kernels, const FoldedTaps* folds)
      : s_(shape),
        n_(sizes),
        planes_(OutputPlanes(shape).count()),
        budget_(budget),
        kernels_(kernels),
        folds_(folds) {}

  ConvTiles tiles_for(const BlockWork& work) const {
    TileNeeds needs{planes_ * work.most_output_blocks * n_.width,
                    work.makes_weight ? n_.inputs.all_blocks() * n_.width : 0,
                    work.makes_input ? BlockSizes::kPair * n_.width : 0, work.makes_input, false};
    needs.by_results =
        n_.taps > 1 && !folds_ && work.makes_input && !work.makes_weight && !work.makes_bias;
    if (folds_) {
      needs.input = work.makes_weight ? ceil_divide(folds_->row_sums(s_.out[2]), s_.out[2]) : 0;
      needs.result = 0;  // row by row
    }
    const auto cut = [&](const ConvShape& shape) {
      return tiles_of(shape, needs, budget_.tile() / sizeof(Sum),
                      most_growth(budget_.tile(), budget_.workers), work.least_tiles);
    };
    ConvTiles tiles = cut(s_);
    if (folds_ && tiles.tile(0).outputs[2].size() < s_.out[2]) {
      tiles = cut(folds_->cut_problem());
    }
    return tiles;
  }

  BlockLayout<Sum> layout_for(const BlockWork& work, const ConvTiles& tiles) const {
    const std::int64_t row = tiles.tile(0).output.step[1];
    // Odd numbers of lines, so that blocks do not fall into the same sets of a cache.
    const auto pitch = [this](std::int64_t places) { return (places | 1) * n_.width; };
    BlockLayout<Sum> layout{tiles, work.makes_weight, work.makes_bias};
    layout.output_pitch = pitch(tiles.output_places());
    layout.plane_pitch = work.most_output_blocks * layout.output_pitch;
    layout.input_pitch = folds_ ? n_.width : pitch(tiles.input_places());
    layout.result_pitch = pitch(folds_ ? row : tiles.result_places());
    return layout;
  }

  // Places, once it is known what is shared.
  void place(const BlockWork& work, BlockLayout<Sum>& layout) const {
    const std::int64_t input_blocks = n_.inputs.all_blocks();
    const std::int64_t result_blocks = work.makes_input ? BlockSizes::kPair : 0;
    layout.input_at = layout.brings_output() ? planes_ * layout.plane_pitch : 0;
    layout.result_at =
        layout.input_at + (layout.brings_input() ? input_blocks * layout.input_pitch : 0);
    layout.weights_at = layout.result_at + result_blocks * layout.result_pitch;
    if (folds_) place_folds(layout);
    std::int64_t own = 0;
    if (work.has_own_weights) {
      own = work.makes_weight ? work.most_output_blocks * n_.width * n_.inputs.padded() * n_.taps
                              : BlockSizes::kPair * n_.width * n_.outputs.padded() * n_.taps;
    }
    layout.sums = layout.weights_at + own;
    if (!work.makes_input) return;
    layout.input_product = std::make_unique<const BlockInput<Sum>>(
        s_, n_, kernels_, layout.tiles, static_cast<std::int64_t>(budget_.panel()),
        layout.output_pitch, layout.plane_pitch, layout.result_pitch);
  }

 private:
  // Rows of numbers instead of blocks of the input.
  void place_folds(BlockLayout<Sum>& layout) const {
    const std::int64_t row = layout.tiles.tile(0).output.step[1];
    const auto after = [this](std::int64_t place, std::int64_t sums) {
      return place + round_up(sums, n_.width);
    };
    const std::int64_t rows =
        layout.makes_weight ? layout.tiles.input_places() / layout.tiles.tile(0).input.step[1] : 0;
    layout.folds = row;
    layout.spare_at = after(layout.input_at, rows * folds_->row_sums(row));
    layout.folded_at = after(layout.spare_at, FoldedTaps::kSpareSums);
    layout.result_at = after(layout.folded_at, folds_->row_sums(row));
    layout.weights_at = layout.result_at + BlockSizes::kPair * layout.result_pitch;
  }

  const ConvShape& s_;
  const BlockSizes& n_;
  const std::int64_t planes_;  // of `output`
  const BlockBudget budget_;
  const ConvKernels& kernels_;
  const FoldedTaps* const folds_;
};

}  // namespace backops
