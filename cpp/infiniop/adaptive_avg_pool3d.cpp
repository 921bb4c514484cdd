#include "infiniop/ops/adaptive_avg_pool3d.h"

#include "infiniop/parameters.h"
#include "infiniop/pool.h"

namespace backops::infini {
namespace {

class AdaptiveAvgPool3D : public PoolOperator {
 public:
  static constexpr OperatorKind kKind = OperatorKind::adaptive_average_pool_3d;

  AdaptiveAvgPool3D(const InfiniopTensorDescriptor& output, const InfiniopTensorDescriptor& input,
                    const std::size_t* output_size)
      : PoolOperator(output, input, problem_of(input, output_size)) {}

 private:
  static PoolProblem problem_of(const InfiniopTensorDescriptor& input,
                                const std::size_t* output_size) {
    PoolProblem problem = pool_problem(PoolDirection::forward, input, 3, 3);
    problem.adaptive = true;
    read_axes(output_size, problem.rank, problem.output_size);
    return problem;
  }
};

}  // namespace
}  // namespace backops::infini

using namespace backops::infini;

infiniStatus_t infiniopCreateAdaptiveAvgPool3DDescriptor(
    infiniopHandle_t handle, infiniopAdaptiveAvgPool3DDescriptor_t* desc_ptr,
    infiniopTensorDescriptor_t y, infiniopTensorDescriptor_t x, std::size_t* output_size) {
  return guarded([&] {
    if (any_null(handle, desc_ptr, y, x, output_size)) return INFINI_STATUS_BAD_PARAM;
    return create<AdaptiveAvgPool3D>(*handle, desc_ptr, *y, *x, output_size);
  });
}

infiniStatus_t infiniopGetAdaptiveAvgPool3DWorkspaceSize(infiniopAdaptiveAvgPool3DDescriptor_t desc,
                                                         std::size_t* size) {
  return workspace_size<AdaptiveAvgPool3D>(desc, size);
}

infiniStatus_t infiniopAdaptiveAvgPool3D(infiniopAdaptiveAvgPool3DDescriptor_t desc,
                                         void* workspace, std::size_t workspace_size, void* y,
                                         const void* x, void* stream) {
  return compute<AdaptiveAvgPool3D>(desc, workspace, workspace_size, {y, x}, stream);
}

infiniStatus_t infiniopDestroyAdaptiveAvgPool3DDescriptor(
    infiniopAdaptiveAvgPool3DDescriptor_t desc) {
  return destroy<AdaptiveAvgPool3D>(desc);
}
