"""The enums of the documents, and every constant by its documented name."""

from __future__ import annotations

from enum import IntEnum


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
    FAILURE = 500001
    PARAM_NULLPTR = 161001
    PARAM_INVALID = 161002
    RUNTIME_ERROR = 361001
    INNER = 561000
    INNER_FIND_KERNEL_ERROR = 561003
    INNER_NULLPTR = 561103


class DataType(IntEnum):
    """Element types; as ACL_FLOAT too, and so on. Those after BF16 are names only."""

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
    INT4 = 29
    UINT1 = 30
    COMPLEX32 = 33
    HIFLOAT8 = 34
    FLOAT8_E5M2 = 35
    FLOAT8_E4M3FN = 36
    FLOAT8_E8M0 = 37
    FLOAT6_E3M2 = 38
    FLOAT6_E2M3 = 39
    FLOAT4_E2M1 = 40
    FLOAT4_E1M2 = 41


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
DOCUMENTED_NAMES: dict[str, IntEnum] = {
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
DOCUMENTED_NAMES["ACL_FRACTAL_Z_3D"] = DOCUMENTED_NAMES.pop("ACL_FORMAT_FRACTAL_Z_3D")
DOCUMENTED_NAMES |= {
    (
        f"ACLNN_ERR_{status.name}"
        if status.name.startswith(("PARAM_", "RUNTIME_", "INNER"))
        else f"ACL_ERROR_{status.name}"
    ): status
    for status in Status
    if status != Status.SUCCESS
}
DOCUMENTED_NAMES |= dict.fromkeys(
    ("ACL_SUCCESS", "ACL_ERROR_NONE", "ACLNN_SUCCESS"), Status.SUCCESS
)
ACL_STREAM_FAST_LAUNCH = 1
ACL_STREAM_FAST_SYNC = 2
