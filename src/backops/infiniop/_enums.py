"""The enums of the headers."""

from __future__ import annotations

from enum import IntEnum


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


DOCUMENTED_NAMES = {
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
