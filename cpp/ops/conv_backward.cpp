#include "ops/conv_backward.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/task_queue.h"
#include "base/threads.h"
#include "ops/conv_engine.h"
#include "ops/dense_copy.h"

namespace backops {
namespace {

// Fewer multiplications than this are done before another thread is awake.
constexpr double kAloneWork = 200000;
// Channels of a group up to which our own kernels are faster than oneDNN's: with 8 they are so on
// channels-first tensors only, with 16 they take twice as long.
constexpr std::int64_t kFewChannels = 4;
// Multiplications with nothing up to which blocks of channels are faster than oneDNN.
constexpr double kLittleWaste = 1.5;
// Where there is nothing but the plain engine.
constexpr std::int64_t kMoreChannels = 16;
constexpr double kMoreWaste = 100;

ConvShape shape_of(const ConvProblem& p, const std::int64_t* output_shape) {
  ConvShape s{};
  const int channel_dim = p.ndim - p.rank - 1;
  s.batch = channel_dim == 1 ? p.input_shape[0] : 1;
  s.channels = p.input_shape[channel_dim];
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
  s.wants_input = p.wants_input;
  s.wants_weight = p.wants_weight;
  s.wants_bias = p.wants_bias;
  s.is_double = p.dtype == DType::float64;
  return s;
}

// A tensor and its dense array: what is read is copied there before the work, what is written is
// copied from there after it. Where the tensor is dense itself, it is used in place.
struct DenseTensor {
  DenseAxes axes{};
  char* tensor = nullptr;
  char* dense = nullptr;
  DenseCopy copy;  // of no pieces where there is nothing to copy
};

}  // namespace

struct ConvPlan::Impl {
  Impl(const ConvProblem& asked, int threads, bool deterministic, Isa isa);

  std::unique_ptr<const ConvEngine> choose_engine(bool deterministic, Isa isa) const;
  std::unique_ptr<const ConvEngine> forced_engine(const std::string& name, const ConvCuts& cuts,
                                                  Isa isa) const;
  void place_memory();

  ConvProblem problem;
  std::int64_t output_shape[kMaxDims];
  ConvShape shape;
  const ConvKernels* kernels;                // for their conversions
  const PoolKernels* roundings;              // of the precision modes
  std::unique_ptr<const ConvEngine> engine;  // null where there is nothing to multiply
  std::string kernel;
  int threads;

  // Places in the workspace.
  std::size_t grad_output_at, input_at, weight_at, grad_input_at, grad_weight_at, grad_bias_at;
  std::size_t engine_at, workers_at, worker_bytes, total_bytes;

