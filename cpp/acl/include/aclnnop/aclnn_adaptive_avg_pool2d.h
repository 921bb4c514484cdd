/* 2-D adaptive average pooling. */
#ifndef ACLNNOP_ACLNN_ADAPTIVE_AVG_POOL2D_H
#define ACLNNOP_ACLNN_ADAPTIVE_AVG_POOL2D_H

#include "aclnn/aclnn_base.h"

/* Tensors are (N, C, H, W) or (C, H, W), in format NCHW, NHWC, NCL or ND, which are labels only:
 * strides decide. `outputSize` has two values. */
ACL_API aclnnStatus aclnnAdaptiveAvgPool2dGetWorkspaceSize(const aclTensor* self,
                                                           const aclIntArray* outputSize,
                                                           aclTensor* out, uint64_t* workspaceSize,
                                                           aclOpExecutor** executor);

ACL_API aclnnStatus aclnnAdaptiveAvgPool2d(void* workspace, uint64_t workspaceSize,
                                           aclOpExecutor* executor, aclrtStream stream);

#endif
