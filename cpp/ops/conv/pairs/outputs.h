// `output` as the input product of pairs wants it: in blocks of pairs of channels, each of which
// takes the place of a float32 number. Numbers are watched once they are there.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/convert/convert.h"
#include "kernels/pairs/pairs.h"
#include "ops/conv/axes.h"
#include "ops/conv/blocks/copy.h"
#include "ops/conv/blocks/layout.h"
#include "ops/conv/blocks/sizes.h"
#include "ops/conv/copy.h"
#include "ops/conv/engine.h"
#include "ops/conv/tiles.h"

namespace backops {

class PairOutputs {
 public:
  // `outputs` is the number of channels, shape and sizes are those of pairs. Groups that fill
  // vectors together are brought side by side, as they lie in the tensor, if that is wanted.
  PairOutputs(std::int64_t outputs, const ConvShape& pair_shape, const BlockSizes& sizes,
              const ConvKernels& kernels, const PairKernels& pairs, bool joins_groups)
      : outputs_(outputs),
        n_(sizes),
        pairs_(pairs),
        copy_(pairs.conv, Rounding::none, convert_kernels(kernels.isa)),
        planes_(pair_shape),
        side_(joins_groups && fill_vectors_together(sizes.outputs)
                  ? BlockSide{sizes.width, 1, pair_shape.outputs}
                  : sizes.outputs) {}

  Range blocks() const { return {0, side_.all_blocks()}; }
  std::int64_t place_of_group(std::int64_t group, std::int64_t pitch) const {
    if (side_.groups == n_.groups) return group * n_.outputs.blocks() * pitch;
    const std::int64_t first = group * n_.outputs.channels;
    return first / n_.width * pitch + first % n_.width;
  }

  void bring(const Activation& output, const BlockLayout<float>& layout, const Box& box,
             const Range& blocks, float* to, PairMagnitudes& found) const {
    for_channel_runs(side_, blocks, [&](const Range& channels, std::int64_t first) {
      copy_.bring_planes(planes_, output, box, numbers_of(channels),
                         to + (first - blocks.begin) * layout.output_pitch, layout.output_pitch,
                         layout.plane_pitch);
    });
    for (std::int64_t i = 0; i < planes_.count() * blocks.size(); ++i) {
      const float* const own =
          to + i / blocks.size() * layout.plane_pitch + i % blocks.size() * layout.output_pitch;
      watch(own, box, found);
    }
  }
  void clear(const BlockLayout<float>& layout, const Range& blocks, float* to) const {
    for (std::int64_t plane = 0; plane < planes_.count(); ++plane) {
      clear_spare_lanes(side_, blocks, to + plane * layout.plane_pitch, layout.output_pitch);
    }
  }

 private:
  static constexpr int kPair = 2;  // numbers

  static bool fill_vectors_together(const BlockSide& outputs) {
    return outputs.groups > 1 && outputs.channels < outputs.width &&
           outputs.width % outputs.channels == 0;
  }

  // Channels of pairs; the last one may be alone.
  Range numbers_of(const Range& pairs) const {
    return {kPair * pairs.begin, std::min(kPair * pairs.end, outputs_)};
  }
  void watch(const float* block, const Box& box, PairMagnitudes& found) const {
    const std::int64_t numbers = kPair * n_.width;
    if (!box.has_gaps()) return pairs_.watch({block, box.positions() * numbers, &found});
    for_rows(box.images, box.axes, [&](std::int64_t image, std::int64_t d, std::int64_t h) {
      pairs_.watch({block + box.place(image, d, h, box.axes[2].begin) * n_.width,
                    box.axes[2].size() * numbers, &found});
    });
  }

  const std::int64_t outputs_;
  const BlockSizes& n_;
  const PairKernels& pairs_;
  const TileCopy<float> copy_;
  const OutputPlanes planes_;
  const BlockSide side_;
};

}  // namespace backops