  DenseTensor activation(const TensorView* view, char* dense, bool reads) const;
  Activation for_engine(const TensorView* view, const DenseTensor& operand) const;
  DenseTensor weights(const TensorView* view, char* dense, bool reads) const;
  DenseTensor bias(const TensorView* view, char* dense) const;
  void settle(DenseTensor& operand, bool reads) const;
};

ConvPlan::Impl::Impl(const ConvProblem& asked, int thread_count, bool deterministic, Isa isa)
    : problem(asked) {
  check_conv_problem(problem, output_shape);
  shape = shape_of(problem, output_shape);
  kernels = &conv_kernels(isa, problem.dtype);
  roundings = &pool_kernels(isa, problem.dtype);
  const double products = 2.0 * static_cast<double>(shape.batch * shape.out_positions()) *
                          static_cast<double>(shape.weights());
  threads = products < kAloneWork ? 1 : thread_count;
  const bool has_products = shape.wants_input || shape.wants_weight || shape.wants_bias;
  if (shape.batch > 0 && has_products) engine = choose_engine(deterministic, isa);
  kernel = std::string("conv_") + name_of(problem.dtype) + " " +
           (engine         ? engine->name()
            : has_products ? "zeros"
                           : "nothing");
  place_memory();
}

std::unique_ptr<const ConvEngine> ConvPlan::Impl::choose_engine(bool deterministic, Isa isa) const {
  const ConvCuts cuts{threads, deterministic};
  const char* const name = std::getenv("BACKOPS_ENGINE");
  if (name != nullptr && *name != '\0') return forced_engine(name, cuts, isa);
  const auto make_lanes = [&](std::int64_t most_channels) {
    return make_lanes_engine(shape, most_channels, threads, problem.rounding, problem.dtype, isa);
  };
  const auto make_blocks = [&](double most_waste) {
    return make_blocks_engine(shape, most_waste, cuts, problem.rounding, problem.dtype, isa);
  };
  auto chosen = make_lanes(kFewChannels);
  if (!chosen) {
    chosen = make_blocks(kLittleWaste);
    if (auto faster =
            make_matrix_engine(shape, cuts, problem.rounding, problem.dtype, isa, chosen)) {
      chosen = std::move(faster);
    }
  }
  if (!chosen) chosen = make_windows_engine(shape, cuts, problem.rounding, problem.dtype, isa);
  if (!chosen) chosen = make_onednn_engine(shape, cuts, problem.dtype, isa);
  if (!chosen) chosen = make_lanes(kMoreChannels);
  if (!chosen) chosen = make_blocks(kMoreWaste);
  if (!chosen) chosen = make_plain_engine(shape);
  return chosen;
}

// The one that BACKOPS_ENGINE names, for all problems that it can do at all.
std::unique_ptr<const ConvEngine> ConvPlan::Impl::forced_engine(const std::string& name,
                                                                const ConvCuts& cuts,
                                                                Isa isa) const {
  const auto blocks = [&] {
    return make_blocks_engine(shape, kMoreWaste, cuts, problem.rounding, problem.dtype, isa);
  };
  std::unique_ptr<const ConvEngine> forced;
  if (name == "lanes") {
    forced = make_lanes_engine(shape, kMoreChannels, threads, problem.rounding, problem.dtype, isa);
  } else if (name == "blocks") {
    forced = blocks();
  } else if (name == "windows") {
    forced = make_windows_engine(shape, cuts, problem.rounding, problem.dtype, isa);
  } else if (name == "matrix") {
    auto careful = blocks();
    forced = make_matrix_engine(shape, cuts, problem.rounding, problem.dtype, isa, careful);
  } else if (name == "onednn") {
    forced = make_onednn_engine(shape, cuts, problem.dtype, isa);
  } else if (name == "plain") {
    forced = make_plain_engine(shape);
  } else {
    throw Error(ErrorKind::param, "BACKOPS_ENGINE", "'" + name + "'",
                "expected lanes, blocks, windows, matrix, onednn or plain");
  }
  if (forced) return forced;
  throw Error(ErrorKind::param, "BACKOPS_ENGINE", "'" + name + "'",
              "expected an engine that takes {input} " +
                  shape_text(problem.input_shape, problem.ndim) + " with {weight} " +
                  shape_text(problem.weight_shape, problem.rank + 2));
}

void ConvPlan::Impl::place_memory() {
  total_bytes = 0;
  if (!engine) return;
  const std::size_t sum = shape.sum_bytes();
  std::size_t at = 0;
  const auto place = [&](bool needed, std::int64_t elements) {
    const std::size_t here = at;
    if (needed) at += whole_lines(static_cast<std::size_t>(elements) * sum);
    return here;
  };
  const std::int64_t in_elements = shape.batch * shape.in_image();
  const bool copies = engine->activations() != Activations::tensors;
  grad_output_at = place(copies, shape.batch * shape.out_image());
  input_at = place(copies && shape.wants_weight, in_elements);
  weight_at = place(shape.wants_input, shape.weights());
  grad_input_at = place(copies && shape.wants_input, in_elements);
  grad_weight_at = place(shape.wants_weight, shape.weights());
  grad_bias_at = place(shape.wants_bias, shape.outputs);
  engine_at = at;
  workers_at = engine_at + whole_lines(engine->engine_bytes());
  worker_bytes = whole_lines(engine->worker_bytes());
  total_bytes = workers_at + static_cast<std::size_t>(threads) * worker_bytes + kLineBytes;
}

// In place if the tensor is dense and of the type of the sums already.
void ConvPlan::Impl::settle(DenseTensor& operand, bool reads) const {
  const std::size_t element = size_of(problem.dtype);
  const bool usable = element == shape.sum_bytes() &&
                      !(reads && problem.rounding != Rounding::none) &&
                      reinterpret_cast<std::uintptr_t>(operand.tensor) % element == 0 &&
                      operand.axes.is_dense(static_cast<std::int64_t>(element));
  if (usable) {
    operand.dense = operand.tensor;
  } else {
    operand.copy = DenseCopy(operand.axes);
  }
}

DenseTensor ConvPlan::Impl::activation(const TensorView* view, char* dense, bool reads) const {
  DenseTensor operand;
  if (view == nullptr) return operand;
  const int channel_dim = problem.ndim - problem.rank - 1;
  operand.tensor = view->data;
  operand.dense = dense;
  DenseAxes& axes = operand.axes;
  axes.shape[0] = shape.batch;
  axes.stride_bytes[0] = channel_dim == 1 ? view->stride_bytes[0] : 0;
  for (int axis = 0; axis < kMaxConvRank; ++axis) {
    const int own = axis - (kMaxConvRank - problem.rank);
    axes.shape[1 + axis] = own < 0 ? 1 : view->shape[channel_dim + 1 + own];
    axes.stride_bytes[1 + axis] = own < 0 ? 0 : view->stride_bytes[channel_dim + 1 + own];
  }
  axes.shape[4] = view->shape[channel_dim];
  axes.stride_bytes[4] = view->stride_bytes[channel_dim];
  if (engine->activations() == Activations::tensors) {
    operand.dense = operand.tensor;
  } else {
    settle(operand, reads);
  }
  return operand;
}

Activation ConvPlan::Impl::for_engine(const TensorView* view, const DenseTensor& operand) const {
  Activation result{};
  result.data = operand.dense;
  if (view == nullptr) return result;
  const int channel_dim = problem.ndim - problem.rank - 1;
  result.image_stride_bytes = channel_dim == 1 ? view->stride_bytes[0] : 0;
  result.channel_stride_bytes = view->stride_bytes[channel_dim];
  for (int axis = 0; axis < problem.rank; ++axis) {
    result.stride_bytes[kMaxConvRank - problem.rank + axis] =
        view->stride_bytes[channel_dim + 1 + axis];
  }
  return result;
}

DenseTensor ConvPlan::Impl::weights(const TensorView* view, char* dense, bool reads) const {
  DenseTensor operand;
  if (view == nullptr) return operand;
  operand.tensor = view->data;
  operand.dense = dense;
  DenseAxes& axes = operand.axes;
  for (int axis = 0; axis < 2; ++axis) {
    axes.shape[axis] = view->shape[axis];
    axes.stride_bytes[axis] = view->stride_bytes[axis];
  }
  for (int axis = 0; axis < kMaxConvRank; ++axis) {
    const int own = axis - (kMaxConvRank - problem.rank);
    axes.shape[2 + axis] = own < 0 ? 1 : view->shape[2 + own];
    axes.stride_bytes[2 + axis] = own < 0 ? 0 : view->stride_bytes[2 + own];
  }
  settle(operand, reads);
  return operand;
}

DenseTensor ConvPlan::Impl::bias(const TensorView* view, char* dense) const {
  DenseTensor operand;
  if (view == nullptr) return operand;
  operand.tensor = view->data;
  operand.dense = dense;
  operand.axes = {{1, 1, 1, 1, view->shape[0]}, {0, 0, 0, 0, view->stride_bytes[0]}};
  settle(operand, false);
  return operand;
}

ConvPlan::ConvPlan(const ConvProblem& problem, int threads, bool deterministic, Isa isa)
    : impl_(std::make_unique<const Impl>(problem, threads, deterministic, isa)) {}
ConvPlan::~ConvPlan() = default;

const ConvProblem& ConvPlan::problem() const { return impl_->problem; }
const std::int64_t* ConvPlan::output_shape() const { return impl_->output_shape; }
const std::string& ConvPlan::kernel() const { return impl_->kernel; }
std::size_t ConvPlan::workspace_bytes() const { return impl_->total_bytes; }

namespace {

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

// Calls body(operand, piece).
template <class Body>
void for_copies(const DenseTensor (&operands)[3], int threads, const Body& body) {
  std::int64_t pieces = 0;
  for (const DenseTensor& operand : operands) pieces += operand.copy.pieces();
  for_tasks(pieces, threads, [&](std::int64_t piece, int) {
    for (const DenseTensor& operand : operands) {
      if (piece < operand.copy.pieces()) return body(operand, piece);
      piece -= operand.copy.pieces();
    }
  });
}

}  // namespace

bool ConvPlan::run(const ConvTensors& t, void* workspace, int threads) const noexcept {
  const Impl& p = *impl_;
  if (!p.engine) {
    for (const TensorView* result : {t.grad_weight, t.grad_bias}) {
      if (result != nullptr) write_zeros(*result);
    }
    return true;
  }
  threads = std::min(threads, p.threads);
  const auto misalignment = reinterpret_cast<std::uintptr_t>(workspace) % kLineBytes;
  char* const base = static_cast<char*>(workspace) + (kLineBytes - misalignment) % kLineBytes;
  const DenseTensor inputs[] = {
      p.activation(t.grad_output, base + p.grad_output_at, true),
      p.activation(p.shape.wants_weight ? t.input : nullptr, base + p.input_at, true),
      p.weights(p.shape.wants_input ? t.weight : nullptr, base + p.weight_at, true)};
  const DenseTensor results[] = {p.activation(t.grad_input, base + p.grad_input_at, false),
                                 p.weights(t.grad_weight, base + p.grad_weight_at, false),
                                 p.bias(t.grad_bias, base + p.grad_bias_at)};
  const ConvBuffers buffers{p.for_engine(t.grad_output, inputs[0]),
                            p.for_engine(t.input, inputs[1]),
                            p.for_engine(t.grad_input, results[0]),
                            inputs[2].dense,
                            results[1].dense,
                            results[2].dense,
                            base + p.engine_at,
                            nullptr};
  for_copies(inputs, threads, [&](const DenseTensor& operand, std::int64_t piece) {
    operand.copy.to_dense(piece, operand.tensor, operand.dense, *p.kernels, p.problem.rounding,
                          *p.roundings);
  });
  std::atomic<bool> done{true};
  for (int phase = 0; phase < p.engine->phases() && !p.engine->is_done(phase, buffers); ++phase) {
    for_tasks(p.engine->tasks(phase), threads, [&](std::int64_t task, int worker) {
      ConvBuffers own = buffers;
      own.scratch = base + p.workers_at + static_cast<std::size_t>(worker) * p.worker_bytes;
      if (!p.engine->work(phase, task, own)) done = false;
    });
  }
  for_copies(results, threads, [&](const DenseTensor& operand, std::int64_t piece) {
    operand.copy.from_dense(piece, operand.tensor, operand.dense, *p.kernels);
  });
  return done;
}

}  // namespace backops
