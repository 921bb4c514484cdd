/* Convolution and transposed convolution. */
#ifndef ACLNNOP_ACLNN_CONVOLUTION_H
#define ACLNNOP_ACLNN_CONVOLUTION_H

#include "aclnn/aclnn_base.h"

/* 1-D to 3-D, with or without a batch, which may be empty. `bias` may be NULL. `padding` has one
 * value, one for each axis or, in 2-D, four: top, bottom, left, right. `weight` is (C_out, C_in /
 * groups, kernel), of a `transposed` convolution (C_in, C_out / groups, kernel). `outputPadding` is
 * looked at only if the convolution is `transposed`. */
ACL_API aclnnStatus aclnnConvolutionGetWorkspaceSize(
    const aclTensor* input, const aclTensor* weight, const aclTensor* bias,
    const aclIntArray* stride, const aclIntArray* padding, const aclIntArray* dilation,
    bool transposed, const aclIntArray* outputPadding, const int64_t groups, aclTensor* output,
    int8_t cubeMathType, uint64_t* workspaceSize, aclOpExecutor** executor);

ACL_API aclnnStatus aclnnConvolution(void* workspace, uint64_t workspaceSize,
                                     aclOpExecutor* executor, aclrtStream stream);

#endif
