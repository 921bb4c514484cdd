// AdaptiveAvgPool2dBackward and AdaptiveAvgPool3dBackward, which differ in rank and formats.
#include <algorithm>

#include "acl/pool_backward.h"
#include "aclnnop/aclnn_adaptive_avg_pool2d_backward.h"
#include "aclnnop/aclnn_adaptive_avg_pool3d_backward.h"

using namespace backops::acl;

namespace {

constexpr OperatorNames kNames2d{"aclnnAdaptiveAvgPool2dBackwardGetWorkspaceSize",
                                 "aclnnAdaptiveAvgPool2dBackward", "self", "out"};
constexpr OperatorNames kNames3d{"aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize",
                                 "aclnnAdaptiveAvgPool3dBackward", "self", "out"};

Planned plan_adaptive(const PoolTensors& tensors, int rank,
                      std::initializer_list<TensorArgument::Format> formats) {
  const Product& product = current_product();
  auto problem = pool_problem(tensors, rank, product);
  for (const TensorArgument* each : {&tensors.grad_output, &tensors.self, &tensors.grad_input}) {
    each->check_format(formats);
  }
  tensors.grad_output.check_same_format(tensors.self);
  problem.adaptive = true;
  const backops::TensorView grad_output = tensors.grad_output.operand(product).view();
  std::copy(grad_output.shape + problem.ndim - rank, grad_output.shape + problem.ndim,
            problem.output_size);
  return plan_pool(problem, tensors, product);
}

}  // namespace

aclnnStatus aclnnAdaptiveAvgPool2dBackwardGetWorkspaceSize(const aclTensor* gradOutput,
                                                           const aclTensor* self, aclTensor* out,
                                                           uint64_t* workspaceSize,
                                                           aclOpExecutor** executor) {
  return first_stage(kNames2d, workspaceSize, executor, [&] {
    return plan_adaptive({{"gradOutput", gradOutput}, {"self", self}, {"out", out}}, 2,
                         {{ACL_FORMAT_NCHW, 0}, {ACL_FORMAT_ND, 0}, {ACL_FORMAT_NCL, 3}});
  });
}

aclnnStatus aclnnAdaptiveAvgPool2dBackward(void* workspace, uint64_t workspaceSize,
                                           aclOpExecutor* executor, aclrtStream stream) {
  return second_stage(kNames2d, workspace, workspaceSize, executor, stream);
}

aclnnStatus aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize(const aclTensor* gradOutput,
                                                           const aclTensor* self, aclTensor* out,
                                                           uint64_t* workspaceSize,
                                                           aclOpExecutor** executor) {
  return first_stage(kNames3d, workspaceSize, executor, [&] {
    return plan_adaptive({{"gradOutput", gradOutput}, {"self", self}, {"out", out}}, 3,
                         {{ACL_FORMAT_NCDHW, 0}, {ACL_FORMAT_ND, 0}, {ACL_FORMAT_NCHW, 4}});
  });
}

aclnnStatus aclnnAdaptiveAvgPool3dBackward(void* workspace, uint64_t workspaceSize,
                                           aclOpExecutor* executor, aclrtStream stream) {
  return second_stage(kNames3d, workspace, workspaceSize, executor, stream);
}
