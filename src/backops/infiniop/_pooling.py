"""Average pooling."""

from __future__ import annotations

from ctypes import c_bool, c_size_t, c_void_p
from typing import Any

from backops._c_interface import Address, Tensor
from backops.infiniop._arrays import Axes, checked, int64s
from backops.infiniop._enums import Status
from backops.infiniop._operators import Operator

_avg_pool = Operator("AvgPool", *[c_void_p] * 5, c_bool, outputs=("output",), inputs=("input",))
_avg_pool1d = Operator(
    "AvgPool1d", *[c_void_p] * 2, *[c_size_t] * 3, outputs=("output",), inputs=("input",)
)
_avg_pool3d = Operator("AvgPool3d", *[c_void_p] * 5, outputs=("y",), inputs=("x",))
_adaptive_avg_pool1d = Operator(
    "AdaptiveAvgPool1d", *[c_void_p] * 2, outputs=("output",), inputs=("input",)
)
_adaptive_avg_pool3d = Operator("AdaptiveAvgPool3D", *[c_void_p] * 3, outputs=("y",), inputs=("x",))
_avg_pool_backward = Operator(
    "AvgPoolBackward",
    *[c_void_p] * 6,
    c_bool,
    outputs=("grad_input",),
    inputs=("grad_output", "input"),
)


def _windows(**axes: Axes) -> list[Any]:
    return [int64s(values, name, -1) for name, values in axes.items()]


def infiniopCreateAvgPoolDescriptor(
    handle: Address,
    output_desc: Address,
    input_desc: Address,
    kernel_size: Axes,
    strides: Axes,
    pads: Axes,
    ceil_mode: bool,
) -> tuple[Address, Status]:
    """An operator that needs none of the tensor descriptors any more.

    ``strides`` may be None (``kernel_size``), and so may ``pads`` (0). A sequence shorter than the
    number of spatial axes is BAD_PARAM.
    """
    return _avg_pool.create(
        handle,
        output_desc,
        input_desc,
        *_windows(kernel_size=kernel_size, strides=strides, pads=pads),
        ceil_mode,
    )


def infiniopGetAvgPoolWorkspaceSize(desc: Address) -> tuple[int | None, Status]:
    """Bytes."""
    return _avg_pool.workspace_size(desc)


def infiniopAvgPool(
    desc: Address,
    workspace: Tensor,
    workspace_size: int,
    output: Tensor,
    input: Tensor,
    stream: Address,
) -> Status:
    """Writes ``output``: at once without a stream, else when its turn comes."""
    return _avg_pool.compute(desc, workspace, workspace_size, (output,), (input,), stream)


def infiniopDestroyAvgPoolDescriptor(desc: Address) -> Status:
    return _avg_pool.destroy(desc)


def infiniopCreateAvgPool1dDescriptor(
    handle: Address,
    output: Address,
    input: Address,
    kernel_size: int,
    stride: int,
    padding: int,
) -> tuple[Address, Status]:
    """An operator that needs none of the tensor descriptors any more."""
    return _avg_pool1d.create(
        handle,
        output,
        input,
        checked(kernel_size, "kernel_size", -(1 << 63)),
        checked(stride, "stride", -(1 << 63)),
        checked(padding, "padding", -(1 << 63)),
    )


def infiniopGetAvgPool1dWorkspaceSize(desc: Address) -> tuple[int | None, Status]:
    """Bytes."""
    return _avg_pool1d.workspace_size(desc)


def infiniopAvgPool1d(
    desc: Address,
    workspace: Tensor,
    workspace_size: int,
    output: Tensor,
    input: Tensor,
    stream: Address,
) -> Status:
    """Writes ``output``: at once without a stream, else when its turn comes."""
    return _avg_pool1d.compute(desc, workspace, workspace_size, (output,), (input,), stream)


def infiniopDestroyAvgPool1dDescriptor(desc: Address) -> Status:
    return _avg_pool1d.destroy(desc)


def infiniopCreateAvgPool3dDescriptor(
    handle: Address,
    y: Address,
    x: Address,
    kernel_size: Axes,
    stride: Axes,
    padding: Axes,
) -> tuple[Address, Status]:
    """An operator that needs none of the tensor descriptors any more.

    ``stride`` may be None (``kernel_size``), and so may ``padding`` (0). A sequence of less than
    three is BAD_PARAM.
    """
    return _avg_pool3d.create(
        handle, y, x, *_windows(kernel_size=kernel_size, stride=stride, padding=padding)
    )


