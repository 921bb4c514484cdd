// Products of convolutions whose channels, or folded taps, fill vectors. Tiles of the tensors are
// brought into scratch memory in blocks, (blocks of channels, positions, channels of a block), a
// block being one vector wide; all products are matrix products there, of which strides and
// dilations only change the offsets.
#include "ops/conv/blocks/engine.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/convert/convert.h"
#include "ops/conv/blocks/bias.h"
#include "ops/conv/blocks/copy.h"
#include "ops/conv/blocks/folds.h"
#include "ops/conv/blocks/in_place.h"
#include "ops/conv/blocks/memory.h"
#include "ops/conv/blocks/order.h"
#include "ops/conv/blocks/results.h"
#include "ops/conv/blocks/runs.h"
#include "ops/conv/blocks/schedule.h"
#include "ops/conv/blocks/sizes.h"
#include "ops/conv/blocks/weight.h"
#include "ops/conv/blocks/weight_in_place.h"
#include "ops/conv/copy.h"

namespace backops {
namespace {

template <class Sum>
class BlocksEngine : public ConvEngine {
 public:
  BlocksEngine(const ConvTask& task, const ConvKernels& kernels,
               std::unique_ptr<const FoldedTaps> folds)
      : s_(folds ? folds->problem() : task.shape),
        folds_(std::move(folds)),
        kernels_(kernels),
        copy_(kernels, task.rounding, convert_kernels(kernels.isa)),
        n_(sizes_for(task)),
        order_(s_, n_, copy_, folds_.get()),
        weight_product_(s_, n_, kernels, folds_.get()),
        is_pointwise_(!folds_ && s_.is_pointwise()),
        reads_in_place_(is_pointwise_ && size_of(task.dtype) == sizeof(Sum) &&
                        task.rounding == Rounding::none),
        plan_(s_, n_, task.cuts, BlockBudget(task.cpu, task.cuts), kernels, folds_.get()),
        at_(s_, n_, plan_, folds_.get()),
        blocks_(s_, n_, copy_),
        bias_(n_, at_, copy_, folds_.get()),
        results_(s_, n_, plan_, at_, copy_, folds_.get()) {
    if (!folds_ && BlockInPlace<Sum>::fits(task)) {
      in_place_ = std::make_unique<const BlockInPlace<Sum>>(s_, n_, kernels, task.cpu.level1_bytes);
    }
    if (reads_in_place_ && s_.makes_weight && !n_.has_lanes_on_inputs) {
      weight_in_place_ =
          std::make_unique<const BlockWeightInPlace<Sum>>(s_, n_, kernels, task.cpu.level2_bytes);
    }
  }

  bool fits() const { return plan_.fits; }

  std::string name() const override {
    std::string name = std::string(folds_ ? "folded:" : "blocks:") + name_of(kernels_.isa);
    if (kernels_.size == VectorSize::half) name += ":half";
    if (n_.has_lanes_on_inputs) name += ":by_input_lanes";
    if (plan_.cut == Schedule::Cut::inputs) name += ":by_inputs";
    if (plan_.cut == Schedule::Cut::outputs) name += ":by_outputs";
    if (plan_.cut == Schedule::Cut::outputs_and_inputs) name += ":by_outputs_and_inputs";
    return name;
  }

  std::size_t engine_bytes() const override { return at_.engine_bytes(); }
  std::size_t worker_bytes() const override {
    std::size_t lists = weight_product_.list_bytes();
    for (const Layout& layout : plan_.layouts) {
      if (layout.input_product) lists = std::max(lists, layout.input_product->list_bytes());
    }
    return at_.lists_at() + lists;
  }

  // Put the weights in order and bring what tasks share; the products of the parts; add the parts.
  int phases() const override { return 3; }

  std::int64_t tasks(int phase) const override {
    if (phase == 0) {
      return at_.packed_blocks() + static_cast<std::int64_t>(plan_.shared.size()) +
             (s_.adds_bias ? 1 : 0);
    }
    if (phase == 1) return static_cast<std::int64_t>(plan_.tasks.size());
    return weight_tasks() + (s_.makes_bias ? 1 : 0);
  }

