#include "infiniop/ops/averagepool.h"

#include "infiniop/pool.h"

namespace backops::infini {
namespace {

class AvgPool : public PoolOperator {
 public:
  static constexpr OperatorKind kKind = OperatorKind::average_pool;

  AvgPool(const InfiniopTensorDescriptor& output, const InfiniopTensorDescriptor& input,
          const PoolWindows& windows)
      : PoolOperator(output, input,
                     pool_problem(PoolDirection::forward, input, 1, kMaxRank, windows)) {}
};

}  // namespace
}  // namespace backops::infini

using namespace backops::infini;

infiniStatus_t infiniopCreateAvgPoolDescriptor(infiniopHandle_t handle,
                                               infiniopAvgPoolDescriptor_t* desc_ptr,
                                               infiniopTensorDescriptor_t output_desc,
                                               infiniopTensorDescriptor_t input_desc,
                                               void* kernel_size, void* strides, void* pads,
                                               bool ceil_mode) {
  return guarded([&] {
    if (any_null(handle, desc_ptr, output_desc, input_desc, kernel_size)) {
      return INFINI_STATUS_BAD_PARAM;
    }
    return create<AvgPool>(*handle, desc_ptr, *output_desc, *input_desc,
                           PoolWindows{kernel_size, strides, pads, ceil_mode});
  });
}

infiniStatus_t infiniopGetAvgPoolWorkspaceSize(infiniopAvgPoolDescriptor_t desc,
                                               std::size_t* size) {
  return workspace_size<AvgPool>(desc, size);
}

infiniStatus_t infiniopAvgPool(infiniopAvgPoolDescriptor_t desc, void* workspace,
                               std::size_t workspace_size, void* output, const void* input,
                               void* stream) {
  return compute<AvgPool>(desc, workspace, workspace_size, {output, input}, stream);
}

infiniStatus_t infiniopDestroyAvgPoolDescriptor(infiniopAvgPoolDescriptor_t desc) {
  return destroy<AvgPool>(desc);
}
