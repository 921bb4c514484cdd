"""Plans: everything that depends on shapes only, decided once and run many times.

>>> import numpy as np, backops
>>> plan = backops.plan.avg_pool2d_backward((8, 64, 56, 56), 2)
>>> workspace = np.empty(plan.workspace_size, np.uint8)
>>> out = np.empty((8, 64, 56, 56), np.float32)
>>> plan(np.ones((8, 64, 28, 28), np.float32), out=out, workspace=workspace) is out
True

A plan is immutable and may be run by many threads at once. ``plan.kernel`` names what will run: on
contiguous tensors, then on channels-last ones. ``plan.why`` has a line for each engine: that it was
chosen, what it would cost, or why it does not take the problem. ``plan.workspace_size`` is in
bytes. With ``out`` and ``workspace`` given, running a plan allocates nothing. A plan uses at most
the number of threads that was set when it was made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from backops import _native
from backops._native import ConvBackwardPlan, ConvForwardPlan, PoolForwardPlan, PoolPlan
from backops._ops import Axes, OutputSize

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool1d_backward",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool2d_backward",
    "adaptive_avg_pool3d",
    "adaptive_avg_pool3d_backward",
    "avg_pool1d",
    "avg_pool1d_backward",
    "avg_pool2d",
    "avg_pool2d_backward",
    "avg_pool3d",
    "avg_pool3d_backward",
    "conv",
    "conv_backward",
    "conv_transpose",
    "conv_transpose_backward",
]


def _dtype_name(dtype: Any) -> str:
    """The plain name of "float32", numpy.float32, numpy.dtype("float32") or torch.float32."""
    if isinstance(dtype, type):
        return dtype.__name__
    name = getattr(dtype, "name", dtype)
    return name if isinstance(name, str) else str(name).removeprefix("torch.")


def avg_pool1d(
    input_shape: Sequence[int],
    kernel_size: Axes,
    stride: Axes | None = None,
    padding: Axes = 0,
    *,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    precision: str = "keep",
    dtype: Any = "float32",
) -> PoolForwardPlan:
    """Plan of :func:`backops.avg_pool1d`, called as ``plan(input)``."""
    return _native.plan_avg_pool(
        "plan.avg_pool1d", 1, input_shape, kernel_size, stride, padding,
        ceil_mode, count_include_pad, divisor_override, precision, _dtype_name(dtype),
    )  # fmt: skip


def avg_pool2d(
    input_shape: Sequence[int],
    kernel_size: Axes,
    stride: Axes | None = None,
    padding: Axes = 0,
    *,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    precision: str = "keep",
    dtype: Any = "float32",
) -> PoolForwardPlan:
    """Plan of :func:`backops.avg_pool2d`, called as ``plan(input)``."""
    return _native.plan_avg_pool(
        "plan.avg_pool2d", 2, input_shape, kernel_size, stride, padding,
        ceil_mode, count_include_pad, divisor_override, precision, _dtype_name(dtype),
    )  # fmt: skip


def avg_pool3d(
    input_shape: Sequence[int],
    kernel_size: Axes,
    stride: Axes | None = None,
    padding: Axes = 0,
    *,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    precision: str = "keep",
    dtype: Any = "float32",
) -> PoolForwardPlan:
    """Plan of :func:`backops.avg_pool3d`, called as ``plan(input)``."""
    return _native.plan_avg_pool(
        "plan.avg_pool3d", 3, input_shape, kernel_size, stride, padding,
        ceil_mode, count_include_pad, divisor_override, precision, _dtype_name(dtype),
    )  # fmt: skip


def adaptive_avg_pool1d(
    input_shape: Sequence[int], output_size: OutputSize, *, dtype: Any = "float32"
) -> PoolForwardPlan:
    """Plan of :func:`backops.adaptive_avg_pool1d`, called as ``plan(input)``."""
    return _native.plan_adaptive_avg_pool(
        "plan.adaptive_avg_pool1d", 1, input_shape, output_size, _dtype_name(dtype)
    )


def adaptive_avg_pool2d(
    input_shape: Sequence[int], output_size: OutputSize, *, dtype: Any = "float32"
) -> PoolForwardPlan:
    """Plan of :func:`backops.adaptive_avg_pool2d`, called as ``plan(input)``."""
    return _native.plan_adaptive_avg_pool(
        "plan.adaptive_avg_pool2d", 2, input_shape, output_size, _dtype_name(dtype)
    )


def adaptive_avg_pool3d(
    input_shape: Sequence[int], output_size: OutputSize, *, dtype: Any = "float32"
) -> PoolForwardPlan:
    """Plan of :func:`backops.adaptive_avg_pool3d`, called as ``plan(input)``."""
    return _native.plan_adaptive_avg_pool(
        "plan.adaptive_avg_pool3d", 3, input_shape, output_size, _dtype_name(dtype)
    )


def avg_pool1d_backward(
    input_shape: Sequence[int],
    kernel_size: Axes,
    stride: Axes | None = None,
    padding: Axes = 0,
    *,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    precision: str = "keep",
    dtype: Any = "float32",
) -> PoolPlan:
    """Plan of :func:`backops.avg_pool1d_backward`, called as ``plan(grad_output)``."""
    return _native.plan_avg_pool_backward(
        "plan.avg_pool1d_backward", 1, input_shape, kernel_size, stride, padding,
        ceil_mode, count_include_pad, divisor_override, precision, _dtype_name(dtype),
    )  # fmt: skip


def avg_pool2d_backward(
    input_shape: Sequence[int],
    kernel_size: Axes,
    stride: Axes | None = None,
    padding: Axes = 0,
    *,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    precision: str = "keep",
    dtype: Any = "float32",
) -> PoolPlan:
    """Plan of :func:`backops.avg_pool2d_backward`, called as ``plan(grad_output)``."""
    return _native.plan_avg_pool_backward(
        "plan.avg_pool2d_backward", 2, input_shape, kernel_size, stride, padding,
        ceil_mode, count_include_pad, divisor_override, precision, _dtype_name(dtype),
    )  # fmt: skip


def avg_pool3d_backward(
    input_shape: Sequence[int],
    kernel_size: Axes,
    stride: Axes | None = None,
    padding: Axes = 0,
    *,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    precision: str = "keep",
    dtype: Any = "float32",
) -> PoolPlan:
    """Plan of :func:`backops.avg_pool3d_backward`, called as ``plan(grad_output)``."""
    return _native.plan_avg_pool_backward(
        "plan.avg_pool3d_backward", 3, input_shape, kernel_size, stride, padding,
        ceil_mode, count_include_pad, divisor_override, precision, _dtype_name(dtype),
    )  # fmt: skip


def adaptive_avg_pool1d_backward(
    input_shape: Sequence[int], output_size: Axes, *, dtype: Any = "float32"
) -> PoolPlan:
    """Plan of :func:`backops.adaptive_avg_pool1d_backward`, called as ``plan(grad_output)``."""
    return _native.plan_adaptive_avg_pool_backward(
        "plan.adaptive_avg_pool1d_backward", 1, input_shape, output_size, _dtype_name(dtype)
    )


def adaptive_avg_pool2d_backward(
    input_shape: Sequence[int], output_size: Axes, *, dtype: Any = "float32"
) -> PoolPlan:
    """Plan of :func:`backops.adaptive_avg_pool2d_backward`, called as ``plan(grad_output)``."""
    return _native.plan_adaptive_avg_pool_backward(
        "plan.adaptive_avg_pool2d_backward", 2, input_shape, output_size, _dtype_name(dtype)
    )


def adaptive_avg_pool3d_backward(
    input_shape: Sequence[int], output_size: Axes, *, dtype: Any = "float32"
) -> PoolPlan:
    """Plan of :func:`backops.adaptive_avg_pool3d_backward`, called as ``plan(grad_output)``."""
    return _native.plan_adaptive_avg_pool_backward(
        "plan.adaptive_avg_pool3d_backward", 3, input_shape, output_size, _dtype_name(dtype)
    )


def conv(
    input_shape: Sequence[int],
    weight_shape: Sequence[int],
    *,
    stride: Axes = 1,
    padding: Axes = 0,
    dilation: Axes = 1,
    groups: int = 1,
    precision: str = "keep",
    dtype: Any = "float32",
) -> ConvForwardPlan:
    """Plan of :func:`backops.conv`, called as ``plan(input, weight, bias=None)``."""
    return _native.plan_conv_forward(
        "conv", input_shape, weight_shape, stride, padding, 0, dilation, groups, precision,
        _dtype_name(dtype),
    )  # fmt: skip


def conv_transpose(
    input_shape: Sequence[int],
    weight_shape: Sequence[int],
    *,
    stride: Axes = 1,
    padding: Axes = 0,
    output_padding: Axes = 0,
    dilation: Axes = 1,
    groups: int = 1,
    precision: str = "keep",
    dtype: Any = "float32",
) -> ConvForwardPlan:
    """Plan of :func:`backops.conv_transpose`, called as ``plan(input, weight, bias=None)``."""
    return _native.plan_conv_forward(
        "conv_transpose", input_shape, weight_shape, stride, padding, output_padding, dilation,
        groups, precision, _dtype_name(dtype),
    )  # fmt: skip


def conv_backward(
    input_shape: Sequence[int],
    weight_shape: Sequence[int],
    *,
    stride: Axes = 1,
    padding: Axes = 0,
    dilation: Axes = 1,
    groups: int = 1,
    output_mask: Sequence[bool] = (True, True, True),
    precision: str = "keep",
    dtype: Any = "float32",
) -> ConvBackwardPlan:
    """Plan of :func:`backops.conv_backward`, called as ``plan(grad_output, input, weight)``."""
    return _native.plan_conv(
        input_shape, weight_shape, stride, padding, dilation, groups, output_mask, precision,
        _dtype_name(dtype),
    )  # fmt: skip


def conv_transpose_backward(
    input_shape: Sequence[int],
    weight_shape: Sequence[int],
    *,
    stride: Axes = 1,
    padding: Axes = 0,
    output_padding: Axes = 0,
    dilation: Axes = 1,
    groups: int = 1,
    output_mask: Sequence[bool] = (True, True, True),
    precision: str = "keep",
    dtype: Any = "float32",
) -> ConvBackwardPlan:
    """Plan of :func:`backops.conv_transpose_backward`, called as that of :func:`conv_backward`."""
    return _native.plan_conv(
        input_shape, weight_shape, stride, padding, dilation, groups, output_mask, precision,
        _dtype_name(dtype), "conv_transpose_backward", output_padding,
    )  # fmt: skip
