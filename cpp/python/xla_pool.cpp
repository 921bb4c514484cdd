// What XLA calls for pooling and its gradient.
//
//   backops_pool           input -> output
//   backops_pool_backward  grad_output -> grad_input
//
// Tensors are (..., C, *sizes): the axes before C are one batch. Attributes are int64 arrays: rank,
// adaptive, and for fixed windows kernel_size, stride, padding, ceil_mode, count_include_pad,
// divisor_override (0: none).
#include "base/error.h"
#include "python/cached_plans.h"
#include "python/settings.h"
#include "python/workspaces.h"
#include "python/xla_call.h"
#include "python/xla_handlers.h"

namespace backops::xla {
namespace {

// (..., C, *sizes) as (N, C, *sizes).
TensorView read_tensor(const Operands& operands, const char* name, int rank) {
  const Batch batch = read_batch(operands, 0, name, rank + 1);
  TensorView view = batch.first;
  view.ndim = rank + 2;
  std::copy_backward(batch.first.shape, batch.first.shape + rank + 1, view.shape + rank + 2);
  std::copy_backward(batch.first.stride_bytes, batch.first.stride_bytes + rank + 1,
                     view.stride_bytes + rank + 2);
  view.shape[0] = batch.count();
  view.stride_bytes[0] = view.shape[1] * view.stride_bytes[1];
  return view;
}

PoolProblem read_problem(const Call& call, const TensorView& input, const TensorView& output) {
  PoolProblem problem;
  problem.rank = input.ndim - 2;
  problem.dtype = input.dtype;
  problem.ndim = input.ndim;
  std::copy(input.shape, input.shape + problem.ndim, problem.input_shape);
  problem.adaptive = read_attribute(call, "adaptive") != 0;
  if (problem.adaptive) {
    std::copy(output.shape + 2, output.shape + problem.ndim, problem.output_size);
    return problem;
  }
  const auto axes = static_cast<std::size_t>(problem.rank);
  read_attribute(call, "kernel_size", problem.kernel_size, axes);
  read_attribute(call, "stride", problem.stride, axes);
  read_attribute(call, "padding", problem.padding, axes);
  problem.ceil_mode = read_attribute(call, "ceil_mode") != 0;
  problem.count_include_pad = read_attribute(call, "count_include_pad") != 0;
  problem.divisor_override = read_attribute(call, "divisor_override");
  return problem;
}

void run(const PoolProblem& problem, const TensorView& source, const TensorView& target) {
  auto plan = python::find_plan(problem);
  if (!plan) plan = python::make_plan(LegalPoolProblem(problem));
  plan->check_source(source);
  plan->check_target(target);
  plan->check_memory(source, target);
  const int threads = python::g_threads;
  const python::Workspace workspace(plan->workspace_bytes(threads));
  plan->run(source, target, workspace.data(), threads);
}

void run_pool_forward(const Call& call) {
  const int rank = read_rank(call, "rank");
  const TensorView input = read_tensor(call.arguments, "input", rank);
  const TensorView output = read_tensor(call.results, "output", rank);
  PoolProblem problem = read_problem(call, input, output);
  problem.direction = PoolDirection::forward;
  run(problem, input, output);
}

void run_pool_backward(const Call& call) {
  const int rank = read_rank(call, "rank");
  const TensorView grad_output = read_tensor(call.arguments, "grad_output", rank);
  const TensorView grad_input = read_tensor(call.results, "grad_input", rank);
  run(read_problem(call, grad_input, grad_output), grad_output, grad_input);
}

}  // namespace

Error* pool(Call* call) noexcept { return handle(call, "backops_pool", run_pool_forward); }
Error* pool_backward(Call* call) noexcept {
  return handle(call, "backops_pool_backward", run_pool_backward);
}

}  // namespace backops::xla
