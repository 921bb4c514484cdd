"""A network learns by gradient descent: a convolution and average pooling, forward and backward.

It is to give what another network gives, whose weights it does not know.
"""

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


random = np.random.default_rng(1)
x = random.uniform(-1, 1, (8, 1, 8, 8)).astype(np.float32)
weight, known_weight = random.uniform(-1, 1, (2, 4, 1, 3, 3)).astype(np.float32)
bias, known_bias = random.uniform(-1, 1, (2, 4)).astype(np.float32)
maps, outputs = np.empty((8, 4, 8, 8), np.float32), np.empty((8, 4, 4, 4), np.float32)
grad_x, grad_maps = np.empty_like(x), np.empty_like(maps)
grad_weight, grad_bias = np.empty_like(weight), np.empty_like(bias)

check(infiniop.infinirtSetDevice(infiniop.Device.CPU, 0))
handle = check(*infiniop.infiniopCreateHandle())
stream = check(*infiniop.infinirtStreamCreate())
descs = {
    "x": describe(x),
    "maps": describe(maps),
    "outputs": describe(outputs),
    "weight": describe(weight),
    "bias": describe(bias),
}
tensors = descs["maps"], descs["x"], descs["weight"], descs["bias"]
pads, windows = [1, 1], [2, 2]
conv = check(*infiniop.infiniopCreateConvDescriptor(handle, *tensors, pads, None, None, 1))
conv_backward = check(
    *infiniop.infiniopCreateConvBackwardDescriptor(handle, *tensors, pads, None, None, 1)
)
pool = check(
    *infiniop.infiniopCreateAvgPoolDescriptor(
        handle, descs["outputs"], descs["maps"], windows, None, None, False
    )
)
pool_backward = check(
    *infiniop.infiniopCreateAvgPoolBackwardDescriptor(
        handle, descs["maps"], descs["outputs"], descs["maps"], windows, None, None, False
    )
)
for desc in descs.values():
    check(infiniop.infiniopDestroyTensorDescriptor(desc))

# One workspace is enough: a stream does one thing at a time.
size = max(
    check(*infiniop.infiniopGetConvWorkspaceSize(conv)),
    check(*infiniop.infiniopGetAvgPoolWorkspaceSize(pool)),
    check(*infiniop.infiniopGetAvgPoolBackwardWorkspaceSize(pool_backward)),
    check(*infiniop.infiniopGetConvBackwardWorkspaceSize(conv_backward)),
)
workspace = np.empty(size, np.uint8)


def run_forward(weight, bias):
    check(infiniop.infiniopConv(conv, workspace, size, maps, x, weight, bias, stream))
    check(infiniop.infiniopAvgPool(pool, workspace, size, outputs, maps, stream))
    check(infiniop.infinirtStreamSynchronize(stream))


def run_backward(grad_outputs):
    check(
        infiniop.infiniopAvgPoolBackward(
            pool_backward, workspace, size, grad_maps, grad_outputs, maps, stream
        )
    )
    grads = grad_x, grad_weight, grad_bias
    check(
        infiniop.infiniopConvBackward(
            conv_backward, workspace, size, *grads, grad_maps, x, weight, stream
        )
    )
    check(infiniop.infinirtStreamSynchronize(stream))


run_forward(known_weight, known_bias)
wanted = outputs.copy()
losses = []
for step in range(201):
    run_forward(weight, bias)
    off = outputs - wanted
    losses.append(float(np.square(off).mean()))
    if step % 20 == 0:
        print(f"step {step}: loss {losses[-1]:g}")
    run_backward(2 * off / off.size)
    weight -= grad_weight
    bias -= grad_bias

check(infiniop.infiniopDestroyConvDescriptor(conv))
check(infiniop.infiniopDestroyAvgPoolDescriptor(pool))
check(infiniop.infiniopDestroyAvgPoolBackwardDescriptor(pool_backward))
check(infiniop.infiniopDestroyConvBackwardDescriptor(conv_backward))
check(infiniop.infinirtStreamDestroy(stream))
check(infiniop.infiniopDestroyHandle(handle))
raise SystemExit(0 if losses[-1] < losses[0] / 100 else 1)
