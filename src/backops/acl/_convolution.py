"""The convolution operators, each in two stages."""

from __future__ import annotations

from ctypes import c_bool, c_int, c_int8, c_int64, c_uint64, c_void_p

from backops._c_interface import Address, Tensor
from backops.acl._arrays import launch, planned
from backops.acl._enums import Status
from backops.acl._library import declare

_nn_convolution_get_workspace_size = declare(
    "aclnnConvolutionGetWorkspaceSize",
    *[c_void_p] * 6,
    c_bool,
    c_void_p,
    c_int64,
    c_void_p,
    c_int8,
    c_void_p,
    c_void_p,
)
_nn_convolution = declare("aclnnConvolution", c_void_p, c_uint64, c_void_p, c_void_p)
_nn_convolution_backward_get_workspace_size = declare(
    "aclnnConvolutionBackwardGetWorkspaceSize",
    *[c_void_p] * 7,
    c_bool,
    c_void_p,
    c_int,
    c_void_p,
    c_int8,
    *[c_void_p] * 3,
    c_void_p,
    c_void_p,
)
_nn_convolution_backward = declare(
    "aclnnConvolutionBackward", c_void_p, c_uint64, c_void_p, c_void_p
)


def aclnnConvolutionGetWorkspaceSize(
    input: Address,
    weight: Address,
    bias: Address,
    stride: Address,
    padding: Address,
    dilation: Address,
    transposed: bool,
    outputPadding: Address,
    groups: int,
    output: Address,
    cubeMathType: int,
) -> tuple[int | None, Address, Status]:
    """The bytes of workspace and an executor of a convolution or transposed convolution."""
    return planned(
        _nn_convolution_get_workspace_size,
        (input, weight, bias),
        (output,),
        input,
        weight,
        bias,
        stride,
        padding,
        dilation,
        transposed,
        outputPadding,
        groups,
        output,
        cubeMathType,
    )


def aclnnConvolution(
    workspace: Tensor, workspaceSize: int, executor: Address, stream: Address
) -> Status:
    """Launches; the result is there when the stream is synchronised."""
    return launch(_nn_convolution, workspace, workspaceSize, executor, stream)


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
    return planned(
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
    return launch(_nn_convolution_backward, workspace, workspaceSize, executor, stream)