def infiniopGetAvgPool3dWorkspaceSize(desc: Address) -> tuple[int | None, Status]:
    """Bytes."""
    return _avg_pool3d.workspace_size(desc)


def infiniopAvgPool3d(
    desc: Address, workspace: Tensor, workspace_size: int, y: Tensor, x: Tensor, stream: Address
) -> Status:
    """Writes ``y``: at once without a stream, else when its turn comes."""
    return _avg_pool3d.compute(desc, workspace, workspace_size, (y,), (x,), stream)


def infiniopDestroyAvgPool3dDescriptor(desc: Address) -> Status:
    return _avg_pool3d.destroy(desc)


def infiniopCreateAdaptiveAvgPool1dDescriptor(
    handle: Address,
    out_desc: Address,
    input_desc: Address,
) -> tuple[Address, Status]:
    """An operator that needs none of the tensor descriptors any more."""
    return _adaptive_avg_pool1d.create(handle, out_desc, input_desc)


def infiniopGetAdaptiveAvgPool1dWorkspaceSize(desc: Address) -> tuple[int | None, Status]:
    """Bytes."""
    return _adaptive_avg_pool1d.workspace_size(desc)


def infiniopAdaptiveAvgPool1d(
    desc: Address,
    workspace: Tensor,
    workspace_size: int,
    output: Tensor,
    input: Tensor,
    stream: Address,
) -> Status:
    """Writes ``output``: at once without a stream, else when its turn comes."""
    return _adaptive_avg_pool1d.compute(
        desc, workspace, workspace_size, (output,), (input,), stream
    )


def infiniopDestroyAdaptiveAvgPool1dDescriptor(desc: Address) -> Status:
    return _adaptive_avg_pool1d.destroy(desc)


def infiniopCreateAdaptiveAvgPool3DDescriptor(
    handle: Address,
    y: Address,
    x: Address,
    output_size: Axes,
) -> tuple[Address, Status]:
    """An operator that needs none of the tensor descriptors any more.

    ``output_size`` is the last three sizes of ``y``. A sequence of less than three is BAD_PARAM.
    """
    return _adaptive_avg_pool3d.create(handle, y, x, *_windows(output_size=output_size))


def infiniopGetAdaptiveAvgPool3DWorkspaceSize(desc: Address) -> tuple[int | None, Status]:
    """Bytes."""
    return _adaptive_avg_pool3d.workspace_size(desc)


def infiniopAdaptiveAvgPool3D(
    desc: Address, workspace: Tensor, workspace_size: int, y: Tensor, x: Tensor, stream: Address
) -> Status:
    """Writes ``y``: at once without a stream, else when its turn comes."""
    return _adaptive_avg_pool3d.compute(desc, workspace, workspace_size, (y,), (x,), stream)


def infiniopDestroyAdaptiveAvgPool3DDescriptor(desc: Address) -> Status:
    return _adaptive_avg_pool3d.destroy(desc)


def infiniopCreateAvgPoolBackwardDescriptor(
    handle: Address,
    grad_input_desc: Address,
    grad_output_desc: Address,
    input_desc: Address,
    kernel_size: Axes,
    strides: Axes,
    pads: Axes,
    ceil_mode: bool,
) -> tuple[Address, Status]:
    """An operator that needs none of the tensor descriptors any more.

    ``strides`` may be None (``kernel_size``), and so may ``pads`` (0). A sequence shorter than the
    number of spatial axes is BAD_PARAM.
    """
    return _avg_pool_backward.create(
        handle,
        grad_input_desc,
        grad_output_desc,
        input_desc,
        *_windows(kernel_size=kernel_size, strides=strides, pads=pads),
        ceil_mode,
    )


def infiniopGetAvgPoolBackwardWorkspaceSize(desc: Address) -> tuple[int | None, Status]:
    """Bytes."""
    return _avg_pool_backward.workspace_size(desc)


def infiniopAvgPoolBackward(
    desc: Address,
    workspace: Tensor,
    workspace_size: int,
    grad_input: Tensor,
    grad_output: Tensor,
    input: Tensor,
    stream: Address,
) -> Status:
    """Writes ``grad_input``: at once without a stream, else when its turn comes."""
    inputs = (grad_output, input)
    return _avg_pool_backward.compute(
        desc, workspace, workspace_size, (grad_input,), inputs, stream
    )


def infiniopDestroyAvgPoolBackwardDescriptor(desc: Address) -> Status:
    return _avg_pool_backward.destroy(desc)
