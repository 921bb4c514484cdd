#include "ops/conv/plan.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/ints.h"
#include "base/task_queue.h"
#include "base/threads.h"
#include "ops/conv/choose.h"
#include "ops/conv/engine.h"

namespace backops {
namespace {

// Fewer multiplications than this are done before another thread is awake.
constexpr double kAloneWork = 100000;

// The map that the operator is a product of. A transposed convolution's input is the map's output.
ConvShape map_of(const LegalConvProblem& legal) {
  const ConvProblem& p = legal.problem();
  const bool transposed = is_transposed(p.op);
  const std::int64_t* const in = transposed ? legal.output_shape() : p.input_shape;
  const std::int64_t* const out = transposed ? p.input_shape : legal.output_shape();
  ConvShape s{};
  const int channel_dim = p.ndim - p.rank - 1;
  s.batch = channel_dim == 1 ? p.input_shape[0] : 1;
  s.inputs = in[channel_dim];
  s.outputs = out[channel_dim];
  s.groups = p.groups;
  for (int axis = 0; axis < kMaxConvRank; ++axis) {
    const int own = axis - (kMaxConvRank - p.rank);  // leading axes are not there
    s.in[axis] = own < 0 ? 1 : in[channel_dim + 1 + own];
    s.out[axis] = own < 0 ? 1 : out[channel_dim + 1 + own];
    s.kernel[axis] = own < 0 ? 1 : p.weight_shape[2 + own];
    s.stride[axis] = own < 0 ? 1 : p.stride[own];
    s.padding[axis] = own < 0 ? 0 : p.padding_before[own];
    s.dilation[axis] = own < 0 ? 1 : p.dilation[own];
    s.input_step[axis] = 1;
  }
  s.is_double = p.dtype == DType::float64;
  return with_columns(s);
}

// The problems that an operator consists of, which are done one after the other.
std::vector<ConvShape> steps_of(const LegalConvProblem& legal) {
  const ConvProblem& p = legal.problem();
  ConvShape map = map_of(legal);
  if (!is_backward(p.op)) {
    map.makes_input = true;
    map.adds_bias = p.has_bias;
    return {p.op == ConvOperator::conv ? turned(map) : map};
  }
  std::vector<ConvShape> steps;
  const auto add = [&](ConvShape shape, bool input, bool weight, bool bias) {
    shape.makes_input = input;
    shape.makes_weight = weight;
    shape.makes_bias = bias;
    if (input || weight || bias) steps.push_back(shape);
  };
  if (p.op == ConvOperator::backward) {
    add(map, p.wants_input, p.wants_weight, p.wants_bias);
    return steps;
  }
  // A turned problem with strides does not see all outputs.
  const bool bias_with_input = p.wants_bias && p.wants_input && !map.has_strides();
  add(turned(map), p.wants_input, false, bias_with_input);
  add(map, false, p.wants_weight, false);
  add(without_kernel(turned(map)), false, false, p.wants_bias && !bias_with_input);
  return steps;
}

// The same with input products apart where that is better, as it is where the weight product could
// do with fewer inputs.
std::vector<ConvShape> parted(const std::vector<ConvShape>& steps, ConvTask task) {
  std::vector<ConvShape> parts;
  for (const ConvShape& step : steps) {
    task.shape = step;
    ConvShape weight = without_skipped(step);
    const bool skips = weight.in_positions() < step.in_positions();
    const bool is_apart =
        step.makes_input && step.makes_weight && (skips || is_input_better_apart(task));
    if (is_apart) {
      parts.push_back(step);
      parts.back().makes_weight = parts.back().makes_bias = false;
      weight.makes_input = false;
    }
    parts.push_back(weight.makes_input ? step : weight);
  }
  return parts;
}

// Strides of the spatial axes; those that are not there have none.
void set_strides(const TensorView& view, int first, int rank, std::int64_t* stride_bytes) {
  for (int axis = 0; axis < rank; ++axis) {
    stride_bytes[kMaxConvRank - rank + axis] = view.stride_bytes[first + axis];
  }
}

Activation activation_of(const TensorView* view, const ConvShape& s, int rank) {
  Activation result{};
  if (view == nullptr) return result;
  const int channel_dim = view->ndim - rank - 1;
  result.data = view->data;
  result.image_stride_bytes = channel_dim == 1 ? view->stride_bytes[0] : 0;
  result.channel_stride_bytes = view->stride_bytes[channel_dim];
  set_strides(*view, channel_dim + 1, rank, result.stride_bytes);
  if (s.images_are_columns)
    std::swap(result.stride_bytes[kMaxConvRank - 1], result.image_stride_bytes);
  return result;
}

// The axes of the tensor are the outputs and the inputs of the map; those of a turned problem are
// in each other's places.
Weights weights_of(const TensorView* view, const ConvShape& s, int rank) {
  Weights result{};
  result.group_outputs = s.group_outputs();
  if (view == nullptr) return result;
  const std::int64_t* const stride = view->stride_bytes;
  result.data = view->data;
  result.output_stride_bytes = stride[s.is_turned ? 1 : 0];
  result.input_stride_bytes = stride[s.is_turned ? 0 : 1];
  result.group_stride_bytes = (s.is_turned ? s.group_inputs() : s.group_outputs()) * stride[0];
  set_strides(*view, 2, rank, result.stride_bytes);
  return result;
}

Bias bias_of(const TensorView* view) {
  if (view == nullptr) return {};
  return {view->data, view->stride_bytes[0]};
}

// Calls body(task, worker) for every task, on several threads.
template <class Body>
void for_tasks(std::int64_t tasks, int threads, const Body& body) {
  if (tasks == 0) return;
  struct Job {
    TaskQueue queue;
    const Body& body;
  } job{TaskQueue(tasks, threads), body};
  run_parallel(
      static_cast<int>(std::min<std::int64_t>(threads, tasks)),
      [](void* context, int worker) {
        Job& own = *static_cast<Job*>(context);
        own.queue.work(worker, [&](std::int64_t task) { own.body(task, worker); });
      },
      &job);
}

ConvBuffers buffers_of(const ConvProblem& p, const ConvShape& s, const ConvTensors& t) {
  const auto activation = [&](const TensorView* view, bool is_used) {
    return activation_of(is_used ? view : nullptr, s, p.rank);
  };
  const bool backward = is_backward(p.op);
  const TensorView* output = backward ? t.grad_output : t.input;
  const TensorView* input = t.input;
  if (is_transposed(p.op) && s.makes_weight) std::swap(output, input);
  Activation read = activation(input, s.makes_weight);
  for (int axis = 0; axis < kMaxConvRank; ++axis) read.stride_bytes[axis] *= s.input_step[axis];
  return {activation(output, true),
          read,
          weights_of(s.makes_input ? t.weight : nullptr, s, p.rank),
          bias_of(s.adds_bias ? t.bias : nullptr),
          activation(backward ? t.grad_input : t.output, s.makes_input),
          weights_of(s.makes_weight ? t.grad_weight : nullptr, s, p.rank),
          bias_of(s.makes_bias ? t.grad_bias : nullptr),
          nullptr,
          nullptr};
}

// What a step makes, for people.
std::string product_name(const ConvShape& s) {
  return s.makes_input ? "input" : s.makes_weight ? "weight" : "bias";
}

// Lines of several steps say whose they are.
std::string labelled(const std::string& lines, const ConvShape& shape, std::size_t steps) {
  if (steps == 1) return lines;
  const std::string label = product_name(shape) + ": ";
  std::string text = label;
  for (const char c : lines) {
    text += c;
    if (c == '\n') text += label;
  }
  return text;
}

}  // namespace

struct ConvPlan::Impl {
  struct Step {
    ConvShape shape;
    std::unique_ptr<const ConvEngine> engine;
    int threads;
    std::size_t workers_at, worker_bytes;  // of the workspace
  };

