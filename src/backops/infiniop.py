"""InfiniOp's AvgPoolBackward and ConvBackward, and InfiniRT's runtime, under their own names.

Every C function that the headers declare is here, with its parameters in the documented order. An
out-pointer becomes a return value: values first, the status last; a value is None where there was
an error.

>>> import numpy as np
>>> from backops import infiniop
>>> handle, status = infiniop.infiniopCreateHandle()
>>> x = np.zeros((1, 1, 4), np.float32)
>>> grad_output = np.array([[[2.0, 6.0]]], np.float32)
>>> small, status = infiniop.infiniopCreateTensorDescriptor(3, (1, 1, 2), None, infiniop.DType.F32)
>>> large, status = infiniop.infiniopCreateTensorDescriptor(3, (1, 1, 4), None, infiniop.DType.F32)
>>> desc, status = infiniop.infiniopCreateAvgPoolBackwardDescriptor(
...     handle, large, small, large, [2], None, None, False
... )
>>> size, status = infiniop.infiniopGetAvgPoolBackwardWorkspaceSize(desc)
>>> workspace, grad_input = np.empty(size, np.uint8), np.empty_like(x)
>>> infiniop.infiniopAvgPoolBackward(desc, workspace, size, grad_input, grad_output, x, None)
<Status.SUCCESS: 0>
>>> grad_input[0, 0]
array([1., 1., 3., 3.], dtype=float32)

The libraries are those that C programs link against, in the folder that :func:`root` returns.
Where a document asks for a pointer, an int address or an array (NumPy, PyTorch, JAX, DLPack) is
taken; None is NULL. Parameters such as ``kernel_size`` are sequences of ints. Handles, descriptors,
streams and events are plain ints.

As in C, memory must be as large as its descriptor says. Arrays that work on a stream uses are kept
alive until the stream is synchronised or destroyed; what is behind an int address is not.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Sequence
from ctypes import CDLL, byref, c_bool, c_float, c_int, c_int64, c_size_t, c_uint32, c_void_p
from enum import IntEnum
from pathlib import Path
from typing import Any, TypeAlias

from backops import _native
from backops._c_interface import (
    Address,
    LaunchedArrays,
    Tensor,
    created,
    declare,
    input_address,
    memory_address,
    output_address,
    with_value,
)
from backops.errors import ParamError

Axes: TypeAlias = Sequence[int] | int | None  # an int is an address


class Status(IntEnum):
    """What every function returns last; as INFINI_STATUS_BAD_PARAM too, and so on."""

    SUCCESS = 0
    INTERNAL_ERROR = 1
    NOT_IMPLEMENTED = 2
    BAD_PARAM = 3
    NULL_POINTER = 4
    DEVICE_TYPE_NOT_SUPPORTED = 5
    DEVICE_NOT_FOUND = 6
    DEVICE_NOT_INITIALIZED = 7
    DEVICE_ARCHITECTURE_NOT_SUPPORTED = 8
    BAD_TENSOR_DTYPE = 10
    BAD_TENSOR_SHAPE = 11
    BAD_TENSOR_STRIDES = 12
    INSUFFICIENT_WORKSPACE = 13


class Device(IntEnum):
    """Kinds of devices; as INFINI_DEVICE_CPU too, and so on."""

    CPU = 0
    NVIDIA = 1
    CAMBRICON = 2
    ASCEND = 3
    METAX = 4
    MOORE = 5
    ILUVATAR = 6
    KUNLUN = 7
    HYGON = 8
    QY = 9
    ALI = 10


class DType(IntEnum):
    """Element types; as INFINI_DTYPE_F32 too, and so on."""

    INVALID = 0
    BYTE = 1
    BOOL = 2
    I8 = 3
    I16 = 4
    I32 = 5
    I64 = 6
    U8 = 7
    U16 = 8
    U32 = 9
    U64 = 10
    F8 = 11
    F16 = 12
    F32 = 13
    F64 = 14
    C16 = 15
    C32 = 16
    C64 = 17
    C128 = 18
    BF16 = 19


class MemcpyKind(IntEnum):
    """Directions of a copy; as INFINIRT_MEMCPY_H2D too, and so on."""

    H2H = 0
    H2D = 1
    D2H = 2
    D2D = 3


class EventStatus(IntEnum):
    """What infinirtEventQuery tells; as INFINIRT_EVENT_COMPLETE too, and so on."""

    COMPLETE = 0
    NOT_READY = 1


class EventFlags(IntEnum):
    """For infinirtEventCreateWithFlags; as INFINIRT_EVENT_DISABLE_TIMING too, and so on."""

    DEFAULT = 0
    DISABLE_TIMING = 1
    BLOCKING_SYNC = 2


_DOCUMENTED_NAMES = {
    f"{prefix}_{member.name}": member
    for prefix, kind in (
        ("INFINI_STATUS", Status),
        ("INFINI_DEVICE", Device),
        ("INFINI_DTYPE", DType),
        ("INFINIRT_MEMCPY", MemcpyKind),
        ("INFINIRT_EVENT", EventStatus),
        ("INFINIRT_EVENT", EventFlags),
    )
    for member in kind
}
# The number of device types, which is none itself.
INFINI_DEVICE_TYPE_COUNT = len(Device)


def __getattr__(name: str) -> IntEnum:
    try:
        return _DOCUMENTED_NAMES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def root() -> Path:
    """The folder with ``include`` and ``lib`` that C programs build against: INFINI_ROOT.

    >>> from backops import infiniop
    >>> (infiniop.root() / "include" / "infiniop.h").exists()
    True
    """
    return Path(__file__).absolute().parent / "infini"


_infinirt = CDLL(str(root() / "lib" / "libinfinirt.so"))
_infiniop = CDLL(str(root() / "lib" / "libinfiniop.so"))


def _declare(library: CDLL, name: str, *parameters: Any) -> Callable[..., Status]:
    return declare(library, name, *parameters, result=Status)


# As many as libinfiniop takes. Beyond a sequence that is too short it finds what it refuses.
_MOST_AXES = 64


def _checked(number: int, name: str, lowest: int = 0) -> int:
    """A number that C takes in 64 bits; ctypes would cut off what is more."""
    if lowest <= number < 1 << 64:
        return number
    raise ParamError(f"{name} is {number}, expected {lowest} to {2**64 - 1}")


def _source_address(value: Tensor, size: int) -> Address:
    """The address of `size` bytes to read."""
    if value is None or isinstance(value, int):
        return value
    address, lowest, count = _native.span_of_tensor(value, "src")
    there = lowest + count - address
    if there < size:
        raise ParamError(f"src is memory of {there} bytes, expected at least {size}")
    return address


def _int64s(values: Axes, name: str, beyond: int) -> Any:
    """An array for C, or the address as it is."""
    if values is None or isinstance(values, int):
        return values
    numbers = [
        _checked(int(value), f"{name}[{axis}]", -(1 << 63)) for axis, value in enumerate(values)
    ]
    return (c_int64 * max(_MOST_AXES, len(numbers)))(
        *numbers, *[beyond] * (_MOST_AXES - len(numbers))
    )


# ---- infinirt ------------------------------------------------------------------------------------

_init = _declare(_infinirt, "infinirtInit")
_get_all_device_count = _declare(_infinirt, "infinirtGetAllDeviceCount", c_void_p)
_get_device_count = _declare(_infinirt, "infinirtGetDeviceCount", c_int, c_void_p)
_set_device = _declare(_infinirt, "infinirtSetDevice", c_int, c_int)
_get_device = _declare(_infinirt, "infinirtGetDevice", c_void_p, c_void_p)
_get_mem_info = _declare(_infinirt, "infinirtGetMemInfo", c_int, c_int, c_void_p, c_void_p)
_device_synchronize = _declare(_infinirt, "infinirtDeviceSynchronize")
# While the arrays that operators may still write to are there.
atexit.register(_device_synchronize)
_stream_create = _declare(_infinirt, "infinirtStreamCreate", c_void_p)
_stream_destroy = _declare(_infinirt, "infinirtStreamDestroy", c_void_p)
_stream_synchronize = _declare(_infinirt, "infinirtStreamSynchronize", c_void_p)
_stream_wait_event = _declare(_infinirt, "infinirtStreamWaitEvent", c_void_p, c_void_p)
_event_create = _declare(_infinirt, "infinirtEventCreate", c_void_p)
_event_create_with_flags = _declare(_infinirt, "infinirtEventCreateWithFlags", c_void_p, c_uint32)
_event_record = _declare(_infinirt, "infinirtEventRecord", c_void_p, c_void_p)
_event_query = _declare(_infinirt, "infinirtEventQuery", c_void_p, c_void_p)
_event_synchronize = _declare(_infinirt, "infinirtEventSynchronize", c_void_p)
_event_destroy = _declare(_infinirt, "infinirtEventDestroy", c_void_p)
_event_elapsed_time = _declare(_infinirt, "infinirtEventElapsedTime", c_void_p, c_void_p, c_void_p)
_malloc = _declare(_infinirt, "infinirtMalloc", c_void_p, c_size_t)
_malloc_host = _declare(_infinirt, "infinirtMallocHost", c_void_p, c_size_t)
_free = _declare(_infinirt, "infinirtFree", c_void_p)
_free_host = _declare(_infinirt, "infinirtFreeHost", c_void_p)
_memcpy = _declare(_infinirt, "infinirtMemcpy", c_void_p, c_void_p, c_size_t, c_int)
_memcpy_async = _declare(
    _infinirt, "infinirtMemcpyAsync", c_void_p, c_void_p, c_size_t, c_int, c_void_p
)
_malloc_async = _declare(_infinirt, "infinirtMallocAsync", c_void_p, c_size_t, c_void_p)
_free_async = _declare(_infinirt, "infinirtFreeAsync", c_void_p, c_void_p)
_memset = _declare(_infinirt, "infinirtMemset", c_void_p, c_int, c_size_t)
_memset_async = _declare(_infinirt, "infinirtMemsetAsync", c_void_p, c_int, c_size_t, c_void_p)


_launched = LaunchedArrays()


def _keep(stream: Address, *used: Tensor) -> None:
    if stream is not None:  # without a stream the work is done when the call returns
        _launched.keep(stream, *used)


def infinirtInit() -> Status:
    return _init()


def infinirtGetAllDeviceCount() -> tuple[list[int] | None, Status]:
    """One count for each of :class:`Device`."""
    counts = (c_int * INFINI_DEVICE_TYPE_COUNT)()
    status = _get_all_device_count(counts)
    return (list(counts) if status == Status.SUCCESS else None), status


def infinirtGetDeviceCount(device: int) -> tuple[int | None, Status]:
    count = c_int()
    return with_value(_get_device_count(device, byref(count)), count, int)


def infinirtSetDevice(device: int, device_id: int) -> Status:
    return _set_device(device, device_id)


def infinirtGetDevice() -> tuple[Device | None, int | None, Status]:
    device, device_id = c_int(), c_int()
    status = _get_device(byref(device), byref(device_id))
    return (*with_value(status, device, Device)[:1], *with_value(status, device_id, int))


def infinirtGetMemInfo(device: int, device_id: int) -> tuple[int | None, int | None, Status]:
    """Bytes of memory that are free, and that there are."""
    free, total = c_size_t(), c_size_t()
    status = _get_mem_info(device, device_id, byref(free), byref(total))
    return (*with_value(status, free, int)[:1], *with_value(status, total, int))


def infinirtDeviceSynchronize() -> Status:
    return _launched.wait(_device_synchronize, _launched.streams())


def infinirtStreamCreate() -> tuple[Address, Status]:
    return created(_stream_create)


def infinirtStreamDestroy(stream: Address) -> Status:
    return _launched.wait(_stream_destroy, [stream], stream)


def infinirtStreamSynchronize(stream: Address) -> Status:
    return _launched.wait(_stream_synchronize, [stream], stream)


def infinirtStreamWaitEvent(stream: Address, event: Address) -> Status:
    return _stream_wait_event(stream, event)


def infinirtEventCreate() -> tuple[Address, Status]:
    return created(_event_create)


def infinirtEventCreateWithFlags(flags: int) -> tuple[Address, Status]:
    return created(_event_create_with_flags, flags)


def infinirtEventRecord(event: Address, stream: Address) -> Status:
    return _event_record(event, stream)


def infinirtEventQuery(event: Address) -> tuple[EventStatus | None, Status]:
    event_status = c_int()
    return with_value(_event_query(event, byref(event_status)), event_status, EventStatus)


def infinirtEventSynchronize(event: Address) -> Status:
    return _event_synchronize(event)


def infinirtEventDestroy(event: Address) -> Status:
    return _event_destroy(event)


def infinirtEventElapsedTime(start: Address, end: Address) -> tuple[float | None, Status]:
    """Milliseconds from one recorded event to another."""
    milliseconds = c_float()
    status = _event_elapsed_time(byref(milliseconds), start, end)
    return with_value(status, milliseconds, float)


def infinirtMalloc(size: int) -> tuple[Address, Status]:
    return created(_malloc, _checked(size, "size"))


def infinirtMallocHost(size: int) -> tuple[Address, Status]:
    return created(_malloc_host, _checked(size, "size"))


def infinirtFree(ptr: Address) -> Status:
    return _free(ptr)


def infinirtFreeHost(ptr: Address) -> Status:
    return _free_host(ptr)


def infinirtMemcpy(dst: Tensor, src: Tensor, size: int, kind: int) -> Status:
    _checked(size, "size")
    return _memcpy(memory_address(dst, "dst", size), _source_address(src, size), size, kind)


def infinirtMemcpyAsync(dst: Tensor, src: Tensor, size: int, kind: int, stream: Address) -> Status:
    _checked(size, "size")
    addresses = memory_address(dst, "dst", size), _source_address(src, size)
    _keep(stream, dst, src)
    return _memcpy_async(*addresses, size, kind, stream)


def infinirtMallocAsync(size: int, stream: Address) -> tuple[Address, Status]:
    return created(_malloc_async, _checked(size, "size"), stream)


def infinirtFreeAsync(ptr: Address, stream: Address) -> Status:
    return _free_async(ptr, stream)


def infinirtMemset(ptr: Tensor, value: int, count: int) -> Status:
    _checked(count, "count")
    return _memset(memory_address(ptr, "ptr", count), value, count)


def infinirtMemsetAsync(ptr: Tensor, value: int, count: int, stream: Address) -> Status:
    address = memory_address(ptr, "ptr", _checked(count, "count"))
    _keep(stream, ptr)
    return _memset_async(address, value, count, stream)


# ---- infiniop ------------------------------------------------------------------------------------

_create_handle = _declare(_infiniop, "infiniopCreateHandle", c_void_p)
_destroy_handle = _declare(_infiniop, "infiniopDestroyHandle", c_void_p)
_create_tensor = _declare(
    _infiniop, "infiniopCreateTensorDescriptor", c_void_p, c_size_t, c_void_p, c_void_p, c_int
)
_destroy_tensor = _declare(_infiniop, "infiniopDestroyTensorDescriptor", c_void_p)
_get_descriptor_device_type = _declare(
    _infiniop, "infiniopGetDescriptorDeviceType", c_void_p, c_void_p
)
_get_descriptor_device_id = _declare(_infiniop, "infiniopGetDescriptorDeviceId", c_void_p, c_void_p)
_create_pool = _declare(
    _infiniop, "infiniopCreateAvgPoolBackwardDescriptor", *[c_void_p] * 8, c_bool
)
_get_pool_workspace_size = _declare(
    _infiniop, "infiniopGetAvgPoolBackwardWorkspaceSize", c_void_p, c_void_p
)
_pool = _declare(
    _infiniop, "infiniopAvgPoolBackward", c_void_p, c_void_p, c_size_t, *[c_void_p] * 4
)
_destroy_pool = _declare(_infiniop, "infiniopDestroyAvgPoolBackwardDescriptor", c_void_p)
_create_conv = _declare(
    _infiniop, "infiniopCreateConvBackwardDescriptor", *[c_void_p] * 9, c_size_t
)
_get_conv_workspace_size = _declare(
    _infiniop, "infiniopGetConvBackwardWorkspaceSize", c_void_p, c_void_p
)
_conv = _declare(_infiniop, "infiniopConvBackward", c_void_p, c_void_p, c_size_t, *[c_void_p] * 7)
_destroy_conv = _declare(_infiniop, "infiniopDestroyConvBackwardDescriptor", c_void_p)


def infiniopCreateHandle() -> tuple[Address, Status]:
    """A handle for the device that infinirtSetDevice chose in this thread."""
    return created(_create_handle)


def infiniopDestroyHandle(handle: Address) -> Status:
    return _destroy_handle(handle)


def infiniopCreateTensorDescriptor(
    ndim: int, shape: Axes, strides: Axes, dtype: int
) -> tuple[Address, Status]:
    """Describes a tensor; strides count elements, None means contiguous.

    Raises :class:`backops.ParamError` where there are not as many strides as sizes.
    """
    if isinstance(shape, Sequence) and isinstance(strides, Sequence) and len(shape) != len(strides):
        raise ParamError(
            f"infiniopCreateTensorDescriptor: strides are {tuple(strides)}, expected one for each "
            f"of shape {tuple(shape)}"
        )
    return created(
        _create_tensor,
        _checked(ndim, "ndim"),
        _int64s(shape, "shape", 0),
        _int64s(strides, "strides", 0),
        dtype,
    )


def infiniopDestroyTensorDescriptor(desc: Address) -> Status:
    return _destroy_tensor(desc)


def infiniopGetDescriptorDeviceType(desc: Address) -> tuple[Device | None, Status]:
    """The device of an operator's descriptor."""
    device = c_int()
    return with_value(_get_descriptor_device_type(desc, byref(device)), device, Device)


