// Numbers that the parts of the blocks engine share. Channels lie in blocks of one vector, and
// blocks are worked on in pairs; those that are left over have no partner. The last block of a
// group may have lanes without a channel.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/block_tiles.h"
#include "ops/conv_engine.h"

namespace backops {

constexpr std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

struct BlockSizes {
  static constexpr int kPair = 2;

  BlockSizes(const ConvShape& s, std::int64_t lanes_of_vector)
      : lanes(lanes_of_vector),
        groups(s.groups),
        inputs(s.channels / s.groups),
        outputs(s.outputs / s.groups),
        input_blocks(ceil_divide(inputs, lanes)),
        output_blocks(ceil_divide(outputs, lanes)),
        taps(s.kernel_positions()) {}

  const std::int64_t lanes, groups;
  const std::int64_t inputs, outputs;              // channels of one group
  const std::int64_t input_blocks, output_blocks;  // likewise
  const std::int64_t taps;

  std::int64_t padded_inputs() const { return input_blocks * lanes; }
  std::int64_t padded_outputs() const { return output_blocks * lanes; }
  std::int64_t padded_weights() const { return groups * padded_inputs() * padded_outputs() * taps; }

  std::int64_t input_pairs() const { return ceil_divide(input_blocks, kPair); }  // of one group
  std::int64_t output_pairs() const { return ceil_divide(output_blocks, kPair); }
  std::int64_t all_output_pairs() const { return groups * output_pairs(); }
  // Pairs are counted through all groups from here on.
  std::int64_t all_input_pairs() const { return groups * input_pairs(); }
  int blocks_of_input_pair(std::int64_t pair) const {
    return blocks_of(pair % input_pairs(), input_blocks);
  }
  int blocks_of_output_pair(std::int64_t pair) const {
    return blocks_of(pair % output_pairs(), output_blocks);
  }
  // The first block of a pair of outputs.
  std::int64_t first_block(std::int64_t pair) const {
    return pair / output_pairs() * output_blocks + pair % output_pairs() * kPair;
  }
  Range output_blocks_of(const Range& pairs) const {
    return {first_block(pairs.begin), first_block(pairs.end)};
  }

  // Packed weights of a pair of input blocks: (output blocks, taps, outputs, inputs of the pair).
  std::int64_t packed_pair(std::int64_t pair) const {
    const std::int64_t block = pair / input_pairs() * input_blocks + pair % input_pairs() * kPair;
    return block * lanes * padded_outputs() * taps;
  }
  // Sums of a pair of output blocks: (inputs, taps, outputs of the pair).
  std::int64_t sums_of_pair(std::int64_t pair) const {
    return first_block(pair) * lanes * padded_inputs() * taps;
  }

 private:
  static int blocks_of(std::int64_t pair, std::int64_t blocks) {
    return static_cast<int>(std::min<std::int64_t>(kPair, blocks - pair * kPair));
  }
};

constexpr std::int64_t kTasksPerThread = 4;  // that even out the work

// Fewer if there are not enough operations.
inline std::int64_t tasks_per_thread(const ConvShape& s, std::int64_t threads) {
  constexpr double kTaskWork = 1e8;  // operations that are worth a task of their own
  const double products =
      2.0 * static_cast<double>(s.batch * s.out_positions()) * static_cast<double>(s.weights());
  const auto tasks = static_cast<std::int64_t>(products / kTaskWork / static_cast<double>(threads));
  return std::clamp<std::int64_t>(tasks, 1, kTasksPerThread);
}

// Whether every input position belongs to one output and one tap.
inline bool is_pointwise(const ConvShape& s) {
  const auto is = [](const std::int64_t (&values)[kMaxConvRank], std::int64_t value) {
    return std::all_of(values, values + kMaxConvRank,
                       [value](std::int64_t own) { return own == value; });
  };
  return is(s.kernel, 1) && is(s.stride, 1) && is(s.padding, 0);
}

}  // namespace backops
