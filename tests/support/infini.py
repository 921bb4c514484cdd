"""A client of libinfiniop and libinfinirt like those in the wild: ctypes and nothing of backops."""

from __future__ import annotations

import contextlib
import ctypes
from ctypes import POINTER, byref, c_bool, c_float, c_int, c_size_t, c_void_p
from dataclasses import dataclass

import numpy as np

from backops.infiniop import DType, Status, root

INFINI_DTYPES = {"float16": DType.F16, "bfloat16": DType.BF16, "float32": DType.F32}


class Head(ctypes.Structure):
    """What handles and operator descriptors begin with."""

    _fields_ = (("device", c_int), ("device_id", c_int))


infinirt = ctypes.CDLL(str(root() / "lib" / "libinfinirt.so"))
infiniop = ctypes.CDLL(str(root() / "lib" / "libinfiniop.so"))

Shape, Strides = POINTER(c_size_t), POINTER(ctypes.c_ssize_t)
SIGNATURES = {
    infinirt: {
        "infinirtInit": [],
        "infinirtGetAllDeviceCount": [POINTER(c_int)],
        "infinirtGetDeviceCount": [c_int, POINTER(c_int)],
        "infinirtSetDevice": [c_int, c_int],
        "infinirtGetDevice": [POINTER(c_int), POINTER(c_int)],
        "infinirtGetMemInfo": [c_int, c_int, POINTER(c_size_t), POINTER(c_size_t)],
        "infinirtDeviceSynchronize": [],
        "infinirtStreamCreate": [POINTER(c_void_p)],
        "infinirtStreamDestroy": [c_void_p],
        "infinirtStreamSynchronize": [c_void_p],
        "infinirtStreamWaitEvent": [c_void_p, c_void_p],
        "infinirtEventCreate": [POINTER(c_void_p)],
        "infinirtEventCreateWithFlags": [POINTER(c_void_p), ctypes.c_uint32],
        "infinirtEventRecord": [c_void_p, c_void_p],
        "infinirtEventQuery": [c_void_p, POINTER(c_int)],
        "infinirtEventSynchronize": [c_void_p],
        "infinirtEventDestroy": [c_void_p],
        "infinirtEventElapsedTime": [POINTER(c_float), c_void_p, c_void_p],
        "infinirtMalloc": [POINTER(c_void_p), c_size_t],
        "infinirtMallocHost": [POINTER(c_void_p), c_size_t],
        "infinirtFree": [c_void_p],
        "infinirtFreeHost": [c_void_p],
        "infinirtMemcpy": [c_void_p, c_void_p, c_size_t, c_int],
        "infinirtMemcpyAsync": [c_void_p, c_void_p, c_size_t, c_int, c_void_p],
        "infinirtMallocAsync": [POINTER(c_void_p), c_size_t, c_void_p],
        "infinirtFreeAsync": [c_void_p, c_void_p],
        "infinirtMemset": [c_void_p, c_int, c_size_t],
        "infinirtMemsetAsync": [c_void_p, c_int, c_size_t, c_void_p],
    },
    infiniop: {
        "infiniopCreateHandle": [POINTER(POINTER(Head))],
        "infiniopDestroyHandle": [POINTER(Head)],
        "infiniopCreateTensorDescriptor": [POINTER(c_void_p), c_size_t, Shape, Strides, c_int],
        "infiniopDestroyTensorDescriptor": [c_void_p],
        "infiniopGetDescriptorDeviceType": [POINTER(Head), POINTER(c_int)],
        "infiniopGetDescriptorDeviceId": [POINTER(Head), POINTER(c_int)],
    },
}
# Of each operator: what it is created with, after the out-parameter, and the number of tensors.
OPERATORS = {
    "AdaptiveAvgPool1d": ([c_void_p] * 2, 2),
    "AdaptiveAvgPool3D": ([c_void_p] * 3, 2),
    "AvgPool": ([*[c_void_p] * 5, c_bool], 2),
    "AvgPool1d": ([*[c_void_p] * 2, *[c_size_t] * 3], 2),
    "AvgPool3d": ([c_void_p] * 5, 2),
    "AvgPoolBackward": ([*[c_void_p] * 6, c_bool], 3),
    "Conv": ([*[c_void_p] * 7, c_size_t], 4),
    "ConvBackward": ([*[c_void_p] * 7, c_size_t], 6),
}
for _name, (_parameters, _tensors) in OPERATORS.items():
    _head = POINTER(Head)
    SIGNATURES[infiniop] |= {
        f"infiniopCreate{_name}Descriptor": [_head, POINTER(_head), *_parameters],
        f"infiniopGet{_name}WorkspaceSize": [_head, POINTER(c_size_t)],
        f"infiniop{_name}": [_head, c_void_p, c_size_t, *[c_void_p] * _tensors, c_void_p],
        f"infiniopDestroy{_name}Descriptor": [_head],
    }
for _library, _signatures in SIGNATURES.items():
    for _name, _parameters in _signatures.items():
        getattr(_library, _name).argtypes = _parameters
        getattr(_library, _name).restype = Status


def check(status: Status) -> None:
    assert status == Status.SUCCESS, repr(status)


# Tensors


