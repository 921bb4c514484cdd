/* Average pooling along three axes. Padding counts as part of a window. */
#ifndef INFINIOP_OPS_AVG_POOL3D_H
#define INFINIOP_OPS_AVG_POOL3D_H

#include "../operator_descriptor.h"

typedef struct InfiniopDescriptor* infiniopAvgPool3dDescriptor_t;

/* Tensors are (N, C, D, H, W), of F16, F32 or BF16. `kernel_size`, `stride` and `padding` point to
 * three size_t; `stride` may be NULL (the kernel's sizes), and so may `padding` (0). */
INFINI_API infiniStatus_t infiniopCreateAvgPool3dDescriptor(
    infiniopHandle_t handle, infiniopAvgPool3dDescriptor_t* desc_ptr, infiniopTensorDescriptor_t y,
    infiniopTensorDescriptor_t x, void* kernel_size, void* stride, void* padding);

INFINI_API infiniStatus_t infiniopGetAvgPool3dWorkspaceSize(infiniopAvgPool3dDescriptor_t desc,
                                                            size_t* size);

INFINI_API infiniStatus_t infiniopAvgPool3d(infiniopAvgPool3dDescriptor_t desc, void* workspace,
                                            size_t workspace_size, void* y, const void* x,
                                            void* stream);

INFINI_API infiniStatus_t infiniopDestroyAvgPool3dDescriptor(infiniopAvgPool3dDescriptor_t desc);

#endif
