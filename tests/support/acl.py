"""A client of `backops.acl`: tensors in device memory, operators from arguments to results."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

import numpy as np

from backops import acl
from backops.acl import DataType, Format, MallocPolicy, MemcpyKind, Status

from .cases import per_axis
from .floats import same_bits

ACL_DTYPES = {
    "float32": DataType.FLOAT,
    "float16": DataType.FLOAT16,
    "bfloat16": DataType.BF16,
}
# A name of each product, and of the one that most tests run on.
PRODUCTS = {
    "A2": "Ascend910B3",
    "A3": "Ascend910_9392",
    "950": "Ascend950PR_9599",
    "training": "Ascend910A",
    "training_pro": "Ascend910ProB",
    "inference": "Ascend310P3",
    "200I": "Ascend310B4",
}


def check(*results):
    """The value of a call, without its status."""
    *values, status = results
    assert status == Status.SUCCESS, f"{status!r}: {acl.aclGetRecentErrMsg()}"
    return values[0] if len(values) == 1 else tuple(values)


@contextlib.contextmanager
def initialised(soc: str | None = None):
    """The library between aclInit and aclFinalize, on a product."""
    before = os.environ.pop("BACKOPS_SOC", None)
    if soc is not None:
        os.environ["BACKOPS_SOC"] = soc
    try:
        check(acl.aclInit())
        check(acl.aclrtSetDevice(0))
        yield
    finally:
        acl.aclFinalize()
        os.environ.pop("BACKOPS_SOC", None)
        if before is not None:
            os.environ["BACKOPS_SOC"] = before


class DeviceMemory:
    """Bytes of device memory; freed with the object unless `freed` was called."""

    def __init__(self, content: np.ndarray):
        self.nbytes = content.nbytes
        self.address = check(*acl.aclrtMalloc(self.nbytes, MallocPolicy.HUGE_FIRST))
        self.write(content)

    def write(self, content: np.ndarray) -> None:
        kind = MemcpyKind.HOST_TO_DEVICE
        data = np.ascontiguousarray(content).view(np.uint8).reshape(-1)
        check(acl.aclrtMemcpy(self.address, self.nbytes, data, data.nbytes, kind))

    def read(self) -> np.ndarray:
        content = np.empty(self.nbytes, np.uint8)
        kind = MemcpyKind.DEVICE_TO_HOST
        check(acl.aclrtMemcpy(content, self.nbytes, self.address, self.nbytes, kind))
        return content

    def free(self) -> None:
        check(acl.aclrtFree(self.address))
        self.address = None

    def __del__(self) -> None:
        if getattr(self, "address", None) is not None:
            acl.aclrtFree(self.address)


@dataclass(frozen=True)
class Spec:
    """What aclCreateTensor is told. Strides count elements; None: contiguous."""

    shape: tuple[int, ...]
    dtype: int = DataType.FLOAT
    format: int = Format.NCHW
    strides: tuple[int, ...] | None = None
    offset: int = 0
    data: object = None

    def create(self) -> int:
        layout = (self.dtype, self.strides, self.offset, self.format)
        sizes = (self.shape, len(self.shape))
        tensor = acl.aclCreateTensor(*sizes, *layout, *sizes, self.data)
        assert tensor is not None, acl.aclGetRecentErrMsg()
        return tensor


class Placed:
    """An array's elements and layout in device memory of its own; one without elements has none."""

    def __init__(self, array: np.ndarray, format: int = Format.NCHW):
        self.array = array
        if array.size == 0:
            self.memory = None
            self.tensor = Spec(array.shape, ACL_DTYPES[array.dtype.name], format).create()
            return
        low, high = np.lib.array_utils.byte_bounds(array)
        bytes_of = (np.ctypeslib.ctypes.c_uint8 * (high - low)).from_address(low)
        self.before = np.frombuffer(bytes_of, np.uint8).copy()
        self.memory = DeviceMemory(self.before)
        self.start = array.ctypes.data - low
        strides = tuple(stride // array.itemsize for stride in array.strides)
        dtype = ACL_DTYPES[array.dtype.name]
        assert self.start % array.itemsize == 0
        offset = self.start // array.itemsize
        self.tensor = Spec(
            array.shape, dtype, format, strides, offset, self.memory.address
        ).create()

    def read(self) -> np.ndarray:
        if self.memory is None:
            return self.array.copy()
        content = self.memory.read()
        strides = self.array.strides
        return np.ndarray(self.array.shape, self.array.dtype, content, self.start, strides).copy()

    def assert_nothing_else_was_written(self) -> None:
        """Beside the array's elements."""
        written, array = self.memory.read(), self.array
        view = np.ndarray(array.shape, array.dtype, written, self.start, array.strides)
        view.view(f"i{array.itemsize}")[...] = array.view(f"i{array.itemsize}")
        assert same_bits(written, self.before)

    def __del__(self) -> None:
        acl.aclDestroyTensor(getattr(self, "tensor", None))


def int_array(values):
    return None if values is None else acl.aclCreateIntArray(list(values), len(values))


def launch(operator: str, *arguments, stream=None) -> int:
    """Both stages of an operator, and waits. Returns the bytes of workspace."""
    first = getattr(acl, f"aclnn{operator}GetWorkspaceSize")
    size, executor = check(*first(*arguments))
    workspace = DeviceMemory(np.zeros(size, np.uint8)) if size else None
    address = None if workspace is None else workspace.address
    check(getattr(acl, f"aclnn{operator}")(address, size, executor, stream))
    check(acl.aclrtSynchronizeStream(stream))
    return size


def run_pool(case, source, target, *, cube_math_type=None, format=None):
    """A pooling case on placed arrays; returns what was written over `target`."""
    rank = case.rank
    if format is None:
        format = Format.NCHW if rank == 2 else Format.NCDHW
    inputs, result = [Placed(source, format)], Placed(target, format)
    if not case.is_forward:
        inputs.append(Placed(np.zeros(case.input_shape, source.dtype), format))
    tensors = [each.tensor for each in inputs]
    name = f"AvgPool{rank}d" if case.is_forward else f"AvgPool{rank}dBackward"
    if case.adaptive:
        size = [int_array(per_axis(case.output_size, rank))] if case.is_forward else []
        launch(f"Adaptive{name}", *tensors, *size, result.tensor)
        return result
    stride = None if case.stride is None else per_axis(case.stride, rank)
    arrays = [
        int_array(per_axis(case.kernel_size, rank)),
        int_array(stride),
        int_array(per_axis(case.padding, rank)),
    ]
    more = [case.ceil_mode, case.count_include_pad, case.divisor_override or 0]
    if rank == 2:
        more.append(cube_math_type or 0)
    launch(name, *tensors, *arrays, *more, result.tensor)
    for array in arrays:
        check(acl.aclDestroyIntArray(array))
    return result


def run_conv(case, arrays, results, *, mask=(True, True, True), cube_math_type=0, padding=None):
    """A convolution case on placed arrays; returns what was written over `results`.

    `padding` replaces the case's. Backward, `mask` says which gradients are wanted.
    """
    inputs = [Placed(array, Format.ND) for array in arrays]
    written = [Placed(array, Format.ND) for array in results]
    both_ends = per_axis(case.padding, case.rank)
    how = [
        int_array(per_axis(case.stride, case.rank)),
        int_array(both_ends if padding is None else padding),
        int_array(per_axis(case.dilation, case.rank)),
        case.is_transposed,
        int_array(case.output_padding) if case.is_transposed else None,
        case.groups,
    ]
    tensors = [each.tensor for each in inputs]
    targets = [each.tensor for each in written]
    if case.is_backward:
        wanted = [each if use else None for each, use in zip(targets, mask, strict=True)]
        flags = acl.aclCreateBoolArray(list(mask), 3)
        size = launch("ConvolutionBackward", *tensors, None, *how, flags, cube_math_type, *wanted)
        assert (size == 0) == (0 in case.input_shape or not any(mask))
        return written
    bias = tensors[2] if len(tensors) == 3 else None
    size = launch("Convolution", *tensors[:2], bias, *how, *targets, cube_math_type)
    assert size == 0 or 0 not in case.input_shape
    return written
