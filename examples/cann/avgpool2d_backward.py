"""Gradient of 2-D average pooling: windows of 1x3, stride 2, padding 1 that counts."""

import numpy as np

from backops import acl


def check(*results):
    """The values of a call, without its status."""
    *values, status = results
    if status != acl.Status.SUCCESS:
        raise SystemExit(f"{status!r}: {acl.aclGetRecentErrMsg()}")
    return values[0] if len(values) == 1 else values


def tensor(array):
    """A tensor that is bound to the memory of an array."""
    sizes = (array.shape, array.ndim)
    return acl.aclCreateTensor(*sizes, acl.ACL_FLOAT, None, 0, acl.ACL_FORMAT_NCHW, *sizes, array)


# Outputs 0 and 1 have the inputs -1 to 1 and 1 to 3, a third of their gradient each.
grad_output = np.array([[[[3, 6]]]], np.float32)
grad_input = np.empty((1, 1, 1, 4), np.float32)
expected = np.array([[[[1, 1 + 2, 2, 2]]]], np.float32)

check(acl.aclInit())
check(acl.aclrtSetDevice(0))
stream = check(*acl.aclrtCreateStream())
tensors = [tensor(array) for array in (grad_output, np.zeros_like(grad_input), grad_input)]
kernel, stride, padding = (acl.aclCreateIntArray(axes, 2) for axes in ([1, 3], [1, 2], [0, 1]))
size, executor = check(
    *acl.aclnnAvgPool2dBackwardGetWorkspaceSize(
        *tensors[:2], kernel, stride, padding, False, True, 0, acl.KEEP_DTYPE, tensors[2]
    )
)
workspace = np.empty(size, np.uint8)
check(acl.aclnnAvgPool2dBackward(workspace, size, executor, stream))
check(acl.aclrtSynchronizeStream(stream))
for each in tensors:
    check(acl.aclDestroyTensor(each))
for each in (kernel, stride, padding):
    check(acl.aclDestroyIntArray(each))
check(acl.aclrtDestroyStream(stream))
check(acl.aclFinalize())

error = abs(grad_input - expected).max()
print(f"gradient: {grad_input[0, 0, 0]}")
print(f"largest error: {error:g}")
raise SystemExit(0 if error < 1e-6 else 1)
