// Where the blocks engine keeps things: in its own memory, and in that of a worker.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/ints.h"
#include "ops/conv/blocks/folds.h"
#include "ops/conv/blocks/schedule.h"
#include "ops/conv/blocks/sizes.h"
#include "ops/conv/engine.h"

namespace backops {

template <class Sum>
class BlockMemory {
 public:
  BlockMemory(const ConvShape& shape, const BlockSizes& sizes, const BlockSchedule<Sum>& plan,
              const FoldedTaps* folds)
      : s_(shape), n_(sizes), plan_(plan), folds_(folds) {}

  // Memory of the engine: packed weights, a number for each block of them that tells whether they
  // are finite, and the sums of the parts. Unless tasks have their own.
  std::int64_t packed_blocks() const {
    return plan_.packs_all() ? n_.inputs.all_pairs() * n_.outputs.blocks() : 0;
  }
  std::int64_t part_sums() const {
    return weight_sums() + (s_.makes_bias ? n_.outputs.all_blocks() * n_.width : 0);
  }
  Sum* packed_weights(const ConvBuffers& b) const { return reinterpret_cast<Sum*>(b.memory); }
  Sum* finite_flags(const ConvBuffers& b) const { return packed_weights(b) + n_.packed_weights(); }
  Sum* sums(const ConvBuffers& b, std::int64_t part) const {
    return packed_weights(b) + packed_sums() + part * part_sums();
  }
  Sum* bias_sums(const ConvBuffers& b, std::int64_t part) const {
    return sums(b, part) + weight_sums();
  }
  Sum* shared(const ConvBuffers& b, const BlockLayout<Sum>& layout, std::int64_t tile) const {
    return sums(b, plan_.parts) + layout.shared_at +
           tile * layout.shared_blocks * layout.shared_pitch;
  }

  // Behind everything else: the bias, in blocks of inputs, or as the channels of a fold; null if
  // there is none.
  Sum* bias(const ConvBuffers& b) const {
    return s_.adds_bias ? packed_weights(b) + bias_at() : nullptr;
  }
  std::size_t engine_bytes() const {
    return static_cast<std::size_t>(bias_at() + bias_numbers()) * sizeof(Sum);
  }

  // Memory of a worker: the largest layout, and lists.
  std::size_t lists_at() const {
    std::int64_t most = 0;
    for (const BlockLayout<Sum>& layout : plan_.layouts) most = std::max(most, layout.sums);
    return whole_lines(static_cast<std::size_t>(most) * sizeof(Sum));
  }
  char* lists(const ConvBuffers& b) const { return b.scratch + lists_at(); }

 private:
  std::int64_t packed_sums() const {
    return plan_.packs_all() ? round_up(n_.packed_weights() + packed_blocks(), n_.width) : 0;
  }
  std::int64_t weight_sums() const { return plan_.has_parts() ? n_.weight_sums() : 0; }
  std::int64_t bias_at() const {
    return packed_sums() + plan_.parts * part_sums() + plan_.shared_sums;
  }
  std::int64_t bias_numbers() const {
    if (!s_.adds_bias) return 0;
    return folds_ ? folds_->channels() : n_.inputs.all_blocks() * n_.width;
  }

  const ConvShape& s_;
  const BlockSizes& n_;
  const BlockSchedule<Sum>& plan_;
  const FoldedTaps* const folds_;
};

}  // namespace backops
