// Between the order of weights in tensors and the one that products want.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/conv/conv.h"
#include "ops/block_sizes.h"
#include "ops/block_windows.h"

namespace backops {

template <class Sum>
class BlockOrder {
 public:
  BlockOrder(const BlockSizes& sizes, const ConvKernels& kernels, const BlockWindows* windows)
      : n_(sizes), kernels_(kernels), windows_(windows) {}

  // Packs the weights of a block of outputs and a pair of input blocks, and tells whether all of
  // them are finite.
  bool pack(const void* weight, std::int64_t pair, std::int64_t block, Sum* packed) const {
    const std::int64_t group = pair / n_.input_pairs();
    const std::int64_t first = pair % n_.input_pairs() * kPair * n_.lanes;
    const std::int64_t width = n_.blocks_of_input_pair(pair) * n_.lanes;
    const std::int64_t inputs = std::min(width, n_.inputs - first);
    const std::int64_t outputs = std::min(n_.lanes, n_.outputs - block * n_.lanes);
    const std::int64_t output = group * n_.outputs + block * n_.lanes;
    Sum* to = packed + block * n_.taps * n_.lanes * width;
    if (inputs < width || outputs < n_.lanes) std::fill_n(to, n_.taps * n_.lanes * width, Sum{0});
    if (windows_) {
      const auto* const from = static_cast<const Sum*>(weight);
      return pack_numbers(from, {first, first + inputs}, {output, output + outputs}, width, to);
    }
    auto* from =
        static_cast<Sum*>(const_cast<void*>(weight)) + (output * n_.inputs + first) * n_.taps;
    bool finite = true;
    for (std::int64_t o = 0; o < outputs; ++o, from += n_.inputs * n_.taps, to += width) {
      finite = finite && all_finite(from, inputs * n_.taps);
      kernels_.to_lanes({reinterpret_cast<char*>(from), n_.taps * kBytes, kBytes, to,
                         n_.lanes * width, n_.lanes, inputs, n_.taps});
    }
    return finite;
  }

  // Adds up the sums of a pair of outputs, whose parts lie `part_pitch` apart, and writes them.
  void write(void* grad_weight, std::int64_t pair, Sum* first_part, std::int64_t parts,
             std::int64_t part_pitch) const {
    const std::int64_t width = n_.blocks_of_output_pair(pair) * n_.lanes;
    const std::int64_t first = pair % n_.output_pairs() * kPair * n_.lanes;
    const std::int64_t outputs = std::min(width, n_.outputs - first);
    const std::int64_t block_sums = n_.taps * n_.lanes * width;
    for (std::int64_t block = 0; block < n_.input_blocks; ++block) {
      Sum* const total = first_part + block * block_sums;
      for (std::int64_t part = 1; part < parts; ++part) {
        const Sum* const more = total + part * part_pitch;
        for (std::int64_t i = 0; i < block_sums; ++i) total[i] += more[i];
      }
      const std::int64_t input = block * n_.lanes, inputs = std::min(n_.lanes, n_.inputs - input);
      auto* const to = static_cast<Sum*>(grad_weight);
      if (windows_) {
        write_numbers(to, {input, input + inputs}, {first, first + outputs}, total, width);
        continue;
      }
      const std::int64_t at = (n_.first_block(pair) * n_.inputs + block) * n_.lanes * n_.taps;
      kernels_.from_lanes({reinterpret_cast<char*>(to + at), n_.inputs * n_.taps * kBytes, kBytes,
                           total, width, n_.lanes, outputs, inputs * n_.taps});
    }
  }

 private:
  static constexpr int kPair = BlockSizes::kPair;
  static constexpr std::int64_t kBytes = sizeof(Sum);

  // Numbers of windows are not neighbours in the weights. They never meet zeros, so that they may
  // be what they are.
  bool pack_numbers(const Sum* weight, const Range& numbers, const Range& outputs,
                    std::int64_t width, Sum* to) const {
    windows_->for_weights(
        outputs, numbers, [&](std::int64_t o, std::int64_t i, std::int64_t tap, std::int64_t at) {
          to[(tap * n_.lanes + o - outputs.begin) * width + i - numbers.begin] = weight[at];
        });
    return true;
  }

  void write_numbers(Sum* grad_weight, const Range& numbers, const Range& outputs, const Sum* sums,
                     std::int64_t width) const {
    windows_->for_weights(outputs, numbers,
                          [&](std::int64_t o, std::int64_t i, std::int64_t tap, std::int64_t at) {
                            const std::int64_t row = (i - numbers.begin) * n_.taps + tap;
                            grad_weight[at] = sums[row * width + o - outputs.begin];
                          });
  }

  // Whether no exponent has all bits set, which adding one to it would carry on.
  static bool all_finite(const Sum* values, std::int64_t count) {
    using Bits = std::conditional_t<sizeof(Sum) == 8, std::uint64_t, std::uint32_t>;
    constexpr int kMantissaBits = std::numeric_limits<Sum>::digits - 1;
    constexpr Bits kSign = Bits{1} << (8 * sizeof(Sum) - 1);
    constexpr Bits kExponent = kSign - (Bits{1} << kMantissaBits);
    Bits carried = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      Bits bits;
      std::memcpy(&bits, values + i, sizeof bits);
      carried |= (bits & kExponent) + (Bits{1} << kMantissaBits);
    }
    return (carried & kSign) == 0;
  }

  const BlockSizes n_;
  const ConvKernels& kernels_;
  const BlockWindows* const windows_;
};

}  // namespace backops
