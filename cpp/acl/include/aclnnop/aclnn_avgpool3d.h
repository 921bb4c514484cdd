/* 3-D average pooling. */
#ifndef ACLNNOP_ACLNN_AVGPOOL3D_H
#define ACLNNOP_ACLNN_AVGPOOL3D_H

#include "aclnn/aclnn_base.h"

/* Tensors are (N, C, D, H, W) or (C, D, H, W), in format NCDHW, ND or, with four axes, NCHW.
 * `stride` may be NULL or empty (the kernel's sizes). A `divisorOverride` of 0 is none. */
ACL_API aclnnStatus aclnnAvgPool3dGetWorkspaceSize(
    const aclTensor* self, const aclIntArray* kernelSize, const aclIntArray* stride,
    const aclIntArray* padding, bool ceilMode, bool countIncludePad, int64_t divisorOverride,
    aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor);

ACL_API aclnnStatus aclnnAvgPool3d(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                   aclrtStream stream);

#endif
