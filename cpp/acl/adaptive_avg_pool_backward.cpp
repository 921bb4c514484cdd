// AdaptiveAvgPool2dBackward and AdaptiveAvgPool3dBackward, which differ in rank and formats.
#include <algorithm>
#include <string>

#include "acl/pool_backward.h"
#include "aclnnop/aclnn_adaptive_avg_pool2d_backward.h"
#include "aclnnop/aclnn_adaptive_avg_pool3d_backward.h"

using namespace backops::acl;
using backops::Error;
using backops::ErrorKind;
using backops::LegalPoolProblem;
using backops::Operand;
using backops::PoolProblem;
using backops::shape_text;
using backops::Sizes;
using backops::TensorView;

namespace {

constexpr OperatorNames kNames2d{"aclnnAdaptiveAvgPool2dBackwardGetWorkspaceSize",
                                 "aclnnAdaptiveAvgPool2dBackward",
                                 {{"input", "self"}, {"grad_input", "out"}}};
constexpr OperatorNames kNames3d{"aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize",
                                 "aclnnAdaptiveAvgPool3dBackward",
                                 {{"input", "self"}, {"grad_input", "out"}}};

// For a gradOutput without elements, from which nothing flows back.
class ZerosWork : public Work {
 public:
  std::size_t workspace_bytes() const override { return 0; }
  void run(const TensorView* tensors, void*) const noexcept override { write_zeros(tensors[2]); }
};

void check_no_outputs(const PoolProblem& p, const TensorView& grad_output, const TensorView& out) {
  const std::int64_t* const input_shape = p.input_shape;
  const int leading = p.ndim - p.rank;
  if (!std::equal(input_shape, input_shape + leading, grad_output.shape)) {
    throw Error(ErrorKind::shape, "{grad_output}", shape_text(grad_output.shape, p.ndim),
                "expected batch and channels of {input}, " + shape_text(input_shape, p.ndim));
  }
  check_pool_grad_input(p, out);
}

Planned plan_zeros(const PoolProblem& problem, const PoolTensors& tensors, const Product& product) {
  const Operand grad_output = tensors.grad_output.operand(product);
  const Operand out = tensors.grad_input.operand(product);
  check_no_outputs(problem, grad_output.view(), out.view());
  return {{tensors.grad_output.bound(grad_output, false),
           tensors.self.bound(tensors.self.operand(product), false),
           tensors.grad_input.bound(out, true)},
          std::make_shared<const ZerosWork>()};
}

Planned plan_adaptive(const PoolTensors& tensors, int rank,
                      std::initializer_list<TensorArgument::Format> formats) {
  const Product& product = current_product();
  auto problem = pool_problem(tensors, rank, product);
  for (const TensorArgument* each : {&tensors.grad_output, &tensors.self, &tensors.grad_input}) {
    each->check_format(formats);
  }
  tensors.grad_output.check_same_format(tensors.self);
  problem.adaptive = true;
  const Operand grad_output = tensors.grad_output.operand(product);
  if (grad_output.is_empty()) return plan_zeros(problem, tensors, product);
  const std::int64_t* const output_shape = grad_output.view().shape;
  std::copy(output_shape + problem.ndim - rank, output_shape + problem.ndim, problem.output_size);
  return plan_pool(LegalPoolProblem(problem), tensors, product);
}

}  // namespace

aclnnStatus aclnnAdaptiveAvgPool2dBackwardGetWorkspaceSize(const aclTensor* gradOutput,
                                                           const aclTensor* self, aclTensor* out,
                                                           uint64_t* workspaceSize,
                                                           aclOpExecutor** executor) {
  return first_stage(kNames2d, workspaceSize, executor, [&] {
    return plan_adaptive(
        {{"gradOutput", gradOutput, Sizes::not_negative},
         {"self", self, Sizes::not_negative},
         {"out", out, Sizes::not_negative}},
        2, {{ACL_FORMAT_NCHW, 0}, {ACL_FORMAT_NHWC, 0}, {ACL_FORMAT_ND, 0}, {ACL_FORMAT_NCL, 0}});
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
