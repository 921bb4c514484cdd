// What XLA calls for the gradient of pooling.
//
//   argument   grad_output (..., C, *output sizes)
//   result     grad_input (..., C, *input sizes): the axes before C are one batch
//   attributes int64 arrays: rank, adaptive, and for fixed windows kernel_size, stride, padding,
//              ceil_mode, count_include_pad, divisor_override (0: none)
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

PoolProblem read_problem(const Call& call, const TensorView& grad_output,
                         const TensorView& grad_input) {
  PoolProblem problem;
  problem.rank = grad_input.ndim - 2;
  problem.dtype = grad_input.dtype;
  problem.ndim = grad_input.ndim;
  std::copy(grad_input.shape, grad_input.shape + problem.ndim, problem.input_shape);
  problem.adaptive = read_attribute(call, "adaptive") != 0;
  if (problem.adaptive) {
    std::copy(grad_output.shape + 2, grad_output.shape + problem.ndim, problem.output_size);
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

void run(const Call& call) {
  const int rank = read_rank(call, "rank");
  const TensorView grad_output = read_tensor(call.arguments, "grad_output", rank);
  const TensorView grad_input = read_tensor(call.results, "grad_input", rank);
  const PoolProblem problem = read_problem(call, grad_output, grad_input);
  auto plan = python::find_plan(problem);
  if (!plan) plan = python::make_plan(LegalPoolProblem(problem));
  plan->check_source(grad_output);
  plan->check_target(grad_input);
  plan->check_memory(grad_output, grad_input);
  const int threads = python::g_threads;
  const python::Workspace workspace(plan->workspace_bytes(threads));
  plan->run(grad_output, grad_input, workspace.data(), threads);
}

}  // namespace

Error* pool_backward(Call* call) noexcept { return handle(call, "backops_pool_backward", run); }

}  // namespace backops::xla
