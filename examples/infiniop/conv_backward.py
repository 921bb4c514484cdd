"""Gradients of a 1-D convolution with a bias, computed on a stream."""

import numpy as np

from backops import infiniop


def check(*results):
    """The values of a call, without its status."""
    *values, status = results
    if status != infiniop.Status.SUCCESS:
        raise SystemExit(f"status {status!r}")
    return values[0] if values else None


def describe(array):
    return check(
        *infiniop.infiniopCreateTensorDescriptor(array.ndim, array.shape, None, infiniop.DType.F32)
    )


# output[o] = x[o] * weight[0] + x[o + 1] * weight[1] + bias
x = np.array([[[1, 2, 3]]], np.float32)
weight = np.array([[[10, 1]]], np.float32)
grad_output = np.array([[[1, 2]]], np.float32)
grads = {
    "grad_input": np.empty_like(x),
    "grad_weight": np.empty_like(weight),
    "grad_bias": np.empty(1, np.float32),
}
expected = {
    "grad_input": [1 * 10, 1 * 1 + 2 * 10, 2 * 1],
    "grad_weight": [1 * 1 + 2 * 2, 1 * 2 + 2 * 3],
    "grad_bias": [1 + 2],
}

check(infiniop.infinirtSetDevice(infiniop.Device.CPU, 0))
handle = check(*infiniop.infiniopCreateHandle())
stream = check(*infiniop.infinirtStreamCreate())
tensor_descs = [describe(array) for array in (grad_output, x, weight, grads["grad_bias"])]
desc = check(
    *infiniop.infiniopCreateConvBackwardDescriptor(handle, *tensor_descs, [0], [1], [1], 1)
)
for tensor_desc in tensor_descs:
    check(infiniop.infiniopDestroyTensorDescriptor(tensor_desc))

size = check(*infiniop.infiniopGetConvBackwardWorkspaceSize(desc))
workspace = np.empty(size, np.uint8)
check(
    infiniop.infiniopConvBackward(
        desc, workspace, size, *grads.values(), grad_output, x, weight, stream
    )
)
check(infiniop.infinirtStreamSynchronize(stream))
check(infiniop.infiniopDestroyConvBackwardDescriptor(desc))
check(infiniop.infinirtStreamDestroy(stream))
check(infiniop.infiniopDestroyHandle(handle))

errors = {name: abs(grad.ravel() - expected[name]).max() for name, grad in grads.items()}
for name, grad in grads.items():
    print(f"{name}: {grad.ravel()}, largest error: {errors[name]:g}")
raise SystemExit(0 if max(errors.values()) < 1e-6 else 1)
