/* Average pooling. Padding counts as part of a window. */
#ifndef INFINIOP_OPS_AVERAGEPOOL_H
#define INFINIOP_OPS_AVERAGEPOOL_H

#include <stdbool.h>

#include "../operator_descriptor.h"

typedef struct InfiniopDescriptor* infiniopAvgPoolDescriptor_t;

/* Tensors are (N, C, W), (N, C, H, W) or (N, C, D, H, W), of F16, F32 or BF16. `kernel_size`,
 * `strides` and `pads` point to one size_t per spatial axis; `strides` may be NULL (the kernel's
 * sizes), and so may `pads` (0). */
INFINI_API infiniStatus_t infiniopCreateAvgPoolDescriptor(infiniopHandle_t handle,
                                                          infiniopAvgPoolDescriptor_t* desc_ptr,
                                                          infiniopTensorDescriptor_t output_desc,
                                                          infiniopTensorDescriptor_t input_desc,
                                                          void* kernel_size, void* strides,
                                                          void* pads, bool ceil_mode);

INFINI_API infiniStatus_t infiniopGetAvgPoolWorkspaceSize(infiniopAvgPoolDescriptor_t desc,
                                                          size_t* size);

INFINI_API infiniStatus_t infiniopAvgPool(infiniopAvgPoolDescriptor_t desc, void* workspace,
                                          size_t workspace_size, void* output, const void* input,
                                          void* stream);

INFINI_API infiniStatus_t infiniopDestroyAvgPoolDescriptor(infiniopAvgPoolDescriptor_t desc);

#endif
