/* Gradients of a convolution with respect to its input, weight and bias. */
#ifndef INFINIOP_OPS_CONV_BACKWARD_H
#define INFINIOP_OPS_CONV_BACKWARD_H

#include "../operator_descriptor.h"

typedef struct InfiniopDescriptor* infiniopConvBackwardDescriptor_t;

/* Tensors are (N, C, *spatial) with one to three spatial axes, `weight` (C_out, C / n, *kernel), of
 * F16, F32 or BF16. The gradients have the shape and strides of the tensors they belong to.
 * `bias_desc` may be NULL: there is no bias then. `pads`, `strides` and `dilations` point to one
 * value per spatial axis; each may be NULL: 0, 1 and 1. Values have 64 bits (size_t, ptrdiff_t) or
 * 32 (int), the same for all three: strides and dilations, which are never 0, tell which; `pads`
 * without them have 64. `n` is the number of groups. */
INFINI_API infiniStatus_t infiniopCreateConvBackwardDescriptor(
    infiniopHandle_t handle, infiniopConvBackwardDescriptor_t* desc_ptr,
    infiniopTensorDescriptor_t grad_output_desc, infiniopTensorDescriptor_t input_desc,
    infiniopTensorDescriptor_t weight_desc, infiniopTensorDescriptor_t bias_desc, void* pads,
    void* strides, void* dilations, size_t n);

INFINI_API infiniStatus_t
infiniopGetConvBackwardWorkspaceSize(infiniopConvBackwardDescriptor_t desc, size_t* size);

/* `grad_bias` is ignored where there is no bias. */
INFINI_API infiniStatus_t infiniopConvBackward(infiniopConvBackwardDescriptor_t desc,
                                               void* workspace, size_t workspace_size,
                                               void* grad_input, void* grad_weight, void* grad_bias,
                                               const void* grad_output, const void* input,
                                               const void* weight, void* stream);

INFINI_API infiniStatus_t
infiniopDestroyConvBackwardDescriptor(infiniopConvBackwardDescriptor_t desc);

#endif
