// The weight product of bfloat16 tensors. Pairs are positions of a row: vectors of outputs times
// numbers of a few inputs, as many as there are registers for the sums of. A run of products is a
// row of outputs, so rows need no zeros between them.
//
// Weights of few sums are made in parts, each of some rows of all channels, which are added up. Of
// others each task makes the weights of a few inputs from all rows: the outputs are then brought
// first, for all tasks.
#include "ops/conv/pairs/weight_product.h"

#include <algorithm>
#include <utility>

#include "kernels/convert/convert.h"
#include "kernels/pairs/pairs.h"
#include "ops/conv/careful.h"
#include "ops/conv/copy.h"
#include "ops/conv/pairs/weight_layout.h"
#include "ops/conv/pairs/weight_operands.h"
#include "ops/conv/parts.h"

namespace backops {
namespace {

constexpr std::int64_t kPair = BlockSide::kPair;

class PairWeightProduct : public WatchingEngine {
 public:
  // `full_pairs` is of vectors of the full width.
  PairWeightProduct(const ConvTask& task, const ConvKernels& kernels, const PairKernels& pairs,
                    const PairKernels& full_pairs)
      : n_(task, kernels.width, kPair * pairs.conv.most_twins),
        pairs_(pairs),
        operands_(n_, kernels, pairs, full_pairs),
        copy_(kernels, Rounding::none, convert_kernels(kernels.isa)),
        weights_(n_.s, copy_) {}

  bool fits() const { return n_.fits; }

  std::string name() const override {
    return std::string("pairs:") + name_of(pairs_.conv.isa) +
           (pairs_.conv.size == VectorSize::half ? ":half" : "") +
           (n_.is_by_inputs ? ":by_inputs" : "");
  }

  std::size_t engine_bytes() const override {
    return n_.magnitudes_at() + static_cast<std::size_t>(2 * watched()) * sizeof(Magnitudes);
  }
  std::size_t worker_bytes() const override { return n_.lists_at() + n_.list_bytes(); }

  // By parts: the sums; add and write them. By inputs: bring the outputs; the products.
  int phases() const override { return 2; }
  std::int64_t tasks(int phase) const override {
    if (!n_.is_by_inputs) return phase == 0 ? n_.parts : n_.outputs.all_pairs();
    return phase == 0 ? n_.cuts.count() * n_.outputs.all_pairs()
                      : n_.inputs.all_blocks() * n_.splits;
  }

  void work(int phase, std::int64_t task, const ConvBuffers& b) const noexcept override {
    PairMagnitudes output, input;
    if (!n_.is_by_inputs) {
      if (phase == 1) return write_parts(b, task);
      sum_part(b, task, output, input);
    } else if (phase == 0) {
      const std::int64_t pair = task % n_.outputs.all_pairs(),
                         index = task / n_.outputs.all_pairs();
      operands_.bring_outputs(b, n_.cuts.cut(index), {pair, pair + 1}, n_.shared_outputs(b, index),
                              output);
    } else {
      sum_inputs(b, task / n_.splits, task % n_.splits, input);
    }
    Magnitudes* const found = n_.magnitudes(b) + 2 * (task + (phase == 1 ? tasks(0) : 0));
    found[0] = joined(output);
    found[1] = joined(input);
  }

  bool saw_normal_only(const ConvBuffers& b) const override {
    Magnitudes output, input;
    for (std::int64_t task = 0; task < watched(); ++task) {
      output.add(n_.magnitudes(b)[2 * task]);
      input.add(n_.magnitudes(b)[2 * task + 1]);
    }
    return are_normal(output, input);
  }

 private:
  // Sums (pairs of output blocks, inputs, taps, outputs of the pair) from a pair and an input on.
  struct Sums {
    float* data;
    std::int64_t first_block, first_input, inputs;
  };

  // Tasks that have looked at numbers.
  std::int64_t watched() const { return tasks(0) + (n_.is_by_inputs ? tasks(1) : 0); }

