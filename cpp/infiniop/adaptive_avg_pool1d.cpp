#include "infiniop/ops/adaptive_avg_pool1d.h"

#include "infiniop/pool.h"

namespace backops::infini {
namespace {

class AdaptiveAvgPool1d : public PoolOperator {
 public:
  static constexpr OperatorKind kKind = OperatorKind::adaptive_average_pool_1d;

  AdaptiveAvgPool1d(const InfiniopTensorDescriptor& output, const InfiniopTensorDescriptor& input)
      : PoolOperator(output, input, problem_of(output, input)) {}

 private:
  static PoolProblem problem_of(const InfiniopTensorDescriptor& output,
                                const InfiniopTensorDescriptor& input) {
    PoolProblem problem = pool_problem(PoolDirection::forward, input, 1, 1);
    problem.adaptive = true;
    // As many windows as there are outputs. Of another number of axes, the last tells as well: the
    // output is refused then.
    const TensorView view = operand_of(output, "{output}").view();
    problem.output_size[0] = view.ndim == 0 ? 1 : view.shape[view.ndim - 1];
    return problem;
  }
};

}  // namespace
}  // namespace backops::infini

using namespace backops::infini;

infiniStatus_t infiniopCreateAdaptiveAvgPool1dDescriptor(
    infiniopHandle_t handle, infiniopAdaptiveAvgPool1dDescriptor_t* desc_ptr,
    infiniopTensorDescriptor_t out_desc, infiniopTensorDescriptor_t input_desc) {
  return guarded([&] {
    if (any_null(handle, desc_ptr, out_desc, input_desc)) return INFINI_STATUS_BAD_PARAM;
    return create<AdaptiveAvgPool1d>(*handle, desc_ptr, *out_desc, *input_desc);
  });
}

infiniStatus_t infiniopGetAdaptiveAvgPool1dWorkspaceSize(infiniopAdaptiveAvgPool1dDescriptor_t desc,
                                                         std::size_t* size) {
  return workspace_size<AdaptiveAvgPool1d>(desc, size);
}

infiniStatus_t infiniopAdaptiveAvgPool1d(infiniopAdaptiveAvgPool1dDescriptor_t desc,
                                         void* workspace, std::size_t workspace_size, void* output,
                                         const void* input, void* stream) {
  return compute<AdaptiveAvgPool1d>(desc, workspace, workspace_size, {output, input}, stream);
}

infiniStatus_t infiniopDestroyAdaptiveAvgPool1dDescriptor(
    infiniopAdaptiveAvgPool1dDescriptor_t desc) {
  return destroy<AdaptiveAvgPool1d>(desc);
}
