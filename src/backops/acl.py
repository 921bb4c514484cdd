"""CANN's runtime and its two-stage backward operators, under their own names.

Every documented C function is here with its parameters in the documented order. An out-pointer
becomes a return value: values first, the status last; a value is None where there was an error.

>>> import numpy as np
>>> from backops import acl
>>> _ = acl.aclInit(), acl.aclrtSetDevice(0)
>>> grad_output = np.array([[[[4.0, 8.0]]]], np.float32)
>>> grad_input = np.empty((1, 1, 2, 4), np.float32)
>>> def tensor(array):
...     ndim = array.ndim
...     format = acl.ACL_FORMAT_NCHW
...     shape = array.shape
...     return acl.aclCreateTensor(shape, ndim, acl.ACL_FLOAT, None, 0, format, shape, ndim, array)
>>> small, large = tensor(grad_output), tensor(grad_input)
>>> forward_input = tensor(np.zeros_like(grad_input))
>>> kernel, padding = acl.aclCreateIntArray([2], 1), acl.aclCreateIntArray([0], 1)
>>> size, executor, status = acl.aclnnAvgPool2dBackwardGetWorkspaceSize(
...     small, forward_input, kernel, None, padding, False, True, 0, acl.KEEP_DTYPE, large
... )
>>> stream, status = acl.aclrtCreateStream()
>>> workspace = np.empty(size, np.uint8)
>>> acl.aclnnAvgPool2dBackward(workspace, size, executor, stream)
<Status.SUCCESS: 0>
>>> acl.aclrtSynchronizeStream(stream)
<Status.SUCCESS: 0>
>>> grad_input[0, 0, 0]
array([1., 1., 2., 2.], dtype=float32)
>>> acl.aclFinalize()
<Status.SUCCESS: 0>

The library is the one that C++ programs link against, in the folder that :func:`root` returns.
Handles (tensors, arrays, executors, streams, events, contexts) are plain ints. Where a document
asks for a pointer, an int address or an array (NumPy, PyTorch, JAX, DLPack) is taken; None is NULL.
Arrays count as device memory while a tensor or an executor is bound to them. Sizes such as
``viewDims`` are sequences of ints.

Arrays of what was launched are kept until its stream is synchronised. Memory that was given as an
address must live that long, as in C.
"""

from __future__ import annotations

import atexit
import ctypes
from collections.abc import Callable, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from backops import _native
from backops._addresses import (
    Address,
    LaunchedArrays,
    Tensor,
    input_address,
    memory_address,
    output_address,
)
from backops.errors import ParamError

Values: TypeAlias = Sequence[Any] | int | None  # an int is an address


class Status(IntEnum):
    """What every function with a status returns last: aclError and aclnnStatus."""

    SUCCESS = 0
    INVALID_PARAM = 100000
    UNINITIALIZE = 100001
    REPEAT_INITIALIZE = 100002
    RT_PARAM_INVALID = 107000
    RT_INVALID_DEVICEID = 107001
    RT_CONTEXT_NULL = 107002
    BAD_ALLOC = 200000
    RT_MEMORY_ALLOCATION = 207001
    INTERNAL_ERROR = 500000
    PARAM_NULLPTR = 161001
    PARAM_INVALID = 161002
    RUNTIME_ERROR = 361001
    INNER = 561000
    INNER_FIND_KERNEL_ERROR = 561003
    INNER_NULLPTR = 561103


class DataType(IntEnum):
    """Element types; as ACL_FLOAT too, and so on."""

    DT_UNDEFINED = -1
    FLOAT = 0
    FLOAT16 = 1
    INT8 = 2
    INT32 = 3
    UINT8 = 4
    INT16 = 6
    UINT16 = 7
    UINT32 = 8
    INT64 = 9
    UINT64 = 10
    DOUBLE = 11
    BOOL = 12
    STRING = 13
    COMPLEX64 = 16
    COMPLEX128 = 17
    BF16 = 27


class Format(IntEnum):
    """What the axes of a tensor are; as ACL_FORMAT_NCHW too, and so on."""

    UNDEFINED = -1
    NCHW = 0
    NHWC = 1
    ND = 2
    NC1HWC0 = 3
    FRACTAL_Z = 4
    NC1HWC0_C04 = 12
    HWCN = 16
    NDHWC = 27
    FRACTAL_NZ = 29
    NCDHW = 30
    NDC1HWC0 = 32
    FRACTAL_Z_3D = 33
    NC = 35
    NCL = 47


class MallocPolicy(IntEnum):
    """For aclrtMalloc; as ACL_MEM_MALLOC_HUGE_FIRST too, and so on."""

    HUGE_FIRST = 0
    HUGE_ONLY = 1
    NORMAL_ONLY = 2


class MemcpyKind(IntEnum):
    """Directions of a copy; as ACL_MEMCPY_HOST_TO_DEVICE too, and so on."""

    HOST_TO_HOST = 0
    HOST_TO_DEVICE = 1
    DEVICE_TO_HOST = 2
    DEVICE_TO_DEVICE = 3
    DEFAULT = 4


