// Numbers that the parts of the blocks engine share. Channels lie in blocks of one vector, and
// blocks are worked on in pairs; those that are left over have no partner. The last block of a
// group may have lanes without a channel.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/ints.h"
#include "ops/conv/shape.h"

namespace backops {

// The channels of one tensor.
struct BlockSide {
  static constexpr int kPair = 2;

  std::int64_t width, groups;
  std::int64_t channels;  // of one group

  std::int64_t blocks() const { return ceil_divide(channels, width); }  // of one group
  std::int64_t pairs() const { return ceil_divide(blocks(), kPair); }   // likewise
  std::int64_t padded() const { return blocks() * width; }              // channels of one group
  std::int64_t all_channels() const { return groups * channels; }
  std::int64_t all_blocks() const { return groups * blocks(); }
  std::int64_t all_pairs() const { return groups * pairs(); }

  // Blocks and pairs are counted through all groups from here on.
  std::int64_t group_of_pair(std::int64_t pair) const { return pair / pairs(); }
  std::int64_t first_block(std::int64_t pair) const {
    return pair / pairs() * blocks() + pair % pairs() * kPair;
  }
  int blocks_of_pair(std::int64_t pair) const {
    return static_cast<int>(std::min<std::int64_t>(kPair, blocks() - pair % pairs() * kPair));
  }
  Range blocks_of(const Range& all) const { return {first_block(all.begin), first_block(all.end)}; }
  // Channels as the tensor counts them.
  Range channels_of_block(std::int64_t block) const {
    const std::int64_t group = block / blocks(), first = block % blocks() * width;
    return {group * channels + first, group * channels + std::min(first + width, channels)};
  }
  Range channels_of_pair(std::int64_t pair) const {
    const std::int64_t first = first_block(pair);
    return {channels_of_block(first).begin,
            channels_of_block(first + blocks_of_pair(pair) - 1).end};
  }
  // Whether the channels of neighbouring groups are neighbours in blocks as well.
  bool is_whole() const { return groups == 1 || channels % width == 0; }
};

// Calls body(channels, first block) for runs of channels that lie one after the other in these
// blocks as in the tensor.
template <class Body>
void for_channel_runs(const BlockSide& side, const Range& blocks, const Body& body) {
  if (side.is_whole()) {
    if (blocks.size() <= 0) return;
    return body(Range{side.channels_of_block(blocks.begin).begin,
                      side.channels_of_block(blocks.end - 1).end},
                blocks.begin);
  }
  for (std::int64_t block = blocks.begin; block < blocks.end;) {
    const std::int64_t end = std::min(blocks.end, (block / side.blocks() + 1) * side.blocks());
    body(Range{side.channels_of_block(block).begin, side.channels_of_block(end - 1).end}, block);
    block = end;
  }
}

struct BlockSizes {
  static constexpr int kPair = BlockSide::kPair;

  // `lanes_on_inputs`: vectors of weight sums are along inputs, not along outputs.
  BlockSizes(const ConvShape& s, std::int64_t vector_width, bool lanes_on_inputs)
      : width(vector_width),
        groups(s.groups),
        taps(s.taps()),
        inputs{width, s.groups, s.group_inputs()},
        outputs{width, s.groups, s.group_outputs()},
        has_lanes_on_inputs(lanes_on_inputs),
        sum_lanes(lanes_on_inputs ? inputs : outputs),
        sum_rows(lanes_on_inputs ? outputs : inputs) {}

  std::int64_t width, groups, taps;
  BlockSide inputs, outputs;
  bool has_lanes_on_inputs;
  BlockSide sum_lanes, sum_rows;  // of weight sums

  // Packed weights of a pair of input blocks: (output blocks, taps, outputs, inputs of the pair).
  std::int64_t packed_weights() const {
    return inputs.all_blocks() * width * outputs.padded() * taps;
  }
  std::int64_t packed_pair(std::int64_t pair) const {
    return inputs.first_block(pair) * width * outputs.padded() * taps;
  }
  // Weight sums of a pair of blocks of lanes: (rows, taps, lanes of the pair).
  std::int64_t weight_sums() const {
    return sum_lanes.all_blocks() * width * sum_rows.padded() * taps;
  }
  std::int64_t sums_of_pair(std::int64_t pair) const {
    return sum_lanes.first_block(pair) * width * sum_rows.padded() * taps;
  }
};

}  // namespace backops
