/* Gradient of average pooling with respect to its input. Padding counts as part of a window. */
#ifndef INFINIOP_OPS_AVERAGEPOOL_BACKWARD_H
#define INFINIOP_OPS_AVERAGEPOOL_BACKWARD_H

#include <stdbool.h>

#include "../operator_descriptor.h"

typedef struct InfiniopDescriptor* infiniopAvgPoolBackwardDescriptor_t;

/* Tensors are (N, C, W), (N, C, H, W) or (N, C, D, H, W), of F16, F32 or BF16. `kernel_size`,
 * `strides` and `pads` point to one size_t per spatial axis; `strides` may be NULL (the kernel's
 * sizes), and so may `pads` (0). */
INFINI_API infiniStatus_t infiniopCreateAvgPoolBackwardDescriptor(
    infiniopHandle_t handle, infiniopAvgPoolBackwardDescriptor_t* desc_ptr,
    infiniopTensorDescriptor_t grad_input_desc, infiniopTensorDescriptor_t grad_output_desc,
    infiniopTensorDescriptor_t input_desc, void* kernel_size, void* strides, void* pads,
    bool ceil_mode);

INFINI_API infiniStatus_t
infiniopGetAvgPoolBackwardWorkspaceSize(infiniopAvgPoolBackwardDescriptor_t desc, size_t* size);

INFINI_API infiniStatus_t infiniopAvgPoolBackward(infiniopAvgPoolBackwardDescriptor_t desc,
                                                  void* workspace, size_t workspace_size,
                                                  void* grad_input, const void* grad_output,
                                                  const void* input, void* stream);

INFINI_API infiniStatus_t
infiniopDestroyAvgPoolBackwardDescriptor(infiniopAvgPoolBackwardDescriptor_t desc);

#endif