class MemAttr(IntEnum):
    """For aclrtGetMemInfo; as ACL_HBM_MEM too, and so on."""

    DDR_MEM = 0
    HBM_MEM = 1
    DDR_MEM_HUGE = 2
    DDR_MEM_NORMAL = 3
    HBM_MEM_HUGE = 4
    HBM_MEM_NORMAL = 5


class HostRegisterType(IntEnum):
    """For aclrtHostRegister; as ACL_HOST_REGISTER_MAPPED too."""

    MAPPED = 0


class SysParamOpt(IntEnum):
    """Settings; as ACL_OPT_DETERMINISTIC too."""

    DETERMINISTIC = 0


class EventStatus(IntEnum):
    """What aclrtQueryEvent tells; as ACL_EVENT_STATUS_COMPLETE too, and so on."""

    COMPLETE = 0
    NOT_READY = 1
    RESERVED = 2


class EventRecordedStatus(IntEnum):
    """What aclrtQueryEventStatus tells; as ACL_EVENT_RECORDED_STATUS_COMPLETE too, and so on."""

    NOT_READY = 0
    COMPLETE = 1


class CubeMathType(IntEnum):
    """How operands may be rounded; as KEEP_DTYPE too, and so on."""

    KEEP_DTYPE = 0
    ALLOW_FP32_DOWN_PRECISION = 1
    USE_FP16 = 2
    USE_HF32 = 3


# Codes of the runtime and of operators have prefixes of their own.
_DOCUMENTED_NAMES: dict[str, IntEnum] = {
    f"{prefix}{member.name}": member
    for prefix, kind in (
        ("ACL_", DataType),
        ("ACL_FORMAT_", Format),
        ("ACL_MEM_MALLOC_", MallocPolicy),
        ("ACL_MEMCPY_", MemcpyKind),
        ("ACL_", MemAttr),
        ("ACL_HOST_REGISTER_", HostRegisterType),
        ("ACL_OPT_", SysParamOpt),
        ("ACL_EVENT_STATUS_", EventStatus),
        ("ACL_EVENT_RECORDED_STATUS_", EventRecordedStatus),
        ("", CubeMathType),
    )
    for member in kind
}
_DOCUMENTED_NAMES["ACL_FRACTAL_Z_3D"] = _DOCUMENTED_NAMES.pop("ACL_FORMAT_FRACTAL_Z_3D")
_DOCUMENTED_NAMES |= {
    (
        f"ACLNN_ERR_{status.name}"
        if status.name.startswith(("PARAM_", "RUNTIME_", "INNER"))
        else f"ACL_ERROR_{status.name}"
    ): status
    for status in Status
    if status != Status.SUCCESS
}
_DOCUMENTED_NAMES |= dict.fromkeys(
    ("ACL_SUCCESS", "ACL_ERROR_NONE", "ACLNN_SUCCESS"), Status.SUCCESS
)
ACL_STREAM_FAST_LAUNCH = 1
ACL_STREAM_FAST_SYNC = 2


def __getattr__(name: str) -> IntEnum:
    try:
        return _DOCUMENTED_NAMES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def root() -> Path:
    """The folder with ``include`` and ``lib64`` that programs build against: ASCEND_PATH.

    >>> from backops import acl
    >>> (acl.root() / "include" / "acl" / "acl.h").exists()
    True
    """
    return Path(__file__).absolute().parent / "cann"


_pointer = ctypes.c_void_p
_size = ctypes.c_size_t
_int32 = ctypes.c_int32
_uint32 = ctypes.c_uint32
_int64 = ctypes.c_int64
_uint64 = ctypes.c_uint64
_bool = ctypes.c_bool

_library = ctypes.CDLL(str(root() / "lib64" / "libascendcl.so"))


def _declare(name: str, *parameters: Any, result: Any = Status) -> Callable[..., Any]:
    function = getattr(_library, name)
    function.argtypes = parameters
    function.restype = result
    declared: Callable[..., Any] = function
    return declared


_Value = TypeVar("_Value")


def _with_value(
    status: Status, value: Any, kind: Callable[[Any], _Value]
) -> tuple[_Value | None, Status]:
    """What an out-pointer received, if anything, and the status."""
    return (kind(value.value) if status == Status.SUCCESS else None), status


def _created(function: Callable[..., Status], *arguments: Any) -> tuple[Address, Status]:
    """Calls a function whose first parameter is the out-pointer."""
    created = _pointer()
    return _with_value(function(ctypes.byref(created), *arguments), created, int)


def _values(function: str, name: str, values: Values, count: int, kind: Any) -> Any:
    """An array for C of `count` elements, or the address as it is."""
    if values is None or isinstance(values, int):
        return values
    if len(values) < count:
        raise ParamError(
            f"{function}: {name} has {len(values)} elements, expected {count} as its size says"
        )
    return (kind * len(values))(*values)


