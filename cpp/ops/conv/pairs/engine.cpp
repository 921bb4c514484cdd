// The input product of bfloat16 tensors by an instruction that multiplies pairs of numbers. Two
// outputs that follow each other are a pair, and a pair takes the place of a float32 number: tiles,
// blocks and runs of products are those of the blocks engine for half as many outputs. Nothing is
// converted on the way in.
#include "ops/conv/pairs/engine.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/convert/convert.h"
#include "kernels/pairs/pairs.h"
#include "ops/conv/blocks/copy.h"
#include "ops/conv/blocks/schedule.h"
#include "ops/conv/blocks/sizes.h"
#include "ops/conv/careful.h"
#include "ops/conv/copy.h"
#include "ops/conv/pairs/in_place.h"
#include "ops/conv/pairs/outputs.h"
#include "ops/conv/pairs/weights.h"

namespace backops {
namespace {

constexpr int kPair = BlockSizes::kPair;
constexpr std::int64_t kMostStride = 16;  // of a weight product, along the row

class PairsEngine : public WatchingEngine {
 public:
  PairsEngine(const ConvTask& task, const ConvKernels& kernels, const PairKernels& pairs)
      : s_(of_pairs(task.shape)),
        pairs_(pairs),
        copy_(kernels, Rounding::none, convert_kernels(kernels.isa)),
        n_(s_, kernels.width, false),
        weights_(task.shape, n_, pairs, conv_kernels(kernels.isa, DType::float32, kernels.size),
                 copy_),
        is_pointwise_(s_.is_pointwise()),
        plan_(s_, n_, task.cuts, BlockBudget(task.cpu, task.cuts), pairs.conv, nullptr),
        outputs_(task.shape.outputs, s_, n_, kernels, pairs, plan_.packs_all()) {
    if (plan_.packs_all() && PairInPlace::fits(task.shape)) {
      in_place_ =
          std::make_unique<const PairInPlace>(task.shape, n_, pairs, copy_, task.cpu.level1_bytes);
    }
  }

  bool fits() const { return plan_.fits; }

  std::string name() const override {
    std::string name = std::string("pairs:") + name_of(pairs_.conv.isa);
    if (pairs_.conv.size == VectorSize::half) name += ":half";
    if (plan_.cut == Schedule::Cut::inputs) name += ":by_inputs";
    return name;
  }

  std::size_t engine_bytes() const override {
    return magnitudes_at() +
           static_cast<std::size_t>(2 * (tasks(0) + tasks(1))) * sizeof(Magnitudes);
  }
  std::size_t worker_bytes() const override {
    std::size_t lists = 0;
    for (const Layout& layout : plan_.layouts) {
      lists = std::max(lists, layout.input_product->list_bytes());
    }
    const std::int64_t sums =
        std::max(weights_.spare_sums(), in_place_ ? in_place_->result_sums() : 0);
    return spare_at() + std::max(lists, static_cast<std::size_t>(sums) * sizeof(float));
  }

  // Put the weights in order and bring what tasks share; the product.
  int phases() const override { return kOwnPhases; }
  std::int64_t tasks(int phase) const override {
    if (phase == 1) return static_cast<std::int64_t>(plan_.tasks.size());
    return pack_tasks() + static_cast<std::int64_t>(plan_.shared.size()) + (s_.adds_bias ? 1 : 0);
  }

  void work(int phase, std::int64_t task, const ConvBuffers& b) const noexcept override {
    PairMagnitudes output, weight;
    if (phase == 1) {
      work_tiles(b, plan_.tasks[static_cast<std::size_t>(task)], output, weight);
    } else if (s_.adds_bias && task == tasks(0) - 1) {
      bring_bias(copy_, n_.inputs, b.bias, bias(b));
    } else if (task >= pack_tasks()) {
      bring_shared(b, plan_.shared[static_cast<std::size_t>(task - pack_tasks())], output);
    } else {
      const std::int64_t pair = task / n_.outputs.blocks();
      weights_.pack(b.weight, pair, task % n_.outputs.blocks(),
                    packed_weights(b) + n_.packed_pair(pair), spare(b), weight);
    }
    Magnitudes* const found = magnitudes(b) + 2 * (task + (phase == 1 ? tasks(0) : 0));
    found[0] = joined(output);
    found[1] = joined(weight);
  }

