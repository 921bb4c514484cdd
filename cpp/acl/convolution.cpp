#include "aclnnop/aclnn_convolution.h"

#include "acl/conv.h"

namespace backops::acl {
namespace {

constexpr OperatorNames kConvolution{"aclnnConvolutionGetWorkspaceSize", "aclnnConvolution", {}};

Planned plan_convolution(const TensorArgument& input, const TensorArgument& weight,
                         const std::optional<TensorArgument>& bias, const TensorArgument& output,
                         const ConvArguments& arguments) {
  for (const TensorArgument* each : {&input, &weight, &output}) {
    check_conv_format(*each);
    each->check_same_dtype(input);
  }
  if (bias) bias->check_same_dtype(input);
  const Product& product = current_product();
  ConvProblem problem = conv_problem(ConvPass::forward, arguments, input, weight, product);
  problem.has_bias = bias.has_value();
  std::vector<ConvOperand> inputs{{input, &ConvTensors::input}, {weight, &ConvTensors::weight}};
  if (bias) inputs.push_back({*bias, &ConvTensors::bias});
  return plan_conv(problem, inputs, {{output, &ConvTensors::output}}, product);
}

}  // namespace
}  // namespace backops::acl

using namespace backops::acl;
using backops::Sizes;

aclnnStatus aclnnConvolutionGetWorkspaceSize(const aclTensor* input, const aclTensor* weight,
                                             const aclTensor* bias, const aclIntArray* stride,
                                             const aclIntArray* padding,
                                             const aclIntArray* dilation, bool transposed,
                                             const aclIntArray* outputPadding, const int64_t groups,
                                             aclTensor* output, int8_t cubeMathType,
                                             uint64_t* workspaceSize, aclOpExecutor** executor) {
  return first_stage(kConvolution, workspaceSize, executor, [&] {
    return plan_convolution(
        {"input", input, Sizes::not_negative}, {"weight", weight, Sizes::not_negative},
        TensorArgument::optional("bias", bias, Sizes::not_negative),
        {"output", output, Sizes::not_negative},
        {stride, padding, dilation, transposed, outputPadding, groups, cubeMathType});
  });
}

aclnnStatus aclnnConvolution(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                             aclrtStream stream) {
  return second_stage(kConvolution, workspace, workspaceSize, executor, stream);
}
