// AdaptiveAvgPool2d and AdaptiveAvgPool3d, which differ in rank, formats and whether sizes may be
// 0, and their gradients.
#include <algorithm>
#include <string>

#include "acl/pool.h"
#include "aclnnop/aclnn_adaptive_avg_pool2d.h"
#include "aclnnop/aclnn_adaptive_avg_pool2d_backward.h"
#include "aclnnop/aclnn_adaptive_avg_pool3d.h"
#include "aclnnop/aclnn_adaptive_avg_pool3d_backward.h"

namespace backops::acl {
namespace {

constexpr OperatorNames kForward2d{"aclnnAdaptiveAvgPool2dGetWorkspaceSize",
                                   "aclnnAdaptiveAvgPool2d",
                                   {{"input", "self"}, {"output", "out"}}};
constexpr OperatorNames kForward3d{"aclnnAdaptiveAvgPool3dGetWorkspaceSize",
                                   "aclnnAdaptiveAvgPool3d",
                                   {{"input", "self"}, {"output", "out"}}};
constexpr OperatorNames kBackward2d{"aclnnAdaptiveAvgPool2dBackwardGetWorkspaceSize",
                                    "aclnnAdaptiveAvgPool2dBackward",
                                    {{"input", "self"}, {"grad_input", "out"}}};
constexpr OperatorNames kBackward3d{"aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize",
                                    "aclnnAdaptiveAvgPool3dBackward",
                                    {{"input", "self"}, {"grad_input", "out"}}};

using Formats = std::initializer_list<TensorArgument::Format>;

// For a pooled tensor without elements: nothing is pooled, and nothing flows back.
class ZerosWork : public Work {
 public:
  explicit ZerosWork(std::size_t result) : result_(result) {}
  std::size_t workspace_bytes() const override { return 0; }
  void run(const TensorView* tensors, void*) const noexcept override {
    write_zeros(tensors[result_]);
  }

 private:
  const std::size_t result_;
};

void check_no_outputs(const PoolProblem& p, const TensorView& pooled) {
  std::int64_t expected[kMaxDims];
  const int leading = p.ndim - p.rank;
  std::copy_n(p.input_shape, leading, expected);
  std::copy_n(p.output_size, p.rank, expected + leading);
  if (std::equal(expected, expected + p.ndim, pooled.shape)) return;
  throw Error(ErrorKind::shape, p.is_forward() ? "{output}" : "{grad_output}",
              shape_text(pooled.shape, p.ndim),
              "but {input} " + shape_text(p.input_shape, p.ndim) + " pools to " +
                  shape_text(expected, p.ndim));
}

Planned plan_zeros(const PoolProblem& problem, const PoolTensors& tensors, const Product& product) {
  check_no_outputs(problem, tensors.pooled().operand(product).view());
  if (!problem.is_forward()) {
    check_pool_grad_input(problem, tensors.result.operand(product).view());
  }
  const std::size_t result = tensors.all().size() - 1;
  return bind_pool(tensors, product, std::make_shared<const ZerosWork>(result));
}

// What outputSize says, or the shape of gradOutput.
void read_output_size(const std::optional<IntArrayArgument>& output_size, const TensorView& pooled,
                      std::int64_t least, PoolProblem& problem) {
  const int rank = problem.rank;
  if (!output_size) {
    std::copy_n(pooled.shape + problem.ndim - rank, rank, problem.output_size);
    return;
  }
  const std::vector<std::int64_t>& values = output_size->values();
  if (values.size() != static_cast<std::size_t>(rank)) {
    throw Failure(ACLNN_ERR_PARAM_INVALID, "the length of outputSize",
                  std::to_string(values.size()), "expected " + std::to_string(rank));
  }
  for (int axis = 0; axis < rank; ++axis) {
    const std::int64_t value = values[static_cast<std::size_t>(axis)];
    if (value < least) {
      throw Failure(ACLNN_ERR_PARAM_INVALID, "outputSize[" + std::to_string(axis) + "]",
                    std::to_string(value), "expected at least " + std::to_string(least));
    }
    problem.output_size[axis] = value;
  }
}

Planned plan_adaptive(const PoolTensors& tensors,
                      const std::optional<IntArrayArgument>& output_size, int rank, Sizes sizes,
                      const Formats& formats) {
  const Product& product = current_product();
  PoolProblem problem = pool_problem(tensors, rank, product);
  for (const TensorArgument* each : tensors.all()) each->check_format(formats);
  tensors.pooled().check_same_format(tensors.self);
  problem.adaptive = true;
  const Operand pooled = tensors.pooled().operand(product);
  read_output_size(output_size, pooled.view(), sizes == Sizes::positive ? 1 : 0, problem);
  const std::int64_t* const outputs = problem.output_size;
  const bool has_outputs = std::find(outputs, outputs + rank, 0) == outputs + rank;
  if (pooled.is_empty() || !has_outputs) return plan_zeros(problem, tensors, product);
  return plan_pool(LegalPoolProblem(problem), tensors, product);
}

Planned plan_adaptive2d(const PoolTensors& tensors,
                        const std::optional<IntArrayArgument>& output_size) {
  return plan_adaptive(
      tensors, output_size, 2, Sizes::not_negative,
      {{ACL_FORMAT_NCHW, 0}, {ACL_FORMAT_NHWC, 0}, {ACL_FORMAT_ND, 0}, {ACL_FORMAT_NCL, 0}});
}

Planned plan_adaptive3d(const PoolTensors& tensors,
                        const std::optional<IntArrayArgument>& output_size) {
  return plan_adaptive(tensors, output_size, 3, Sizes::positive,
                       {{ACL_FORMAT_NCDHW, 0}, {ACL_FORMAT_ND, 0}, {ACL_FORMAT_NCHW, 4}});
}

}  // namespace
}  // namespace backops::acl

