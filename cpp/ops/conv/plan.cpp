#include "ops/conv/plan.h"

#include <algorithm>
#include <utility>

#include "base/ints.h"
#include "base/task_queue.h"
#include "base/threads.h"
#include "ops/conv/choose.h"
#include "ops/conv/engine.h"

namespace backops {
namespace {

// Fewer multiplications than this are done before another thread is awake.
constexpr double kAloneWork = 100000;

// The backward pass of a convolution: the input and the weight product.
ConvShape shape_of(const LegalConvProblem& legal) {
  const ConvProblem& p = legal.problem();
  const std::int64_t* const output_shape = legal.output_shape();
  ConvShape s{};
  const int channel_dim = p.ndim - p.rank - 1;
  s.batch = channel_dim == 1 ? p.input_shape[0] : 1;
  s.inputs = p.input_shape[channel_dim];
  s.outputs = p.weight_shape[0];
  s.groups = p.groups;
  for (int axis = 0; axis < kMaxConvRank; ++axis) {
    const int own = axis - (kMaxConvRank - p.rank);  // leading axes are not there
    s.in[axis] = own < 0 ? 1 : p.input_shape[channel_dim + 1 + own];
    s.out[axis] = own < 0 ? 1 : output_shape[channel_dim + 1 + own];
    s.kernel[axis] = own < 0 ? 1 : p.weight_shape[2 + own];
    s.stride[axis] = own < 0 ? 1 : p.stride[own];
    s.padding[axis] = own < 0 ? 0 : p.padding_before[own];
    s.dilation[axis] = own < 0 ? 1 : p.dilation[own];
  }
  s.makes_input = p.wants_input;
  s.makes_weight = p.wants_weight;
  s.makes_bias = p.wants_bias;
  s.is_double = p.dtype == DType::float64;
  return s;
}

// Strides of the spatial axes; those that are not there have none.
void set_strides(const TensorView& view, int first, int rank, std::int64_t* stride_bytes) {
  for (int axis = 0; axis < rank; ++axis) {
    stride_bytes[kMaxConvRank - rank + axis] = view.stride_bytes[first + axis];
  }
}

Activation activation_of(const TensorView* view, int rank) {
  Activation result{};
  if (view == nullptr) return result;
  const int channel_dim = view->ndim - rank - 1;
  result.data = view->data;
  result.image_stride_bytes = channel_dim == 1 ? view->stride_bytes[0] : 0;
  result.channel_stride_bytes = view->stride_bytes[channel_dim];
  set_strides(*view, channel_dim + 1, rank, result.stride_bytes);
  return result;
}

Weights weights_of(const TensorView* view, int rank) {
  Weights result{};
  if (view == nullptr) return result;
  result.data = view->data;
  result.output_stride_bytes = view->stride_bytes[0];
  result.input_stride_bytes = view->stride_bytes[1];
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

}  // namespace

struct ConvPlan::Impl {
  Impl(const LegalConvProblem& asked, int thread_count, bool deterministic, const Cpu& cpu)
      : legal(asked) {
    const ConvProblem& problem = legal.problem();
    const ConvShape shape = shape_of(legal);
    threads = shape.multiplications() < kAloneWork ? 1 : thread_count;
    const bool makes_something = shape.makes_input || shape.makes_weight || shape.makes_bias;
    kernel = std::string("conv_") + name_of(problem.dtype) + " ";
    if (shape.batch == 0 || !makes_something) {
      kernel += makes_something ? "zeros" : "nothing";
      why = "nothing is multiplied";
      return;
    }
    ConvChoice choice =
        choose_engine({shape, problem.dtype, problem.rounding, {threads, deterministic}, cpu});
    engine = std::move(choice.engine);
    why = std::move(choice.why);
    kernel += engine->name();
    workers_at = whole_lines(engine->engine_bytes());
    worker_bytes = whole_lines(engine->worker_bytes());
    total_bytes = workers_at + static_cast<std::size_t>(threads) * worker_bytes;
    if (total_bytes > 0) total_bytes += kLineBytes;  // to begin on a line
  }

  LegalConvProblem legal;
  std::unique_ptr<const ConvEngine> engine;  // null where there is nothing to multiply
  std::string kernel, why;
  int threads;
  std::size_t workers_at = 0, worker_bytes = 0, total_bytes = 0;  // of the workspace
};

ConvPlan::ConvPlan(const LegalConvProblem& problem, int threads, bool deterministic, const Cpu& cpu)
    : impl_(std::make_unique<const Impl>(problem, threads, deterministic, cpu)) {}
ConvPlan::~ConvPlan() = default;

const LegalConvProblem& ConvPlan::legal() const { return impl_->legal; }
const std::string& ConvPlan::kernel() const { return impl_->kernel; }
const std::string& ConvPlan::why() const { return impl_->why; }
std::size_t ConvPlan::workspace_bytes() const { return impl_->total_bytes; }

void ConvPlan::run(const ConvTensors& t, void* workspace, int threads) const noexcept {
  const Impl& p = *impl_;
  if (!p.engine) {
    for (const TensorView* result : {t.grad_weight, t.grad_bias}) {
      if (result != nullptr) write_zeros(*result);
    }
    return;
  }
  threads = std::min(threads, p.threads);
  const auto misalignment = reinterpret_cast<std::uintptr_t>(workspace) % kLineBytes;
  char* const base = static_cast<char*>(workspace) + (kLineBytes - misalignment) % kLineBytes;
  const ConvProblem& problem = p.legal.problem();
  const int rank = problem.rank;
  const ConvBuffers buffers{activation_of(t.grad_output, rank),
                            activation_of(problem.wants_weight ? t.input : nullptr, rank),
                            weights_of(problem.wants_input ? t.weight : nullptr, rank),
                            activation_of(t.grad_input, rank),
                            weights_of(t.grad_weight, rank),
                            bias_of(t.grad_bias),
                            base,
                            nullptr};
  for (int phase = 0; phase < p.engine->phases() && !p.engine->is_done(phase, buffers); ++phase) {
    for_tasks(p.engine->tasks(phase), threads, [&](std::int64_t task, int worker) {
      ConvBuffers own = buffers;
      own.scratch = base + p.workers_at + static_cast<std::size_t>(worker) * p.worker_bytes;
      p.engine->work(phase, task, own);
    });
  }
}

std::string explain_conv(const ConvProblem& problem, const Cpu& cpu) {
  return explain_choice(
      {shape_of(LegalConvProblem(problem)), problem.dtype, problem.rounding, {1, false}, cpu});
}

}  // namespace backops
