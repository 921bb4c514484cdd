/* 3-D adaptive average pooling. */
#ifndef ACLNNOP_ACLNN_ADAPTIVE_AVG_POOL3D_H
#define ACLNNOP_ACLNN_ADAPTIVE_AVG_POOL3D_H

#include "aclnn/aclnn_base.h"

/* Tensors are (N, C, D, H, W) or (C, D, H, W), in format NCDHW, ND or, with four axes, NCHW.
 * `outputSize` has three values. */
ACL_API aclnnStatus aclnnAdaptiveAvgPool3dGetWorkspaceSize(const aclTensor* self,
                                                           const aclIntArray* outputSize,
                                                           aclTensor* out, uint64_t* workspaceSize,
                                                           aclOpExecutor** executor);

ACL_API aclnnStatus aclnnAdaptiveAvgPool3d(void* workspace, uint64_t workspaceSize,
                                           aclOpExecutor* executor, aclrtStream stream);

#endif
