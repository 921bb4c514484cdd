"""Pooling and convolution for JAX, forward and backward, by backops.

>>> import jax, jax.numpy as jnp
>>> import backops.jax
>>> def loss(x):
...     return backops.jax.avg_pool2d(x, 2).sum()
>>> jax.jit(jax.grad(loss))(jnp.ones((1, 1, 2, 4)))[0, 0]
Array([[0.25, 0.25, 0.25, 0.25],
       [0.25, 0.25, 0.25, 0.25]], dtype=float32)

The functions work under ``jit``, ``vmap``, ``checkpoint`` and derivatives of any order in both
modes, on the CPU, in float16, bfloat16 and float32, and in float64 where ``jax_enable_x64`` is set.
Sums are float32 at least and are rounded once. Bad arguments raise the exceptions of
:mod:`backops` while JAX traces, before anything runs.

``CUSTOM_CALLS`` are the names of what compiled programs call, for ``jax.export``.
"""

from __future__ import annotations

from typing import Any

try:
    from jax import ffi as _jax_ffi  # noqa: F401
except ImportError as missing:
    raise ImportError("backops.jax needs JAX 0.5 or newer: pip install jax") from missing

from backops._ops import Axes, OutputSize
from backops.jax import _pool
from backops.jax._conv import conv, conv_transpose
from backops.jax._ffi import CUSTOM_CALLS

__all__ = [
    "CUSTOM_CALLS",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "conv",
    "conv_transpose",
]


def avg_pool1d(
    x: Any,
    kernel_size: Axes,
    stride: Axes | None = None,
    padding: Axes = 0,
    *,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """1-D average pooling of ``(N, C, L)`` or ``(C, L)``.

    >>> backops.jax.avg_pool1d(jnp.arange(4.0).reshape(1, 4), 2)
    Array([[0.5, 2.5]], dtype=float32)

    Arguments, result and errors are those of :func:`avg_pool2d`, for one axis.
    """
    return _pool.fixed(
        "avg_pool1d", 1, x, kernel_size, stride, padding, ceil_mode, count_include_pad,
        divisor_override,
    )  # fmt: skip


def avg_pool2d(
    x: Any,
    kernel_size: Axes,
    stride: Axes | None = None,
    padding: Axes = 0,
    *,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """2-D average pooling of ``(N, C, H, W)`` or ``(C, H, W)``.

    >>> backops.jax.avg_pool2d(jnp.arange(8.0).reshape(1, 2, 4), 2)
    Array([[[2.5, 4.5]]], dtype=float32)

    Arguments:
        x: the input, in float16, bfloat16, float32 or float64.
        kernel_size, stride, padding: an int, or a sequence of one or two ints, in elements.
            ``stride=None`` means ``kernel_size``; padding is at most half of the kernel.
        ceil_mode: round the output size up, so that a last, shorter window may be there.
        count_include_pad: padding counts in the divisor of the windows it reaches into.
        divisor_override: divide every window by this instead of its size; None or 0: do not.

    Raises DTypeError, ShapeError or ParamError of :mod:`backops`.
    """
    return _pool.fixed(
        "avg_pool2d", 2, x, kernel_size, stride, padding, ceil_mode, count_include_pad,
        divisor_override,
    )  # fmt: skip


def avg_pool3d(
    x: Any,
    kernel_size: Axes,
    stride: Axes | None = None,
    padding: Axes = 0,
    *,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """3-D average pooling of ``(N, C, D, H, W)`` or ``(C, D, H, W)``.

    >>> backops.jax.avg_pool3d(jnp.arange(8.0).reshape(1, 2, 2, 2), 2)
    Array([[[[3.5]]]], dtype=float32)

    Arguments, result and errors are those of :func:`avg_pool2d`, for three axes.
    """
    return _pool.fixed(
        "avg_pool3d", 3, x, kernel_size, stride, padding, ceil_mode, count_include_pad,
        divisor_override,
    )  # fmt: skip


def adaptive_avg_pool1d(x: Any, output_size: OutputSize) -> Any:
    """1-D adaptive average pooling of ``(N, C, L)`` or ``(C, L)``.

    >>> backops.jax.adaptive_avg_pool1d(jnp.arange(4.0).reshape(1, 4), 2)
    Array([[0.5, 2.5]], dtype=float32)

    Arguments, result and errors are those of :func:`adaptive_avg_pool2d`, for one axis.
    """
    return _pool.adaptive("adaptive_avg_pool1d", 1, x, output_size)


def adaptive_avg_pool2d(x: Any, output_size: OutputSize) -> Any:
    """2-D adaptive average pooling of ``(N, C, H, W)`` or ``(C, H, W)``.

    >>> backops.jax.adaptive_avg_pool2d(jnp.arange(8.0).reshape(1, 2, 4), (1, 2))
    Array([[[2.5, 4.5]]], dtype=float32)

    Arguments:
        x: the input, in float16, bfloat16, float32 or float64.
        output_size: an int, or a sequence of one or two ints; None in place of one keeps the
            input's size.

    Raises DTypeError, ShapeError or ParamError of :mod:`backops`.
    """
    return _pool.adaptive("adaptive_avg_pool2d", 2, x, output_size)


def adaptive_avg_pool3d(x: Any, output_size: OutputSize) -> Any:
    """3-D adaptive average pooling of ``(N, C, D, H, W)`` or ``(C, D, H, W)``.

    >>> backops.jax.adaptive_avg_pool3d(jnp.arange(8.0).reshape(1, 2, 2, 2), 1)
    Array([[[[3.5]]]], dtype=float32)

    Arguments, result and errors are those of :func:`adaptive_avg_pool2d`, for three axes.
    """
    return _pool.adaptive("adaptive_avg_pool3d", 3, x, output_size)