  void work(int phase, std::int64_t task, const ConvBuffers& b) const noexcept override {
    if (phase == 0 && s_.adds_bias && task == tasks(0) - 1) {
      bias_.bring(b);
    } else if (phase == 0 && task >= at_.packed_blocks()) {
      bring_shared(b, plan_.shared[static_cast<std::size_t>(task - at_.packed_blocks())]);
    } else if (phase == 0) {
      const std::int64_t pair = task / n_.outputs.blocks();
      const bool finite = order_.pack(b.weight, pair, task % n_.outputs.blocks(),
                                      at_.packed_weights(b) + n_.packed_pair(pair));
      at_.finite_flags(b)[task] = finite ? Sum{1} : Sum{0};
    } else if (phase == 1) {
      work_tiles(b, plan_.tasks[static_cast<std::size_t>(task)]);
    } else if (task < weight_tasks()) {
      write_weights(b, task, at_.sums(b, 0), plan_.parts);
    } else {
      bias_.write(b, plan_.parts);
    }
  }

 private:
  using Schedule = BlockSchedule<Sum>;
  using Layout = BlockLayout<Sum>;
  using Task = typename Schedule::Task;

  // Lanes of weight sums are inputs where those fill vectors better, and nothing is cut by outputs.
  BlockSizes sizes_for(const ConvTask& task) const {
    const BlockSizes on_outputs(s_, kernels_.width, false);
    const bool is_better = on_outputs.inputs.padded() * on_outputs.outputs.channels <
                           on_outputs.outputs.padded() * on_outputs.inputs.channels;
    const bool is_possible =
        !folds_ && Schedule::is_cut_into_parts(s_, on_outputs, task.cuts,
                                               BlockBudget(task.cpu, task.cuts), false);
    return BlockSizes(s_, kernels_.width, s_.makes_weight && is_better && is_possible);
  }

  std::int64_t weight_tasks() const { return plan_.has_parts() ? n_.sum_lanes.all_pairs() : 0; }

  void bring_shared(const ConvBuffers& b, const typename Schedule::SharedBlock& own) const {
    const Layout& layout = plan_.layouts[own.layout];
    const Tile tile = layout.tiles.tile(own.tile);
    if (layout.makes_weight && reads_input(b)) return;
    Sum* const to = at_.shared(b, layout, own.tile) + own.block * layout.shared_pitch;
    const Range block{own.block, own.block + 1};
    if (layout.makes_weight) {
      blocks_.clear_input(layout, block, to);
      blocks_.bring_input(b.input, layout, tile.input, block, to);
    } else {
      blocks_.clear_output(layout, block, to);
      blocks_.bring_output(b.output, layout, tile.output, block, to);
    }
  }

  void work_tiles(const ConvBuffers& b, const Task& task) const {
    const Layout& layout = *task.layout;
    const Range blocks = n_.outputs.blocks_of(task.output_pairs);
    Sum* const own_output = Layout::output(b.scratch);
    clear_own(b, task, blocks);
    const bool are_own_finite = !layout.input_product || plan_.packs_all() || pack_own(b, task);
    for (std::int64_t index = task.tiles.begin; index < task.tiles.end; ++index) {
      const Tile tile = layout.tiles.tile(index);
      const bool reads_output = layout.makes_weight || layout.makes_bias;
      const auto write_in_place = [&] {
        return in_place_ &&
               in_place_->write_tile({b, at_.packed_weights(b), at_.bias(b), reads_output}, tile);
      };
      if (!reads_output && write_in_place()) continue;
      if (layout.brings_output()) {
        blocks_.bring_output(b.output, layout, tile.output, blocks, own_output);
      }
      const Sum* const output = layout.brings_output() ? own_output : at_.shared(b, layout, index);
      if (layout.makes_bias) bias_.add_tile(b, layout, tile, blocks, task.part);
      if (layout.makes_weight) add_to_weight(b, task, tile, index);
      if (!layout.input_product || (reads_output && write_in_place())) continue;
      results_.write_tile(b, {layout, task.input_pairs, output, are_own_finite}, tile);
    }
    if (!layout.makes_weight || plan_.has_parts()) return;
    for (std::int64_t pair = task.output_pairs.begin; pair < task.output_pairs.end; ++pair) {
      write_weights(b, pair, own_sums(b, task), 1);
    }
  }

  void clear_own(const ConvBuffers& b, const Task& task, const Range& blocks) const {
    const Layout& layout = *task.layout;
    if (layout.brings_output()) blocks_.clear_output(layout, blocks, Layout::output(b.scratch));
    if (layout.brings_input() && !folds_) {
      blocks_.clear_input(layout, {0, n_.inputs.all_blocks()}, layout.input(b.scratch));
    }
    if (layout.makes_bias) bias_.clear(b, blocks, task.part);
  }

