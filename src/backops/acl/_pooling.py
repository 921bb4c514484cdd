"""The pooling operators, each in two stages."""

from __future__ import annotations

from ctypes import c_bool, c_int8, c_int64, c_uint64, c_void_p

from backops._c_interface import Address, Tensor
from backops.acl._arrays import launch, planned
from backops.acl._enums import Status
from backops.acl._library import declare

_nn_avg_pool2d_get_workspace_size = declare(
    "aclnnAvgPool2dGetWorkspaceSize",
    *[c_void_p] * 4,
    c_bool,
    c_bool,
    c_int64,
    c_int8,
    c_void_p,
    c_void_p,
    c_void_p,
)
_nn_avg_pool2d = declare("aclnnAvgPool2d", c_void_p, c_uint64, c_void_p, c_void_p)
_nn_avg_pool3d_get_workspace_size = declare(
    "aclnnAvgPool3dGetWorkspaceSize",
    *[c_void_p] * 4,
    c_bool,
    c_bool,
    c_int64,
    c_void_p,
    c_void_p,
    c_void_p,
)
_nn_avg_pool3d = declare("aclnnAvgPool3d", c_void_p, c_uint64, c_void_p, c_void_p)
_nn_adaptive_avg_pool2d_get_workspace_size = declare(
    "aclnnAdaptiveAvgPool2dGetWorkspaceSize", *[c_void_p] * 3, c_void_p, c_void_p
)
_nn_adaptive_avg_pool2d = declare("aclnnAdaptiveAvgPool2d", c_void_p, c_uint64, c_void_p, c_void_p)
_nn_adaptive_avg_pool3d_get_workspace_size = declare(
    "aclnnAdaptiveAvgPool3dGetWorkspaceSize", *[c_void_p] * 3, c_void_p, c_void_p
)
_nn_adaptive_avg_pool3d = declare("aclnnAdaptiveAvgPool3d", c_void_p, c_uint64, c_void_p, c_void_p)
_nn_avg_pool2d_backward_get_workspace_size = declare(
    "aclnnAvgPool2dBackwardGetWorkspaceSize",
    *[c_void_p] * 5,
    c_bool,
    c_bool,
    c_int64,
    c_int8,
    c_void_p,
    c_void_p,
    c_void_p,
)
_nn_avg_pool2d_backward = declare("aclnnAvgPool2dBackward", c_void_p, c_uint64, c_void_p, c_void_p)
_nn_avg_pool3d_backward_get_workspace_size = declare(
    "aclnnAvgPool3dBackwardGetWorkspaceSize",
    *[c_void_p] * 5,
    c_bool,
    c_bool,
    c_int64,
    c_void_p,
    c_void_p,
    c_void_p,
)
_nn_avg_pool3d_backward = declare("aclnnAvgPool3dBackward", c_void_p, c_uint64, c_void_p, c_void_p)
_nn_adaptive_avg_pool2d_backward_get_workspace_size = declare(
    "aclnnAdaptiveAvgPool2dBackwardGetWorkspaceSize", *[c_void_p] * 3, c_void_p, c_void_p
)
_nn_adaptive_avg_pool2d_backward = declare(
    "aclnnAdaptiveAvgPool2dBackward", c_void_p, c_uint64, c_void_p, c_void_p
)
_nn_adaptive_avg_pool3d_backward_get_workspace_size = declare(
    "aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize", *[c_void_p] * 3, c_void_p, c_void_p
)
_nn_adaptive_avg_pool3d_backward = declare(
    "aclnnAdaptiveAvgPool3dBackward", c_void_p, c_uint64, c_void_p, c_void_p
)


def aclnnAvgPool2dGetWorkspaceSize(
    self: Address,
    kernelSize: Address,
    strides: Address,
    paddings: Address,
    ceilMode: bool,
    countIncludePad: bool,
    divisorOverride: int,
    cubeMathType: int,
    out: Address,
) -> tuple[int | None, Address, Status]:
    """The bytes of workspace and an executor of 2-D average pooling."""
    return planned(
        _nn_avg_pool2d_get_workspace_size,
        (self,),
        (out,),
        self,
        kernelSize,
        strides,
        paddings,
        ceilMode,
        countIncludePad,
        divisorOverride,
        cubeMathType,
        out,
    )