class _Mapped:
    """An array whose memory counts as device memory as long as this lives."""

    def __init__(self, array: Tensor, name: str) -> None:
        self.array = array
        self.address, self._lowest, size = _native.span_of_tensor(array, name)
        self._is_registered = size > 0
        if self._is_registered:
            devPtr = _pointer()
            _host_register(self._lowest, size, HostRegisterType.MAPPED, ctypes.byref(devPtr))

    def __del__(self) -> None:
        if getattr(self, "_is_registered", False):
            _host_unregister(self._lowest)


# By handle: the arrays that tensors and executors are bound to, and executors for many launches.
_tensor_arrays: dict[int, _Mapped] = {}
_executor_arrays: dict[int, list[_Mapped]] = {}
_repeatable: set[int] = set()
_launched = LaunchedArrays()


def _key_of(stream: Address) -> Address:
    """A default stream is known by its context."""
    return _created(_get_current_context)[0] if stream is None else stream


def _wait(function: Callable[..., Status], streams: list[Address], *arguments: Any) -> Status:
    return _launched.wait(function, streams, *arguments)


def _planned(
    function: Callable[..., Status],
    inputs: Sequence[Address],
    outputs: Sequence[Address],
    *arguments: Any,
) -> tuple[int | None, Address, Status]:
    """Calls a first stage, and keeps the arrays of its tensors until the executor is gone."""
    for handle in outputs:
        if handle in _tensor_arrays:
            output_address(_tensor_arrays[handle].array, "output")
    size, executor = _uint64(), _pointer()
    status = function(*arguments, ctypes.byref(size), ctypes.byref(executor))
    if status != Status.SUCCESS or executor.value is None:
        return None, None, status
    _executor_arrays[executor.value] = [
        _tensor_arrays[handle] for handle in (*inputs, *outputs) if handle in _tensor_arrays
    ]
    return size.value, executor.value, status


def _launch(
    function: Callable[..., Status],
    workspace: Tensor,
    workspaceSize: int,
    executor: Address,
    stream: Address,
) -> Status:
    used: list[_Mapped] = []
    address = workspace
    if workspace is not None and not isinstance(workspace, int):
        memory_address(workspace, "workspace", workspaceSize)
        used.append(_Mapped(workspace, "workspace"))
        address = used[0].address
    if executor is not None:
        used += _executor_arrays.get(executor, [])
    _launched.keep(_key_of(stream), *used)
    status = function(address, workspaceSize, executor, stream)
    if status == Status.SUCCESS and executor is not None and executor not in _repeatable:
        _executor_arrays.pop(executor, None)
    return status


def _sizes(function: Callable[..., Status], tensor: Address) -> tuple[list[int] | None, Status]:
    values, count = ctypes.POINTER(_int64)(), _uint64()
    status = function(tensor, ctypes.byref(values), ctypes.byref(count))
    if status != Status.SUCCESS:
        return None, status
    result = values[: count.value]
    _delete_array(values)
    return result, status


def _find_delete_array() -> Any:
    """C++'s delete[], for the arrays that functions make: as the library itself would find it."""
    try:
        return ctypes.CDLL(None)._ZdaPv
    except AttributeError:
        return _library._ZdaPv


_delete_array = _find_delete_array()
_delete_array.argtypes = (_pointer,)
_delete_array.restype = None

# ---- beginning and end, devices, contexts --------------------------------------------------------

_init = _declare("aclInit", ctypes.c_char_p)
_finalize = _declare("aclFinalize")
# While the arrays that operators may still write to are there.
atexit.register(_finalize)
_get_recent_err_msg = _declare("aclGetRecentErrMsg", result=ctypes.c_char_p)
_get_soc_name = _declare("aclrtGetSocName", result=ctypes.c_char_p)
_get_version = _declare("aclrtGetVersion", _pointer, _pointer, _pointer)
_get_device_count = _declare("aclrtGetDeviceCount", _pointer)
_set_device = _declare("aclrtSetDevice", _int32)
_reset_device = _declare("aclrtResetDevice", _int32)
_get_device = _declare("aclrtGetDevice", _pointer)
_create_context = _declare("aclrtCreateContext", _pointer, _int32)
_destroy_context = _declare("aclrtDestroyContext", _pointer)
_set_current_context = _declare("aclrtSetCurrentContext", _pointer)
_get_current_context = _declare("aclrtGetCurrentContext", _pointer)
_ctx_set_sys_param_opt = _declare("aclrtCtxSetSysParamOpt", ctypes.c_int, _int64)
_ctx_get_sys_param_opt = _declare("aclrtCtxGetSysParamOpt", ctypes.c_int, _pointer)
_set_sys_param_opt = _declare("aclrtSetSysParamOpt", ctypes.c_int, _int64)
_get_sys_param_opt = _declare("aclrtGetSysParamOpt", ctypes.c_int, _pointer)