  void sum_part(const ConvBuffers& b, std::int64_t index, PairMagnitudes& output,
                PairMagnitudes& input) const {
    std::fill_n(n_.part(b, index), n_.part_sums(), 0.0f);
    const Sums sums{n_.part(b, index), 0, 0, n_.inputs.channels};
    float* const bias = n_.s.makes_bias ? n_.part(b, index) + n_.weight_sums() : nullptr;
    const Range pairs{0, n_.outputs.pairs()};
    const Range own = share_of(n_.cuts.count(), n_.parts, index);
    for (std::int64_t i = own.begin; i < own.end; ++i) {
      const RowCut cut = n_.cuts.cut(i);
      operands_.bring_outputs(b, cut, {0, n_.outputs.all_pairs()}, n_.own_outputs(b), output);
      for (std::int64_t block = 0; block < n_.inputs.all_blocks(); ++block) {
        add_block(b, cut, block, pairs, n_.own_outputs(b), sums, input);
      }
      for (std::int64_t pair = 0; bias != nullptr && pair < n_.outputs.all_pairs(); ++pair) {
        add_bias(b, pair, n_.own_outputs(b),
                 bias + n_.outputs.first_block(pair) * n_.outputs.width);
      }
    }
  }

  // All weights of a block of inputs, and some pairs of blocks of outputs of their group.
  void sum_inputs(const ConvBuffers& b, std::int64_t block, std::int64_t split,
                  PairMagnitudes& input) const {
    const Range pairs = share_of(n_.outputs.pairs(), n_.splits, split);
    const std::int64_t group = n_.inputs.group_of(block) * n_.outputs.pairs();
    const Range own = n_.inputs.own(block), all{group + pairs.begin, group + pairs.end};
    const Range blocks = n_.outputs.blocks_of(all);
    const std::int64_t lanes = blocks.size() * n_.outputs.width;
    const Sums sums{n_.own_sums(b), blocks.begin, own.begin, own.size()};
    float* const bias = n_.own_sums(b) + lanes * own.size() * n_.s.taps();
    std::fill_n(n_.own_sums(b), lanes * (own.size() * n_.s.taps() + 1), 0.0f);
    const bool adds_bias = n_.s.makes_bias && own.begin == 0;
    for (std::int64_t i = 0; i < n_.cuts.count(); ++i) {
      const RowCut cut = n_.cuts.cut(i);
      add_block(b, cut, block, pairs, n_.shared_outputs(b, i), sums, input);
      for (std::int64_t pair = all.begin; adds_bias && pair < all.end; ++pair) {
        add_bias(b, pair, n_.shared_outputs(b, i),
                 bias + (n_.outputs.first_block(pair) - blocks.begin) * n_.outputs.width);
      }
    }
    for (std::int64_t pair = all.begin; pair < all.end; ++pair) {
      if (n_.s.makes_weight) put(b, pair, sums);
      if (adds_bias) {
        put_bias(b, pair, bias + (n_.outputs.first_block(pair) - blocks.begin) * n_.outputs.width);
      }
    }
  }

  // Rows of outputs whose window has the row of the kernel inside the input; then all.
  void list_runs(const ConvBuffers& b, const RowCut& cut, std::int64_t row_words) const {
    const std::int64_t output_row = n_.row.steps * n_.outputs.width;
    for (std::int64_t list = 0; list < n_.lists(); ++list) {
      const bool has_all = list == n_.kernel_rows;
      const std::int64_t slice = list / n_.s.kernel[1],
                         tap = list % n_.s.kernel[1] * n_.s.dilation[1];
      const bool has_some = has_all || n_.cuts.is_inside(0, n_.cuts.input_slice(cut, slice));
      std::int64_t count = 0;
      for (std::int64_t h = 0; has_some && h < cut.h.size(); ++h) {
        const std::int64_t at = h * n_.s.stride[1] + tap;
        if (!has_all && !n_.cuts.is_inside(1, cut.first_row + at)) continue;
        const std::int64_t row = has_all ? 0 : slice * n_.cuts.source_rows() + at;
        n_.runs(b, list)[count++] = {row * row_words, h * output_row};
      }
      n_.run_counts(b)[list] = count;
    }
  }

