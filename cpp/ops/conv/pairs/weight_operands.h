// What the weight product of pairs brings into scratch memory: rows of both tensors, as words that
// pair positions.
#pragma once

#include <cstdint>

#include "kernels/conv/conv.h"
#include "kernels/pairs/pairs.h"
#include "ops/conv/engine.h"
#include "ops/conv/pairs/row_words.h"
#include "ops/conv/pairs/weight_layout.h"
#include "ops/conv/row_cuts.h"

namespace backops {

class PairWeightOperands {
 public:
  // Of `full_pairs` are only the words of inputs, which vectors of sums need not fill.
  PairWeightOperands(const PairWeightLayout& layout, const ConvKernels& kernels,
                     const PairKernels& pairs, const PairKernels& full_pairs)
      : n_(layout),
        pairs_(pairs),
        full_pairs_(full_pairs),
        full_words_(conv_kernels(kernels.isa, DType::float32)),
        words_(conv_kernels(kernels.isa, DType::float32, kernels.size)) {}

  // Of pairs of blocks, (blocks, rows, steps, outputs), a zero behind an odd number of positions.
  void bring_outputs(const ConvBuffers& b, const RowCut& cut, const Range& pairs, float* to,
                     PairMagnitudes& found) const {
    for (std::int64_t pair = pairs.begin; pair < pairs.end; ++pair) {
      float* const own = to + n_.outputs.first_block(pair) * n_.block_words();
      const RowWords rows(pairs_, words_, by_joined_rows(b.output), joined_rows(b.output),
                          n_.outputs.channels_of_pair(pair), kPair * n_.row.steps, cut.h.size(),
                          n_.staged(b), {own, kPair, n_.outputs.width, n_.block_words()});
      for (std::int64_t h = cut.h.begin; h < cut.h.end; ++h) {
        rows.bring(cut.image, cut.d, h, {0, 1, n_.s.out[2]}, h - cut.h.begin);
      }
      rows.finish(found);
    }
  }

  // Rows of the input that windows of the cut have, (slices, rows, lines, numbers, inputs).
  void bring_input(const ConvBuffers& b, const RowCut& cut, const Range& channels,
                   PairMagnitudes& found) const {
    const RowWords rows(full_pairs_, full_words_, by_joined_rows(b.input), joined_rows(b.input),
                        channels, n_.row.numbers, n_.all_rows() * n_.row.lines(), n_.staged(b),
                        {n_.own_words(b), n_.row.every, channels.size(), full_words_.width});
    for (std::int64_t i = 0; i < n_.all_rows(); ++i) {
      const std::int64_t d = n_.cuts.input_slice(cut, i / n_.cuts.source_rows());
      const std::int64_t h = cut.first_row + i % n_.cuts.source_rows();
      for (std::int64_t line = 0; line < n_.row.lines(); ++line) {
        const std::int64_t first =
            n_.row.remainders[static_cast<std::size_t>(line)] - n_.s.padding[2];
        if (n_.cuts.is_inside(0, d) && n_.cuts.is_inside(1, h) &&
            is_in_a_window(i % n_.cuts.source_rows())) {
          rows.bring(cut.image, d, h, {first, n_.s.stride[2], n_.s.in[2]},
                     i * n_.row.lines() + line);
        } else {
          rows.clear(i * n_.row.lines() + line);
        }
      }
    }
    rows.finish(found);
  }

 private:
  static constexpr std::int64_t kPair = BlockSide::kPair;

  // Tensors by rows that are joined.
  Activation by_joined_rows(const Activation& tensor) const {
    Activation own = tensor;
    own.stride_bytes[1] *= n_.joined;
    return own;
  }
  JoinedRows joined_rows(const Activation& tensor) const {
    return {n_.joined, n_.row_size, tensor.stride_bytes[1]};
  }

  // Windows further apart than they are high have rows between them.
  bool is_in_a_window(std::int64_t row) const {
    for (std::int64_t tap = 0; tap < n_.s.kernel[1]; ++tap) {
      if ((row - tap * n_.s.dilation[1]) % n_.s.stride[1] == 0) return true;
    }
    return false;
  }

  const PairWeightLayout& n_;
  const PairKernels& pairs_;
  const PairKernels& full_pairs_;
  const ConvKernels &full_words_, &words_;
};

}  // namespace backops
