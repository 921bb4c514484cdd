"""The runtime: devices, contexts, streams, events, memory."""

from __future__ import annotations

import atexit
from ctypes import (
    byref,
    c_char_p,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint16,
    c_uint32,
    c_void_p,
)

from backops._c_interface import Address, Tensor, created, input_address, memory_address, with_value
from backops.acl._arrays import (
    get_current_context,
    host_register,
    host_unregister,
    key_of,
    launched,
    wait,
)
from backops.acl._enums import EventRecordedStatus, EventStatus, Status
from backops.acl._library import declare

# ---- beginning and end, devices, contexts --------------------------------------------------------

_init = declare("aclInit", c_char_p)
_finalize = declare("aclFinalize")
# While the arrays that operators may still write to are there.
atexit.register(_finalize)
_nn_init = declare("aclnnInit", c_char_p)
_nn_finalize = declare("aclnnFinalize")
_get_recent_err_msg = declare("aclGetRecentErrMsg", result=c_char_p)
_get_soc_name = declare("aclrtGetSocName", result=c_char_p)
_get_version = declare("aclrtGetVersion", c_void_p, c_void_p, c_void_p)
_get_device_count = declare("aclrtGetDeviceCount", c_void_p)
_set_device = declare("aclrtSetDevice", c_int32)
_reset_device = declare("aclrtResetDevice", c_int32)
_get_device = declare("aclrtGetDevice", c_void_p)
_create_context = declare("aclrtCreateContext", c_void_p, c_int32)
_destroy_context = declare("aclrtDestroyContext", c_void_p)
_set_current_context = declare("aclrtSetCurrentContext", c_void_p)
_ctx_set_sys_param_opt = declare("aclrtCtxSetSysParamOpt", c_int, c_int64)
_ctx_get_sys_param_opt = declare("aclrtCtxGetSysParamOpt", c_int, c_void_p)
_set_sys_param_opt = declare("aclrtSetSysParamOpt", c_int, c_int64)
_get_sys_param_opt = declare("aclrtGetSysParamOpt", c_int, c_void_p)


def aclInit(configPath: str | None = None) -> Status:
    """``configPath`` is None or a file, in which nothing has an effect here."""
    path = None if configPath is None else configPath.encode()
    status: Status = _init(path)
    return status


def aclFinalize() -> Status:
    return wait(_finalize, launched.streams())


def aclnnInit(configPath: str | None = None) -> Status:
    """As ``aclInit``; both may be called."""
    path = None if configPath is None else configPath.encode()
    status: Status = _nn_init(path)
    return status


def aclnnFinalize() -> Status:
    """Waits for what is queued; contexts and streams stay."""
    return wait(_nn_finalize, launched.streams())


def aclGetRecentErrMsg() -> str | None:
    """What the last failure of this thread was."""
    message: bytes | None = _get_recent_err_msg()
    return None if message is None else message.decode()


def aclrtGetSocName() -> str:
    """The product, as BACKOPS_SOC says."""
    name: bytes = _get_soc_name()
    return name.decode()


def aclrtGetVersion() -> tuple[int, int, int, Status]:
    major, minor, patch = c_int32(), c_int32(), c_int32()
    status = _get_version(byref(major), byref(minor), byref(patch))
    return major.value, minor.value, patch.value, status


def aclrtGetDeviceCount() -> tuple[int | None, Status]:
    value = c_uint32()
    return with_value(_get_device_count(byref(value)), value, int)


def aclrtSetDevice(deviceId: int) -> Status:
    status: Status = _set_device(deviceId)
    return status


def aclrtResetDevice(deviceId: int) -> Status:
    return wait(_reset_device, launched.streams(), deviceId)


def aclrtGetDevice() -> tuple[int | None, Status]:
    value = c_int32()
    return with_value(_get_device(byref(value)), value, int)


def aclrtCreateContext(deviceId: int) -> tuple[Address, Status]:
    return created(_create_context, deviceId)


def aclrtDestroyContext(context: Address) -> Status:
    status: Status = _destroy_context(context)
    return status


def aclrtSetCurrentContext(context: Address) -> Status:
    status: Status = _set_current_context(context)
    return status


def aclrtGetCurrentContext() -> tuple[Address, Status]:
    return created(get_current_context)


def aclrtCtxSetSysParamOpt(opt: int, value: int) -> Status:
    status: Status = _ctx_set_sys_param_opt(opt, value)
    return status


def aclrtCtxGetSysParamOpt(opt: int) -> tuple[int | None, Status]:
    value = c_int64()
    return with_value(_ctx_get_sys_param_opt(opt, byref(value)), value, int)


def aclrtSetSysParamOpt(opt: int, value: int) -> Status:
    status: Status = _set_sys_param_opt(opt, value)
    return status


def aclrtGetSysParamOpt(opt: int) -> tuple[int | None, Status]:
    value = c_int64()
    return with_value(_get_sys_param_opt(opt, byref(value)), value, int)


# ---- streams and events --------------------------------------------------------------------------