  Impl(const LegalConvProblem& asked, int threads, bool deterministic, const Cpu& cpu)
      : legal(asked) {
    const ConvProblem& p = legal.problem();
    kernel = std::string("conv_") + name_of(p.dtype) + " ";
    std::vector<ConvShape> shapes = steps_of(legal);
    if (shapes.empty() || shapes.front().batch == 0) {
      kernel += shapes.empty() ? "nothing" : "zeros";
      why = "nothing is multiplied";
      return;
    }
    shapes = parted(shapes, {{}, p.dtype, p.rounding, {threads, deterministic}, cpu});
    for (const ConvShape& shape : shapes) {
      const int own = shape.multiplications() < kAloneWork ? 1 : threads;
      ConvChoice choice = choose_engine({shape, p.dtype, p.rounding, {own, deterministic}, cpu});
      kernel += (steps.empty() ? "" : " + ") + choice.engine->name();
      why += (steps.empty() ? "" : "\n") + labelled(choice.why, shape, shapes.size());
      add(shape, std::move(choice.engine), own);
    }
    if (total_bytes > 0) total_bytes += kLineBytes;  // to begin on a line
  }

  void add(const ConvShape& shape, std::unique_ptr<const ConvEngine> engine, int threads) {
    const std::size_t workers_at = whole_lines(engine->engine_bytes());
    const std::size_t worker_bytes = whole_lines(engine->worker_bytes());
    const std::size_t bytes = workers_at + static_cast<std::size_t>(threads) * worker_bytes;
    total_bytes = std::max(total_bytes, bytes);
    steps.push_back({shape, std::move(engine), threads, workers_at, worker_bytes});
  }

