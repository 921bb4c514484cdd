#include "aclnnop/aclnn_convolution_backward.h"

#include <string>
#include <vector>

#include "acl/conv.h"

namespace backops::acl {
namespace {

constexpr OperatorNames kConvolutionBackward{
    "aclnnConvolutionBackwardGetWorkspaceSize", "aclnnConvolutionBackward", {}};

// Which of the three gradients are wanted.
std::vector<bool> read_mask(const aclBoolArray* handle) {
  const std::vector<bool>& mask = bool_array_argument("outputMask", handle)->values;
  if (mask.size() == 3) return mask;
  throw Failure(ACLNN_ERR_PARAM_INVALID, "the length of outputMask", std::to_string(mask.size()),
                "expected 3");
}

std::vector<ConvOperand> wanted_gradients(const std::vector<bool>& mask, const aclTensor* input,
                                          const aclTensor* weight, const aclTensor* bias) {
  std::vector<ConvOperand> wanted;
  const auto add = [&wanted](const char* name, const aclTensor* handle, auto role) {
    wanted.push_back({{name, handle, Sizes::not_negative}, role});
  };
  if (mask[0]) add("gradInput", input, &ConvTensors::grad_input);
  if (mask[1]) add("gradWeight", weight, &ConvTensors::grad_weight);
  if (mask[2]) add("gradBias", bias, &ConvTensors::grad_bias);
  return wanted;
}

Planned plan_gradients(const TensorArgument& grad_output, const TensorArgument& input,
                       const TensorArgument& weight, const ConvArguments& arguments,
                       const std::vector<bool>& mask, const std::vector<ConvOperand>& gradients) {
  for (const TensorArgument* each : {&grad_output, &input, &weight}) {
    check_conv_format(*each);
    each->check_same_dtype(input);
  }
  for (const ConvOperand& each : gradients) each.argument.check_same_dtype(input);
  const Product& product = current_product();
  ConvProblem problem = conv_problem(ConvPass::backward, arguments, input, weight, product);
  problem.wants_input = mask[0];
  problem.wants_weight = mask[1];
  problem.wants_bias = mask[2];
  const std::vector<ConvOperand> inputs{{grad_output, &ConvTensors::grad_output},
                                        {input, mask[1] ? &ConvTensors::input : nullptr},
                                        {weight, mask[0] ? &ConvTensors::weight : nullptr}};
  return plan_conv(problem, inputs, gradients, product);
}

}  // namespace
}  // namespace backops::acl

using namespace backops::acl;
using backops::Sizes;

aclnnStatus aclnnConvolutionBackwardGetWorkspaceSize(
    const aclTensor* gradOutput, const aclTensor* input, const aclTensor* weight,
    const aclIntArray* biasSizes, const aclIntArray* stride, const aclIntArray* padding,
    const aclIntArray* dilation, bool transposed, const aclIntArray* outputPadding, int groups,
    const aclBoolArray* outputMask, int8_t cubeMathType, aclTensor* gradInput,
    aclTensor* gradWeight, aclTensor* gradBias, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return first_stage(kConvolutionBackward, workspaceSize, executor, [&] {
    const std::vector<bool> mask = read_mask(outputMask);
    // gradBias's own shape counts, not the sizes in here.
    if (mask[2]) IntArrayArgument::optional("biasSizes", biasSizes);
    return plan_gradients(
        {"gradOutput", gradOutput, Sizes::not_negative}, {"input", input, Sizes::not_negative},
        {"weight", weight, Sizes::not_negative},
        {stride, padding, dilation, transposed, outputPadding, groups, cubeMathType}, mask,
        wanted_gradients(mask, gradInput, gradWeight, gradBias));
  });
}

aclnnStatus aclnnConvolutionBackward(void* workspace, uint64_t workspaceSize,
                                     aclOpExecutor* executor, aclrtStream stream) {
  return second_stage(kConvolutionBackward, workspace, workspaceSize, executor, stream);
}