_synchronize_device = declare("aclrtSynchronizeDevice")
_create_stream = declare("aclrtCreateStream", c_void_p)
_create_stream_with_config = declare("aclrtCreateStreamWithConfig", c_void_p, c_uint32, c_uint32)
_destroy_stream = declare("aclrtDestroyStream", c_void_p)
_synchronize_stream = declare("aclrtSynchronizeStream", c_void_p)
_stream_wait_event = declare("aclrtStreamWaitEvent", c_void_p, c_void_p)
_create_event = declare("aclrtCreateEvent", c_void_p)
_destroy_event = declare("aclrtDestroyEvent", c_void_p)
_record_event = declare("aclrtRecordEvent", c_void_p, c_void_p)
_synchronize_event = declare("aclrtSynchronizeEvent", c_void_p)
_query_event = declare("aclrtQueryEvent", c_void_p, c_void_p)
_query_event_status = declare("aclrtQueryEventStatus", c_void_p, c_void_p)
_event_elapsed_time = declare("aclrtEventElapsedTime", c_void_p, c_void_p, c_void_p)


def aclrtSynchronizeDevice() -> Status:
    return wait(_synchronize_device, launched.streams())


def aclrtCreateStream() -> tuple[Address, Status]:
    return created(_create_stream)


def aclrtCreateStreamWithConfig(priority: int, flag: int) -> tuple[Address, Status]:
    return created(_create_stream_with_config, priority, flag)


def aclrtDestroyStream(stream: Address) -> Status:
    return wait(_destroy_stream, [stream], stream)


def aclrtSynchronizeStream(stream: Address) -> Status:
    return wait(_synchronize_stream, [key_of(stream)], stream)


def aclrtStreamWaitEvent(stream: Address, event: Address) -> Status:
    status: Status = _stream_wait_event(stream, event)
    return status


def aclrtCreateEvent() -> tuple[Address, Status]:
    return created(_create_event)


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
    value = c_int()
    return with_value(_query_event(event, byref(value)), value, EventStatus)


def aclrtQueryEventStatus(event: Address) -> tuple[EventRecordedStatus | None, Status]:
    value = c_int()
    return with_value(_query_event_status(event, byref(value)), value, EventRecordedStatus)


def aclrtEventElapsedTime(startEvent: Address, endEvent: Address) -> tuple[float | None, Status]:
    """Milliseconds from one recorded event to another."""
    ms = c_float()
    return with_value(_event_elapsed_time(byref(ms), startEvent, endEvent), ms, float)


# ---- memory --------------------------------------------------------------------------------------

_malloc = declare("aclrtMalloc", c_void_p, c_size_t, c_int)
_free = declare("aclrtFree", c_void_p)
_malloc_host = declare("aclrtMallocHost", c_void_p, c_size_t)
_free_host = declare("aclrtFreeHost", c_void_p)
_memcpy = declare("aclrtMemcpy", c_void_p, c_size_t, c_void_p, c_size_t, c_int)
_memcpy_async = declare("aclrtMemcpyAsync", c_void_p, c_size_t, c_void_p, c_size_t, c_int, c_void_p)
_memset = declare("aclrtMemset", c_void_p, c_size_t, c_int32, c_size_t)
_memset_async = declare("aclrtMemsetAsync", c_void_p, c_size_t, c_int32, c_size_t, c_void_p)
_get_mem_info = declare("aclrtGetMemInfo", c_int, c_void_p, c_void_p)


def aclrtMalloc(size: int, policy: int) -> tuple[Address, Status]:
    return created(_malloc, size, policy)


def aclrtFree(devPtr: Address) -> Status:
    status: Status = _free(devPtr)
    return status


def aclrtMallocHost(size: int) -> tuple[Address, Status]:
    return created(_malloc_host, size)


def aclrtFreeHost(hostPtr: Address) -> Status:
    status: Status = _free_host(hostPtr)
    return status


def aclrtHostRegister(ptr: Tensor, size: int, type: int) -> tuple[Address, Status]:
    """Lets operators use memory of the host."""
    devPtr = c_void_p()
    address = memory_address(ptr, "ptr", size)
    return with_value(host_register(address, size, type, byref(devPtr)), devPtr, int)


def aclrtHostUnregister(ptr: Tensor) -> Status:
    status: Status = host_unregister(input_address(ptr, "ptr"))
    return status


def aclrtMemcpy(dst: Tensor, destMax: int, src: Tensor, count: int, kind: int) -> Status:
    to, source = memory_address(dst, "dst", count), input_address(src, "src")
    status: Status = _memcpy(to, destMax, source, count, kind)
    return status


def aclrtMemcpyAsync(
    dst: Tensor, destMax: int, src: Tensor, count: int, kind: int, stream: Address
) -> Status:
    to, source = memory_address(dst, "dst", count), input_address(src, "src")
    launched.keep(key_of(stream), dst, src)
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
    launched.keep(key_of(stream), devPtr)
    status: Status = _memset_async(memory, maxCount, value, count, stream)
    return status


def aclrtGetMemInfo(attr: int) -> tuple[int | None, int | None, Status]:
    """Free and total bytes."""
    free, total = c_size_t(), c_size_t()
    status = _get_mem_info(attr, byref(free), byref(total))
    return (*with_value(status, free, int)[:1], *with_value(status, total, int))


# ---- numbers -------------------------------------------------------------------------------------

_float16_to_float = declare("aclFloat16ToFloat", c_uint16, result=c_float)
_float_to_float16 = declare("aclFloatToFloat16", c_float, result=c_uint16)


def aclFloat16ToFloat(value: int) -> float:
    """Of the bits of a float16."""
    number: float = _float16_to_float(value)
    return number


def aclFloatToFloat16(value: float) -> int:
    """The bits of a float16: to nearest, ties to even."""
    bits: int = _float_to_float16(value)
    return bits
