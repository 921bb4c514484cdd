/* 2-D average pooling. */
#ifndef ACLNNOP_ACLNN_AVGPOOL2D_H
#define ACLNNOP_ACLNN_AVGPOOL2D_H

#include "aclnn/aclnn_base.h"

/* Tensors are (N, C, H, W) or (C, H, W), in format NCHW or NCL. `strides` may be NULL or empty (the
 * kernel's sizes). A `divisorOverride` of 0 is none. */
ACL_API aclnnStatus aclnnAvgPool2dGetWorkspaceSize(
    const aclTensor* self, const aclIntArray* kernelSize, const aclIntArray* strides,
    const aclIntArray* paddings, bool ceilMode, bool countIncludePad, int64_t divisorOverride,
    int8_t cubeMathType, aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor);

ACL_API aclnnStatus aclnnAvgPool2d(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                   aclrtStream stream);

#endif
