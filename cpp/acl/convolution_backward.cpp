#include "aclnnop/aclnn_convolution_backward.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "acl/arguments.h"
#include "base/threads.h"
#include "ops/conv/plan.h"

namespace backops::acl {
namespace {

constexpr OperatorNames kNames{"aclnnConvolutionBackwardGetWorkspaceSize",
                               "aclnnConvolutionBackward", "input", "gradInput"};

class ConvWork : public Work {
 public:
  explicit ConvWork(const LegalConvProblem& problem)
      : threads_(default_thread_count()), plan_(problem, threads_, is_deterministic()) {
    finish_work_before_exit<ConvWork>();
  }

  const ConvPlan& plan() const { return plan_; }
  std::size_t workspace_bytes() const override { return plan_.workspace_bytes(); }

  // gradOutput, input and weight, then the gradients that are wanted.
  void run(const TensorView* tensors, void* workspace) const noexcept override {
    const ConvProblem& problem = plan_.problem();
    ConvTensors views;
    views.grad_output = tensors;
    if (problem.wants_weight) views.input = tensors + 1;
    if (problem.wants_input) views.weight = tensors + 2;
    const TensorView* next = tensors + 3;
    if (problem.wants_input) views.grad_input = next++;
    if (problem.wants_weight) views.grad_weight = next++;
    if (problem.wants_bias) views.grad_bias = next++;
    plan_.run(views, workspace, threads_);
  }

 private:
  const int threads_;
  const ConvPlan plan_;
};

struct ConvArguments {
  TensorArgument grad_output, input, weight;
  IntArrayArgument stride, padding, dilation;
  bool transposed;
  int groups;
  std::int8_t cube_math_type;
  std::optional<TensorArgument> grad_input, grad_weight, grad_bias;  // those that are wanted
};

// Which of the three gradients are wanted.
std::vector<bool> read_mask(const aclBoolArray* handle) {
  const std::vector<bool>& mask = bool_array_argument("outputMask", handle)->values;
  if (mask.size() == 3) return mask;
  throw Failure(ACLNN_ERR_PARAM_INVALID, "the length of outputMask", std::to_string(mask.size()),
                "expected 3");
}

std::optional<TensorArgument> if_wanted(bool wanted, const char* name, const aclTensor* handle) {
  if (!wanted) return std::nullopt;
  return TensorArgument(name, handle, Sizes::not_negative);
}

void check_tensors(const ConvArguments& arguments) {
  const TensorArgument* const gradients[] = {
      arguments.grad_input ? &*arguments.grad_input : nullptr,
      arguments.grad_weight ? &*arguments.grad_weight : nullptr,
      arguments.grad_bias ? &*arguments.grad_bias : nullptr};
  for (const TensorArgument* each : {&arguments.grad_output, &arguments.input, &arguments.weight}) {
    each->check_format(
        {{ACL_FORMAT_ND, 0}, {ACL_FORMAT_NCL, 0}, {ACL_FORMAT_NCHW, 0}, {ACL_FORMAT_NCDHW, 0}});
    each->check_same_dtype(arguments.input);
  }
  for (const TensorArgument* each : gradients) {
    if (each != nullptr) each->check_same_dtype(arguments.input);
  }
}

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

ConvProblem problem_of(const ConvArguments& arguments, const TensorView& input,
                       const TensorView& weight, const Product& product) {
  if (arguments.transposed) {
    throw Failure(ACLNN_ERR_PARAM_INVALID, "transposed", "true",
                  "expected false: transposed convolutions are not supported");
  }
  ConvProblem problem;
  problem.rank = conv_rank(weight.shape, weight.ndim);
  problem.ndim = input.ndim;
  problem.dtype = input.dtype;
  std::copy(input.shape, input.shape + input.ndim, problem.input_shape);
  std::copy(weight.shape, weight.shape + weight.ndim, problem.weight_shape);
  arguments.stride.read_axes(problem.rank, problem.stride);
  read_padding(arguments.padding, problem);
  arguments.dilation.read_axes(problem.rank, problem.dilation);
  problem.groups = arguments.groups;
  problem.wants_input = arguments.grad_input.has_value();
  problem.wants_weight = arguments.grad_weight.has_value();
  problem.wants_bias = arguments.grad_bias.has_value();
  problem.rounding =
      product_rounding(product, Operation::convolution, input.dtype, arguments.cube_math_type);
  return problem;
}

Planned plan_conv(const ConvArguments& arguments) {
  const Product& product = current_product();
  check_tensors(arguments);
  const Operand grad_output = arguments.grad_output.operand(product);
  const Operand input = arguments.input.operand(product);
  const Operand weight = arguments.weight.operand(product);
  const LegalConvProblem problem(problem_of(arguments, input.view(), weight.view(), product));
  ConvTensors inputs;
  inputs.grad_output = &grad_output.view();
  problem.check_inputs(inputs);
  const auto work = std::make_shared<const ConvWork>(problem);
  std::vector<BoundTensor> tensors{arguments.grad_output.bound(grad_output, false),
                                   arguments.input.bound(input, false),
                                   arguments.weight.bound(weight, false)};
  const auto bind = [&](const std::optional<TensorArgument>& argument,
                        const TensorView* ConvTensors::* gradient) {
    if (!argument) return;
    const Operand operand = argument->operand(product);
    ConvTensors results;
    results.*gradient = &operand.view();
    work->plan().check_results(results);
    tensors.push_back(argument->bound(operand, true));
  };
  bind(arguments.grad_input, &ConvTensors::grad_input);
  bind(arguments.grad_weight, &ConvTensors::grad_weight);
  bind(arguments.grad_bias, &ConvTensors::grad_bias);
  return {std::move(tensors), work};
}

}  // namespace
}  // namespace backops::acl

using namespace backops::acl;
using backops::Sizes;

aclnnStatus aclnnConvolutionBackwardGetWorkspaceSize(
    const aclTensor* gradOutput, const aclTensor* input, const aclTensor* weight,
    const aclIntArray* biasSizes, const aclIntArray* stride, const aclIntArray* padding,
    const aclIntArray* dilation, bool transposed, const aclIntArray*, int groups,
    const aclBoolArray* outputMask, int8_t cubeMathType, aclTensor* gradInput,
    aclTensor* gradWeight, aclTensor* gradBias, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return first_stage(kNames, workspaceSize, executor, [&] {
    const std::vector<bool> mask = read_mask(outputMask);
    // gradBias's own shape counts, not the sizes in here.
    if (mask[2]) IntArrayArgument::optional("biasSizes", biasSizes);
    return plan_conv({{"gradOutput", gradOutput, Sizes::not_negative},
                      {"input", input, Sizes::not_negative},
                      {"weight", weight, Sizes::not_negative},
                      {"stride", stride},
                      {"padding", padding},
                      {"dilation", dilation},
                      transposed,
                      groups,
                      cubeMathType,
                      if_wanted(mask[0], "gradInput", gradInput),
                      if_wanted(mask[1], "gradWeight", gradWeight),
                      if_wanted(mask[2], "gradBias", gradBias)});
  });
}

aclnnStatus aclnnConvolutionBackward(void* workspace, uint64_t workspaceSize,
                                     aclOpExecutor* executor, aclrtStream stream) {
  return second_stage(kNames, workspace, workspaceSize, executor, stream);
}
