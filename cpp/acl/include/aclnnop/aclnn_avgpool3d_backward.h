/* Gradient of 3-D average pooling with respect to its input. */
#ifndef ACLNNOP_ACLNN_AVGPOOL3D_BACKWARD_H
#define ACLNNOP_ACLNN_AVGPOOL3D_BACKWARD_H

#include "aclnn/aclnn_base.h"

/* Tensors are (N, C, D, H, W) or (C, D, H, W), in format NCDHW or ND. `stride` may be NULL or empty
 * (the kernel's sizes). A `divisorOverride` of 0 is none. */
ACL_API aclnnStatus aclnnAvgPool3dBackwardGetWorkspaceSize(
    const aclTensor* gradOutput, const aclTensor* self, const aclIntArray* kernelSize,
    const aclIntArray* stride, const aclIntArray* padding, bool ceilMode, bool countIncludePad,
    int64_t divisorOverride, aclTensor* output, uint64_t* workspaceSize, aclOpExecutor** executor);

ACL_API aclnnStatus aclnnAvgPool3dBackward(void* workspace, uint64_t workspaceSize,
                                           aclOpExecutor* executor, aclrtStream stream);

#endif
