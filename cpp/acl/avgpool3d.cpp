// AvgPool3d and AvgPool3dBackward, whose rules are the same.
#include "acl/pool.h"
#include "aclnnop/aclnn_avgpool3d.h"
#include "aclnnop/aclnn_avgpool3d_backward.h"

namespace backops::acl {
namespace {

constexpr OperatorNames kPool3dForward{
    "aclnnAvgPool3dGetWorkspaceSize", "aclnnAvgPool3d", {{"input", "self"}, {"output", "out"}}};
constexpr OperatorNames kPool3dBackward{"aclnnAvgPool3dBackwardGetWorkspaceSize",
                                        "aclnnAvgPool3dBackward",
                                        {{"input", "self"}, {"grad_input", "output"}}};

Planned plan_avg_pool3d(const PoolTensors& tensors, const WindowArguments& windows) {
  const Product& product = current_product();
  PoolProblem problem = pool_problem(tensors, 3, product);
  for (const TensorArgument* each : tensors.all()) {
    each->check_format({{ACL_FORMAT_NCDHW, 0}, {ACL_FORMAT_ND, 0}, {ACL_FORMAT_NCHW, 4}});
    each->check_same_format(tensors.self);
  }
  windows.read(problem);
  return plan_pool(LegalPoolProblem(problem), tensors, product);
}

}  // namespace
}  // namespace backops::acl

using namespace backops::acl;

aclnnStatus aclnnAvgPool3dGetWorkspaceSize(const aclTensor* self, const aclIntArray* kernelSize,
                                           const aclIntArray* stride, const aclIntArray* padding,
                                           bool ceilMode, bool countIncludePad,
                                           int64_t divisorOverride, aclTensor* out,
                                           uint64_t* workspaceSize, aclOpExecutor** executor) {
  return first_stage(kPool3dForward, workspaceSize, executor, [&] {
    return plan_avg_pool3d({std::nullopt, {"self", self}, {"out", out}},
                           {{"kernelSize", kernelSize},
                            IntArrayArgument::optional("stride", stride),
                            {"padding", padding},
                            ceilMode,
                            countIncludePad,
                            divisorOverride});
  });
}

aclnnStatus aclnnAvgPool3d(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                           aclrtStream stream) {
  return second_stage(kPool3dForward, workspace, workspaceSize, executor, stream);
}

aclnnStatus aclnnAvgPool3dBackwardGetWorkspaceSize(
    const aclTensor* gradOutput, const aclTensor* self, const aclIntArray* kernelSize,
    const aclIntArray* stride, const aclIntArray* padding, bool ceilMode, bool countIncludePad,
    int64_t divisorOverride, aclTensor* output, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return first_stage(kPool3dBackward, workspaceSize, executor, [&] {
    return plan_avg_pool3d(
        {TensorArgument("gradOutput", gradOutput), {"self", self}, {"output", output}},
        {{"kernelSize", kernelSize},
         IntArrayArgument::optional("stride", stride),
         {"padding", padding},
         ceilMode,
         countIncludePad,
         divisorOverride});
  });
}

aclnnStatus aclnnAvgPool3dBackward(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                   aclrtStream stream) {
  return second_stage(kPool3dBackward, workspace, workspaceSize, executor, stream);
}
