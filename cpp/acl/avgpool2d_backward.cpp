#include "aclnnop/aclnn_avgpool2d_backward.h"

#include <string>

#include "acl/pool_backward.h"

namespace backops::acl {
namespace {

constexpr OperatorNames kNames{
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

}  // namespace
}  // namespace backops::acl

using namespace backops::acl;
using backops::LegalPoolProblem;

aclnnStatus aclnnAvgPool2dBackwardGetWorkspaceSize(
    const aclTensor* gradOutput, const aclTensor* self, const aclIntArray* kernelSize,
    const aclIntArray* stride, const aclIntArray* padding, bool ceilMode, bool countIncludePad,
    int64_t divisorOverride, int8_t cubeMathType, aclTensor* gradInput, uint64_t* workspaceSize,
    aclOpExecutor** executor) {
  return first_stage(kNames, workspaceSize, executor, [&] {
    const PoolTensors tensors{{"gradOutput", gradOutput}, {"self", self}, {"gradInput", gradInput}};
    const IntArrayArgument kernel("kernelSize", kernelSize), pads("padding", padding);
    const auto strides = IntArrayArgument::optional("stride", stride);
    const Product& product = current_product();
    check_product(product);
    auto problem = pool_problem(tensors, 2, product);
    for (const TensorArgument* each : {&tensors.grad_output, &tensors.self, &tensors.grad_input}) {
      each->check_format({{ACL_FORMAT_NCHW, 0}, {ACL_FORMAT_NCL, 3}});
    }
    tensors.grad_input.check_same_format(tensors.self);
    read_windows(kernel, strides, pads, problem);
    check_divisor(divisorOverride, product);
    problem.ceil_mode = ceilMode;
    problem.count_include_pad = countIncludePad;
    problem.divisor_override = divisorOverride;
    LegalPoolProblem legal(problem);
    const Operation operation =
        is_global(legal) ? Operation::global_pooling : Operation::other_pooling;
    legal.set_rounding(product_rounding(product, operation, problem.dtype, cubeMathType));
    return plan_pool(legal, tensors, product);
  });
}

aclnnStatus aclnnAvgPool2dBackward(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                   aclrtStream stream) {
  return second_stage(kNames, workspace, workspaceSize, executor, stream);
}
