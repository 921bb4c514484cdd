"""CANN's runtime and its two-stage operators, under their own names.

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

from enum import IntEnum

from backops.acl._convolution import (
    aclnnConvolution,
    aclnnConvolutionBackward,
    aclnnConvolutionBackwardGetWorkspaceSize,
    aclnnConvolutionGetWorkspaceSize,
)
from backops.acl._enums import (
    ACL_STREAM_FAST_LAUNCH,
    ACL_STREAM_FAST_SYNC,
    CubeMathType,
    DataType,
    EventRecordedStatus,
    EventStatus,
    Format,
    HostRegisterType,
    MallocPolicy,
    MemAttr,
    MemcpyKind,
    Status,
    SysParamOpt,
)
from backops.acl._enums import DOCUMENTED_NAMES as _DOCUMENTED_NAMES
from backops.acl._library import (
    root,
)
from backops.acl._objects import (
    aclCreateBoolArray,
    aclCreateFloatArray,
    aclCreateIntArray,
    aclCreateScalar,
    aclCreateScalarList,
    aclCreateTensor,
    aclCreateTensorList,
    aclDestroyAclOpExecutor,
    aclDestroyBoolArray,
    aclDestroyFloatArray,
    aclDestroyIntArray,
    aclDestroyScalar,
    aclDestroyScalarList,
    aclDestroyTensor,
    aclDestroyTensorList,
    aclGetDataType,
    aclGetFormat,
    aclGetIntArraySize,
    aclGetScalarListSize,
    aclGetStorageShape,
    aclGetViewOffset,
    aclGetViewShape,
    aclGetViewStrides,
    aclSetAclOpExecutorRepeatable,
    aclSetInputTensorAddr,
    aclSetOutputTensorAddr,
    aclSetTensorAddr,
)
from backops.acl._pooling import (
    aclnnAdaptiveAvgPool2d,
    aclnnAdaptiveAvgPool2dBackward,
    aclnnAdaptiveAvgPool2dBackwardGetWorkspaceSize,
    aclnnAdaptiveAvgPool2dGetWorkspaceSize,
    aclnnAdaptiveAvgPool3d,
    aclnnAdaptiveAvgPool3dBackward,
    aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize,
    aclnnAdaptiveAvgPool3dGetWorkspaceSize,
    aclnnAvgPool2d,
    aclnnAvgPool2dBackward,
    aclnnAvgPool2dBackwardGetWorkspaceSize,
    aclnnAvgPool2dGetWorkspaceSize,
    aclnnAvgPool3d,
    aclnnAvgPool3dBackward,
    aclnnAvgPool3dBackwardGetWorkspaceSize,
    aclnnAvgPool3dGetWorkspaceSize,
)
from backops.acl._runtime import (
    aclFinalize,
    aclFloat16ToFloat,
    aclFloatToFloat16,
    aclGetRecentErrMsg,
    aclInit,
    aclnnFinalize,
    aclnnInit,
    aclrtCreateContext,
    aclrtCreateEvent,
    aclrtCreateStream,
    aclrtCreateStreamWithConfig,
    aclrtCtxGetSysParamOpt,
    aclrtCtxSetSysParamOpt,
    aclrtDestroyContext,
    aclrtDestroyEvent,
    aclrtDestroyStream,
    aclrtEventElapsedTime,
    aclrtFree,
    aclrtFreeHost,
    aclrtGetCurrentContext,
    aclrtGetDevice,
    aclrtGetDeviceCount,
    aclrtGetMemInfo,
    aclrtGetSocName,
    aclrtGetSysParamOpt,
    aclrtGetVersion,
    aclrtHostRegister,
    aclrtHostUnregister,
    aclrtMalloc,
    aclrtMallocHost,
    aclrtMemcpy,
    aclrtMemcpyAsync,
    aclrtMemset,
    aclrtMemsetAsync,
    aclrtQueryEvent,
    aclrtQueryEventStatus,
    aclrtRecordEvent,
    aclrtResetDevice,
    aclrtSetCurrentContext,
    aclrtSetDevice,
    aclrtSetSysParamOpt,
    aclrtStreamWaitEvent,
    aclrtSynchronizeDevice,
    aclrtSynchronizeEvent,
    aclrtSynchronizeStream,
)

__all__ = [
    "ACL_STREAM_FAST_LAUNCH",
    "ACL_STREAM_FAST_SYNC",
    "CubeMathType",
    "DataType",
    "EventRecordedStatus",
    "EventStatus",
    "Format",
    "HostRegisterType",
    "MallocPolicy",
    "MemAttr",
    "MemcpyKind",
    "Status",
    "SysParamOpt",
    "aclCreateBoolArray",
    "aclCreateFloatArray",
    "aclCreateIntArray",
    "aclCreateScalar",
    "aclCreateScalarList",
    "aclCreateTensor",
    "aclCreateTensorList",
    "aclDestroyAclOpExecutor",
    "aclDestroyBoolArray",
    "aclDestroyFloatArray",
    "aclDestroyIntArray",
    "aclDestroyScalar",
    "aclDestroyScalarList",
    "aclDestroyTensor",
    "aclDestroyTensorList",
    "aclFinalize",
    "aclFloat16ToFloat",
    "aclFloatToFloat16",
    "aclGetDataType",
    "aclGetFormat",
    "aclGetIntArraySize",
    "aclGetRecentErrMsg",
    "aclGetScalarListSize",
    "aclGetStorageShape",
    "aclGetViewOffset",
    "aclGetViewShape",
    "aclGetViewStrides",
    "aclInit",
    "aclSetAclOpExecutorRepeatable",
    "aclSetInputTensorAddr",
    "aclSetOutputTensorAddr",
    "aclSetTensorAddr",
    "aclnnAdaptiveAvgPool2d",
    "aclnnAdaptiveAvgPool2dBackward",
    "aclnnAdaptiveAvgPool2dBackwardGetWorkspaceSize",
    "aclnnAdaptiveAvgPool2dGetWorkspaceSize",
    "aclnnAdaptiveAvgPool3d",
    "aclnnAdaptiveAvgPool3dBackward",
    "aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize",
    "aclnnAdaptiveAvgPool3dGetWorkspaceSize",
    "aclnnAvgPool2d",
    "aclnnAvgPool2dBackward",
    "aclnnAvgPool2dBackwardGetWorkspaceSize",
    "aclnnAvgPool2dGetWorkspaceSize",
    "aclnnAvgPool3d",
    "aclnnAvgPool3dBackward",
    "aclnnAvgPool3dBackwardGetWorkspaceSize",
    "aclnnAvgPool3dGetWorkspaceSize",
    "aclnnConvolution",
    "aclnnConvolutionBackward",
    "aclnnConvolutionBackwardGetWorkspaceSize",
    "aclnnConvolutionGetWorkspaceSize",
    "aclnnFinalize",
    "aclnnInit",
    "aclrtCreateContext",
    "aclrtCreateEvent",
    "aclrtCreateStream",
    "aclrtCreateStreamWithConfig",
    "aclrtCtxGetSysParamOpt",
    "aclrtCtxSetSysParamOpt",
    "aclrtDestroyContext",
    "aclrtDestroyEvent",
    "aclrtDestroyStream",
    "aclrtEventElapsedTime",
    "aclrtFree",
    "aclrtFreeHost",
    "aclrtGetCurrentContext",
    "aclrtGetDevice",
    "aclrtGetDeviceCount",
    "aclrtGetMemInfo",
    "aclrtGetSocName",
    "aclrtGetSysParamOpt",
    "aclrtGetVersion",
    "aclrtHostRegister",
    "aclrtHostUnregister",
    "aclrtMalloc",
    "aclrtMallocHost",
    "aclrtMemcpy",
    "aclrtMemcpyAsync",
    "aclrtMemset",
    "aclrtMemsetAsync",
    "aclrtQueryEvent",
    "aclrtQueryEventStatus",
    "aclrtRecordEvent",
    "aclrtResetDevice",
    "aclrtSetCurrentContext",
    "aclrtSetDevice",
    "aclrtSetSysParamOpt",
    "aclrtStreamWaitEvent",
    "aclrtSynchronizeDevice",
    "aclrtSynchronizeEvent",
    "aclrtSynchronizeStream",
    "root",
]


def __getattr__(name: str) -> IntEnum:
    try:
        return _DOCUMENTED_NAMES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
