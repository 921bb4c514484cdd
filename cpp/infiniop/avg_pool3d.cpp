#include "infiniop/ops/avg_pool3d.h"

#include "infiniop/pool.h"

namespace backops::infini {
namespace {

class AvgPool3d : public PoolOperator {
 public:
  static constexpr OperatorKind kKind = OperatorKind::average_pool_3d;

  AvgPool3d(const InfiniopTensorDescriptor& output, const InfiniopTensorDescriptor& input,
            const PoolWindows& windows)
      : PoolOperator(output, input, pool_problem(PoolDirection::forward, input, 3, 3, windows)) {}
};

}  // namespace
}  // namespace backops::infini

using namespace backops::infini;

infiniStatus_t infiniopCreateAvgPool3dDescriptor(infiniopHandle_t handle,
                                                 infiniopAvgPool3dDescriptor_t* desc_ptr,
                                                 infiniopTensorDescriptor_t y,
                                                 infiniopTensorDescriptor_t x, void* kernel_size,
                                                 void* stride, void* padding) {
  return guarded([&] {
    if (any_null(handle, desc_ptr, y, x, kernel_size)) return INFINI_STATUS_BAD_PARAM;
    return create<AvgPool3d>(*handle, desc_ptr, *y, *x, PoolWindows{kernel_size, stride, padding});
  });
}

infiniStatus_t infiniopGetAvgPool3dWorkspaceSize(infiniopAvgPool3dDescriptor_t desc,
                                                 std::size_t* size) {
  return workspace_size<AvgPool3d>(desc, size);
}

infiniStatus_t infiniopAvgPool3d(infiniopAvgPool3dDescriptor_t desc, void* workspace,
                                 std::size_t workspace_size, void* y, const void* x, void* stream) {
  return compute<AvgPool3d>(desc, workspace, workspace_size, {y, x}, stream);
}

infiniStatus_t infiniopDestroyAvgPool3dDescriptor(infiniopAvgPool3dDescriptor_t desc) {
  return destroy<AvgPool3d>(desc);
}
