"""Average pooling."""

from __future__ import annotations

from ctypes import c_bool, c_void_p

from backops._c_interface import Address, Tensor
from backops.infiniop._arrays import Axes, int64s
from backops.infiniop._enums import Status
from backops.infiniop._operators import Operator

_avg_pool_backward = Operator(
    "AvgPoolBackward",
    *[c_void_p] * 6,
    c_bool,
    outputs=("grad_input",),
    inputs=("grad_output", "input"),
)


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
        int64s(kernel_size, "kernel_size", -1),
        int64s(strides, "strides", -1),
        int64s(pads, "pads", -1),
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
