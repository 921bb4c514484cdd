// What XLA calls for a convolution, plain or transposed, and for its gradients.
//
//   backops_conv              input, weight[, bias] -> output
//   backops_conv_grad_input   grad_output, weight   -> grad_input
//   backops_conv_grad_weight  grad_output, input    -> grad_weight
//   backops_channel_sums      grad_output           -> grad_bias, of any convolution
//
// Attributes are int64 arrays: rank, and for all but the sums transposed, groups, and with one
// element per spatial axis stride, padding_before, padding_after, output_padding, dilation.
//
// Axes before (N, C, *spatial), (C_out, C_in / groups, *kernel) and (C_out,) are those of vmap.
#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "base/error.h"
#include "python/cached_plans.h"
#include "python/settings.h"
#include "python/workspaces.h"
#include "python/xla_call.h"
#include "python/xla_handlers.h"

namespace backops::xla {
namespace {

using Place = const TensorView* ConvTensors::*;

// What the core calls an operand.
struct Role {
  const char* name;
  Place place;

  bool is_vector() const { return place == &ConvTensors::bias || place == &ConvTensors::grad_bias; }
  bool is_input() const {
    return place == &ConvTensors::input || place == &ConvTensors::grad_input;
  }
  bool is_weight() const {
    return place == &ConvTensors::weight || place == &ConvTensors::grad_weight;
  }
};
constexpr Role kInput{"input", &ConvTensors::input};
constexpr Role kWeight{"weight", &ConvTensors::weight};
constexpr Role kBias{"bias", &ConvTensors::bias};
constexpr Role kOutput{"output", &ConvTensors::output};
constexpr Role kGradOutput{"grad_output", &ConvTensors::grad_output};
constexpr Role kGradInput{"grad_input", &ConvTensors::grad_input};
constexpr Role kGradWeight{"grad_weight", &ConvTensors::grad_weight};
constexpr Role kGradBias{"grad_bias", &ConvTensors::grad_bias};

struct Operand {
  Role role;
  Batch batch;
};

// Those of one call, the result first.
struct ConvOperands {
  static constexpr int kMost = 4;
  Operand all[kMost];
  int count = 0;

  const Batch& result() const { return all[0].batch; }

  void read(const Operands& from, std::int64_t index, const Role& role, int rank) {
    all[count++] = {role, read_batch(from, index, role.name, role.is_vector() ? 1 : rank + 2)};
  }
};

ConvOperands read_operands(const Call& call, int rank, Role result,
                           std::initializer_list<Role> arguments) {
  ConvOperands operands;
  operands.read(call.results, 0, result, rank);
  std::int64_t index = 0;
  for (const Role& role : arguments) operands.read(call.arguments, index++, role, rank);
  return operands;
}

// Every operand has the result's axes of vmap, or size 1 in their place.
void check_batches(const ConvOperands& operands) {
  const Batch& result = operands.result();
  for (int i = 1; i < operands.count; ++i) {
    const Batch& batch = operands.all[i].batch;
    bool fits = batch.batch_ndim == result.batch_ndim;
    for (int axis = 0; fits && axis < batch.batch_ndim; ++axis) {
      const std::int64_t size = batch.batch_dims[axis];
      fits = size == result.batch_dims[axis] || size == 1;
    }
    if (fits) continue;
    throw backops::Error(ErrorKind::shape, operands.all[i].role.name,
                         "of other batch axes than the result", "expected the same or size 1");
  }
}

void set_shapes(ConvProblem& p, const ConvOperands& operands) {
  p.ndim = p.rank + 2;
  p.dtype = operands.result().first.dtype;
  for (int i = 0; i < operands.count; ++i) {
    const Operand& operand = operands.all[i];
    const std::int64_t* const shape = operand.batch.first.shape;
    if (operand.role.is_input()) std::copy(shape, shape + p.ndim, p.input_shape);
    if (operand.role.is_weight()) std::copy(shape, shape + p.ndim, p.weight_shape);
  }
}

// The tensors of convolution `i`.
struct ViewsOfOne {
  TensorView views[ConvOperands::kMost];
  ConvTensors tensors;

