/* Average pooling along one axis. Padding counts as part of a window. */
#ifndef INFINIOP_OPS_AVG_POOL1D_H
#define INFINIOP_OPS_AVG_POOL1D_H

#include "../operator_descriptor.h"

typedef struct InfiniopDescriptor* infiniopAvgPool1dDescriptor_t;

/* Tensors are (N, C, W), of F16, F32 or BF16. */
INFINI_API infiniStatus_t infiniopCreateAvgPool1dDescriptor(infiniopHandle_t handle,
                                                            infiniopAvgPool1dDescriptor_t* desc_ptr,
                                                            infiniopTensorDescriptor_t output,
                                                            infiniopTensorDescriptor_t input,
                                                            size_t kernel_size, size_t stride,
                                                            size_t padding);

INFINI_API infiniStatus_t infiniopGetAvgPool1dWorkspaceSize(infiniopAvgPool1dDescriptor_t desc,
                                                            size_t* size);

INFINI_API infiniStatus_t infiniopAvgPool1d(infiniopAvgPool1dDescriptor_t desc, void* workspace,
                                            size_t workspace_size, void* output, const void* input,
                                            void* stream);

INFINI_API infiniStatus_t infiniopDestroyAvgPool1dDescriptor(infiniopAvgPool1dDescriptor_t desc);

#endif
