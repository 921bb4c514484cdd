/* Gradient of 3-D adaptive average pooling with respect to its input. */
#ifndef ACLNNOP_ACLNN_ADAPTIVE_AVG_POOL3D_BACKWARD_H
#define ACLNNOP_ACLNN_ADAPTIVE_AVG_POOL3D_BACKWARD_H

#include "aclnn/aclnn_base.h"

/* Tensors are (N, C, D, H, W) or (C, D, H, W), in format NCDHW or ND (4-D also NCHW). */
ACL_API aclnnStatus aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize(const aclTensor* gradOutput,
                                                                   const aclTensor* self,
                                                                   aclTensor* out,
                                                                   uint64_t* workspaceSize,
                                                                   aclOpExecutor** executor);

ACL_API aclnnStatus aclnnAdaptiveAvgPool3dBackward(void* workspace, uint64_t workspaceSize,
                                                   aclOpExecutor* executor, aclrtStream stream);

#endif