def infiniopGetDescriptorDeviceId(desc: Address) -> tuple[int | None, Status]:
    device_id = c_int()
    return with_value(_get_descriptor_device_id(desc, byref(device_id)), device_id, int)


def infiniopCreateAvgPoolBackwardDescriptor(
    handle: Address,
    grad_input_desc: Address,
    grad_output_desc: Address,
    input_desc: Address,
    kernel_size: Axes,
    strides: Axes,
    pads: Axes,
    ceil_mode: bool,
) -> tuple[Address, Status]:
    """An operator that needs none of the tensor descriptors any more.

    ``strides`` may be None (``kernel_size``), and so may ``pads`` (0). A sequence shorter than the
    number of spatial axes is BAD_PARAM.
    """
    desc = c_void_p()
    status = _create_pool(
        handle,
        byref(desc),
        grad_input_desc,
        grad_output_desc,
        input_desc,
        _int64s(kernel_size, "kernel_size", -1),
        _int64s(strides, "strides", -1),
        _int64s(pads, "pads", -1),
        ceil_mode,
    )
    return with_value(status, desc, int)


def infiniopGetAvgPoolBackwardWorkspaceSize(desc: Address) -> tuple[int | None, Status]:
    """Bytes."""
    size = c_size_t()
    return with_value(_get_pool_workspace_size(desc, byref(size)), size, int)