  // All taps of a block of inputs and of these pairs of output blocks of its group.
  void add_block(const ConvBuffers& b, const RowCut& cut, std::int64_t block, const Range& pairs,
                 const float* outputs, const Sums& sums, PairMagnitudes& input) const {
    const Range own = n_.inputs.own(block);
    operands_.bring_input(b, cut, n_.inputs.all(block), input);
    list_runs(b, cut, n_.row.row_words() * own.size());
    const std::int64_t group = n_.inputs.group_of(block) * n_.outputs.pairs();
    for (std::int64_t pair = group + pairs.begin; pair < group + pairs.end; ++pair) {
      BlockProducts p = products_of(pair, outputs);
      const std::int64_t lanes = p.vectors * n_.outputs.width;
      float* const to = sums_of(sums, pair) + (own.begin - sums.first_input) * n_.s.taps() * lanes;
      p.left_step = kPair / n_.row.every * own.size();
      p.sum_step = n_.s.taps() * lanes;
      p.rows = own.size();
      for (std::int64_t tap = 0; tap < n_.s.taps(); ++tap) {
        const RowTaps::Tap& at = n_.row.taps[static_cast<std::size_t>(tap % n_.s.kernel[2])];
        p.left =
            n_.own_words(b) + (at.line * n_.row.numbers + at.shift) / n_.row.every * own.size();
        p.runs = n_.runs(b, tap / n_.s.kernel[2]);
        p.run_count = n_.run_counts(b)[tap / n_.s.kernel[2]];
        p.sums = to + tap * lanes;
        if (p.run_count > 0) pairs_.conv.multiply_channels(p);
      }
    }
  }
  BlockProducts products_of(std::int64_t pair, const float* outputs) const {
    BlockProducts p{};
    p.run_length = n_.row.steps;
    p.right = outputs + n_.outputs.first_block(pair) * n_.block_words();
    p.right_step = n_.outputs.width;
    p.right_pitch = n_.block_words();
    p.vectors = n_.outputs.blocks_of_pair(pair);
    p.sum_pitch = n_.outputs.width;
    p.adds = true;
    return p;
  }
  float* sums_of(const Sums& sums, std::int64_t pair) const {
    return sums.data + (n_.outputs.first_block(pair) - sums.first_block) * n_.outputs.width *
                           sums.inputs * n_.s.taps();
  }

  // The products with a pair of ones.
  void add_bias(const ConvBuffers& b, std::int64_t pair, const float* outputs, float* sums) const {
    static constexpr std::uint32_t kOnes = 0x3f803f80;
    BlockProducts p = products_of(pair, outputs);
    p.left = &kOnes;
    p.runs = n_.runs(b, n_.kernel_rows);
    p.run_count = n_.run_counts(b)[n_.kernel_rows];
    p.sums = sums;
    p.rows = 1;
    pairs_.conv.multiply_channels(p);
  }

  void write_parts(const ConvBuffers& b, std::int64_t pair) const {
    const std::int64_t lanes = n_.outputs.blocks_of_pair(pair) * n_.outputs.width;
    const Sums sums{n_.part(b, 0), 0, 0, n_.inputs.channels};
    add_parts(sums_of(sums, pair), lanes * n_.inputs.channels * n_.s.taps(), n_.parts,
              n_.part_sums());
    if (n_.s.makes_weight) put(b, pair, sums);
    if (!n_.s.makes_bias) return;
    float* const bias =
        n_.part(b, 0) + n_.weight_sums() + n_.outputs.first_block(pair) * n_.outputs.width;
    add_parts(bias, lanes, n_.parts, n_.part_sums());
    put_bias(b, pair, bias);
  }
  void put(const ConvBuffers& b, std::int64_t pair, const Sums& sums) const {
    const Range own = n_.outputs.channels_of_pair(pair);
    const Weights& weight = b.weight_product;
    weights_.put(weight, {weight.at(own.begin, sums.first_input), weight.input_stride_bytes,
                          weight.output_stride_bytes, sums.inputs, own.size(), sums_of(sums, pair),
                          n_.outputs.blocks_of_pair(pair) * n_.outputs.width});
  }
  void put_bias(const ConvBuffers& b, std::int64_t pair, float* sums) const {
    const Range own = n_.outputs.channels_of_pair(pair);
    copy_.put_line(b.bias_sums.data + own.begin * b.bias_sums.stride_bytes,
                   b.bias_sums.stride_bytes, own.size(), sums);
  }

  const PairWeightLayout n_;
  const PairKernels& pairs_;
  const PairWeightOperands operands_;
  const TileCopy<float> copy_;
  const WeightCopy<float> weights_;
};

}  // namespace

std::unique_ptr<const ConvEngine> make_pair_weights(const ConvTask& task, VectorSize size,
                                                    std::unique_ptr<const ConvEngine> careful) {
  const ConvKernels& kernels = conv_kernels(task.cpu.isa(), task.dtype, size);
  const PairKernels* const pairs = pair_kernels(task.cpu, kernels.width);
  const PairKernels* const full =
      pair_kernels(task.cpu, conv_kernels(task.cpu.isa(), task.dtype).width);
  if (!careful || pairs == nullptr || full == nullptr) return nullptr;
  auto engine = std::make_unique<PairWeightProduct>(task, kernels, *pairs, *full);
  if (!engine->fits()) return nullptr;
  return std::make_unique<CarefulEngine>(std::move(engine), std::move(careful));
}

}  // namespace backops
