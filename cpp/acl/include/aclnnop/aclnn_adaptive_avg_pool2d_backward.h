/* Gradient of 2-D adaptive average pooling with respect to its input. */
#ifndef ACLNNOP_ACLNN_ADAPTIVE_AVG_POOL2D_BACKWARD_H
#define ACLNNOP_ACLNN_ADAPTIVE_AVG_POOL2D_BACKWARD_H

#include "aclnn/aclnn_base.h"

/* Tensors are (N, C, H, W) or (C, H, W). Their format is NCHW, NHWC, NCL or ND, and says nothing of
 * their layout, which strides do. A `gradOutput` without elements makes `out` zero. */
ACL_API aclnnStatus aclnnAdaptiveAvgPool2dBackwardGetWorkspaceSize(const aclTensor* gradOutput,
                                                                   const aclTensor* self,
                                                                   aclTensor* out,
                                                                   uint64_t* workspaceSize,
                                                                   aclOpExecutor** executor);

ACL_API aclnnStatus aclnnAdaptiveAvgPool2dBackward(void* workspace, uint64_t workspaceSize,
                                                   aclOpExecutor* executor, aclrtStream stream);

#endif