def aclInit(configPath: str | None = None) -> Status:
    """``configPath`` is None or a file, in which nothing has an effect here."""
    path = None if configPath is None else configPath.encode()
    status: Status = _init(path)
    return status


def aclFinalize() -> Status:
    return _wait(_finalize, _launched.streams())


def aclGetRecentErrMsg() -> str | None:
    """What the last failure of this thread was."""
    message: bytes | None = _get_recent_err_msg()
    return None if message is None else message.decode()


def aclrtGetSocName() -> str:
    """The product, as BACKOPS_SOC says."""
    name: bytes = _get_soc_name()
    return name.decode()


def aclrtGetVersion() -> tuple[int, int, int, Status]:
    major, minor, patch = _int32(), _int32(), _int32()
    status = _get_version(ctypes.byref(major), ctypes.byref(minor), ctypes.byref(patch))
    return major.value, minor.value, patch.value, status


def aclrtGetDeviceCount() -> tuple[int | None, Status]:
    value = _uint32()
    return _with_value(_get_device_count(ctypes.byref(value)), value, int)


def aclrtSetDevice(deviceId: int) -> Status:
    status: Status = _set_device(deviceId)
    return status


def aclrtResetDevice(deviceId: int) -> Status:
    return _wait(_reset_device, _launched.streams(), deviceId)


def aclrtGetDevice() -> tuple[int | None, Status]:
    value = _int32()
    return _with_value(_get_device(ctypes.byref(value)), value, int)


def aclrtCreateContext(deviceId: int) -> tuple[Address, Status]:
    return _created(_create_context, deviceId)


def aclrtDestroyContext(context: Address) -> Status:
    status: Status = _destroy_context(context)
    return status


def aclrtSetCurrentContext(context: Address) -> Status:
    status: Status = _set_current_context(context)
    return status


def aclrtGetCurrentContext() -> tuple[Address, Status]:
    return _created(_get_current_context)


def aclrtCtxSetSysParamOpt(opt: int, value: int) -> Status:
    status: Status = _ctx_set_sys_param_opt(opt, value)
    return status


def aclrtCtxGetSysParamOpt(opt: int) -> tuple[int | None, Status]:
    value = _int64()
    return _with_value(_ctx_get_sys_param_opt(opt, ctypes.byref(value)), value, int)


def aclrtSetSysParamOpt(opt: int, value: int) -> Status:
    status: Status = _set_sys_param_opt(opt, value)
    return status


def aclrtGetSysParamOpt(opt: int) -> tuple[int | None, Status]:
    value = _int64()
    return _with_value(_get_sys_param_opt(opt, ctypes.byref(value)), value, int)


# ---- streams and events --------------------------------------------------------------------------

_synchronize_device = _declare("aclrtSynchronizeDevice")
_create_stream = _declare("aclrtCreateStream", _pointer)
_create_stream_with_config = _declare("aclrtCreateStreamWithConfig", _pointer, _uint32, _uint32)
_destroy_stream = _declare("aclrtDestroyStream", _pointer)
_synchronize_stream = _declare("aclrtSynchronizeStream", _pointer)
_stream_wait_event = _declare("aclrtStreamWaitEvent", _pointer, _pointer)
_create_event = _declare("aclrtCreateEvent", _pointer)
_destroy_event = _declare("aclrtDestroyEvent", _pointer)
_record_event = _declare("aclrtRecordEvent", _pointer, _pointer)
_synchronize_event = _declare("aclrtSynchronizeEvent", _pointer)
_query_event = _declare("aclrtQueryEvent", _pointer, _pointer)
_query_event_status = _declare("aclrtQueryEventStatus", _pointer, _pointer)
_event_elapsed_time = _declare("aclrtEventElapsedTime", _pointer, _pointer, _pointer)


def aclrtSynchronizeDevice() -> Status:
    return _wait(_synchronize_device, _launched.streams())


def aclrtCreateStream() -> tuple[Address, Status]:
    return _created(_create_stream)


def aclrtCreateStreamWithConfig(priority: int, flag: int) -> tuple[Address, Status]:
    return _created(_create_stream_with_config, priority, flag)


def aclrtDestroyStream(stream: Address) -> Status:
    return _wait(_destroy_stream, [stream], stream)


def aclrtSynchronizeStream(stream: Address) -> Status:
    return _wait(_synchronize_stream, [_key_of(stream)], stream)


def aclrtStreamWaitEvent(stream: Address, event: Address) -> Status:
    status: Status = _stream_wait_event(stream, event)
    return status


def aclrtCreateEvent() -> tuple[Address, Status]:
    return _created(_create_event)


def aclrtDestroyEvent(event: Address) -> Status:
    status: Status = _destroy_event(event)
    return status


def aclrtRecordEvent(event: Address, stream: Address) -> Status:
    status: Status = _record_event(event, stream)
    return status


def aclrtSynchronizeEvent(event: Address) -> Status:
    status: Status = _synchronize_event(event)
    return status


