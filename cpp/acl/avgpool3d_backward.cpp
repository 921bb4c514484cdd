#include "aclnnop/aclnn_avgpool3d_backward.h"

#include "acl/pool_backward.h"

using namespace backops::acl;
using backops::LegalPoolProblem;

namespace {

constexpr OperatorNames kNames{"aclnnAvgPool3dBackwardGetWorkspaceSize",
                               "aclnnAvgPool3dBackward",
                               {{"input", "self"}, {"grad_input", "output"}}};

}  // namespace

aclnnStatus aclnnAvgPool3dBackwardGetWorkspaceSize(
    const aclTensor* gradOutput, const aclTensor* self, const aclIntArray* kernelSize,
    const aclIntArray* stride, const aclIntArray* padding, bool ceilMode, bool countIncludePad,
    int64_t divisorOverride, aclTensor* output, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return first_stage(kNames, workspaceSize, executor, [&] {
    const PoolTensors tensors{{"gradOutput", gradOutput}, {"self", self}, {"output", output}};
    const IntArrayArgument kernel("kernelSize", kernelSize), pads("padding", padding);
    const auto strides = IntArrayArgument::optional("stride", stride);
    const Product& product = current_product();
    auto problem = pool_problem(tensors, 3, product);
    for (const TensorArgument* each : {&tensors.grad_output, &tensors.self, &tensors.grad_input}) {
      each->check_format({{ACL_FORMAT_NCDHW, 0}, {ACL_FORMAT_ND, 0}, {ACL_FORMAT_NCHW, 4}});
      each->check_same_format(tensors.self);
    }
    read_windows(kernel, strides, pads, problem);
    problem.ceil_mode = ceilMode;
    problem.count_include_pad = countIncludePad;
    problem.divisor_override = divisorOverride;
    return plan_pool(LegalPoolProblem(problem), tensors, product);
  });
}

aclnnStatus aclnnAvgPool3dBackward(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                   aclrtStream stream) {
  return second_stage(kNames, workspace, workspaceSize, executor, stream);
}
