// Weights as pairs of outputs, in the order that products want.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/pairs/pairs.h"
#include "ops/conv/blocks/order.h"
#include "ops/conv/blocks/sizes.h"
#include "ops/conv/copy.h"
#include "ops/conv/engine.h"

namespace backops {

class PairWeights {
 public:
  // `words` are the kernels of float32 tensors: what copies their elements copies pairs.
  PairWeights(const ConvShape& shape, const BlockSizes& pairs, const PairKernels& kernels,
              const ConvKernels& words, const TileCopy<float>& copy)
      : n_(pairs),
        numbers_(shape, pairs.width, false),
        kernel_{shape.kernel[0], shape.kernel[1], shape.kernel[2]},
        kernels_(kernels),
        words_(words),
        order_(shape, numbers_, copy, nullptr) {}

  // That packing a block needs.
  std::int64_t spare_sums() const { return kPair * n_.taps * n_.width * kPair * n_.width; }

  // Of a pair of blocks of inputs and a block of pairs.
  void pack(const Weights& weight, std::int64_t pair, std::int64_t block, float* packed,
            float* spare, PairMagnitudes& found) const {
    const Block own = block_of(weight, pair, block, packed, spare);
    const std::int64_t count = n_.taps * n_.width * own.width;
    const bool is_even = own.outputs.size() % kPair == 0;
    const bool follow = weight.stride_bytes[2] == kBytes && are_together(weight);
    if (is_even && weight.output_stride_bytes == kBytes) {
      pack_taps(weight, own);
    } else if (is_even && follow && weight.output_stride_bytes == n_.taps * kBytes) {
      pack_together(weight, own);
    } else {
      pack_numbers(weight, pair, block, own);
    }
    kernels_.watch({own.to, kPair * count, &found});
  }

 private:
  static constexpr std::int64_t kPair = BlockSizes::kPair, kBytes = sizeof(BFloat16);

  struct Block {
    Range outputs, inputs;  // as the weights count them
    const char* first;
    std::int64_t width;
    float* to;
    float* spare;
  };

  Block block_of(const Weights& weight, std::int64_t pair, std::int64_t block, float* packed,
                 float* spare) const {
    const std::int64_t group = n_.inputs.group_of_pair(pair),
                       first = group * numbers_.outputs.channels;
    const std::int64_t begin = first + kPair * block * n_.width;
    Block own{};
    own.outputs = {begin, std::min(begin + kPair * n_.width, first + numbers_.outputs.channels)};
    own.inputs = n_.inputs.channels_of_pair(pair);
    own.first = weight.at(begin, own.inputs.begin - group * n_.inputs.channels);
    own.width = n_.inputs.blocks_of_pair(pair) * n_.width;
    own.to = packed + block * n_.taps * n_.width * own.width;
    own.spare = spare;
    const bool is_whole = own.outputs.size() == kPair * n_.width && own.inputs.size() == own.width;
    if (!is_whole) std::fill_n(own.to, n_.taps * n_.width * own.width, 0.0f);
    return own;
  }

  // Whether all taps follow each other.
  bool are_together(const Weights& weight) const {
    return (kernel_[1] == 1 || weight.stride_bytes[1] == kernel_[2] * weight.stride_bytes[2]) &&
           (kernel_[0] == 1 ||
            weight.stride_bytes[0] == kernel_[1] * kernel_[2] * weight.stride_bytes[2]);
  }

  // Words of two numbers, of all inputs.
  void bring_words(const Weights& weight, const Block& own, std::int64_t offset, std::int64_t words,
                   float* to) const {
    words_.to_lanes({const_cast<char*>(own.first) + offset, weight.input_stride_bytes,
                     kPair * kBytes, to, own.width, n_.width, own.inputs.size(), words});
  }

  // Outputs lie side by side: a word is a pair.
  void pack_taps(const Weights& weight, const Block& own) const {
    float* to = own.to;
    for (std::int64_t tap = 0; tap < n_.taps; ++tap, to += n_.width * own.width) {
      const std::int64_t row = tap / kernel_[2];
      const std::int64_t offset = row / kernel_[1] * weight.stride_bytes[0] +
                                  row % kernel_[1] * weight.stride_bytes[1] +
                                  tap % kernel_[2] * weight.stride_bytes[2];
      bring_words(weight, own, offset, own.outputs.size() / kPair, to);
    }
  }

  // The taps of an output, then those of the next one: words have halves of two pairs.
  void pack_together(const Weights& weight, const Block& own) const {
    if (n_.taps == 1) return bring_words(weight, own, 0, own.outputs.size() / kPair, own.to);
    const std::int64_t words = own.outputs.size() * n_.taps / kPair;
    if (own.inputs.size() < own.width) std::fill_n(own.spare, words * own.width, 0.0f);
    bring_words(weight, own, 0, words, own.spare);
    kernels_.join(
        {own.spare, own.width, own.outputs.size() / kPair, n_.taps, own.to, n_.width * own.width});
  }

  // Any strides, by way of float32 numbers.
  void pack_numbers(const Weights& weight, std::int64_t pair, std::int64_t block,
                    const Block& own) const {
    const std::int64_t first = kPair * block, rows = n_.width / kPair;
    const std::int64_t count = n_.taps * n_.width * own.width;
    for (std::int64_t i = 0; i < kPair; ++i) {
      if (first + i >= numbers_.outputs.blocks()) continue;
      order_.pack(weight, pair, first + i, own.spare - first * count);
      for (std::int64_t tap = 0; tap < n_.taps; ++tap) {
        kernels_.pack({own.spare + i * count + tap * n_.width * own.width, own.width, rows,
                       own.width, own.to + (tap * n_.width + i * rows) * own.width, own.width});
      }
    }
  }

  const BlockSizes n_, numbers_;  // of pairs, and of the numbers they are made of
  const std::int64_t kernel_[kMaxConvRank];
  const PairKernels& kernels_;
  const ConvKernels& words_;
  const BlockOrder<float> order_;
};

}  // namespace backops
