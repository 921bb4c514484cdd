// What XLA calls for the gradients of a convolution.
//
//   arguments  grad_output, then input if the weight's gradient is wanted, then weight if the
//              input's is
//   results    the gradients that are wanted, of input, weight and bias in this order; one of the
//              first two must be
//   attributes int64 arrays: stride, padding, dilation (one element per spatial axis), rank,
//              groups, output_mask (three elements)
//
// Axes before (N, C, *spatial), (C_out, C_in / groups, *kernel) and (C_out,) are those of vmap.
#include <cstdint>
#include <new>

#include "base/error.h"
#include "python/cached_plans.h"
#include "python/settings.h"
#include "python/workspaces.h"
#include "python/xla_call.h"
#include "python/xla_handlers.h"

namespace backops::xla {
namespace {

struct Operand {
  bool used = false;
  Batch batch{};
};

// Those of one call; `results` are the gradients of input, weight and bias.
struct ConvOperands {
  Operand grad_output, input, weight, results[3];
  const std::int64_t* batch_dims;
  std::int64_t batches;
};

ConvOperands read_operands(const Call& call, const ConvProblem& p) {
  ConvOperands all{};
  std::int64_t argument = 0, result = 0;
  const auto read_argument = [&](Operand& operand, const char* name, bool used) {
    if (used) operand = {true, read_batch(call.arguments, argument++, name, p.rank + 2)};
  };
  const auto read_result = [&](int i, const char* name, bool used, int ndim) {
    if (used) all.results[i] = {true, read_batch(call.results, result++, name, ndim)};
  };
  read_argument(all.grad_output, "grad_output", true);
  read_argument(all.input, "input", p.wants_weight);
  read_argument(all.weight, "weight", p.wants_input);
  read_result(0, "grad_input", p.wants_input, p.rank + 2);
  read_result(1, "grad_weight", p.wants_weight, p.rank + 2);
  read_result(2, "grad_bias", p.wants_bias, 1);
  const Batch& first = p.wants_input ? all.results[0].batch : all.results[1].batch;
  all.batch_dims = first.batch_dims;
  all.batches = first.count();
  return all;
}

// Every operand has the result's axes of vmap, or size 1 in their place.
void check_batch(const Operand& operand, const char* name, const ConvOperands& all,
                 int batch_ndim) {
  if (!operand.used) return;
  bool fits = operand.batch.batch_ndim == batch_ndim;
  for (int axis = 0; fits && axis < batch_ndim; ++axis) {
    const std::int64_t size = operand.batch.batch_dims[axis];
    fits = size == all.batch_dims[axis] || size == 1;
  }
  if (fits) return;
  throw backops::Error(ErrorKind::shape, name, "of other batch axes than the results",
                       "expected the same or size 1");
}

void check_batches(const ConvOperands& all, const ConvProblem& p) {
  const int batch_ndim = (p.wants_input ? all.results[0] : all.results[1]).batch.batch_ndim;
  check_batch(all.grad_output, "grad_output", all, batch_ndim);
  check_batch(all.input, "input", all, batch_ndim);
  check_batch(all.weight, "weight", all, batch_ndim);
  for (const Operand& result : all.results) {
    check_batch(result, "result", all, batch_ndim);
    if (result.used && result.batch.count() != all.batches) {
      throw backops::Error(ErrorKind::shape, "result", "of fewer batches than another",
                           "expected the same");
    }
  }
}

// One convolution with a larger N instead of many: where there is one weight for all, and no
// gradient that each has for itself.
void fold_batches(ConvOperands& all, const ConvProblem& p) {
  if (p.wants_weight || p.wants_bias || all.weight.batch.count() != 1) return;
  if (all.grad_output.batch.count() != all.batches) return;
  all.grad_output.batch.first.shape[0] *= all.batches;
  all.results[0].batch.first.shape[0] *= all.batches;
  all.grad_output.batch.batch_ndim = all.weight.batch.batch_ndim = 0;
  all.results[0].batch.batch_ndim = 0;
  all.batches = 1;
}

ConvProblem read_problem(const Call& call) {
  ConvProblem p;
  p.rank = read_rank(call, "rank");
  p.ndim = p.rank + 2;
  const auto axes = static_cast<std::size_t>(p.rank);
  read_attribute(call, "stride", p.stride, axes);
  read_attribute(call, "padding", p.padding_before, axes);
  p.pad_both_ends();
  read_attribute(call, "dilation", p.dilation, axes);
  p.groups = read_attribute(call, "groups");
  std::int64_t mask[3];
  read_attribute(call, "output_mask", mask, 3);
  p.wants_input = mask[0] != 0;
  p.wants_weight = mask[1] != 0;
  p.wants_bias = mask[2] != 0;
  if (p.wants_input || p.wants_weight) return p;
  throw backops::Error(ErrorKind::param, "output_mask", "without input and weight",
                       "expected one of them");
}

void set_shapes(ConvProblem& p, const ConvOperands& all) {
  const TensorView& input = (p.wants_input ? all.results[0] : all.input).batch.first;
  const TensorView& weight = (p.wants_weight ? all.results[1] : all.weight).batch.first;
  p.dtype = all.grad_output.batch.first.dtype;
  std::copy(input.shape, input.shape + p.ndim, p.input_shape);
  std::copy(weight.shape, weight.shape + p.ndim, p.weight_shape);
}

// The tensors of convolution `i`.
struct ViewsOfOne {
  TensorView views[6];
  ConvTensors tensors;

  ViewsOfOne(const ConvOperands& all, std::int64_t i) {
    const Operand* const operands[] = {&all.grad_output, &all.input,      &all.weight,
                                       &all.results[0],  &all.results[1], &all.results[2]};
    const TensorView** const places[] = {&tensors.grad_output, &tensors.input,
                                         &tensors.weight,      &tensors.grad_input,
                                         &tensors.grad_weight, &tensors.grad_bias};
    for (int k = 0; k < 6; ++k) {
      if (!operands[k]->used) continue;
      views[k] = operands[k]->batch.at(i, all.batch_dims);
      *places[k] = &views[k];
    }
  }
};

void run(const Call& call) {
  ConvProblem problem = read_problem(call);
  ConvOperands all = read_operands(call, problem);
  check_batches(all, problem);
  if (all.batches == 0) return;
  fold_batches(all, problem);
  set_shapes(problem, all);
  const ViewsOfOne first(all, 0);
  const int threads = python::g_threads;
  const bool deterministic = python::g_deterministic;
  auto plan = python::find_plan(problem, threads, deterministic);
  if (!plan) plan = python::make_plan(LegalConvProblem(problem), threads, deterministic);
  plan->check_inputs(first.tensors);
  plan->check_results(first.tensors);
  plan->check_memory(first.tensors);
  const python::Workspace workspace(plan->workspace_bytes());
  for (std::int64_t i = 0; i < all.batches; ++i) {
    const ViewsOfOne one(all, i);
    plan->run(one.tensors, workspace.data(), threads);
  }
}

}  // namespace

Error* conv_backward(Call* call) noexcept { return handle(call, "backops_conv_backward", run); }

}  // namespace backops::xla
