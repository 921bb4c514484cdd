// Products in bfloat16 and float16 by instructions that multiply pairs or small matrices of
// bfloat16 numbers (kernels/matrix/matrix.h). All tensors are brought into one order of positions
// (matrix/tiles.h), in which both products are plain matrix products:
//
//   weight (outputs, inputs) = output (outputs, positions) * input (positions, inputs)
//   input (positions, inputs) = output (positions, outputs) * weight (outputs, inputs)
#include "ops/conv/matrix/engine.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/convert/convert.h"
#include "kernels/matrix/matrix.h"
#include "ops/conv/blocks/sizes.h"
#include "ops/conv/careful.h"
#include "ops/conv/copy.h"
#include "ops/conv/matrix/layout.h"
#include "ops/conv/matrix/memory.h"
#include "ops/conv/matrix/multiplication.h"
#include "ops/conv/matrix/packing.h"
#include "ops/conv/matrix/schedule.h"
#include "ops/conv/parts.h"

namespace backops {
namespace {

constexpr std::int64_t kLanes = kTileRows;
constexpr std::int64_t kMostTaps = 256;
constexpr std::int64_t kMostStride = 8;
constexpr std::int64_t kMostReach = std::int64_t{1} << 24;  // along an axis

int pieces_of(DType dtype) { return dtype == DType::bfloat16 ? 1 : 2; }

class MatrixEngine : public WatchingEngine {
 public:
  MatrixEngine(const ConvTask& task, const ConvKernels& kernels)
      : s_(task.shape),
        matrix_(*matrix_kernels(task.cpu)),
        copy_(kernels, task.rounding, convert_kernels(kernels.isa)),
        n_(s_, kLanes, false),
        plan_(task, n_, MatrixLayout::place_bytes(s_, n_, pieces_of(task.dtype))),
        m_(s_, n_, plan_.tiles(), pieces_of(task.dtype)),
        at_(s_, n_, plan_.tiles(), m_, plan_.is_shared(), plan_.output_pairs_at_once()),
        packing_(s_, n_, plan_.tiles(), m_, at_, matrix_, copy_),
        products_(s_, n_, plan_.tiles(), m_, at_, matrix_, copy_) {
    if (!plan_.tiles().fit()) return;
    at_.set_parts(plan_.parts());
    tasks_ = plan_.tasks(static_cast<double>(m_.weight_pair()) *
                         static_cast<double>(sizeof(BFloat16Bits)));
  }

  bool fits() const { return plan_.fits(at_.tile_bytes()); }

  std::string name() const override {
    return std::string("matrix:") + name_of(matrix_.isa) + (plan_.is_shared() ? ":by_outputs" : "");
  }

  std::size_t engine_bytes() const override { return at_.engine_bytes(); }
  std::size_t worker_bytes() const override { return at_.worker_bytes(); }

  // Pack the weights, and bring the tiles if tasks share them; the products; add the parts.
  int phases() const override { return 3; }

  std::int64_t tasks(int phase) const override {
    if (phase == 0) {
      return at_.pack_tasks() + (plan_.is_shared() ? at_.output_tasks() + at_.input_tasks() : 0) +
             (s_.adds_bias ? 1 : 0);
    }
    if (phase == 1) return static_cast<std::int64_t>(tasks_.size());
    return at_.has_parts() || s_.makes_bias ? n_.outputs.all_pairs() : 0;
  }

  void work(int phase, std::int64_t task, const ConvBuffers& b) const noexcept override {
    if (phase == 0) {
      prepare(b, task);
    } else if (phase == 1) {
      matrix_.begin();
      work_task(b, tasks_[static_cast<std::size_t>(task)]);
      matrix_.end();
    } else {
      if (at_.has_parts()) products_.write_weights(b, task, at_.sums(b, 0), at_.parts());
      if (s_.makes_bias) write_bias(b, task);
    }
  }

  bool saw_normal_only(const ConvBuffers& b) const override {
    const Magnitudes* from = at_.magnitudes(b);
    const auto next = [&](std::int64_t count) {
      Magnitudes all;
      for (std::int64_t i = 0; i < count; ++i) all.add(*from++);
      return all;
    };
    const Magnitudes output = next(at_.output_magnitudes()), input = next(at_.input_magnitudes());
    const Magnitudes weight = next(at_.pack_tasks());
    return (!s_.makes_weight || are_normal(output, input)) &&
           (!s_.makes_input || are_normal(output, weight));
  }

 private:
  using Kind = MatrixSchedule::Kind;
  using Task = MatrixSchedule::Task;

  void prepare(const ConvBuffers& b, std::int64_t task) const {
    if (s_.adds_bias && task == tasks(0) - 1) {
      packing_.bring_bias(b);
    } else if (task < at_.pack_tasks()) {
      at_.magnitudes(b)[at_.output_magnitudes() + at_.input_magnitudes() + task] =
          packing_.pack_weights(b, task / n_.outputs.pairs(), task % n_.outputs.pairs());
    } else if (task -= at_.pack_tasks(); task < at_.output_tasks()) {
      const std::int64_t index = task / n_.outputs.all_pairs();
      at_.magnitudes(b)[task] =
          packing_.bring_output(b, index, task % n_.outputs.all_pairs(), index, true);
    } else {
      task -= at_.output_tasks();
      at_.magnitudes(b)[at_.output_magnitudes() + task] =
          packing_.bring_input(b, task / n_.inputs.all_pairs(), task % n_.inputs.all_pairs());
    }
  }