def aclrtQueryEvent(event: Address) -> tuple[EventStatus | None, Status]:
    value = ctypes.c_int()
    return _with_value(_query_event(event, ctypes.byref(value)), value, EventStatus)


def aclrtQueryEventStatus(event: Address) -> tuple[EventRecordedStatus | None, Status]:
    value = ctypes.c_int()
    return _with_value(_query_event_status(event, ctypes.byref(value)), value, EventRecordedStatus)


def aclrtEventElapsedTime(startEvent: Address, endEvent: Address) -> tuple[float | None, Status]:
    """Milliseconds from one recorded event to another."""
    ms = ctypes.c_float()
    return _with_value(_event_elapsed_time(ctypes.byref(ms), startEvent, endEvent), ms, float)


# ---- memory --------------------------------------------------------------------------------------

_malloc = _declare("aclrtMalloc", _pointer, _size, ctypes.c_int)
_free = _declare("aclrtFree", _pointer)
_malloc_host = _declare("aclrtMallocHost", _pointer, _size)
_free_host = _declare("aclrtFreeHost", _pointer)
_host_register = _declare("aclrtHostRegister", _pointer, _uint64, ctypes.c_int, _pointer)
_host_unregister = _declare("aclrtHostUnregister", _pointer)
_memcpy = _declare("aclrtMemcpy", _pointer, _size, _pointer, _size, ctypes.c_int)
_memcpy_async = _declare(
    "aclrtMemcpyAsync", _pointer, _size, _pointer, _size, ctypes.c_int, _pointer
)
_memset = _declare("aclrtMemset", _pointer, _size, _int32, _size)
_memset_async = _declare("aclrtMemsetAsync", _pointer, _size, _int32, _size, _pointer)
_get_mem_info = _declare("aclrtGetMemInfo", ctypes.c_int, _pointer, _pointer)


def aclrtMalloc(size: int, policy: int) -> tuple[Address, Status]:
    return _created(_malloc, size, policy)


def aclrtFree(devPtr: Address) -> Status:
    status: Status = _free(devPtr)
    return status


def aclrtMallocHost(size: int) -> tuple[Address, Status]:
    return _created(_malloc_host, size)


def aclrtFreeHost(hostPtr: Address) -> Status:
    status: Status = _free_host(hostPtr)
    return status


def aclrtHostRegister(ptr: Tensor, size: int, type: int) -> tuple[Address, Status]:
    """Lets operators use memory of the host."""
    devPtr = _pointer()
    address = memory_address(ptr, "ptr", size)
    return _with_value(_host_register(address, size, type, ctypes.byref(devPtr)), devPtr, int)


def aclrtHostUnregister(ptr: Tensor) -> Status:
    status: Status = _host_unregister(input_address(ptr, "ptr"))
    return status


def aclrtMemcpy(dst: Tensor, destMax: int, src: Tensor, count: int, kind: int) -> Status:
    to, source = memory_address(dst, "dst", count), input_address(src, "src")
    status: Status = _memcpy(to, destMax, source, count, kind)
    return status


def aclrtMemcpyAsync(
    dst: Tensor, destMax: int, src: Tensor, count: int, kind: int, stream: Address
) -> Status:
    to, source = memory_address(dst, "dst", count), input_address(src, "src")
    _launched.keep(_key_of(stream), dst, src)
    status: Status = _memcpy_async(to, destMax, source, count, kind, stream)
    return status


def aclrtMemset(devPtr: Tensor, maxCount: int, value: int, count: int) -> Status:
    memory = memory_address(devPtr, "devPtr", count)
    status: Status = _memset(memory, maxCount, value, count)
    return status


def aclrtMemsetAsync(
    devPtr: Tensor, maxCount: int, value: int, count: int, stream: Address
) -> Status:
    memory = memory_address(devPtr, "devPtr", count)
    _launched.keep(_key_of(stream), devPtr)
    status: Status = _memset_async(memory, maxCount, value, count, stream)
    return status


def aclrtGetMemInfo(attr: int) -> tuple[int | None, int | None, Status]:
    """Free and total bytes."""
    free, total = _size(), _size()
    status = _get_mem_info(attr, ctypes.byref(free), ctypes.byref(total))
    return (*_with_value(status, free, int)[:1], *_with_value(status, total, int))


# ---- tensors, arrays and scalars -----------------------------------------------------------------

