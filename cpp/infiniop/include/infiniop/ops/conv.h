/* Convolution, which does not flip the kernel. */
#ifndef INFINIOP_OPS_CONV_H
#define INFINIOP_OPS_CONV_H

#include "../operator_descriptor.h"

typedef struct InfiniopDescriptor* infiniopConvDescriptor_t;

/* Tensors are (N, C, *spatial) with one to three spatial axes, `w` (C_out, C / groups, *kernel), of
 * F16, F32 or BF16. `b_desc` may be NULL: there is no bias then. `pads`, `strides` and `dilations`
 * are those of infiniopCreateConvBackwardDescriptor: one value per spatial axis, of 64 bits or 32;
 * NULL: 0, 1 and 1. `n` is the number of groups; where `w` reads every channel, it may also be the
 * number of spatial axes, which InfiniCore's clients pass. */
INFINI_API infiniStatus_t infiniopCreateConvDescriptor(
    infiniopHandle_t handle, infiniopConvDescriptor_t* desc_ptr, infiniopTensorDescriptor_t y_desc,
    infiniopTensorDescriptor_t x_desc, infiniopTensorDescriptor_t w_desc,
    infiniopTensorDescriptor_t b_desc, void* pads, void* strides, void* dilations, size_t n);

INFINI_API infiniStatus_t infiniopGetConvWorkspaceSize(infiniopConvDescriptor_t desc, size_t* size);

/* `bias` is ignored where there is none. */
INFINI_API infiniStatus_t infiniopConv(infiniopConvDescriptor_t desc, void* workspace,
                                       size_t workspace_size, void* y, const void* x, const void* w,
                                       const void* bias, void* stream);

INFINI_API infiniStatus_t infiniopDestroyConvDescriptor(infiniopConvDescriptor_t desc);

#endif