def aclnnAvgPool2d(
    workspace: Tensor, workspaceSize: int, executor: Address, stream: Address
) -> Status:
    """Launches; the result is there when the stream is synchronised."""
    return launch(_nn_avg_pool2d, workspace, workspaceSize, executor, stream)


def aclnnAvgPool3dGetWorkspaceSize(
    self: Address,
    kernelSize: Address,
    stride: Address,
    padding: Address,
    ceilMode: bool,
    countIncludePad: bool,
    divisorOverride: int,
    out: Address,
) -> tuple[int | None, Address, Status]:
    """The bytes of workspace and an executor of 3-D average pooling."""
    return planned(
        _nn_avg_pool3d_get_workspace_size,
        (self,),
        (out,),
        self,
        kernelSize,
        stride,
        padding,
        ceilMode,
        countIncludePad,
        divisorOverride,
        out,
    )


def aclnnAvgPool3d(
    workspace: Tensor, workspaceSize: int, executor: Address, stream: Address
) -> Status:
    """Launches; the result is there when the stream is synchronised."""
    return launch(_nn_avg_pool3d, workspace, workspaceSize, executor, stream)


def aclnnAdaptiveAvgPool2dGetWorkspaceSize(
    self: Address,
    outputSize: Address,
    out: Address,
) -> tuple[int | None, Address, Status]:
    """The bytes of workspace and an executor of 2-D adaptive average pooling."""
    return planned(
        _nn_adaptive_avg_pool2d_get_workspace_size,
        (self,),
        (out,),
        self,
        outputSize,
        out,
    )


def aclnnAdaptiveAvgPool2d(
    workspace: Tensor, workspaceSize: int, executor: Address, stream: Address
) -> Status:
    """Launches; the result is there when the stream is synchronised."""
    return launch(_nn_adaptive_avg_pool2d, workspace, workspaceSize, executor, stream)


def aclnnAdaptiveAvgPool3dGetWorkspaceSize(
    self: Address,
    outputSize: Address,
    out: Address,
) -> tuple[int | None, Address, Status]:
    """The bytes of workspace and an executor of 3-D adaptive average pooling."""
    return planned(
        _nn_adaptive_avg_pool3d_get_workspace_size,
        (self,),
        (out,),
        self,
        outputSize,
        out,
    )


def aclnnAdaptiveAvgPool3d(
    workspace: Tensor, workspaceSize: int, executor: Address, stream: Address
) -> Status:
    """Launches; the result is there when the stream is synchronised."""
    return launch(_nn_adaptive_avg_pool3d, workspace, workspaceSize, executor, stream)


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
    return planned(
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
    return launch(_nn_avg_pool2d_backward, workspace, workspaceSize, executor, stream)


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
    return planned(
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
    return launch(_nn_avg_pool3d_backward, workspace, workspaceSize, executor, stream)


def aclnnAdaptiveAvgPool2dBackwardGetWorkspaceSize(
    gradOutput: Address,
    self: Address,
    out: Address,
) -> tuple[int | None, Address, Status]:
    """The bytes of workspace and an executor of 2-D adaptive average pooling backward."""
    return planned(
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
    return launch(_nn_adaptive_avg_pool2d_backward, workspace, workspaceSize, executor, stream)


def aclnnAdaptiveAvgPool3dBackwardGetWorkspaceSize(
    gradOutput: Address,
    self: Address,
    out: Address,
) -> tuple[int | None, Address, Status]:
    """The bytes of workspace and an executor of 3-D adaptive average pooling backward."""
    return planned(
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
    return launch(_nn_adaptive_avg_pool3d_backward, workspace, workspaceSize, executor, stream)
