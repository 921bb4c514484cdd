// AvgPool2d and AvgPool2dBackward, whose rules are the same.
#include <string>

#include "acl/pool.h"
#include "aclnnop/aclnn_avgpool2d.h"
#include "aclnnop/aclnn_avgpool2d_backward.h"

namespace backops::acl {
namespace {

constexpr OperatorNames kPool2dForward{
    "aclnnAvgPool2dGetWorkspaceSize",
    "aclnnAvgPool2d",
    {{"input", "self"}, {"output", "out"}, {"stride", "strides"}, {"padding", "paddings"}}};
constexpr OperatorNames kPool2dBackward{
    "aclnnAvgPool2dBackwardGetWorkspaceSize", "aclnnAvgPool2dBackward", {{"input", "self"}}};

void check_product(const Product& product) {
  if (product.has_avg_pool2d) return;
  throw Failure(ACLNN_ERR_INNER_FIND_KERNEL_ERROR, "the product", product.series,
                "expected one that has this operator");
}

void check_divisor(std::int64_t divisor, const Product& product) {
  const std::int64_t most = product.most_divisor;
  if (most == 0 || (divisor >= -most && divisor <= most)) return;
  throw Failure(ACLNN_ERR_PARAM_INVALID, "divisorOverride", std::to_string(divisor),
                "expected -" + std::to_string(most) + " to " + std::to_string(most) + " on " +
                    product.series);
}

// One window that covers the whole input.
bool is_global(const LegalPoolProblem& legal) {
  const PoolProblem& p = legal.problem();
  for (int axis = 0; axis < p.rank; ++axis) {
    const int dim = p.ndim - p.rank + axis;
    const bool covers_end = p.kernel_size[axis] - p.padding[axis] >= p.input_shape[dim];
    if (legal.output_shape()[dim] != 1 || !covers_end) return false;
  }
  return true;
}

Planned plan_avg_pool2d(const PoolTensors& tensors, const WindowArguments& windows,
                        std::int8_t cube_math_type) {
  const Product& product = current_product();
  check_product(product);
  PoolProblem problem = pool_problem(tensors, 2, product);
  for (const TensorArgument* each : tensors.all()) {
    each->check_format({{ACL_FORMAT_NCHW, 0}, {ACL_FORMAT_NCL, 3}});
  }
  tensors.result.check_same_format(tensors.self);
  windows.read(problem);
  check_divisor(windows.divisor_override, product);
  LegalPoolProblem legal(problem);
  const Operation operation =
      is_global(legal) ? Operation::global_pooling : Operation::other_pooling;
  legal.set_rounding(product_rounding(product, operation, problem.dtype, cube_math_type));
  return plan_pool(legal, tensors, product);
}

}  // namespace
}  // namespace backops::acl

using namespace backops::acl;

aclnnStatus aclnnAvgPool2dGetWorkspaceSize(const aclTensor* self, const aclIntArray* kernelSize,
                                           const aclIntArray* strides, const aclIntArray* paddings,
                                           bool ceilMode, bool countIncludePad,
                                           int64_t divisorOverride, int8_t cubeMathType,
                                           aclTensor* out, uint64_t* workspaceSize,
                                           aclOpExecutor** executor) {
  return first_stage(kPool2dForward, workspaceSize, executor, [&] {
    return plan_avg_pool2d({std::nullopt, {"self", self}, {"out", out}},
                           {{"kernelSize", kernelSize},
                            IntArrayArgument::optional("strides", strides),
                            {"paddings", paddings},
                            ceilMode,
                            countIncludePad,
                            divisorOverride},
                           cubeMathType);
  });
}

aclnnStatus aclnnAvgPool2d(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                           aclrtStream stream) {
  return second_stage(kPool2dForward, workspace, workspaceSize, executor, stream);
}

aclnnStatus aclnnAvgPool2dBackwardGetWorkspaceSize(
    const aclTensor* gradOutput, const aclTensor* self, const aclIntArray* kernelSize,
    const aclIntArray* stride, const aclIntArray* padding, bool ceilMode, bool countIncludePad,
    int64_t divisorOverride, int8_t cubeMathType, aclTensor* gradInput, uint64_t* workspaceSize,
    aclOpExecutor** executor) {
  return first_stage(kPool2dBackward, workspaceSize, executor, [&] {
    return plan_avg_pool2d(
        {TensorArgument("gradOutput", gradOutput), {"self", self}, {"gradInput", gradInput}},
        {{"kernelSize", kernelSize},
         IntArrayArgument::optional("stride", stride),
         {"padding", padding},
         ceilMode,
         countIncludePad,
         divisorOverride},
        cubeMathType);
  });
}

aclnnStatus aclnnAvgPool2dBackward(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                   aclrtStream stream) {
  return second_stage(kPool2dBackward, workspace, workspaceSize, executor, stream);
}