  LegalConvProblem legal;
  std::vector<Step> steps;  // none where there is nothing to multiply
  std::string kernel, why;
  std::size_t total_bytes = 0;  // of the workspace, which the steps use in turn
};

namespace {

void run_step(const ConvPlan::Impl::Step& step, const ConvBuffers& buffers, int most_threads) {
  const int threads = std::min(most_threads, step.threads);
  const ConvEngine& engine = *step.engine;
  for (int phase = 0; phase < engine.phases() && !engine.is_done(phase, buffers); ++phase) {
    for_tasks(engine.tasks(phase), threads, [&](std::int64_t task, int worker) {
      ConvBuffers own = buffers;
      own.scratch =
          buffers.memory + step.workers_at + static_cast<std::size_t>(worker) * step.worker_bytes;
      engine.work(phase, task, own);
    });
  }
}

}  // namespace

ConvPlan::ConvPlan(const LegalConvProblem& problem, int threads, bool deterministic, const Cpu& cpu)
    : impl_(std::make_unique<const Impl>(problem, threads, deterministic, cpu)) {}
ConvPlan::~ConvPlan() = default;

const LegalConvProblem& ConvPlan::legal() const { return impl_->legal; }
const std::string& ConvPlan::kernel() const { return impl_->kernel; }
const std::string& ConvPlan::why() const { return impl_->why; }
std::size_t ConvPlan::workspace_bytes() const { return impl_->total_bytes; }

void ConvPlan::run(const ConvTensors& t, void* workspace, int threads) const noexcept {
  const Impl& p = *impl_;
  if (p.steps.empty()) {
    for (const TensorView* result : {t.grad_weight, t.grad_bias}) {
      if (result != nullptr) write_zeros(*result);
    }
    return;
  }
  const auto misalignment = reinterpret_cast<std::uintptr_t>(workspace) % kLineBytes;
  char* const base = static_cast<char*>(workspace) + (kLineBytes - misalignment) % kLineBytes;
  for (const Impl::Step& step : p.steps) {
    ConvBuffers buffers = buffers_of(p.legal.problem(), step.shape, t);
    buffers.memory = base;
    run_step(step, buffers, threads);
  }
}

std::string explain_conv(const ConvProblem& problem, const Cpu& cpu) {
  ConvTask task{{}, problem.dtype, problem.rounding, {1, false}, cpu};
  const std::vector<ConvShape> shapes = parted(steps_of(LegalConvProblem(problem)), task);
  std::string text;
  for (const ConvShape& shape : shapes) {
    task.shape = shape;
    const std::string lines = explain_choice(task);
    text += (text.empty() ? "" : "\n") + labelled(lines, shape, shapes.size());
  }
  return text;
}

}  // namespace backops
