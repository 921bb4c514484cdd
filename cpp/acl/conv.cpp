#include "acl/conv.h"

#include <algorithm>
#include <string>

#include "base/threads.h"

namespace backops::acl {
namespace {

using Role = const TensorView* ConvTensors::*;

class ConvWork : public Work {
 public:
  ConvWork(const LegalConvProblem& problem, std::vector<Role> roles)
      : threads_(default_thread_count()),
        plan_(problem, threads_, is_deterministic()),
        roles_(std::move(roles)) {
    finish_work_before_exit<ConvWork>();
  }

  const ConvPlan& plan() const { return plan_; }
  std::size_t workspace_bytes() const override { return plan_.workspace_bytes(); }

  void run(const TensorView* tensors, void* workspace) const noexcept override {
    ConvTensors views;
    for (std::size_t i = 0; i < roles_.size(); ++i) {
      if (roles_[i] != nullptr) views.*roles_[i] = tensors + i;
    }
    plan_.run(views, workspace, threads_);
  }

 private:
  const int threads_;
  const ConvPlan plan_;
  const std::vector<Role> roles_;  // of the executor's tensors
};

// One value, one for each axis or, in 2-D, four: top, bottom, left and right.
void read_padding(const IntArrayArgument& padding, ConvProblem& problem) {
  const std::vector<std::int64_t>& values = padding.values();
  if (problem.rank != 2 || values.size() <= 2) {
    padding.read_axes(problem.rank, problem.padding_before);
    return problem.pad_both_ends();
  }
  if (values.size() != 4) {
    throw Failure(ACLNN_ERR_PARAM_INVALID, "the length of padding", std::to_string(values.size()),
                  "expected 1, 2 or 4");
  }
  // The core knows axes, not the places of their two ends in this array.
  const auto read = [&values](int i) {
    const std::int64_t value = values[static_cast<std::size_t>(i)];
    if (value >= 0 && value <= std::int64_t{1} << 60) return value;
    throw Failure(ACLNN_ERR_PARAM_INVALID, "padding[" + std::to_string(i) + "]",
                  std::to_string(value), "expected 0 to 2**60");
  };
  for (int axis = 0; axis < 2; ++axis) {
    problem.padding_before[axis] = read(2 * axis);
    problem.padding_after[axis] = read(2 * axis + 1);
  }
}

ConvOperator operator_of(ConvPass pass, bool transposed) {
  if (pass == ConvPass::forward) return transposed ? ConvOperator::transpose : ConvOperator::conv;
  return transposed ? ConvOperator::transpose_backward : ConvOperator::backward;
}

}  // namespace

ConvArguments::ConvArguments(const aclIntArray* stride_handle, const aclIntArray* padding_handle,
                             const aclIntArray* dilation_handle, bool is_transposed,
                             const aclIntArray* output_padding_handle, std::int64_t group_count,
                             std::int8_t math_type)
    : stride("stride", stride_handle),
      padding("padding", padding_handle),
      dilation("dilation", dilation_handle),
      transposed(is_transposed),
      groups(group_count),
      cube_math_type(math_type) {
  if (transposed) output_padding.emplace("outputPadding", output_padding_handle);
}

void check_conv_format(const TensorArgument& tensor) {
  tensor.check_format(
      {{ACL_FORMAT_ND, 0}, {ACL_FORMAT_NCL, 0}, {ACL_FORMAT_NCHW, 0}, {ACL_FORMAT_NCDHW, 0}});
}

ConvProblem conv_problem(ConvPass pass, const ConvArguments& arguments, const TensorArgument& input,
                         const TensorArgument& weight, const Product& product) {
  const Operand input_operand = input.operand(product), weight_operand = weight.operand(product);
  const TensorView &values = input_operand.view(), &kernels = weight_operand.view();
  ConvProblem problem;
  problem.op = operator_of(pass, arguments.transposed);
  problem.rank = conv_rank(kernels.shape, kernels.ndim);
  problem.ndim = values.ndim;
  problem.dtype = values.dtype;
  std::copy(values.shape, values.shape + values.ndim, problem.input_shape);
  std::copy(kernels.shape, kernels.shape + kernels.ndim, problem.weight_shape);
  arguments.stride.read_axes(problem.rank, problem.stride);
  read_padding(arguments.padding, problem);
  arguments.dilation.read_axes(problem.rank, problem.dilation);
  if (arguments.output_padding) {
    arguments.output_padding->read_axes(problem.rank, problem.output_padding);
  }
  problem.groups = arguments.groups;
  problem.rounding =
      product_rounding(product, Operation::convolution, values.dtype, arguments.cube_math_type);
  return problem;
}

Planned plan_conv(const ConvProblem& problem, const std::vector<ConvOperand>& inputs,
                  const std::vector<ConvOperand>& results, const Product& product) {
  const LegalConvProblem legal(problem);
  std::vector<BoundTensor> tensors;
  const auto bind = [&](const ConvOperand& each, bool is_output, const auto& check) {
    const Operand operand = each.argument.operand(product);
    ConvTensors alone;
    if (each.role != nullptr) alone.*each.role = &operand.view();
    check(alone);
    tensors.push_back(each.argument.bound(operand, is_output));
  };
  // Before a plan is made, which may take long.
  for (const ConvOperand& each : inputs) {
    bind(each, false, [&](const ConvTensors& alone) { legal.check_inputs(alone); });
  }
  std::vector<Role> roles;
  for (const ConvOperand& each : inputs) roles.push_back(each.role);
  for (const ConvOperand& each : results) roles.push_back(each.role);
  const auto work = std::make_shared<const ConvWork>(legal, std::move(roles));
  for (const ConvOperand& each : results) {
    bind(each, true, [&](const ConvTensors& alone) { work->plan().check_results(alone); });
  }
  return {std::move(tensors), work};
}

}  // namespace backops::acl
