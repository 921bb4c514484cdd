/* Gradients of a convolution, or of a transposed one, with respect to its input, weight and bias.
 */
#ifndef ACLNNOP_ACLNN_CONVOLUTION_BACKWARD_H
#define ACLNNOP_ACLNN_CONVOLUTION_BACKWARD_H

#include "aclnn/aclnn_base.h"

/* 1-D to 3-D, with or without a batch, which may be empty. `outputMask` says which of the three
 * gradients are wanted; the others may be NULL. `padding` has one value, one for each axis or, in
 * 2-D, four: top, bottom, left, right. The sizes in `biasSizes`, which may be NULL, have no effect.
 * `outputPadding` is looked at only if the convolution is `transposed`. */
ACL_API aclnnStatus aclnnConvolutionBackwardGetWorkspaceSize(
    const aclTensor* gradOutput, const aclTensor* input, const aclTensor* weight,
    const aclIntArray* biasSizes, const aclIntArray* stride, const aclIntArray* padding,
    const aclIntArray* dilation, bool transposed, const aclIntArray* outputPadding, int groups,
    const aclBoolArray* outputMask, int8_t cubeMathType, aclTensor* gradInput,
    aclTensor* gradWeight, aclTensor* gradBias, uint64_t* workspaceSize, aclOpExecutor** executor);

ACL_API aclnnStatus aclnnConvolutionBackward(void* workspace, uint64_t workspaceSize,
                                             aclOpExecutor* executor, aclrtStream stream);

#endif
