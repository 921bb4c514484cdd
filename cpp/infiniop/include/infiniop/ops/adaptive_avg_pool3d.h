/* Average pooling along three axes to a given number of outputs. */
#ifndef INFINIOP_OPS_ADAPTIVE_AVG_POOL3D_H
#define INFINIOP_OPS_ADAPTIVE_AVG_POOL3D_H

#include "../operator_descriptor.h"

typedef struct InfiniopDescriptor* infiniopAdaptiveAvgPool3DDescriptor_t;

/* Tensors are (N, C, D, H, W), of F16, F32 or BF16. `output_size` points to the last three sizes of
 * `y`. */
INFINI_API infiniStatus_t infiniopCreateAdaptiveAvgPool3DDescriptor(
    infiniopHandle_t handle, infiniopAdaptiveAvgPool3DDescriptor_t* desc_ptr,
    infiniopTensorDescriptor_t y, infiniopTensorDescriptor_t x, size_t* output_size);

INFINI_API infiniStatus_t
infiniopGetAdaptiveAvgPool3DWorkspaceSize(infiniopAdaptiveAvgPool3DDescriptor_t desc, size_t* size);

INFINI_API infiniStatus_t infiniopAdaptiveAvgPool3D(infiniopAdaptiveAvgPool3DDescriptor_t desc,
                                                    void* workspace, size_t workspace_size, void* y,
                                                    const void* x, void* stream);

INFINI_API infiniStatus_t
infiniopDestroyAdaptiveAvgPool3DDescriptor(infiniopAdaptiveAvgPool3DDescriptor_t desc);

#endif
