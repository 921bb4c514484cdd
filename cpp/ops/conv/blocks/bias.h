// The bias in the blocks engine: the one that is added to the input product, and the sums of
// `output` that make its gradient.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/conv/blocks/copy.h"
#include "ops/conv/blocks/folds.h"
#include "ops/conv/blocks/layout.h"
#include "ops/conv/blocks/memory.h"
#include "ops/conv/blocks/sizes.h"
#include "ops/conv/copy.h"
#include "ops/conv/engine.h"
#include "ops/conv/parts.h"
#include "ops/conv/tiles.h"

namespace backops {

template <class Sum>
class BlockBias {
 public:
  BlockBias(const BlockSizes& sizes, const BlockMemory<Sum>& memory, const TileCopy<Sum>& copy,
            const FoldedTaps* folds)
      : n_(sizes), at_(memory), copy_(copy), folds_(folds) {}

  // In blocks of inputs, or as the channels of a fold.
  void bring(const ConvBuffers& b) const {
    if (folds_) return copy_.bring_bias(b.bias, {0, folds_->channels()}, at_.bias(b));
    bring_bias(copy_, n_.inputs, b.bias, at_.bias(b));
  }

  // Sums of some blocks of `output` begin at zero, and a tile in scratch memory is added to them.
  void clear(const ConvBuffers& b, const Range& blocks, std::int64_t part) const {
    std::fill_n(at_.bias_sums(b, part) + blocks.begin * n_.width, blocks.size() * n_.width, Sum{0});
  }
  void add_tile(const ConvBuffers& b, const BlockLayout<Sum>& layout, const Tile& tile,
                const Range& blocks, std::int64_t part) const {
    const Range& columns = tile.outputs[2];
    for_rows(tile.images, tile.outputs, [&](std::int64_t image, std::int64_t d, std::int64_t h) {
      const Sum* row =
          layout.output(b.scratch) + tile.output.place(image, d, h, columns.begin) * n_.width;
      for (std::int64_t i = blocks.begin; i < blocks.end; ++i, row += layout.output_pitch) {
        copy_.kernels().sum({row, n_.width, columns.size(), at_.bias_sums(b, part) + i * n_.width});
      }
    });
  }

  // Adds the parts up and writes the sums of all blocks.
  void write(const ConvBuffers& b, std::int64_t parts) const {
    Sum* const total = at_.bias_sums(b, 0);
    const Range all{0, n_.outputs.all_blocks()};
    add_parts(total, all.size() * n_.width, parts, at_.part_sums());
    for_channel_runs(n_.outputs, all, [&](const Range& channels, std::int64_t first) {
      copy_.put_line(b.bias_sums.data + channels.begin * b.bias_sums.stride_bytes,
                     b.bias_sums.stride_bytes, channels.size(), total + first * n_.width);
    });
  }

 private:
  const BlockSizes& n_;
  const BlockMemory<Sum>& at_;
  const TileCopy<Sum>& copy_;
  const FoldedTaps* const folds_;
};

}  // namespace backops
