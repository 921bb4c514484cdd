"""Average pooling: forward by XLA, backward by backops, each the derivative of the other."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from backops import _native
from backops._ops import Axes
from backops.jax import _ffi, _sharding


@dataclass(frozen=True)
class _Axis:
    """The windows along one axis."""

    begins: list[int]
    divisors: list[int]
    kernel: int  # 0: lengths differ, and are the divisors
    stride: int
    padding: tuple[int, int]  # before and after, as far as windows reach
    is_whole: bool  # one window over everything


@dataclass(frozen=True)
class _Pooling:
    """One pooling operator on one shape."""

    rank: int
    adaptive: bool
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    divisor_override: int
    # Per axis, where the windows begin and what they divide by; follows from the rest.
    windows: Sequence[tuple[list[int], list[int]]] = field(compare=False, repr=False)
    ceil_mode: bool = False
    count_include_pad: bool = True

    def on(self, input_shape: tuple[int, ...]) -> _Pooling:
        """The same windows on an input with another batch or other channels."""
        output_shape = (*input_shape[: -self.rank], *self.output_shape[-self.rank :])
        return replace(self, input_shape=input_shape, output_shape=output_shape)

    def attributes(self) -> dict[str, Any]:
        if self.adaptive:
            return {"rank": self.rank, "adaptive": True}
        return {
            "rank": self.rank,
            "adaptive": False,
            "kernel_size": self.kernel_size,
            "stride": self.stride,
            "padding": self.padding,
            "ceil_mode": self.ceil_mode,
            "count_include_pad": self.count_include_pad,
            "divisor_override": self.divisor_override,
        }

    def axes(self) -> list[_Axis]:
        sizes = self.input_shape[-self.rank :]
        return [self._axis(i, size, *self.windows[i]) for i, size in enumerate(sizes)]

    def _axis(self, i: int, size: int, begins: list[int], divisors: list[int]) -> _Axis:
        if self.adaptive:
            length = 0 if size % len(begins) else size // len(begins)
            return _Axis(begins, divisors, length, length, (0, 0), len(begins) == 1)
        kernel, stride, before = self.kernel_size[i], self.stride[i], self.padding[i]
        reach = (len(begins) - 1) * stride + kernel
        after = max(0, reach - before - size)
        if len(begins) == 1 and kernel == before + size + after:
            return _Axis(begins, divisors, kernel, stride, (0, 0), True)
        return _Axis(begins, divisors, kernel, stride, (before, after), False)

    def divisor(self, ndim: int) -> Any:
        """What the sums divide by: a number, or one for each spatial output, with `ndim` axes."""
        if self.divisor_override:
            return self.divisor_override
        if all(min(divisors) == max(divisors) for _, divisors in self.windows):
            return math.prod(divisors[0] for _, divisors in self.windows)
        axes = [np.asarray(divisors, np.float64) for _, divisors in self.windows]
        divisors = functools.reduce(np.multiply, np.ix_(*axes))
        return divisors.reshape((1,) * (ndim - self.rank) + divisors.shape)


def fixed(
    function: str,
    rank: int,
    x: Any,
    kernel_size: Axes,
    stride: Axes | None,
    padding: Axes,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    x = jnp.asarray(x)
    output_shape, kernels, strides, paddings, divisor, windows = _native.avg_pool_geometry(
        function, rank, x.shape, kernel_size, stride, padding, ceil_mode, count_include_pad,
        divisor_override, x.dtype.name,
    )  # fmt: skip
    pooling = _Pooling(
        rank, False, x.shape, output_shape, kernels, strides, paddings, divisor, windows,
        bool(ceil_mode), bool(count_include_pad),
    )  # fmt: skip
    return _run(pooling, x)


def adaptive(
    function: str, rank: int, x: Any, output_size: int | Sequence[int | None] | None
) -> Any:
    x = jnp.asarray(x)
    output_shape, kernels, strides, paddings, divisor, windows = _native.adaptive_avg_pool_geometry(
        function, rank, x.shape, _sizes(output_size, x.shape[-rank:]), x.dtype.name
    )
    pooling = _Pooling(
        rank, True, x.shape, output_shape, kernels, strides, paddings, divisor, windows
    )
    return _run(pooling, x)


def _run(p: _Pooling, x: Any) -> Any:
    def pool(part: Any) -> Any:
        return _pool(p.on(part.shape), part)

    return _sharding.over_parts(pool, x, keeps=x.ndim - p.rank)


def _sizes(output_size: Any, input_size: tuple[int, ...]) -> Any:
    """`output_size` without None, as far as it has the right length."""
    sizes = output_size if isinstance(output_size, (tuple, list)) else [output_size]
    if len(sizes) == 1:
        sizes = list(sizes) * len(input_size)
    if None not in sizes or len(sizes) != len(input_size):
        return output_size
    return [own if size is None else size for size, own in zip(sizes, input_size, strict=True)]


# Forward. XLA's reduce_window over all axes at once takes up to ten times as long as sums of slices
# along one axis after the other. Between axes stands a barrier, or XLA would fuse them and take
# the first axis' sums once per slice of the next.

_MOST_SLICES = 64


def _sum_equal_windows(x: Any, axis: int, kernel: int, stride: int, outputs: int) -> Any:
    if kernel <= _MOST_SLICES:
        span = (outputs - 1) * stride + 1
        return functools.reduce(
            jnp.add,
            (jax.lax.slice_in_dim(x, i, i + span, stride, axis) for i in range(kernel)),
        )
    window, strides = [1] * x.ndim, [1] * x.ndim
    window[axis], strides[axis] = kernel, stride
    zero = np.zeros((), x.dtype)
    return jax.lax.reduce_window(x, zero, jax.lax.add, window, strides, "VALID")


def _sum_unequal_windows(x: Any, axis: int, begins: list[int], lengths: list[int]) -> Any:
    # A product with a matrix of zeros and ones would be simpler, but one NaN or infinity would
    # reach every output.
    offsets = np.arange(max(lengths))
    inside = offsets < np.asarray(lengths)[:, None]
    indices = np.where(inside, np.asarray(begins)[:, None] + offsets, 0)
    before, after = (1,) * axis, (1,) * (x.ndim - axis - 1)
    if len(offsets) > _MOST_SLICES:
        inside = inside.reshape(*before, *inside.shape, *after)
        return jnp.where(inside, jnp.take(x, indices, axis), 0).sum(axis + 1)
    return functools.reduce(
        jnp.add,
        (
            jnp.where(
                inside[:, i].reshape(*before, -1, *after), jnp.take(x, indices[:, i], axis), 0
            )
            for i in offsets
        ),
    )


def _forward(p: _Pooling, x: Any) -> Any:
    axes = p.axes()
    first = x.ndim - p.rank
    sums = jnp.pad(
        x.astype(_ffi.sum_dtype(x.dtype)), [(0, 0)] * first + [axis.padding for axis in axes]
    )
    whole = tuple(i for i, axis in enumerate(axes, first) if axis.is_whole)
    sums = sums.sum(whole, keepdims=True)
    for i, axis in enumerate(axes, first):
        if axis.is_whole:
            continue
        if axis.kernel:
            sums = _sum_equal_windows(sums, i, axis.kernel, axis.stride, len(axis.begins))
        else:
            sums = _sum_unequal_windows(sums, i, axis.begins, axis.divisors)
        if i < x.ndim - 1:
            sums = jax.lax.optimization_barrier(sums)
    return (sums / np.asarray(p.divisor(x.ndim), sums.dtype)).astype(x.dtype)


# Backward. Both directions are linear, so each needs nothing of the other but the shapes.


def _backward(p: _Pooling, grad_output: Any) -> Any:
    result = jax.ShapeDtypeStruct(p.input_shape, grad_output.dtype)
    return _ffi.call("backops_pool_backward", [result], grad_output, **p.attributes())[0]


# Compiled as one where the caller compiles nothing.
_compiled = jax.jit(_forward, static_argnums=0, inline=True)
_pool = jax.custom_vjp(_compiled, nondiff_argnums=(0,))
_pool_backward = jax.custom_vjp(_backward, nondiff_argnums=(0,))
_pool.defvjp(
    lambda p, x: (_pool(p, x), None),
    lambda p, _, grad_output: (_pool_backward(p, grad_output),),
)
_pool_backward.defvjp(
    lambda p, grad_output: (_pool_backward(p, grad_output), None),
    lambda p, _, x: (_pool(p, x),),
)