  // The weights of one pair.
  bool pack_own(const ConvBuffers& b, const Task& task) const {
    bool finite = true;
    for (std::int64_t block = 0; block < n_.outputs.blocks(); ++block) {
      Sum* const packed = task.layout->own_weights(b.scratch);
      finite = order_.pack(b.weight, task.input_pairs.begin, block, packed) && finite;
    }
    return finite;
  }
  // As if they were those of all pairs.
  Sum* own_sums(const ConvBuffers& b, const Task& task) const {
    return task.layout->own_weights(b.scratch) - n_.sums_of_pair(task.output_pairs.begin);
  }

  // Whether the weight product reads the input as it is.
  bool reads_input(const ConvBuffers& b) const {
    return weight_in_place_ && weight_in_place_->reads(b.input);
  }

  void add_to_weight(const ConvBuffers& b, const Task& task, const Tile& tile,
                     std::int64_t index) const {
    const Layout& layout = *task.layout;
    const Range pairs = plan_.has_parts() ? Range{0, n_.sum_lanes.all_pairs()} : task.output_pairs;
    Sum* const own = plan_.has_parts() ? at_.sums(b, task.part) : own_sums(b, task);
    const bool is_first = index == task.tiles.begin;
    if (reads_input(b)) {
      return weight_in_place_->add_tile(
          {b.input, Layout::output(b.scratch), layout.output_pitch, pairs, own}, tile, is_first);
    }
    Sum* const input = layout.is_shared ? at_.shared(b, layout, index) : layout.input(b.scratch);
    Tile positions = is_pointwise_ ? in_one_row(tile) : tile;
    std::int64_t step = weight_product_.input_step();
    const Sum* const as_it_is = reads_in_place_ && !layout.is_shared
                                    ? input_as_it_is<Sum>(b.input, n_.inputs, tile, step)
                                    : nullptr;
    if (folds_) {
      positions.input = folds_->rows_of(tile.input, layout.folds);
      folds_->bring(copy_, b.input, positions.input, tile.outputs[2], input,
                    layout.spare(b.scratch));
    } else if (!layout.is_shared && as_it_is == nullptr) {
      blocks_.bring_input(b.input, layout, tile.input, {0, n_.inputs.all_blocks()}, input);
    }
    weight_product_.add_tile(
        {Layout::output(b.scratch), layout.output_pitch, as_it_is != nullptr ? as_it_is : input,
         as_it_is != nullptr ? n_.width : layout.input_pitch, step, pairs, own, at_.lists(b)},
        positions, is_first);
  }

  void write_weights(const ConvBuffers& b, std::int64_t pair, Sum* all_sums,
                     std::int64_t parts) const {
    order_.write(b.weight_product, pair, all_sums + n_.sums_of_pair(pair), parts, at_.part_sums());
  }

  const ConvShape s_;
  const std::unique_ptr<const FoldedTaps> folds_;  // null if channels are many enough
  const ConvKernels& kernels_;
  const TileCopy<Sum> copy_;
  const BlockSizes n_;
  const BlockOrder<Sum> order_;
  const BlockWeight<Sum> weight_product_;
  const bool is_pointwise_;
  const bool reads_in_place_;  // the input, for tensors that allow it
  const Schedule plan_;
  const BlockMemory<Sum> at_;
  const BlockCopy<Sum> blocks_;
  const BlockBias<Sum> bias_;
  const BlockResults<Sum> results_;
  std::unique_ptr<const BlockInPlace<Sum>> in_place_;               // for tensors that allow it
  std::unique_ptr<const BlockWeightInPlace<Sum>> weight_in_place_;  // likewise
};

std::unique_ptr<const ConvEngine> make_engine(const ConvTask& task, VectorSize size, bool folds) {
  const ConvKernels& kernels = conv_kernels(task.cpu.isa(), task.dtype, size);
  auto folded = folds ? std::make_unique<const FoldedTaps>(task.shape, kernels.width) : nullptr;
  const auto made = [](auto engine) -> std::unique_ptr<const ConvEngine> {
    if (!engine->fits()) return nullptr;
    return engine;
  };
  return task.shape.is_double
             ? made(std::make_unique<BlocksEngine<double>>(task, kernels, std::move(folded)))
             : made(std::make_unique<BlocksEngine<float>>(task, kernels, std::move(folded)));
}

}  // namespace

std::unique_ptr<const ConvEngine> make_blocks_engine(const ConvTask& task, VectorSize size) {
  ConvTask own = task;
  if (!own.shape.makes_input && !own.shape.makes_weight) own.shape = without_kernel(own.shape);
  return make_engine(own, size, false);
}

std::unique_ptr<const ConvEngine> make_folded_engine(const ConvTask& task, VectorSize size) {
  return make_engine(task, size, true);
}

}  // namespace backops
