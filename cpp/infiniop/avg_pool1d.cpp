#include "infiniop/ops/avg_pool1d.h"

#include "infiniop/pool.h"

namespace backops::infini {
namespace {

class AvgPool1d : public PoolOperator {
 public:
  static constexpr OperatorKind kKind = OperatorKind::average_pool_1d;

  AvgPool1d(const InfiniopTensorDescriptor& output, const InfiniopTensorDescriptor& input,
            const PoolWindows& windows)
      : PoolOperator(output, input, pool_problem(PoolDirection::forward, input, 1, 1, windows)) {}
};

}  // namespace
}  // namespace backops::infini

using namespace backops::infini;

infiniStatus_t infiniopCreateAvgPool1dDescriptor(infiniopHandle_t handle,
                                                 infiniopAvgPool1dDescriptor_t* desc_ptr,
                                                 infiniopTensorDescriptor_t output,
                                                 infiniopTensorDescriptor_t input,
                                                 std::size_t kernel_size, std::size_t stride,
                                                 std::size_t padding) {
  return guarded([&] {
    if (any_null(handle, desc_ptr, output, input)) return INFINI_STATUS_BAD_PARAM;
    return create<AvgPool1d>(*handle, desc_ptr, *output, *input,
                             PoolWindows{&kernel_size, &stride, &padding});
  });
}

infiniStatus_t infiniopGetAvgPool1dWorkspaceSize(infiniopAvgPool1dDescriptor_t desc,
                                                 std::size_t* size) {
  return workspace_size<AvgPool1d>(desc, size);
}

infiniStatus_t infiniopAvgPool1d(infiniopAvgPool1dDescriptor_t desc, void* workspace,
                                 std::size_t workspace_size, void* output, const void* input,
                                 void* stream) {
  return compute<AvgPool1d>(desc, workspace, workspace_size, {output, input}, stream);
}

infiniStatus_t infiniopDestroyAvgPool1dDescriptor(infiniopAvgPool1dDescriptor_t desc) {
  return destroy<AvgPool1d>(desc);
}
