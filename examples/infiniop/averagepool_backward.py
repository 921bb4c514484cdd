"""Gradient of 1-D average pooling: windows of 3, stride 2, padding 1 that counts."""

import numpy as np

from backops import infiniop


def check(*results):
    """The values of a call, without its status."""
    *values, status = results
    if status != infiniop.Status.SUCCESS:
        raise SystemExit(f"status {status!r}")
    return values[0] if values else None


# Outputs 0 and 1 have the inputs -1 to 1 and 1 to 3, a third of their gradient each.
x = np.zeros((1, 1, 4), np.float32)
grad_output = np.array([[[3, 6]]], np.float32)
expected = np.array([[[1, 1 + 2, 2, 2]]], np.float32)

check(infiniop.infinirtSetDevice(infiniop.Device.CPU, 0))
handle = check(*infiniop.infiniopCreateHandle())
x_desc = check(*infiniop.infiniopCreateTensorDescriptor(x.ndim, x.shape, None, infiniop.DType.F32))
y_desc = check(
    *infiniop.infiniopCreateTensorDescriptor(3, grad_output.shape, None, infiniop.DType.F32)
)
desc = check(
    *infiniop.infiniopCreateAvgPoolBackwardDescriptor(
        handle, x_desc, y_desc, x_desc, [3], [2], [1], False
    )
)
check(infiniop.infiniopDestroyTensorDescriptor(x_desc))
check(infiniop.infiniopDestroyTensorDescriptor(y_desc))

size = check(*infiniop.infiniopGetAvgPoolBackwardWorkspaceSize(desc))
workspace = np.empty(size, np.uint8)
grad_input = np.empty_like(x)
check(infiniop.infiniopAvgPoolBackward(desc, workspace, size, grad_input, grad_output, x, None))
check(infiniop.infiniopDestroyAvgPoolBackwardDescriptor(desc))
check(infiniop.infiniopDestroyHandle(handle))

error = abs(grad_input - expected).max()
print(f"grad_input: {grad_input[0, 0]}")
print(f"largest error: {error:g}")
raise SystemExit(0 if error < 1e-6 else 1)