_create_tensor = _declare(
    "aclCreateTensor",
    _pointer,
    _uint64,
    ctypes.c_int,
    _pointer,
    _int64,
    ctypes.c_int,
    _pointer,
    _uint64,
    _pointer,
    result=_pointer,
)
_create_scalar = _declare("aclCreateScalar", _pointer, ctypes.c_int, result=_pointer)
_create_int_array = _declare("aclCreateIntArray", _pointer, _uint64, result=_pointer)
_create_bool_array = _declare("aclCreateBoolArray", _pointer, _uint64, result=_pointer)
_create_float_array = _declare("aclCreateFloatArray", _pointer, _uint64, result=_pointer)
_create_tensor_list = _declare("aclCreateTensorList", _pointer, _uint64, result=_pointer)
# By handle of a list: its tensors, which are destroyed with it.
_list_tensors: dict[int, list[int]] = {}
_destroy_tensor = _declare("aclDestroyTensor", _pointer)
_destroy_scalar = _declare("aclDestroyScalar", _pointer)
_destroy_int_array = _declare("aclDestroyIntArray", _pointer)
_destroy_bool_array = _declare("aclDestroyBoolArray", _pointer)
_destroy_float_array = _declare("aclDestroyFloatArray", _pointer)
_destroy_tensor_list = _declare("aclDestroyTensorList", _pointer)
_get_view_shape = _declare("aclGetViewShape", _pointer, _pointer, _pointer)
_get_storage_shape = _declare("aclGetStorageShape", _pointer, _pointer, _pointer)
_get_view_strides = _declare("aclGetViewStrides", _pointer, _pointer, _pointer)
_get_view_offset = _declare("aclGetViewOffset", _pointer, _pointer)
_get_format = _declare("aclGetFormat", _pointer, _pointer)
_get_data_type = _declare("aclGetDataType", _pointer, _pointer)
_get_int_array_size = _declare("aclGetIntArraySize", _pointer, _pointer)


def aclCreateTensor(
    viewDims: Values,
    viewDimsNum: int,
    dataType: int,
    stride: Values,
    offset: int,
    format: int,
    storageDims: Values,
    storageDimsNum: int,
    tensorData: Tensor,
) -> Address:
    """A tensor; strides and offset count elements, a stride of None means contiguous."""
    function = "aclCreateTensor"
    sizes = _values(function, "viewDims", viewDims, viewDimsNum, _int64)
    strides = _values(function, "stride", stride, viewDimsNum, _int64)
    storage = _values(function, "storageDims", storageDims, storageDimsNum, _int64)
    mapped = None
    if tensorData is not None and not isinstance(tensorData, int):
        mapped = _Mapped(tensorData, "tensorData")
    address = tensorData if mapped is None else mapped.address
    tensor: Address = _create_tensor(
        sizes,
        viewDimsNum,
        dataType,
        strides,
        offset,
        format,
        storage,
        storageDimsNum,
        address,
    )
    if tensor is not None and mapped is not None:
        _tensor_arrays[tensor] = mapped
    return tensor


def aclCreateScalar(value: Tensor, dataType: int) -> Address:
    scalar: Address = _create_scalar(input_address(value, "value"), dataType)
    return scalar


def aclCreateIntArray(value: Values, size: int) -> Address:
    values = _values("aclCreateIntArray", "value", value, size, _int64)
    array: Address = _create_int_array(values, size)
    return array


def aclCreateBoolArray(value: Values, size: int) -> Address:
    values = _values("aclCreateBoolArray", "value", value, size, _bool)
    array: Address = _create_bool_array(values, size)
    return array


def aclCreateFloatArray(value: Values, size: int) -> Address:
    values = _values("aclCreateFloatArray", "value", value, size, ctypes.c_float)
    array: Address = _create_float_array(values, size)
    return array


def aclCreateTensorList(value: Values, size: int) -> Address:
    values = _values("aclCreateTensorList", "value", value, size, _pointer)
    tensors: Address = _create_tensor_list(values, size)
    if tensors is not None and values is not None and not isinstance(values, int):
        _list_tensors[tensors] = [handle for handle in list(values)[:size] if handle is not None]
    return tensors


def aclDestroyTensor(tensor: Address) -> Status:
    status: Status = _destroy_tensor(tensor)
    if tensor is not None:
        _tensor_arrays.pop(tensor, None)
    return status


def aclDestroyScalar(scalar: Address) -> Status:
    status: Status = _destroy_scalar(scalar)
    return status


def aclDestroyIntArray(array: Address) -> Status:
    status: Status = _destroy_int_array(array)
    return status


def aclDestroyBoolArray(array: Address) -> Status:
    status: Status = _destroy_bool_array(array)
    return status


def aclDestroyFloatArray(array: Address) -> Status:
    status: Status = _destroy_float_array(array)
    return status


def aclDestroyTensorList(array: Address) -> Status:
    """And the tensors in it."""
    status: Status = _destroy_tensor_list(array)
    for tensor in _list_tensors.pop(array, []) if array is not None else []:
        _tensor_arrays.pop(tensor, None)
    return status


def aclGetViewShape(tensor: Address) -> tuple[list[int] | None, Status]:
    return _sizes(_get_view_shape, tensor)


def aclGetStorageShape(tensor: Address) -> tuple[list[int] | None, Status]:
    return _sizes(_get_storage_shape, tensor)


def aclGetViewStrides(tensor: Address) -> tuple[list[int] | None, Status]:
    """In elements."""
    return _sizes(_get_view_strides, tensor)


