// Between the order of weights in tensors and the one that products want.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/conv/blocks/folds.h"
#include "ops/conv/blocks/sizes.h"
#include "ops/conv/copy.h"
#include "ops/conv/finite.h"
#include "ops/conv/parts.h"

namespace backops {

template <class Sum>
class BlockOrder {
 public:
  BlockOrder(const ConvShape& shape, const BlockSizes& sizes, const TileCopy<Sum>& copy,
             const FoldedTaps* folds)
      : n_(sizes),
        copy_(copy),
        weights_(shape, copy),
        folds_(folds),
        meets_zeros_(folds || !shape.is_pointwise()) {}

  // Packs the weights of a block of outputs and a pair of input blocks, and tells whether they may
  // meet zeros around `output`: whether all of them are finite, or there are no such zeros.
  bool pack(const Weights& weight, std::int64_t pair, std::int64_t block, Sum* packed) const {
    const std::int64_t group = n_.inputs.group_of_pair(pair);
    const Range inputs = n_.inputs.channels_of_pair(pair);
    const Range outputs = n_.outputs.channels_of_block(group * n_.outputs.blocks() + block);
    const std::int64_t width = n_.inputs.blocks_of_pair(pair) * n_.width;
    const std::int64_t first_input = inputs.begin - group * n_.inputs.channels;
    const std::int64_t count = n_.taps * n_.width * width;
    Sum* const to = packed + block * count;
    if (inputs.size() < width || outputs.size() < n_.width) std::fill_n(to, count, Sum{0});
    if (folds_) {
      for (std::int64_t o = 0; o < outputs.size(); ++o) {
        folds_->bring_weights(copy_, weight, outputs.begin + o, inputs, to + o * width,
                              n_.width * width);
      }
    } else if (n_.taps == 1) {
      weights_.bring_rows(weight.at(outputs.begin, first_input), weight.output_stride_bytes,
                          outputs.size(), weight.input_stride_bytes, inputs.size(), to, width);
    } else {
      weights_.bring_outputs(weight, weight.at(outputs.begin, first_input),
                             weight.input_stride_bytes, inputs.size(), outputs.size(), to, width,
                             n_.width * width);
    }
    copy_.round(to, count);
    return !meets_zeros_ || all_finite(to, count);
  }

  // Adds up the sums of a pair of blocks of lanes, whose parts lie `part_pitch` apart, and writes
  // them.
  void write(const Weights& weight, std::int64_t pair, Sum* first_part, std::int64_t parts,
             std::int64_t part_pitch) const {
    const std::int64_t group = n_.sum_lanes.group_of_pair(pair);
    const std::int64_t width = n_.sum_lanes.blocks_of_pair(pair) * n_.width;
    const Range lanes = n_.sum_lanes.channels_of_pair(pair);
    const std::int64_t block_sums = n_.taps * n_.width * width;
    for (std::int64_t block = 0; block < n_.sum_rows.blocks(); ++block) {
      Sum* const total = first_part + block * block_sums;
      const Range rows = n_.sum_rows.channels_of_block(group * n_.sum_rows.blocks() + block);
      add_parts(total, rows.size() * n_.taps * width, parts, part_pitch);
      if (folds_) {
        folds_->put_weights(copy_, weight, lanes, rows, total, width);
      } else {
        put(weight, group, lanes, rows, total, width);
      }
    }
  }

 private:
  void put(const Weights& weight, std::int64_t group, const Range& lanes, const Range& rows,
           Sum* from, std::int64_t width) const {
    const bool on_inputs = n_.has_lanes_on_inputs;
    const Range &outputs = on_inputs ? rows : lanes, &inputs = on_inputs ? lanes : rows;
    char* const elements = weight.at(outputs.begin, inputs.begin - group * n_.inputs.channels);
    const std::int64_t by_output = weight.output_stride_bytes, by_input = weight.input_stride_bytes;
    weights_.put(weight,
                 {elements, on_inputs ? by_output : by_input, on_inputs ? by_input : by_output,
                  rows.size(), lanes.size(), from, width});
  }

  const BlockSizes n_;
  const TileCopy<Sum>& copy_;
  const WeightCopy<Sum> weights_;
  const FoldedTaps* const folds_;
  const bool meets_zeros_;
};

}  // namespace backops