def infiniopAvgPoolBackward(
    desc: Address,
    workspace: Tensor,
    workspace_size: int,
    grad_input: Tensor,
    grad_output: Tensor,
    input: Tensor,
    stream: Address,
) -> Status:
    """Writes ``grad_input``: at once without a stream, else when its turn comes."""
    _checked(workspace_size, "workspace_size")
    _keep(stream, workspace, grad_input, grad_output, input)
    return _pool(
        desc,
        memory_address(workspace, "workspace", workspace_size),
        workspace_size,
        output_address(grad_input, "grad_input"),
        input_address(grad_output, "grad_output"),
        input_address(input, "input"),
        stream,
    )


def infiniopDestroyAvgPoolBackwardDescriptor(desc: Address) -> Status:
    return _destroy_pool(desc)


def infiniopCreateConvBackwardDescriptor(
    handle: Address,
    grad_output_desc: Address,
    input_desc: Address,
    weight_desc: Address,
    bias_desc: Address,
    pads: Axes,
    strides: Axes,
    dilations: Axes,
    n: int,
) -> tuple[Address, Status]:
    """An operator that needs none of the tensor descriptors any more; ``n`` is the groups.

    ``bias_desc`` may be None (no bias), and so may ``pads`` (0), ``strides`` (1) and ``dilations``
    (1). A sequence shorter than the number of spatial axes is BAD_PARAM.
    """
    desc = c_void_p()
    status = _create_conv(
        handle,
        byref(desc),
        grad_output_desc,
        input_desc,
        weight_desc,
        bias_desc,
        _int64s(pads, "pads", -1),
        _int64s(strides, "strides", -1),
        _int64s(dilations, "dilations", -1),
        _checked(n, "n", -(1 << 63)),
    )
    return with_value(status, desc, int)


def infiniopGetConvBackwardWorkspaceSize(desc: Address) -> tuple[int | None, Status]:
    """Bytes."""
    size = c_size_t()
    return with_value(_get_conv_workspace_size(desc, byref(size)), size, int)


def infiniopConvBackward(
    desc: Address,
    workspace: Tensor,
    workspace_size: int,
    grad_input: Tensor,
    grad_weight: Tensor,
    grad_bias: Tensor,
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    stream: Address,
) -> Status:
    """Writes the three gradients: at once without a stream, else when their turn comes."""
    _checked(workspace_size, "workspace_size")
    _keep(stream, workspace, grad_input, grad_weight, grad_bias, grad_output, input, weight)
    return _conv(
        desc,
        memory_address(workspace, "workspace", workspace_size),
        workspace_size,
        output_address(grad_input, "grad_input"),
        output_address(grad_weight, "grad_weight"),
        output_address(grad_bias, "grad_bias"),
        input_address(grad_output, "grad_output"),
        input_address(input, "input"),
        input_address(weight, "weight"),
        stream,
    )


def infiniopDestroyConvBackwardDescriptor(desc: Address) -> Status:
    return _destroy_conv(desc)
