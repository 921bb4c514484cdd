// How the weight product of pairs is cut into tasks, and where it keeps things.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "base/ints.h"
#include "kernels/conv/conv.h"
#include "kernels/matrix/matrix.h"
#include "ops/conv/blocks/sizes.h"
#include "ops/conv/engine.h"
#include "ops/conv/pairs/row_words.h"
#include "ops/conv/parts.h"
#include "ops/conv/row_cuts.h"
#include "ops/conv/shape.h"

namespace backops {

// Where a row's taps find their words. Windows `stride` apart are neighbours among the elements
// that have the same remainder.
struct RowTaps {
  struct Tap {
    std::int64_t line, shift;
  };

  explicit RowTaps(const ConvShape& s) : steps(ceil_divide(s.out[2], BlockSide::kPair)) {
    std::int64_t most_shift = 0;
    for (std::int64_t t = 0; t < s.kernel[2]; ++t) {
      const std::int64_t offset = t * s.dilation[2], remainder = offset % s.stride[2];
      const auto known = std::find(remainders.begin(), remainders.end(), remainder);
      taps.push_back({known - remainders.begin(), offset / s.stride[2]});
      if (known == remainders.end()) remainders.push_back(remainder);
      most_shift = std::max(most_shift, taps.back().shift);
      if (taps.back().shift % BlockSide::kPair != 0) every = 1;
    }
    numbers = BlockSide::kPair * steps + round_up(most_shift, BlockSide::kPair);
  }

  std::int64_t steps;                     // pairs of outputs
  std::int64_t numbers = 0;               // of a line
  std::int64_t every = BlockSide::kPair;  // so many numbers a word begins
  std::vector<std::int64_t> remainders;   // of lines
  std::vector<Tap> taps;

  std::int64_t lines() const { return static_cast<std::int64_t>(remainders.size()); }
  std::int64_t row_numbers() const { return lines() * numbers; }
  std::int64_t row_words() const { return row_numbers() / every; }
};

// Inputs in blocks that are all but equal, counted through all groups.
struct InputBlocks {
  InputBlocks(std::int64_t most, const ConvShape& s)
      : size(most), groups(s.groups), channels(s.group_inputs()) {}

  std::int64_t size, groups, channels;

  std::int64_t blocks() const { return ceil_divide(channels, size); }
  std::int64_t all_blocks() const { return groups * blocks(); }
  std::int64_t group_of(std::int64_t block) const { return block / blocks(); }
  // Of the group.
  Range own(std::int64_t block) const {
    const std::int64_t first = block % blocks() * size;
    return {first, std::min(first + size, channels)};
  }
  // Of the tensor.
  Range all(std::int64_t block) const {
    const Range in_group = own(block);
    const std::int64_t first = group_of(block) * channels;
    return {first + in_group.begin, first + in_group.end};
  }
};
inline std::int64_t even_block(std::int64_t channels, std::int64_t most) {
  return ceil_divide(channels, ceil_divide(channels, most));
}

// Kernels of one tap have no use for rows: short ones are joined, as many as make a run of products
// long enough. The shape of the same problem, with fewer and longer rows.
inline ConvShape with_joined_rows(const ConvShape& shape) {
  constexpr std::int64_t kLongEnough = 48, kMostJoined = 256;
  ConvShape joined = shape;
  const std::int64_t size = shape.out[2];
  if (!shape.is_pointwise() || size > kLongEnough) return joined;
  for (std::int64_t rows = std::min(shape.out[1], kMostJoined / size); rows > 1; --rows) {
    if (shape.out[1] % rows != 0) continue;
    joined.in[1] = joined.out[1] = shape.out[1] / rows;
    joined.in[2] = joined.out[2] = rows * size;
    break;
  }
  return joined;
}

struct PairWeightLayout {
  // Blocks of at most `most_inputs`; vectors of `width` outputs.
  PairWeightLayout(const ConvTask& task, std::int64_t width, std::int64_t most_inputs)
      : s(with_joined_rows(task.shape)),
        joined(task.shape.out[1] / s.out[1]),
        row_size(task.shape.out[2]),
        outputs{width, s.groups, s.group_outputs()},
        inputs(even_block(s.group_inputs(), most_inputs), s),
        row(s),
        kernel_rows(s.kernel[0] * s.kernel[1]),
        cuts(s) {
    cut(static_cast<double>(task.cpu.level2_bytes), task.cuts.parts());
  }

  const ConvShape s;
  const std::int64_t joined, row_size;  // rows that are taken for one, and their size
  const BlockSide outputs;
  const InputBlocks inputs;
  const RowTaps row;
  const std::int64_t kernel_rows;
  bool fits = true, is_by_inputs = false;
  RowCuts cuts;
  std::int64_t parts = 1, splits = 1;