  void work_task(const ConvBuffers& b, const Task& task) const {
    if (task.kind == Kind::outputs) {
      float* const all_sums = at_.own_sums(b) - n_.sums_of_pair(task.pairs.begin);
      products_.add_weights(b, task.tiles, task.pairs, all_sums, false);
      for (std::int64_t pair = task.pairs.begin; pair < task.pairs.end; ++pair) {
        products_.write_weights(b, pair, all_sums, 1);
      }
    } else if (task.kind == Kind::inputs) {
      for (std::int64_t index = task.tiles.begin; index < task.tiles.end; ++index) {
        for (std::int64_t pair = task.pairs.begin; pair < task.pairs.end; ++pair) {
          products_.write_inputs(b, index, pair);
        }
      }
    } else {
      work_tiles(b, task);
    }
  }

  void work_tiles(const ConvBuffers& b, const Task& task) const {
    Magnitudes output, input;
    const std::int64_t part = task.part;
    for (std::int64_t index = task.tiles.begin; index < task.tiles.end; ++index) {
      const bool is_first = index == task.tiles.begin;
      for (std::int64_t pair = 0; pair < n_.outputs.all_pairs(); ++pair) {
        output.add(packing_.bring_output(b, index, pair, part, is_first));
      }
      for (std::int64_t pair = 0; s_.makes_weight && pair < n_.inputs.all_pairs(); ++pair) {
        input.add(packing_.bring_input(b, index, pair));
      }
      if (s_.makes_weight) {
        products_.add_weights(b, {index, index + 1}, {0, n_.outputs.all_pairs()}, at_.sums(b, part),
                              !is_first);
      }
      for (std::int64_t pair = 0; s_.makes_input && pair < n_.inputs.all_pairs(); ++pair) {
        products_.write_inputs(b, index, pair);
      }
    }
    at_.magnitudes(b)[part] = output;
    at_.magnitudes(b)[at_.output_magnitudes() + part] = input;
  }

  void write_bias(const ConvBuffers& b, std::int64_t pair) const {
    const Range blocks = n_.outputs.blocks_of({pair, pair + 1});
    const Range channels = n_.outputs.channels_of_pair(pair);
    float* const sums = at_.bias_sums(b, 0) + blocks.begin * kLanes;
    add_parts(sums, blocks.size() * kLanes, at_.parts(), at_.part_sums());
    copy_.put_line(b.bias_sums.data + channels.begin * b.bias_sums.stride_bytes,
                   b.bias_sums.stride_bytes, channels.size(), sums);
  }

  const ConvShape s_;
  const MatrixKernels& matrix_;
  const TileCopy<float> copy_;
  const BlockSizes n_;
  const MatrixSchedule plan_;
  const MatrixLayout m_;
  MatrixMemory at_;
  const MatrixPacking packing_;
  const MatrixMultiplication products_;
  std::vector<Task> tasks_;
};

}  // namespace

std::string matrix_refusal(const ConvTask& task) {
  const ConvShape& s = task.shape;
  if (!has_matrices(task.cpu)) return "problems on a CPU without products of bfloat16";
  if (task.dtype != DType::bfloat16 && task.dtype != DType::float16) {
    return std::string(name_of(task.dtype)) + ", which has too many digits";
  }
  // float16 needs four products for one: packing then takes most of the time.
  if (task.dtype == DType::float16 && s.taps() == 1) return "float16 under a kernel of one element";
  if (!s.makes_input && !s.makes_weight) return "bias sums only";
  if (s.groups > 1 && (s.group_inputs() % kLanes != 0 || s.group_outputs() % kLanes != 0)) {
    return "groups that fill no tiles";
  }
  for (int axis = 0; axis < kMaxConvRank; ++axis) {
    if (s.stride[axis] > kMostStride) return "strides above 8";
    if (std::max({s.padding[axis], s.in[axis], s.dilation[axis]}) > kMostReach) {
      return "sizes above 2^24";
    }
    if (s.kernel[axis] > kMostTaps) return "kernels of more than 256 elements";
  }
  if (s.taps() > kMostTaps) return "kernels of more than 256 elements";
  if (conv_kernels(task.cpu.isa(), task.dtype).width != kLanes) return "vectors of another width";
  return "";
}

std::unique_ptr<const ConvEngine> make_matrix_engine(const ConvTask& task,
                                                     std::unique_ptr<const ConvEngine> careful) {
  if (!careful || matrix_kernels(task.cpu) == nullptr) return nullptr;
  auto engine = std::make_unique<MatrixEngine>(task, conv_kernels(task.cpu.isa(), task.dtype));
  if (!engine->fits()) return nullptr;
  return std::make_unique<CarefulEngine>(std::move(engine), std::move(careful));
}

}  // namespace backops