def aclGetViewOffset(tensor: Address) -> tuple[int | None, Status]:
    """In elements."""
    value = _int64()
    return _with_value(_get_view_offset(tensor, ctypes.byref(value)), value, int)


def aclGetFormat(tensor: Address) -> tuple[Format | None, Status]:
    value = ctypes.c_int()
    return _with_value(_get_format(tensor, ctypes.byref(value)), value, Format)


def aclGetDataType(tensor: Address) -> tuple[DataType | None, Status]:
    value = ctypes.c_int()
    return _with_value(_get_data_type(tensor, ctypes.byref(value)), value, DataType)


def aclGetIntArraySize(array: Address) -> tuple[int | None, Status]:
    value = _uint64()
    return _with_value(_get_int_array_size(array, ctypes.byref(value)), value, int)


# ---- executors -----------------------------------------------------------------------------------

_set_acl_op_executor_repeatable = _declare("aclSetAclOpExecutorRepeatable", _pointer)
_destroy_acl_op_executor = _declare("aclDestroyAclOpExecutor", _pointer)
_set_input_tensor_addr = _declare("aclSetInputTensorAddr", _pointer, _size, _pointer, _pointer)
_set_output_tensor_addr = _declare("aclSetOutputTensorAddr", _pointer, _size, _pointer, _pointer)
_set_tensor_addr = _declare("aclSetTensorAddr", _pointer, _size, _pointer, _pointer)


def aclSetAclOpExecutorRepeatable(executor: Address) -> Status:
    status: Status = _set_acl_op_executor_repeatable(executor)
    if status == Status.SUCCESS and executor is not None:
        _repeatable.add(executor)
    return status


def aclDestroyAclOpExecutor(executor: Address) -> Status:
    status: Status = _destroy_acl_op_executor(executor)
    if status == Status.SUCCESS and executor is not None:
        _repeatable.discard(executor)
        _executor_arrays.pop(executor, None)
    return status


def _rebound(
    function: Callable[..., Status], executor: Address, index: int, tensor: Address, addr: Tensor
) -> Status:
    if addr is None or isinstance(addr, int):
        return function(executor, index, tensor, addr)
    mapped = _Mapped(addr, "addr")
    status = function(executor, index, tensor, mapped.address)
    if status == Status.SUCCESS and executor is not None:
        _executor_arrays.setdefault(executor, []).append(mapped)
    return status


def aclSetInputTensorAddr(executor: Address, index: int, tensor: Address, addr: Tensor) -> Status:
    return _rebound(_set_input_tensor_addr, executor, index, tensor, addr)


def aclSetOutputTensorAddr(executor: Address, index: int, tensor: Address, addr: Tensor) -> Status:
    return _rebound(_set_output_tensor_addr, executor, index, tensor, addr)


def aclSetTensorAddr(executor: Address, index: int, tensor: Address, addr: Tensor) -> Status:
    return _rebound(_set_tensor_addr, executor, index, tensor, addr)


# ---- operators -----------------------------------------------------------------------------------

_nn_avg_pool2d_backward_get_workspace_size = _declare(
    "aclnnAvgPool2dBackwardGetWorkspaceSize",
    *[_pointer] * 5,
    _bool,
    _bool,
    _int64,
    ctypes.c_int8,
    _pointer,
    _pointer,
    _pointer,
)
_nn_avg_pool2d_backward = _declare("aclnnAvgPool2dBackward", _pointer, _uint64, _pointer, _pointer)
_nn_avg_pool3d_backward_get_workspace_size = _declare(
    "aclnnAvgPool3dBackwardGetWorkspaceSize",
    *[_pointer] * 5,
    _bool,
    _bool,
    _int64,
    _pointer,
    _pointer,
    _pointer,
)
_nn_avg_pool3d_backward = _declare("aclnnAvgPool3dBackward", _pointer, _uint64, _pointer, _pointer)
_nn_adaptive_avg_pool2d_backward_get_workspace_size = _declare(
    "aclnnAdaptiveAvgPool2dBackwardGetWorkspaceSize", *[_pointer] * 3, _pointer, _pointer
)
_nn_adaptive_avg_pool2d_backward = _declare(
    "aclnnAdaptiveAvgPool2dBackward", _pointer, _uint64, _pointer, _pointer
)
_nn_adaptive_avg_pool3d_backward_get_workspace_size = _declare(
    "aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize", *[_pointer] * 3, _pointer, _pointer
)
_nn_adaptive_avg_pool3d_backward = _declare(
    "aclnnAdaptiveAvgPool3dBackward", _pointer, _uint64, _pointer, _pointer
)
_nn_convolution_backward_get_workspace_size = _declare(
    "aclnnConvolutionBackwardGetWorkspaceSize",
    *[_pointer] * 7,
    _bool,
    _pointer,
    ctypes.c_int,
    _pointer,
    ctypes.c_int8,
    *[_pointer] * 3,
    _pointer,
    _pointer,
)
_nn_convolution_backward = _declare(
    "aclnnConvolutionBackward", _pointer, _uint64, _pointer, _pointer
)


