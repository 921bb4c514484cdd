/* Shape, strides and dtype of a tensor; where its data lies is said when an operator runs. */
#ifndef INFINIOP_TENSOR_DESCRIPTOR_H
#define INFINIOP_TENSOR_DESCRIPTOR_H

#include "../infinicore.h"

struct InfiniopTensorDescriptor;

typedef struct InfiniopTensorDescriptor* infiniopTensorDescriptor_t;

/* Strides count elements, and may be negative or zero; NULL: contiguous. What a tensor may look
 * like is for each operator to say. */
INFINI_API infiniStatus_t infiniopCreateTensorDescriptor(infiniopTensorDescriptor_t* desc_ptr,
                                                         size_t ndim, const size_t* shape,
                                                         const ptrdiff_t* strides,
                                                         infiniDtype_t dtype);
INFINI_API infiniStatus_t infiniopDestroyTensorDescriptor(infiniopTensorDescriptor_t desc);

#endif
