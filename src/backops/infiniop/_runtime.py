"""InfiniRT: devices, streams, events and memory."""

from __future__ import annotations

import atexit
from ctypes import byref, c_float, c_int, c_size_t, c_uint32, c_void_p

from backops._c_interface import Address, Tensor, created, memory_address, with_value
from backops.infiniop._arrays import checked, keep, launched, source_address
from backops.infiniop._enums import INFINI_DEVICE_TYPE_COUNT, Device, EventStatus, Status
from backops.infiniop._library import declare, infinirt

_init = declare(infinirt, "infinirtInit")
_get_all_device_count = declare(infinirt, "infinirtGetAllDeviceCount", c_void_p)
_get_device_count = declare(infinirt, "infinirtGetDeviceCount", c_int, c_void_p)
_set_device = declare(infinirt, "infinirtSetDevice", c_int, c_int)
_get_device = declare(infinirt, "infinirtGetDevice", c_void_p, c_void_p)
_get_mem_info = declare(infinirt, "infinirtGetMemInfo", c_int, c_int, c_void_p, c_void_p)
_device_synchronize = declare(infinirt, "infinirtDeviceSynchronize")
# While the arrays that operators may still write to are there.
atexit.register(_device_synchronize)
_stream_create = declare(infinirt, "infinirtStreamCreate", c_void_p)
_stream_destroy = declare(infinirt, "infinirtStreamDestroy", c_void_p)
_stream_synchronize = declare(infinirt, "infinirtStreamSynchronize", c_void_p)
_stream_wait_event = declare(infinirt, "infinirtStreamWaitEvent", c_void_p, c_void_p)
_event_create = declare(infinirt, "infinirtEventCreate", c_void_p)
_event_create_with_flags = declare(infinirt, "infinirtEventCreateWithFlags", c_void_p, c_uint32)
_event_record = declare(infinirt, "infinirtEventRecord", c_void_p, c_void_p)
_event_query = declare(infinirt, "infinirtEventQuery", c_void_p, c_void_p)
_event_synchronize = declare(infinirt, "infinirtEventSynchronize", c_void_p)
_event_destroy = declare(infinirt, "infinirtEventDestroy", c_void_p)
_event_elapsed_time = declare(infinirt, "infinirtEventElapsedTime", c_void_p, c_void_p, c_void_p)
_malloc = declare(infinirt, "infinirtMalloc", c_void_p, c_size_t)
_malloc_host = declare(infinirt, "infinirtMallocHost", c_void_p, c_size_t)
_free = declare(infinirt, "infinirtFree", c_void_p)
_free_host = declare(infinirt, "infinirtFreeHost", c_void_p)
_memcpy = declare(infinirt, "infinirtMemcpy", c_void_p, c_void_p, c_size_t, c_int)
_memcpy_async = declare(
    infinirt, "infinirtMemcpyAsync", c_void_p, c_void_p, c_size_t, c_int, c_void_p
)
_malloc_async = declare(infinirt, "infinirtMallocAsync", c_void_p, c_size_t, c_void_p)
_free_async = declare(infinirt, "infinirtFreeAsync", c_void_p, c_void_p)
_memset = declare(infinirt, "infinirtMemset", c_void_p, c_int, c_size_t)
_memset_async = declare(infinirt, "infinirtMemsetAsync", c_void_p, c_int, c_size_t, c_void_p)


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
    return launched.wait(_device_synchronize, launched.streams())


def infinirtStreamCreate() -> tuple[Address, Status]:
    return created(_stream_create)


def infinirtStreamDestroy(stream: Address) -> Status:
    return launched.wait(_stream_destroy, [stream], stream)


def infinirtStreamSynchronize(stream: Address) -> Status:
    return launched.wait(_stream_synchronize, [stream], stream)


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
    return created(_malloc, checked(size, "size"))


def infinirtMallocHost(size: int) -> tuple[Address, Status]:
    return created(_malloc_host, checked(size, "size"))


def infinirtFree(ptr: Address) -> Status:
    return _free(ptr)


def infinirtFreeHost(ptr: Address) -> Status:
    return _free_host(ptr)


def infinirtMemcpy(dst: Tensor, src: Tensor, size: int, kind: int) -> Status:
    checked(size, "size")
    return _memcpy(memory_address(dst, "dst", size), source_address(src, size), size, kind)


def infinirtMemcpyAsync(dst: Tensor, src: Tensor, size: int, kind: int, stream: Address) -> Status:
    checked(size, "size")
    addresses = memory_address(dst, "dst", size), source_address(src, size)
    keep(stream, dst, src)
    return _memcpy_async(*addresses, size, kind, stream)


def infinirtMallocAsync(size: int, stream: Address) -> tuple[Address, Status]:
    return created(_malloc_async, checked(size, "size"), stream)


def infinirtFreeAsync(ptr: Address, stream: Address) -> Status:
    return _free_async(ptr, stream)


def infinirtMemset(ptr: Tensor, value: int, count: int) -> Status:
    checked(count, "count")
    return _memset(memory_address(ptr, "ptr", count), value, count)


def infinirtMemsetAsync(ptr: Tensor, value: int, count: int, stream: Address) -> Status:
    address = memory_address(ptr, "ptr", checked(count, "count"))
    keep(stream, ptr)
    return _memset_async(address, value, count, stream)
