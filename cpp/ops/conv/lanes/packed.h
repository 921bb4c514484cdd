// What an input product by lanes reads beside the outputs, in order: of each block of groups its
// weights, a vector that tells whether they are finite, and the biases of its inputs.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/conv/copy.h"
#include "ops/conv/engine.h"
#include "ops/conv/finite.h"
#include "ops/conv/lanes/order.h"

namespace backops {

template <class Sum>
class PackedLanes {
 public:
  PackedLanes(const ConvShape& shape, const LaneOrder<Sum>& order, const TileCopy<Sum>& copy)
      : order_(order),
        copy_(copy),
        width_(copy.kernels().width),
        inputs_(shape.group_inputs()),
        biases_(shape.adds_bias ? inputs_ : 0),
        pitch_(shape.makes_input ? (order.vectors() + 1 + biases_) * width_ : 0) {}

  // Sums from one block to the next.
  std::int64_t pitch() const { return pitch_; }

  // At the beginning of the engine's memory.
  const Sum* weights(const ConvBuffers& b, std::int64_t block) const { return at(b, block); }
  const Sum* finite(const ConvBuffers& b, std::int64_t block) const {
    return at(b, block) + weight_sums();
  }
  // Null where there is none.
  const Sum* bias(const ConvBuffers& b, std::int64_t block) const {
    return biases_ == 0 ? nullptr : at(b, block) + weight_sums() + width_;
  }

  bool are_finite(const ConvBuffers& b, const Range& blocks) const {
    for (std::int64_t block = blocks.begin; block < blocks.end; ++block) {
      if (*finite(b, block) == 0) return false;
    }
    return true;
  }

  void pack(const ConvBuffers& b, std::int64_t block, const Range& groups) const {
    Sum* const packed = at(b, block);
    order_.pack(b.weight, groups, packed);
    copy_.round(packed, weight_sums());
    packed[weight_sums()] = all_finite(packed, weight_sums()) ? Sum{1} : Sum{0};
    for (std::int64_t i = 0; i < biases_; ++i) {
      const Bias own{b.bias.data + (groups.begin * inputs_ + i) * b.bias.stride_bytes,
                     inputs_ * b.bias.stride_bytes};
      Sum* const to = packed + weight_sums() + (1 + i) * width_;
      std::fill_n(to, width_, Sum{0});
      copy_.bring_bias(own, {0, groups.size()}, to);
    }
  }

 private:
  std::int64_t weight_sums() const { return order_.vectors() * width_; }
  Sum* at(const ConvBuffers& b, std::int64_t block) const {
    return reinterpret_cast<Sum*>(b.memory) + block * pitch_;
  }

  const LaneOrder<Sum>& order_;
  const TileCopy<Sum>& copy_;
  const std::int64_t width_, inputs_, biases_;
  const std::int64_t pitch_;
};

}  // namespace backops
