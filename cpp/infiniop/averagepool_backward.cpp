#include "infiniop/ops/averagepool_backward.h"

#include "infiniop/pool.h"

namespace backops::infini {
namespace {

class AvgPoolBackward : public PoolOperator {
 public:
  static constexpr OperatorKind kKind = OperatorKind::average_pool_backward;

  struct Data : PoolOperator::Data {
    const void* input;
  };

  AvgPoolBackward(const InfiniopTensorDescriptor& grad_input,
                  const InfiniopTensorDescriptor& grad_output,
                  const InfiniopTensorDescriptor& input, const PoolWindows& windows)
      : PoolOperator(grad_input, grad_output,
                     pool_problem(PoolDirection::backward, input, 1, kMaxRank, windows)) {}

  // The forward input is asked for, as documented, though only its shape is used.
  static bool has_all(const Data& data) {
    return PoolOperator::has_all(data) && data.input != nullptr;
  }
};

}  // namespace
}  // namespace backops::infini

using namespace backops::infini;

infiniStatus_t infiniopCreateAvgPoolBackwardDescriptor(
    infiniopHandle_t handle, infiniopAvgPoolBackwardDescriptor_t* desc_ptr,
    infiniopTensorDescriptor_t grad_input_desc, infiniopTensorDescriptor_t grad_output_desc,
    infiniopTensorDescriptor_t input_desc, void* kernel_size, void* strides, void* pads,
    bool ceil_mode) {
  return guarded([&] {
    if (any_null(handle, desc_ptr, grad_input_desc, grad_output_desc, input_desc, kernel_size)) {
      return INFINI_STATUS_BAD_PARAM;
    }
    return create<AvgPoolBackward>(*handle, desc_ptr, *grad_input_desc, *grad_output_desc,
                                   *input_desc, PoolWindows{kernel_size, strides, pads, ceil_mode});
  });
}

infiniStatus_t infiniopGetAvgPoolBackwardWorkspaceSize(infiniopAvgPoolBackwardDescriptor_t desc,
                                                       std::size_t* size) {
  return workspace_size<AvgPoolBackward>(desc, size);
}

infiniStatus_t infiniopAvgPoolBackward(infiniopAvgPoolBackwardDescriptor_t desc, void* workspace,
                                       std::size_t workspace_size, void* grad_input,
                                       const void* grad_output, const void* input, void* stream) {
  return compute<AvgPoolBackward>(desc, workspace, workspace_size,
                                  {{grad_input, grad_output}, input}, stream);
}

infiniStatus_t infiniopDestroyAvgPoolBackwardDescriptor(infiniopAvgPoolBackwardDescriptor_t desc) {
  return destroy<AvgPoolBackward>(desc);
}