def aclnnAvgPool2dBackwardGetWorkspaceSize(
    gradOutput: Address,
    self: Address,
    kernelSize: Address,
    stride: Address,
    padding: Address,
    ceilMode: bool,
    countIncludePad: bool,
    divisorOverride: int,
    cubeMathType: int,
    gradInput: Address,
) -> tuple[int | None, Address, Status]:
    """The bytes of workspace and an executor of 2-D average pooling backward."""
    return _planned(
        _nn_avg_pool2d_backward_get_workspace_size,
        (gradOutput, self),
        (gradInput,),
        gradOutput,
        self,
        kernelSize,
        stride,
        padding,
        ceilMode,
        countIncludePad,
        divisorOverride,
        cubeMathType,
        gradInput,
    )


def aclnnAvgPool2dBackward(
    workspace: Tensor, workspaceSize: int, executor: Address, stream: Address
) -> Status:
    """Launches; the result is there when the stream is synchronised."""
    return _launch(_nn_avg_pool2d_backward, workspace, workspaceSize, executor, stream)


def aclnnAvgPool3dBackwardGetWorkspaceSize(
    gradOutput: Address,
    self: Address,
    kernelSize: Address,
    stride: Address,
    padding: Address,
    ceilMode: bool,
    countIncludePad: bool,
    divisorOverride: int,
    output: Address,
) -> tuple[int | None, Address, Status]:
    """The bytes of workspace and an executor of 3-D average pooling backward."""
    return _planned(
        _nn_avg_pool3d_backward_get_workspace_size,
        (gradOutput, self),
        (output,),
        gradOutput,
        self,
        kernelSize,
        stride,
        padding,
        ceilMode,
        countIncludePad,
        divisorOverride,
        output,
    )


def aclnnAvgPool3dBackward(
    workspace: Tensor, workspaceSize: int, executor: Address, stream: Address
) -> Status:
    """Launches; the result is there when the stream is synchronised."""
    return _launch(_nn_avg_pool3d_backward, workspace, workspaceSize, executor, stream)


def aclnnAdaptiveAvgPool2dBackwardGetWorkspaceSize(
    gradOutput: Address,
    self: Address,
    out: Address,
) -> tuple[int | None, Address, Status]:
    """The bytes of workspace and an executor of 2-D adaptive average pooling backward."""
    return _planned(
        _nn_adaptive_avg_pool2d_backward_get_workspace_size,
        (gradOutput, self),
        (out,),
        gradOutput,
        self,
        out,
    )


def aclnnAdaptiveAvgPool2dBackward(
    workspace: Tensor, workspaceSize: int, executor: Address, stream: Address
) -> Status:
    """Launches; the result is there when the stream is synchronised."""
    return _launch(_nn_adaptive_avg_pool2d_backward, workspace, workspaceSize, executor, stream)


def aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize(
    gradOutput: Address,
    self: Address,
    out: Address,
) -> tuple[int | None, Address, Status]:
    """The bytes of workspace and an executor of 3-D adaptive average pooling backward."""
    return _planned(
        _nn_adaptive_avg_pool3d_backward_get_workspace_size,
        (gradOutput, self),
        (out,),
        gradOutput,
        self,
        out,
    )


def aclnnAdaptiveAvgPool3dBackward(
    workspace: Tensor, workspaceSize: int, executor: Address, stream: Address
) -> Status:
    """Launches; the result is there when the stream is synchronised."""
    return _launch(_nn_adaptive_avg_pool3d_backward, workspace, workspaceSize, executor, stream)


def aclnnConvolutionBackwardGetWorkspaceSize(
    gradOutput: Address,
    input: Address,
    weight: Address,
    biasSizes: Address,
    stride: Address,
    padding: Address,
    dilation: Address,
    transposed: bool,
    outputPadding: Address,
    groups: int,
    outputMask: Address,
    cubeMathType: int,
    gradInput: Address,
    gradWeight: Address,
    gradBias: Address,
) -> tuple[int | None, Address, Status]:
    """The bytes of workspace and an executor of convolution backward."""
    return _planned(
        _nn_convolution_backward_get_workspace_size,
        (gradOutput, input, weight),
        (gradInput, gradWeight, gradBias),
        gradOutput,
        input,
        weight,
        biasSizes,
        stride,
        padding,
        dilation,
        transposed,
        outputPadding,
        groups,
        outputMask,
        cubeMathType,
        gradInput,
        gradWeight,
        gradBias,
    )


def aclnnConvolutionBackward(
    workspace: Tensor, workspaceSize: int, executor: Address, stream: Address
) -> Status:
    """Launches; the result is there when the stream is synchronised."""
    return _launch(_nn_convolution_backward, workspace, workspaceSize, executor, stream)