  bool saw_normal_only(const ConvBuffers& b) const override {
    Magnitudes output, weight;
    for (std::int64_t i = 0; i < tasks(0) + tasks(1); ++i) {
      output.add(magnitudes(b)[2 * i]);
      weight.add(magnitudes(b)[2 * i + 1]);
    }
    return are_normal(output, weight);
  }

 private:
  using Schedule = BlockSchedule<float>;
  using Layout = BlockLayout<float>;
  using Task = typename Schedule::Task;
  static constexpr int kOwnPhases = 2;

  // Memory of the engine: packed weights, what tasks share, the bias, magnitudes of what each task
  // has seen.
  std::int64_t pack_tasks() const {
    return plan_.packs_all() ? n_.inputs.all_pairs() * n_.outputs.blocks() : 0;
  }
  float* packed_weights(const ConvBuffers& b) const { return reinterpret_cast<float*>(b.memory); }
  std::int64_t shared_at() const { return plan_.packs_all() ? n_.packed_weights() : 0; }
  float* shared(const ConvBuffers& b, const Layout& layout, std::int64_t tile) const {
    return packed_weights(b) + shared_at() + layout.shared_at +
           tile * layout.shared_blocks * layout.shared_pitch;
  }
  std::int64_t bias_at() const { return shared_at() + plan_.shared_sums; }
  float* bias(const ConvBuffers& b) const { return packed_weights(b) + bias_at(); }
  std::size_t magnitudes_at() const {
    const std::int64_t bias = s_.adds_bias ? n_.inputs.all_blocks() * n_.width : 0;
    return whole_lines(static_cast<std::size_t>(bias_at() + bias) * sizeof(float));
  }
  Magnitudes* magnitudes(const ConvBuffers& b) const {
    return reinterpret_cast<Magnitudes*>(b.memory + magnitudes_at());
  }

  // Memory of a worker: the largest layout; then lists, or weights that are being packed, or
  // results in place of a layout's.
  std::size_t spare_at() const {
    std::int64_t most = 0;
    for (const Layout& layout : plan_.layouts) most = std::max(most, layout.sums);
    return whole_lines(static_cast<std::size_t>(most) * sizeof(float));
  }
  float* spare(const ConvBuffers& b) const {
    return reinterpret_cast<float*>(b.scratch + spare_at());
  }

  void bring_shared(const ConvBuffers& b, const typename Schedule::SharedBlock& own,
                    PairMagnitudes& output) const {
    const Layout& layout = plan_.layouts[own.layout];
    const Range block{own.block, own.block + 1};
    float* const to = shared(b, layout, own.tile) + own.block * layout.shared_pitch;
    outputs_.clear(layout, block, to);
    outputs_.bring(b.output, layout, layout.tiles.tile(own.tile).output, block, to, output);
  }

  void work_tiles(const ConvBuffers& b, const Task& task, PairMagnitudes& output,
                  PairMagnitudes& weight) const {
    const Layout& layout = *task.layout;
    const Range blocks = outputs_.blocks();
    float* const own = Layout::output(b.scratch);
    for (std::int64_t i = 0; !plan_.packs_all() && i < n_.outputs.blocks(); ++i) {
      weights_.pack(b.weight, task.input_pairs.begin, i, layout.own_weights(b.scratch), spare(b),
                    weight);
    }
    const bool is_in_place = in_place_ && in_place_->takes(b.output);
    if (layout.brings_output() && !is_in_place) outputs_.clear(layout, blocks, own);
    for (std::int64_t index = task.tiles.begin; index < task.tiles.end; ++index) {
      const Tile tile = layout.tiles.tile(index);
      if (is_in_place) {
        in_place_->write_tile(
            {b, packed_weights(b), s_.adds_bias ? bias(b) : nullptr, spare(b), output}, tile);
        continue;
      }
      if (layout.brings_output()) {
        outputs_.bring(b.output, layout, tile.output, blocks, own, output);
      }
      write_input(b, task, tile, layout.brings_output() ? own : shared(b, layout, index));
    }
  }