@dataclass(frozen=True)
class Tensor:
    """What a client knows of a tensor. Strides count elements; None: contiguous."""

    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    dtype: int = DType.F32
    address: int | None = None
    owner: object = None

    @staticmethod
    def of(array) -> Tensor:
        """Of a PyTorch tensor or a NumPy array."""
        if isinstance(array, np.ndarray):
            strides = tuple(stride // array.itemsize for stride in array.strides)
            dtype = INFINI_DTYPES[array.dtype.name]
            return Tensor(array.shape, strides, dtype, array.ctypes.data, array)
        dtype = INFINI_DTYPES[str(array.dtype).removeprefix("torch.")]
        return Tensor(tuple(array.shape), array.stride(), dtype, array.data_ptr(), array)


def describe(tensor: Tensor) -> c_void_p:
    desc = c_void_p()
    ndim = len(tensor.shape)
    shape = (c_size_t * ndim)(*tensor.shape)
    strides = None if tensor.strides is None else (ctypes.c_ssize_t * ndim)(*tensor.strides)
    check(infiniop.infiniopCreateTensorDescriptor(byref(desc), ndim, shape, strides, tensor.dtype))
    return desc


@contextlib.contextmanager
def described(*tensors: Tensor | None):
    """Their descriptors, None for None."""
    descs = [tensor and describe(tensor) for tensor in tensors]
    try:
        yield descs
    finally:
        for desc in descs:
            if desc is not None:
                check(infiniop.infiniopDestroyTensorDescriptor(desc))


def int64s(values):
    return None if values is None else (ctypes.c_int64 * len(values))(*values)


# Operators


def create_handle():
    handle = POINTER(Head)()
    check(infinirt.infinirtSetDevice(0, 0))
    check(infiniop.infiniopCreateHandle(byref(handle)))
    return handle


def create_stream() -> c_void_p:
    stream = c_void_p()
    check(infinirt.infinirtStreamCreate(byref(stream)))
    return stream


HANDLE = create_handle()
# Where out-parameters point before a call.
UNTOUCHED = Head(-1, -1)


def is_untouched(desc) -> bool:
    return ctypes.addressof(desc.contents) == ctypes.addressof(UNTOUCHED)


class Operator:
    """A descriptor, made from tensor descriptors that are gone before anything is computed."""

    def __init__(self, *arguments, **keywords):
        status, desc = self.create(*arguments, **keywords)
        check(status)
        self.finish(desc)

    @classmethod
    def create(cls, *arguments, **keywords):
        """The status and the descriptor, UNTOUCHED or made; a tensor of None has no descriptor."""
        raise NotImplementedError

    @classmethod
    def create_from(cls, handle, tensors, *parameters):
        desc = ctypes.pointer(UNTOUCHED)
        with described(*tensors) as descs:
            status = cls.call(
                "infiniopCreate{}Descriptor", handle, byref(desc), *descs, *parameters
            )
        return status, desc

    @classmethod
    def of(cls, desc):
        """The operator of a descriptor that was created otherwise."""
        operator = cls.__new__(cls)
        operator.finish(desc)
        return operator

    @classmethod
    def call(cls, pattern: str, *arguments) -> Status:
        return getattr(infiniop, pattern.format(cls.__name__))(*arguments)

    def finish(self, desc) -> None:
        size = c_size_t()
        check(self.call("infiniopGet{}WorkspaceSize", desc, byref(size)))
        self.desc, self.workspace_size = desc, size.value

    def new_workspace(self) -> np.ndarray:
        return np.empty(self.workspace_size, np.uint8)

    def run(self, *addresses, stream=None, workspace=None) -> None:
        if workspace is None:
            assert stream is None, "it would be gone before the operator runs"
            workspace = self.new_workspace()
        check(
            self.call(
                "infiniop{}",
                self.desc,
                workspace.ctypes.data,
                self.workspace_size,
                *addresses,
                stream,
            )
        )

    def destroy(self) -> None:
        check(self.call("infiniopDestroy{}Descriptor", self.desc))


class AdaptiveAvgPool1d(Operator):
    @classmethod
    def create(cls, output, input, handle=HANDLE):
        return cls.create_from(handle, (output, input))


class AdaptiveAvgPool3D(Operator):
    @classmethod
    def create(cls, y, x, output_size, handle=HANDLE):
        return cls.create_from(handle, (y, x), int64s(output_size))


class AvgPool(Operator):
    @classmethod
    def create(cls, output, input, kernel, strides, pads, ceil_mode=False, handle=HANDLE):
        parameters = int64s(kernel), int64s(strides), int64s(pads), ceil_mode
        return cls.create_from(handle, (output, input), *parameters)


class AvgPool1d(Operator):
    @classmethod
    def create(cls, output, input, kernel, stride, padding, handle=HANDLE):
        return cls.create_from(handle, (output, input), kernel, stride, padding)


class AvgPool3d(Operator):
    @classmethod
    def create(cls, y, x, kernel, stride, padding, handle=HANDLE):
        return cls.create_from(handle, (y, x), int64s(kernel), int64s(stride), int64s(padding))


class AvgPoolBackward(Operator):
    @classmethod
    def create(
        cls, grad_input, grad_output, input, kernel, strides, pads, ceil_mode=False, handle=HANDLE
    ):
        parameters = int64s(kernel), int64s(strides), int64s(pads), ceil_mode
        return cls.create_from(handle, (grad_input, grad_output, input), *parameters)


class Conv(Operator):
    @classmethod
    def create(cls, y, x, w, b, pads, strides, dilations, n=1, handle=HANDLE):
        parameters = int64s(pads), int64s(strides), int64s(dilations), n
        return cls.create_from(handle, (y, x, w, b), *parameters)


class ConvBackward(Operator):
    @classmethod
    def create(cls, grad_output, input, weight, bias, pads, strides, dilations, n=1, handle=HANDLE):
        parameters = int64s(pads), int64s(strides), int64s(dilations), n
        return cls.create_from(handle, (grad_output, input, weight, bias), *parameters)
