// Tiles of the caller's tensors, as blocks in scratch memory.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/conv/axes.h"
#include "ops/conv/blocks/layout.h"
#include "ops/conv/blocks/sizes.h"
#include "ops/conv/copy.h"
#include "ops/conv/engine.h"
#include "ops/conv/tiles.h"

namespace backops {

// Channels are brought around lanes that have none: these are zero from the beginning. Blocks lie
// `pitch` apart.
template <class Sum>
void clear_spare_lanes(const BlockSide& side, const Range& blocks, Sum* to, std::int64_t pitch) {
  for (std::int64_t block = blocks.begin; block < blocks.end; ++block) {
    if (side.channels_of_block(block).size() == side.width) continue;
    std::fill_n(to + (block - blocks.begin) * pitch, pitch, Sum{0});
  }
}

// A bias in blocks.
template <class Sum>
void bring_bias(const TileCopy<Sum>& copy, const BlockSide& side, const Bias& bias, Sum* to) {
  for_channel_runs(side, {0, side.all_blocks()}, [&](const Range& channels, std::int64_t first) {
    copy.bring_bias(bias, channels, to + first * side.width);
  });
}

template <class Sum>
class BlockCopy {
 public:
  BlockCopy(const ConvShape& shape, const BlockSizes& sizes, const TileCopy<Sum>& copy)
      : s_(shape), n_(sizes), copy_(copy), planes_(shape) {}

  void bring_input(const Activation& input, const BlockLayout<Sum>& layout, const Box& box,
                   const Range& blocks, Sum* to) const {
    const std::int64_t pitch = layout.input_pitch;
    for_channel_runs(n_.inputs, blocks, [&](const Range& channels, std::int64_t first) {
      copy_.bring(input, s_.in, box, channels, to + (first - blocks.begin) * pitch, pitch);
    });
  }
  void clear_input(const BlockLayout<Sum>& layout, const Range& blocks, Sum* to) const {
    clear_spare_lanes(n_.inputs, blocks, to, layout.input_pitch);
  }

  // All planes.
  void bring_output(const Activation& output, const BlockLayout<Sum>& layout, const Box& box,
                    const Range& blocks, Sum* to) const {
    for_channel_runs(n_.outputs, blocks, [&](const Range& channels, std::int64_t first) {
      copy_.bring_planes(planes_, output, box, channels,
                         to + (first - blocks.begin) * layout.output_pitch, layout.output_pitch,
                         layout.plane_pitch);
    });
  }
  void clear_output(const BlockLayout<Sum>& layout, const Range& blocks, Sum* to) const {
    for (std::int64_t plane = 0; plane < planes_.count(); ++plane) {
      clear_spare_lanes(n_.outputs, blocks, to + plane * layout.plane_pitch, layout.output_pitch);
    }
  }

 private:
  const ConvShape& s_;
  const BlockSizes& n_;
  const TileCopy<Sum>& copy_;
  const OutputPlanes planes_;
};

}  // namespace backops