  std::int64_t all_rows() const { return s.kernel[0] * cuts.source_rows(); }
  // Memory of the engine: the sums of the parts, or the outputs of all cuts; magnitudes.
  std::int64_t weight_sums() const {
    return outputs.all_blocks() * outputs.width * inputs.channels * s.taps();
  }
  std::int64_t bias_sums() const { return s.makes_bias ? outputs.all_blocks() * outputs.width : 0; }
  std::int64_t part_sums() const { return weight_sums() + bias_sums(); }
  float* part(const ConvBuffers& b, std::int64_t index) const {
    return reinterpret_cast<float*>(b.memory) + index * part_sums();
  }
  float* shared_outputs(const ConvBuffers& b, std::int64_t index) const {
    return reinterpret_cast<float*>(b.memory) + index * output_words();
  }
  std::size_t magnitudes_at() const {
    const std::int64_t sums = is_by_inputs ? cuts.count() * output_words() : parts * part_sums();
    return whole_lines(static_cast<std::size_t>(sums) * sizeof(float));
  }
  Magnitudes* magnitudes(const ConvBuffers& b) const {
    return reinterpret_cast<Magnitudes*>(b.memory + magnitudes_at());
  }
  // Memory of a worker: words of a block of inputs, of outputs; rows that become words; sums of a
  // block of inputs; lists of runs.
  std::int64_t input_words() const { return all_rows() * row.row_words() * inputs.size; }
  std::int64_t block_words() const { return cuts.rows_at_once * row.steps * outputs.width; }
  std::int64_t output_words() const { return outputs.all_blocks() * block_words(); }
  float* own_words(const ConvBuffers& b) const { return reinterpret_cast<float*>(b.scratch); }
  float* own_outputs(const ConvBuffers& b) const { return own_words(b) + input_words(); }
  std::size_t staged_at() const {
    return whole_lines(
        static_cast<std::size_t>(input_words() + (is_by_inputs ? 0 : output_words())) *
        sizeof(float));
  }
  BFloat16* staged(const ConvBuffers& b) const {
    return reinterpret_cast<BFloat16*>(b.scratch + staged_at());
  }
  std::size_t own_sums_at() const {
    const std::int64_t input = RowWords::staged_size(inputs.size, row.row_numbers(), all_rows());
    const std::int64_t output =
        RowWords::staged_size(kPair * outputs.width, kPair * row.steps, cuts.rows_at_once);
    return staged_at() +
           whole_lines(static_cast<std::size_t>(std::max(input, output)) * sizeof(BFloat16));
  }
  float* own_sums(const ConvBuffers& b) const {
    return reinterpret_cast<float*>(b.scratch + own_sums_at());
  }
  std::size_t lists_at() const {
    const std::int64_t split = ceil_divide(outputs.pairs(), splits) * kPair * outputs.width;
    const std::int64_t sums = is_by_inputs ? split * (inputs.size * s.taps() + 1) : 0;
    return own_sums_at() + whole_lines(static_cast<std::size_t>(sums) * sizeof(float));
  }
  // Of each row of the kernel, and of all rows; how many runs there are.
  std::int64_t lists() const { return kernel_rows + 1; }
  std::size_t list_bytes() const {
    return static_cast<std::size_t>(lists()) *
           (static_cast<std::size_t>(cuts.rows_at_once) * sizeof(BlockRun) + sizeof(std::int64_t));
  }
  BlockRun* runs(const ConvBuffers& b, std::int64_t list) const {
    return reinterpret_cast<BlockRun*>(b.scratch + lists_at()) + list * cuts.rows_at_once;
  }
  std::int64_t* run_counts(const ConvBuffers& b) const {
    return reinterpret_cast<std::int64_t*>(runs(b, lists()));
  }

 private:
  static constexpr std::int64_t kPair = BlockSide::kPair;
  static constexpr double kTileShare = 0.5;         // of a second-level cache
  static constexpr double kMostPartBytes = 3e6;     // of the sums of all parts
  static constexpr double kMostSharedBytes = 64e6;  // of outputs that are brought for all tasks

  void cut(double level2_bytes, std::int64_t wanted) {
    const auto number = [](std::int64_t value) { return static_cast<double>(value); };
    const double part_bytes = number(part_sums()) * sizeof(float);
    is_by_inputs =
        part_bytes * number(wanted) > kMostPartBytes || cuts.slices() * s.out[1] < wanted;
    const double output_row = number(outputs.all_blocks()) * number(row.steps * outputs.width);
    const auto bytes = [&] {
      const double words = number(all_rows()) * number(row.row_words()) * number(inputs.size);
      return (words + (is_by_inputs ? 0 : number(cuts.rows_at_once) * output_row)) * sizeof(float);
    };
    // Of all inputs: blocks share cache lines where channels lie side by side.
    const auto input_bytes = [&] {
      if (is_by_inputs) return 0.0;
      const std::int64_t rows = std::min(all_rows(), cuts.rows_at_once * kernel_rows);
      return number(rows) * number(s.inputs) * number(s.in[2]) * sizeof(BFloat16);
    };
    const double most = kTileShare * level2_bytes;
    while (cuts.rows_at_once > 1 && (bytes() > most || bytes() + input_bytes() > level2_bytes)) {
      cuts.rows_at_once = ceil_divide(cuts.rows_at_once, 2);
    }
    if (!is_by_inputs) cuts.make(wanted);
    parts = std::min(cuts.count(), wanted);
    splits = std::min(outputs.pairs(), ceil_divide(kTasksPerThread * wanted, inputs.all_blocks()));
    fits = bytes() <= most && (!is_by_inputs || number(cuts.count() * cuts.rows_at_once) *
                                                        output_row * sizeof(float) <=
                                                    kMostSharedBytes);
  }
};

}  // namespace backops
