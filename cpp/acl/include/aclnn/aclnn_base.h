/* Beginning and end for programs of operators, and executors: what the first stage of an operator
 * makes, and the second launches. */
#ifndef ACLNN_BASE_H
#define ACLNN_BASE_H

#include "acl/acl.h"
#include "aclnn/acl_meta.h"

/* The four values of cubeMathType. */
enum ACL_INT_ENUM { KEEP_DTYPE = 0, ALLOW_FP32_DOWN_PRECISION = 1, USE_FP16 = 2, USE_HF32 = 3 };

/* Does for a program what aclInit does. Both may be called, in any order; this one at any time. */
ACL_API aclnnStatus aclnnInit(const char* configPath);
/* Waits for what is queued. Contexts and streams stay, until aclFinalize ends them. */
ACL_API aclnnStatus aclnnFinalize(void);

/* From now on the executor serves any number of launches, until it is destroyed. */
ACL_API aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor* executor);
ACL_API aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor* executor);

/* New data for the next launches of a repeatable executor. `tensor` has the shape, strides and type
 * of the one it stands for. Indices count the operator's input tensors, its output tensors, or both
 * in this order. */
ACL_API aclnnStatus aclSetInputTensorAddr(aclOpExecutor* executor, const size_t index,
                                          aclTensor* tensor, void* addr);
ACL_API aclnnStatus aclSetOutputTensorAddr(aclOpExecutor* executor, const size_t index,
                                           aclTensor* tensor, void* addr);
ACL_API aclnnStatus aclSetTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor,
                                     void* addr);

#endif