  // Groups of one block are written two at a time: more channels side by side.
  void write_input(const ConvBuffers& b, const Task& task, const Tile& tile,
                   const float* output) const {
    const Layout& layout = *task.layout;
    float* const results = layout.results(b.scratch);
    const std::int64_t at_once = n_.inputs.channels == n_.width ? kPair : 1;
    for (std::int64_t first = task.input_pairs.begin; first < task.input_pairs.end;
         first += at_once) {
      const std::int64_t end = std::min(first + at_once, task.input_pairs.end);
      for (std::int64_t pair = first; pair < end; ++pair) {
        multiply(b, layout, tile, output, pair, results + (pair - first) * layout.result_pitch);
      }
      const Range channels{n_.inputs.channels_of_pair(first).begin,
                           n_.inputs.channels_of_pair(end - 1).end};
      copy_.put(b.input_product, tile.results, channels, results, layout.result_pitch,
                s_.adds_bias ? bias(b) + n_.inputs.first_block(first) * n_.width : nullptr);
    }
  }
  void multiply(const ConvBuffers& b, const Layout& layout, const Tile& tile, const float* output,
                std::int64_t pair, float* results) const {
    const float* const weights = plan_.packs_all() ? packed_weights(b) + n_.packed_pair(pair)
                                                   : layout.own_weights(b.scratch);
    layout.input_product->write_tile(
        {output + outputs_.place_of_group(n_.inputs.group_of_pair(pair), layout.output_pitch),
         weights, n_.inputs.blocks_of_pair(pair), true, results, b.scratch + spare_at()},
        is_pointwise_ ? in_one_row(tile) : tile);
  }

  const ConvShape s_;
  const PairKernels& pairs_;
  const TileCopy<float> copy_;
  const BlockSizes n_;
  const PairWeights weights_;
  const bool is_pointwise_;
  const Schedule plan_;
  const PairOutputs outputs_;
  std::unique_ptr<const PairInPlace> in_place_;  // for tensors that allow it
};

}  // namespace

ConvShape of_pairs(const ConvShape& shape) {
  ConvShape pairs = shape;
  pairs.outputs = shape.groups * ceil_divide(shape.group_outputs(), 2);
  return pairs;
}

std::string pairs_refusal(const ConvTask& task) {
  const ConvShape& s = task.shape;
  if (!has_pairs(task.cpu)) return "problems on a CPU without products of bfloat16 pairs";
  if (task.dtype != DType::bfloat16) {
    return std::string(name_of(task.dtype)) + ", which has too many digits";
  }
  if (s.makes_input && (s.makes_weight || s.makes_bias)) return "two products at once";
  if (!s.makes_input && !s.makes_weight) return "bias sums only";
  if (s.makes_weight) return s.stride[2] > kMostStride ? "windows far apart" : "";
  if (s.groups > 1 && s.group_outputs() % 2 != 0) return "groups of an odd number of outputs";
  return "";
}

std::unique_ptr<const ConvEngine> make_pairs_engine(const ConvTask& task, VectorSize size,
                                                    std::unique_ptr<const ConvEngine> careful) {
  const ConvKernels& kernels = conv_kernels(task.cpu.isa(), task.dtype, size);
  const PairKernels* const pairs = pair_kernels(task.cpu, kernels.width);
  if (!careful || pairs == nullptr) return nullptr;
  auto engine = std::make_unique<PairsEngine>(task, kernels, *pairs);
  if (!engine->fits()) return nullptr;
  return std::make_unique<CarefulEngine>(std::move(engine), std::move(careful));
}

}  // namespace backops