using namespace backops::acl;
using backops::Sizes;

aclnnStatus aclnnAdaptiveAvgPool2dGetWorkspaceSize(const aclTensor* self,
                                                   const aclIntArray* outputSize, aclTensor* out,
                                                   uint64_t* workspaceSize,
                                                   aclOpExecutor** executor) {
  return first_stage(kForward2d, workspaceSize, executor, [&] {
    return plan_adaptive2d(
        {std::nullopt, {"self", self, Sizes::not_negative}, {"out", out, Sizes::not_negative}},
        IntArrayArgument("outputSize", outputSize));
  });
}

aclnnStatus aclnnAdaptiveAvgPool2d(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                   aclrtStream stream) {
  return second_stage(kForward2d, workspace, workspaceSize, executor, stream);
}

aclnnStatus aclnnAdaptiveAvgPool2dBackwardGetWorkspaceSize(const aclTensor* gradOutput,
                                                           const aclTensor* self, aclTensor* out,
                                                           uint64_t* workspaceSize,
                                                           aclOpExecutor** executor) {
  return first_stage(kBackward2d, workspaceSize, executor, [&] {
    return plan_adaptive2d({TensorArgument("gradOutput", gradOutput, Sizes::not_negative),
                            {"self", self, Sizes::not_negative},
                            {"out", out, Sizes::not_negative}},
                           std::nullopt);
  });
}

aclnnStatus aclnnAdaptiveAvgPool2dBackward(void* workspace, uint64_t workspaceSize,
                                           aclOpExecutor* executor, aclrtStream stream) {
  return second_stage(kBackward2d, workspace, workspaceSize, executor, stream);
}

aclnnStatus aclnnAdaptiveAvgPool3dGetWorkspaceSize(const aclTensor* self,
                                                   const aclIntArray* outputSize, aclTensor* out,
                                                   uint64_t* workspaceSize,
                                                   aclOpExecutor** executor) {
  return first_stage(kForward3d, workspaceSize, executor, [&] {
    return plan_adaptive3d({std::nullopt, {"self", self}, {"out", out}},
                           IntArrayArgument("outputSize", outputSize));
  });
}

aclnnStatus aclnnAdaptiveAvgPool3d(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                   aclrtStream stream) {
  return second_stage(kForward3d, workspace, workspaceSize, executor, stream);
}

aclnnStatus aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize(const aclTensor* gradOutput,
                                                           const aclTensor* self, aclTensor* out,
                                                           uint64_t* workspaceSize,
                                                           aclOpExecutor** executor) {
  return first_stage(kBackward3d, workspaceSize, executor, [&] {
    return plan_adaptive3d({TensorArgument("gradOutput", gradOutput), {"self", self}, {"out", out}},
                           std::nullopt);
  });
}

aclnnStatus aclnnAdaptiveAvgPool3dBackward(void* workspace, uint64_t workspaceSize,
                                           aclOpExecutor* executor, aclrtStream stream) {
  return second_stage(kBackward3d, workspace, workspaceSize, executor, stream);
}
