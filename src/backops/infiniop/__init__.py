"""InfiniOp's operators and InfiniRT's runtime, under their own names.

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

from enum import IntEnum

from backops.infiniop._convolution import (
    infiniopConv,
    infiniopConvBackward,
    infiniopCreateConvBackwardDescriptor,
    infiniopCreateConvDescriptor,
    infiniopDestroyConvBackwardDescriptor,
    infiniopDestroyConvDescriptor,
    infiniopGetConvBackwardWorkspaceSize,
    infiniopGetConvWorkspaceSize,
)
from backops.infiniop._descriptors import (
    infiniopCreateHandle,
    infiniopCreateTensorDescriptor,
    infiniopDestroyHandle,
    infiniopDestroyTensorDescriptor,
    infiniopGetDescriptorDeviceId,
    infiniopGetDescriptorDeviceType,
)
from backops.infiniop._enums import DOCUMENTED_NAMES as _DOCUMENTED_NAMES
from backops.infiniop._enums import (
    INFINI_DEVICE_TYPE_COUNT,
    Device,
    DType,
    EventFlags,
    EventStatus,
    MemcpyKind,
    Status,
)
from backops.infiniop._library import (
    root,
)
from backops.infiniop._pooling import (
    infiniopAdaptiveAvgPool1d,
    infiniopAdaptiveAvgPool3D,
    infiniopAvgPool,
    infiniopAvgPool1d,
    infiniopAvgPool3d,
    infiniopAvgPoolBackward,
    infiniopCreateAdaptiveAvgPool1dDescriptor,
    infiniopCreateAdaptiveAvgPool3DDescriptor,
    infiniopCreateAvgPool1dDescriptor,
    infiniopCreateAvgPool3dDescriptor,
    infiniopCreateAvgPoolBackwardDescriptor,
    infiniopCreateAvgPoolDescriptor,
    infiniopDestroyAdaptiveAvgPool1dDescriptor,
    infiniopDestroyAdaptiveAvgPool3DDescriptor,
    infiniopDestroyAvgPool1dDescriptor,
    infiniopDestroyAvgPool3dDescriptor,
    infiniopDestroyAvgPoolBackwardDescriptor,
    infiniopDestroyAvgPoolDescriptor,
    infiniopGetAdaptiveAvgPool1dWorkspaceSize,
    infiniopGetAdaptiveAvgPool3DWorkspaceSize,
    infiniopGetAvgPool1dWorkspaceSize,
    infiniopGetAvgPool3dWorkspaceSize,
    infiniopGetAvgPoolBackwardWorkspaceSize,
    infiniopGetAvgPoolWorkspaceSize,
)
from backops.infiniop._runtime import (
    infinirtDeviceSynchronize,
    infinirtEventCreate,
    infinirtEventCreateWithFlags,
    infinirtEventDestroy,
    infinirtEventElapsedTime,
    infinirtEventQuery,
    infinirtEventRecord,
    infinirtEventSynchronize,
    infinirtFree,
    infinirtFreeAsync,
    infinirtFreeHost,
    infinirtGetAllDeviceCount,
    infinirtGetDevice,
    infinirtGetDeviceCount,
    infinirtGetMemInfo,
    infinirtInit,
    infinirtMalloc,
    infinirtMallocAsync,
    infinirtMallocHost,
    infinirtMemcpy,
    infinirtMemcpyAsync,
    infinirtMemset,
    infinirtMemsetAsync,
    infinirtSetDevice,
    infinirtStreamCreate,
    infinirtStreamDestroy,
    infinirtStreamSynchronize,
    infinirtStreamWaitEvent,
)

__all__ = [
    "INFINI_DEVICE_TYPE_COUNT",
    "DType",
    "Device",
    "EventFlags",
    "EventStatus",
    "MemcpyKind",
    "Status",
    "infiniopAdaptiveAvgPool1d",
    "infiniopAdaptiveAvgPool3D",
    "infiniopAvgPool",
    "infiniopAvgPool1d",
    "infiniopAvgPool3d",
    "infiniopAvgPoolBackward",
    "infiniopConv",
    "infiniopConvBackward",
    "infiniopCreateAdaptiveAvgPool1dDescriptor",
    "infiniopCreateAdaptiveAvgPool3DDescriptor",
    "infiniopCreateAvgPool1dDescriptor",
    "infiniopCreateAvgPool3dDescriptor",
    "infiniopCreateAvgPoolBackwardDescriptor",
    "infiniopCreateAvgPoolDescriptor",
    "infiniopCreateConvBackwardDescriptor",
    "infiniopCreateConvDescriptor",
    "infiniopCreateHandle",
    "infiniopCreateTensorDescriptor",
    "infiniopDestroyAdaptiveAvgPool1dDescriptor",
    "infiniopDestroyAdaptiveAvgPool3DDescriptor",
    "infiniopDestroyAvgPool1dDescriptor",
    "infiniopDestroyAvgPool3dDescriptor",
    "infiniopDestroyAvgPoolBackwardDescriptor",
    "infiniopDestroyAvgPoolDescriptor",
    "infiniopDestroyConvBackwardDescriptor",
    "infiniopDestroyConvDescriptor",
    "infiniopDestroyHandle",
    "infiniopDestroyTensorDescriptor",
    "infiniopGetAdaptiveAvgPool1dWorkspaceSize",
    "infiniopGetAdaptiveAvgPool3DWorkspaceSize",
    "infiniopGetAvgPool1dWorkspaceSize",
    "infiniopGetAvgPool3dWorkspaceSize",
    "infiniopGetAvgPoolBackwardWorkspaceSize",
    "infiniopGetAvgPoolWorkspaceSize",
    "infiniopGetConvBackwardWorkspaceSize",
    "infiniopGetConvWorkspaceSize",
    "infiniopGetDescriptorDeviceId",
    "infiniopGetDescriptorDeviceType",
    "infinirtDeviceSynchronize",
    "infinirtEventCreate",
    "infinirtEventCreateWithFlags",
    "infinirtEventDestroy",
    "infinirtEventElapsedTime",
    "infinirtEventQuery",
    "infinirtEventRecord",
    "infinirtEventSynchronize",
    "infinirtFree",
    "infinirtFreeAsync",
    "infinirtFreeHost",
    "infinirtGetAllDeviceCount",
    "infinirtGetDevice",
    "infinirtGetDeviceCount",
    "infinirtGetMemInfo",
    "infinirtInit",
    "infinirtMalloc",
    "infinirtMallocAsync",
    "infinirtMallocHost",
    "infinirtMemcpy",
    "infinirtMemcpyAsync",
    "infinirtMemset",
    "infinirtMemsetAsync",
    "infinirtSetDevice",
    "infinirtStreamCreate",
    "infinirtStreamDestroy",
    "infinirtStreamSynchronize",
    "infinirtStreamWaitEvent",
    "root",
]


def __getattr__(name: str) -> IntEnum:
    try:
        return _DOCUMENTED_NAMES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
