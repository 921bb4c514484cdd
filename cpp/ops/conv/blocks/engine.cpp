// Products of convolutions whose channels, or folded taps, fill vectors. Tiles of the tensors are
// brought into scratch memory in blocks, (blocks of channels, positions, channels of a block), a
// block being one vector wide; all products are matrix products there, of which strides and
// dilations only change the offsets.
#include "ops/conv/blocks/engine.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/convert/convert.h"
#include "ops/conv/blocks/folds.h"
#include "ops/conv/blocks/in_place.h"
#include "ops/conv/blocks/input.h"
#include "ops/conv/blocks/order.h"
#include "ops/conv/blocks/runs.h"
#include "ops/conv/blocks/schedule.h"
#include "ops/conv/blocks/sizes.h"
#include "ops/conv/blocks/weight.h"
#include "ops/conv/blocks/weight_in_place.h"
#include "ops/conv/copy.h"
#include "ops/conv/parts.h"

namespace backops {
namespace {

constexpr int kPair = BlockSizes::kPair;

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
        planes_(s_),
        is_pointwise_(!folds_ && s_.is_pointwise()),
        reads_in_place_(is_pointwise_ && size_of(task.dtype) == sizeof(Sum) &&
                        task.rounding == Rounding::none),
        plan_(s_, n_, task.cuts, BlockBudget(task.cpu, task.cuts), kernels, folds_.get()) {
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

  std::size_t engine_bytes() const override {
    return static_cast<std::size_t>(bias_at() + bias_numbers()) * sizeof(Sum);
  }
  std::size_t worker_bytes() const override {
    std::size_t lists = weight_product_.list_bytes();
    for (const Layout& layout : plan_.layouts) {
      if (layout.input_product) lists = std::max(lists, layout.input_product->list_bytes());
    }
    return lists_at() + lists;
  }

  // Put the weights in order and bring what tasks share; the products of the parts; add the parts.
  int phases() const override { return 3; }

  std::int64_t tasks(int phase) const override {
    if (phase == 0) {
      return pack_tasks() + static_cast<std::int64_t>(plan_.shared.size()) + (s_.adds_bias ? 1 : 0);
    }
    if (phase == 1) return static_cast<std::int64_t>(plan_.tasks.size());
    return weight_tasks() + (s_.makes_bias ? 1 : 0);
  }

  void work(int phase, std::int64_t task, const ConvBuffers& b) const noexcept override {
    if (phase == 0 && s_.adds_bias && task == tasks(0) - 1) {
      bring_bias(b);
    } else if (phase == 0 && task >= pack_tasks()) {
      bring_shared(b, plan_.shared[static_cast<std::size_t>(task - pack_tasks())]);
    } else if (phase == 0) {
      const std::int64_t pair = task / n_.outputs.blocks();
      const bool finite = order_.pack(b.weight, pair, task % n_.outputs.blocks(),
                                      packed_weights(b) + n_.packed_pair(pair));
      finite_flags(b)[task] = finite ? Sum{1} : Sum{0};
    } else if (phase == 1) {
      work_tiles(b, plan_.tasks[static_cast<std::size_t>(task)]);
    } else if (task < weight_tasks()) {
      write_weights(b, task, sums(b, 0), plan_.parts);
    } else {
      write_bias(b);
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

  std::int64_t pack_tasks() const {
    return plan_.packs_all() ? n_.inputs.all_pairs() * n_.outputs.blocks() : 0;
  }
  std::int64_t weight_tasks() const { return plan_.has_parts() ? n_.sum_lanes.all_pairs() : 0; }

  // Memory of the engine: packed weights, a number for each block of them that tells whether they
  // are finite, and the sums of the parts. Unless tasks have their own.
  std::int64_t packed_sums() const {
    return plan_.packs_all() ? round_up(n_.packed_weights() + pack_tasks(), n_.width) : 0;
  }
  std::int64_t weight_sums() const { return plan_.has_parts() ? n_.weight_sums() : 0; }
  std::int64_t part_sums() const {
    return weight_sums() + (s_.makes_bias ? n_.outputs.all_blocks() * n_.width : 0);
  }
  Sum* packed_weights(const ConvBuffers& b) const { return reinterpret_cast<Sum*>(b.memory); }
  Sum* finite_flags(const ConvBuffers& b) const { return packed_weights(b) + n_.packed_weights(); }
  Sum* sums(const ConvBuffers& b, std::int64_t part) const {
    return packed_weights(b) + packed_sums() + part * part_sums();
  }
  Sum* bias_sums(const ConvBuffers& b, std::int64_t part) const {
    return sums(b, part) + weight_sums();
  }
  Sum* shared(const ConvBuffers& b, const Layout& layout, std::int64_t tile) const {
    return sums(b, plan_.parts) + layout.shared_at +
           tile * layout.shared_blocks * layout.shared_pitch;
  }

  // Behind everything else: the bias, in blocks of inputs, or as the channels of a fold.
  std::int64_t bias_at() const {
    return packed_sums() + plan_.parts * part_sums() + plan_.shared_sums;
  }
  std::int64_t bias_numbers() const {
    if (!s_.adds_bias) return 0;
    return folds_ ? folds_->channels() : n_.inputs.all_blocks() * n_.width;
  }
  Sum* bias(const ConvBuffers& b) const { return packed_weights(b) + bias_at(); }

  void bring_bias(const ConvBuffers& b) const {
    if (folds_) return copy_.bring_bias(b.bias, {0, folds_->channels()}, bias(b));
    for_channel_runs(n_.inputs, {0, n_.inputs.all_blocks()},
                     [&](const Range& channels, std::int64_t first) {
                       copy_.bring_bias(b.bias, channels, bias(b) + first * n_.width);
                     });
  }

  // Memory of a worker: the largest layout, and lists.
  std::size_t lists_at() const {
    std::int64_t most = 0;
    for (const Layout& layout : plan_.layouts) most = std::max(most, layout.sums);
    return whole_lines(static_cast<std::size_t>(most) * sizeof(Sum));
  }
  char* lists(const ConvBuffers& b) const { return b.scratch + lists_at(); }

  void bring(const Activation& tensor, const std::int64_t (&shape)[kMaxConvRank], const Box& box,
             const BlockSide& side, const Range& blocks, Sum* to, std::int64_t pitch) const {
    for_channel_runs(side, blocks, [&](const Range& channels, std::int64_t first) {
      copy_.bring(tensor, shape, box, channels, to + (first - blocks.begin) * pitch, pitch);
    });
  }
  void bring_output(const ConvBuffers& b, const Layout& layout, const Tile& tile,
                    const Range& blocks, Sum* to) const {
    for_channel_runs(n_.outputs, blocks, [&](const Range& channels, std::int64_t first) {
      copy_.bring_planes(planes_, b.output, tile.output, channels,
                         to + (first - blocks.begin) * layout.output_pitch, layout.output_pitch,
                         layout.plane_pitch);
    });
  }
  // Channels are brought around them.
  void clear_spare_lanes(const BlockSide& side, const Range& blocks, Sum* to,
                         std::int64_t pitch) const {
    for (std::int64_t block = blocks.begin; block < blocks.end; ++block) {
      if (side.channels_of_block(block).size() == n_.width) continue;
      std::fill_n(to + (block - blocks.begin) * pitch, pitch, Sum{0});
    }
  }

  void bring_shared(const ConvBuffers& b, const typename Schedule::SharedBlock& own) const {
    const Layout& layout = plan_.layouts[own.layout];
    const Tile tile = layout.tiles.tile(own.tile);
    const BlockSide& side = layout.makes_weight ? n_.inputs : n_.outputs;
    if (layout.makes_weight && reads_input(b)) return;
    Sum* const to = shared(b, layout, own.tile) + own.block * layout.shared_pitch;
    const Range block{own.block, own.block + 1};
    const std::int64_t planes = layout.makes_weight ? 1 : planes_.count();
    for (std::int64_t i = 0; i < planes; ++i) {
      clear_spare_lanes(side, block, to + i * layout.plane_pitch, layout.shared_pitch);
    }
    if (!layout.makes_weight) return bring_output(b, layout, tile, block, to);
    bring(b.input, s_.in, tile.input, side, block, to, layout.shared_pitch);
  }

  void work_tiles(const ConvBuffers& b, const Task& task) const {
    const Layout& layout = *task.layout;
    const Range blocks = n_.outputs.blocks_of(task.output_pairs);
    Sum* const own_output = Layout::output(b.scratch);
    clear_own(b, task, blocks);
    const bool are_own_finite = !layout.input_product || plan_.packs_all() || pack_own(b, task);
    for (std::int64_t index = task.tiles.begin; index < task.tiles.end; ++index) {
      const Tile tile = layout.tiles.tile(index);
      const Sum* const added = s_.adds_bias ? bias(b) : nullptr;
      const bool reads_output = layout.makes_weight || layout.makes_bias;
      const auto write_in_place = [&] {
        return in_place_ &&
               in_place_->write_tile({b, packed_weights(b), added, reads_output}, tile);
      };
      if (!reads_output && write_in_place()) continue;
      if (layout.brings_output()) bring_output(b, layout, tile, blocks, own_output);
      const Sum* const output = layout.brings_output() ? own_output : shared(b, layout, index);
      if (layout.makes_bias) sum_bias(b, layout, tile, blocks, task.part);
      if (layout.makes_weight) add_to_weight(b, task, tile, index);
      if (!layout.input_product || (reads_output && write_in_place())) continue;
      write_input(b, task, tile, output, are_own_finite);
    }
    if (!layout.makes_weight || plan_.has_parts()) return;
    for (std::int64_t pair = task.output_pairs.begin; pair < task.output_pairs.end; ++pair) {
      write_weights(b, pair, own_sums(b, task), 1);
    }
  }

  void clear_own(const ConvBuffers& b, const Task& task, const Range& blocks) const {
    const Layout& layout = *task.layout;
    for (std::int64_t i = 0; layout.brings_output() && i < planes_.count(); ++i) {
      clear_spare_lanes(n_.outputs, blocks, Layout::output(b.scratch) + i * layout.plane_pitch,
                        layout.output_pitch);
    }
    if (layout.brings_input() && !folds_) {
      clear_spare_lanes(n_.inputs, {0, n_.inputs.all_blocks()}, layout.input(b.scratch),
                        layout.input_pitch);
    }
    if (layout.makes_bias) {
      std::fill_n(bias_sums(b, task.part) + blocks.begin * n_.width, blocks.size() * n_.width,
                  Sum{0});
    }
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

  void sum_bias(const ConvBuffers& b, const Layout& layout, const Tile& tile, const Range& blocks,
                std::int64_t part) const {
    const Range& columns = tile.outputs[2];
    for_rows(tile.images, tile.outputs, [&](std::int64_t image, std::int64_t d, std::int64_t h) {
      const Sum* row =
          Layout::output(b.scratch) + tile.output.place(image, d, h, columns.begin) * n_.width;
      for (std::int64_t i = blocks.begin; i < blocks.end; ++i, row += layout.output_pitch) {
        kernels_.sum({row, n_.width, columns.size(), bias_sums(b, part) + i * n_.width});
      }
    });
  }

  // Whether the weight product reads the input as it is.
  bool reads_input(const ConvBuffers& b) const {
    return weight_in_place_ && weight_in_place_->reads(b.input);
  }

  void add_to_weight(const ConvBuffers& b, const Task& task, const Tile& tile,
                     std::int64_t index) const {
    const Layout& layout = *task.layout;
    const Range pairs = plan_.has_parts() ? Range{0, n_.sum_lanes.all_pairs()} : task.output_pairs;
    Sum* const own = plan_.has_parts() ? sums(b, task.part) : own_sums(b, task);
    const bool is_first = index == task.tiles.begin;
    if (reads_input(b)) {
      return weight_in_place_->add_tile(
          {b.input, Layout::output(b.scratch), layout.output_pitch, pairs, own}, tile, is_first);
    }
    Sum* const input = layout.is_shared ? shared(b, layout, index) : layout.input(b.scratch);
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
      bring(b.input, s_.in, tile.input, n_.inputs, {0, n_.inputs.all_blocks()}, input,
            layout.input_pitch);
    }
    weight_product_.add_tile(
        {Layout::output(b.scratch), layout.output_pitch, as_it_is != nullptr ? as_it_is : input,
         as_it_is != nullptr ? n_.width : layout.input_pitch, step, pairs, own, lists(b)},
        positions, is_first);
  }

  bool are_weights_finite(const ConvBuffers& b, std::int64_t pair) const {
    const Sum* const flags = finite_flags(b) + pair * n_.outputs.blocks();
    return std::all_of(flags, flags + n_.outputs.blocks(), [](Sum flag) { return flag != 0; });
  }

  void write_input(const ConvBuffers& b, const Task& task, const Tile& tile, const Sum* output,
                   bool are_own_finite) const {
    if (folds_) return write_folds(b, *task.layout, tile);
    const Layout& layout = *task.layout;
    const Tile positions = is_pointwise_ ? in_one_row(tile) : tile;
    Sum* const results = layout.results(b.scratch);
    for (std::int64_t pair = task.input_pairs.begin; pair < task.input_pairs.end; ++pair) {
      const std::int64_t group = n_.inputs.group_of_pair(pair);
      const Sum* const weights = plan_.packs_all() ? packed_weights(b) + n_.packed_pair(pair)
                                                   : layout.own_weights(b.scratch);
      const bool are_finite =
          is_pointwise_ || (plan_.packs_all() ? are_weights_finite(b, pair) : are_own_finite);
      layout.input_product->write_tile(
          {output + group * n_.outputs.blocks() * layout.output_pitch, weights,
           n_.inputs.blocks_of_pair(pair), are_finite, results, lists(b)},
          positions);
      copy_.put(b.input_product, tile.results, n_.inputs.channels_of_pair(pair), results,
                layout.result_pitch,
                s_.adds_bias ? bias(b) + n_.inputs.first_block(pair) * n_.width : nullptr);
    }
  }

  // Row by row: they are still in the first-level cache when they are folded.
  void write_folds(const ConvBuffers& b, const Layout& layout, const Tile& tile) const {
    Sum* const results = layout.results(b.scratch);
    Sum* const folded = layout.folded(b.scratch);
    Tile row = tile;
    row.results.axes[2] = folds_->reaching(tile);
    const std::int64_t count = row.results.axes[2].size();
    const auto write_row = [&](std::int64_t image, std::int64_t d, std::int64_t h) {
      row.images = row.results.images = {image, image + 1};
      row.results.axes[0] = {d, d + 1};
      row.results.axes[1] = {h, h + 1};
      folds_->begin_row(s_.adds_bias ? bias(b) : nullptr, layout.folds, folded);
      for (std::int64_t pair = 0; pair < n_.inputs.pairs(); ++pair) {
        const int blocks = n_.inputs.blocks_of_pair(pair);
        layout.input_product->write_tile(
            {Layout::output(b.scratch), packed_weights(b) + n_.packed_pair(pair), blocks, true,
             results, lists(b)},
            row);
        for (int i = 0; i < blocks; ++i) {
          folds_->fold(kernels_, results + i * layout.result_pitch, count, pair * kPair + i,
                       folded);
        }
      }
      folds_->put(copy_, b.input_product, tile, {image, d, h}, folded);
    };
    for_rows(tile.images, tile.results.axes, write_row);
  }

  void write_weights(const ConvBuffers& b, std::int64_t pair, Sum* all_sums,
                     std::int64_t parts) const {
    order_.write(b.weight_product, pair, all_sums + n_.sums_of_pair(pair), parts, part_sums());
  }

  void write_bias(const ConvBuffers& b) const {
    add_parts(bias_sums(b, 0), n_.outputs.all_blocks() * n_.width, plan_.parts, part_sums());
    for_channel_runs(n_.outputs, {0, n_.outputs.all_blocks()},
                     [&](const Range& channels, std::int64_t first) {
                       copy_.put_line(b.bias_sums.data + channels.begin * b.bias_sums.stride_bytes,
                                      b.bias_sums.stride_bytes, channels.size(),
                                      bias_sums(b, 0) + first * n_.width);
                     });
  }

  const ConvShape s_;
  const std::unique_ptr<const FoldedTaps> folds_;  // null if channels are many enough
  const ConvKernels& kernels_;
  const TileCopy<Sum> copy_;
  const BlockSizes n_;
  const BlockOrder<Sum> order_;
  const BlockWeight<Sum> weight_product_;
  const OutputPlanes planes_;
  const bool is_pointwise_;
  const bool reads_in_place_;  // the input, for tensors that allow it
  const Schedule plan_;
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
