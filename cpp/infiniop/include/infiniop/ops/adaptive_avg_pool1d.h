/* Average pooling along one axis to as many outputs as the result has. */
#ifndef INFINIOP_OPS_ADAPTIVE_AVG_POOL1D_H
#define INFINIOP_OPS_ADAPTIVE_AVG_POOL1D_H

#include "../operator_descriptor.h"

typedef struct InfiniopDescriptor* infiniopAdaptiveAvgPool1dDescriptor_t;

/* Tensors are (N, C, W), of F16, F32 or BF16. */
INFINI_API infiniStatus_t infiniopCreateAdaptiveAvgPool1dDescriptor(
    infiniopHandle_t handle, infiniopAdaptiveAvgPool1dDescriptor_t* desc_ptr,
    infiniopTensorDescriptor_t out_desc, infiniopTensorDescriptor_t input_desc);

INFINI_API infiniStatus_t
infiniopGetAdaptiveAvgPool1dWorkspaceSize(infiniopAdaptiveAvgPool1dDescriptor_t desc, size_t* size);

INFINI_API infiniStatus_t infiniopAdaptiveAvgPool1d(infiniopAdaptiveAvgPool1dDescriptor_t desc,
                                                    void* workspace, size_t workspace_size,
                                                    void* output, const void* input, void* stream);

INFINI_API infiniStatus_t
infiniopDestroyAdaptiveAvgPool1dDescriptor(infiniopAdaptiveAvgPool1dDescriptor_t desc);

#endif
