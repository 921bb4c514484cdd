"""Conv and ConvBackward."""

from __future__ import annotations

from ctypes import c_size_t, c_void_p
from typing import Any

from backops._c_interface import Address, Tensor
from backops.infiniop._arrays import Axes, checked, int64s
from backops.infiniop._enums import Status
from backops.infiniop._operators import Operator

_conv = Operator("Conv", *[c_void_p] * 7, c_size_t, outputs=("y",), inputs=("x", "w", "bias"))
_conv_backward = Operator(
    "ConvBackward",
    *[c_void_p] * 7,
    c_size_t,
    outputs=("grad_input", "grad_weight", "grad_bias"),
    inputs=("grad_output", "input", "weight"),
)


def _parameters(pads: Axes, strides: Axes, dilations: Axes, n: int) -> tuple[Any, ...]:
    return (
        int64s(pads, "pads", -1),
        int64s(strides, "strides", -1),
        int64s(dilations, "dilations", -1),
        checked(n, "n", -(1 << 63)),
    )


def infiniopCreateConvDescriptor(
    handle: Address,
    y_desc: Address,
    x_desc: Address,
    w_desc: Address,
    b_desc: Address,
    pads: Axes,
    strides: Axes,
    dilations: Axes,
    n: int,
) -> tuple[Address, Status]:
    """An operator that needs none of the tensor descriptors any more.

    ``n`` is the groups; where the weight reads every channel, it may also be the number of spatial
    axes. ``b_desc`` may be None (no bias), and so may ``pads`` (0), ``strides`` (1) and
    ``dilations`` (1). A sequence shorter than the number of spatial axes is BAD_PARAM.
    """
    parameters = _parameters(pads, strides, dilations, n)
    return _conv.create(handle, y_desc, x_desc, w_desc, b_desc, *parameters)


def infiniopGetConvWorkspaceSize(desc: Address) -> tuple[int | None, Status]:
    """Bytes."""
    return _conv.workspace_size(desc)


def infiniopConv(
    desc: Address,
    workspace: Tensor,
    workspace_size: int,
    y: Tensor,
    x: Tensor,
    w: Tensor,
    bias: Tensor,
    stream: Address,
) -> Status:
    """Writes ``y``: at once without a stream, else when its turn comes."""
    return _conv.compute(desc, workspace, workspace_size, (y,), (x, w, bias), stream)


def infiniopDestroyConvDescriptor(desc: Address) -> Status:
    return _conv.destroy(desc)


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
    tensors = grad_output_desc, input_desc, weight_desc, bias_desc
    return _conv_backward.create(handle, *tensors, *_parameters(pads, strides, dilations, n))


def infiniopGetConvBackwardWorkspaceSize(desc: Address) -> tuple[int | None, Status]:
    """Bytes."""
    return _conv_backward.workspace_size(desc)


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
    outputs, inputs = (grad_input, grad_weight, grad_bias), (grad_output, input, weight)
    return _conv_backward.compute(desc, workspace, workspace_size, outputs, inputs, stream)


def infiniopDestroyConvBackwardDescriptor(desc: Address) -> Status:
    return _conv_backward.destroy(desc)