  ViewsOfOne(const ConvOperands& operands, std::int64_t i) {
    for (int k = 0; k < operands.count; ++k) {
      views[k] = operands.all[k].batch.at(i, operands.result().batch_dims);
      tensors.*operands.all[k].role.place = &views[k];
    }
  }
};

void run(const ConvProblem& problem, const ConvOperands& operands) {
  check_batches(operands);
  const std::int64_t batches = operands.result().count();
  if (batches == 0) return;
  const ViewsOfOne first(operands, 0);
  const int threads = python::g_threads;
  const bool deterministic = python::g_deterministic;
  auto plan = python::find_plan(problem, threads, deterministic);
  if (!plan) plan = python::make_plan(LegalConvProblem(problem), threads, deterministic);
  plan->check_inputs(first.tensors);
  plan->check_results(first.tensors);
  plan->check_memory(first.tensors);
  const python::Workspace workspace(plan->workspace_bytes());
  for (std::int64_t i = 0; i < batches; ++i) {
    const ViewsOfOne one(operands, i);
    plan->run(one.tensors, workspace.data(), threads);
  }
}

// The attributes; shapes are those of the operands.
ConvProblem read_problem(const Call& call, bool backward) {
  ConvProblem p;
  p.rank = read_rank(call, "rank");
  const auto axes = static_cast<std::size_t>(p.rank);
  read_attribute(call, "stride", p.stride, axes);
  read_attribute(call, "padding_before", p.padding_before, axes);
  read_attribute(call, "padding_after", p.padding_after, axes);
  read_attribute(call, "output_padding", p.output_padding, axes);
  read_attribute(call, "dilation", p.dilation, axes);
  p.groups = read_attribute(call, "groups");
  const bool transposed = read_attribute(call, "transposed") != 0;
  p.op = backward ? (transposed ? ConvOperator::transpose_backward : ConvOperator::backward)
                  : (transposed ? ConvOperator::transpose : ConvOperator::conv);
  p.wants_input = p.wants_weight = p.wants_bias = false;
  return p;
}

void run_conv_forward(const Call& call) {
  ConvProblem p = read_problem(call, false);
  p.has_bias = call.arguments.count > 2;
  const ConvOperands operands = p.has_bias
                                    ? read_operands(call, p.rank, kOutput, {kInput, kWeight, kBias})
                                    : read_operands(call, p.rank, kOutput, {kInput, kWeight});
  set_shapes(p, operands);
  run(p, operands);
}

void run_grad_input(const Call& call) {
  ConvProblem p = read_problem(call, true);
  p.wants_input = true;
  const ConvOperands operands = read_operands(call, p.rank, kGradInput, {kGradOutput, kWeight});
  set_shapes(p, operands);
  run(p, operands);
}

void run_grad_weight(const Call& call) {
  ConvProblem p = read_problem(call, true);
  p.wants_weight = true;
  const ConvOperands operands = read_operands(call, p.rank, kGradWeight, {kGradOutput, kInput});
  set_shapes(p, operands);
  run(p, operands);
}

// The bias' gradient is the same for every convolution with this output: so that of one whose
// input is the output.
void run_channel_sums(const Call& call) {
  ConvProblem p;
  p.rank = read_rank(call, "rank");
  const ConvOperands operands = read_operands(call, p.rank, kGradBias, {kGradOutput});
  set_shapes(p, operands);
  const std::int64_t* const shape = operands.all[1].batch.first.shape;
  std::copy(shape, shape + p.ndim, p.input_shape);
  std::fill_n(p.weight_shape, p.ndim, 1);
  p.weight_shape[0] = p.groups = shape[1];
  std::fill_n(p.stride, p.rank, 1);
  std::fill_n(p.dilation, p.rank, 1);
  p.wants_input = p.wants_weight = false;
  run(p, operands);
}

}  // namespace

Error* conv(Call* call) noexcept { return handle(call, "backops_conv", run_conv_forward); }
Error* conv_grad_input(Call* call) noexcept {
  return handle(call, "backops_conv_grad_input", run_grad_input);
}
Error* conv_grad_weight(Call* call) noexcept {
  return handle(call, "backops_conv_grad_weight", run_grad_weight);
}
Error* channel_sums(Call* call) noexcept {
  return handle(call, "backops_channel_sums", run_channel_sums);
}

}  // namespace backops::xla
