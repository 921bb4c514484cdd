"""Average pooling. It is linear, and so is its gradient: each is the other's transpose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from backops import _native
from backops._ops import Axes, OutputSize
from backops.jax import _ffi
from backops.jax._operator import Operator, transposes


@dataclass(frozen=True)
class _Pooling:
    """Windows over arrays with certain spatial sizes; one int per spatial axis."""

    input_size: tuple[int, ...]
    output_size: tuple[int, ...]
    attributes: tuple[tuple[str, Any], ...]  # of the handlers

    @property
    def rank(self) -> int:
        return len(self.input_size)


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
    shape = _ffi.known_shape(function, x.shape, x.ndim - rank)
    output_shape, kernels, strides, paddings, divisor = _native.avg_pool_geometry(
        function, rank, shape, kernel_size, stride, padding, ceil_mode, count_include_pad,
        divisor_override, x.dtype.name,
    )  # fmt: skip
    attributes = {
        "adaptive": False,
        "kernel_size": kernels,
        "stride": strides,
        "padding": paddings,
        "ceil_mode": bool(ceil_mode),
        "count_include_pad": bool(count_include_pad),
        "divisor_override": divisor,
    }
    how = _Pooling(shape[-rank:], output_shape[-rank:], tuple(attributes.items()))
    return apply(x, how=how)


def adaptive(function: str, rank: int, x: Any, output_size: OutputSize) -> Any:
    x = jnp.asarray(x)
    shape = _ffi.known_shape(function, x.shape, x.ndim - rank)
    output_shape, *_ = _native.adaptive_avg_pool_geometry(
        function, rank, shape, output_size, x.dtype.name
    )
    how = _Pooling(shape[-rank:], output_shape[-rank:], (("adaptive", True),))
    return apply(x, how=how)


def _output_shape(how: _Pooling, x: Any) -> tuple[Any, ...]:
    return (*x[: -how.rank], *how.output_size)


def _input_shape(how: _Pooling, y: Any) -> tuple[Any, ...]:
    return (*y[: -how.rank], *how.input_size)


def _keep_others(how: _Pooling, *ndims: int) -> list[range]:
    return [range(ndim - how.rank) for ndim in ndims]


def _operator(target: str, result_shape: Any) -> Operator:
    def run(how: _Pooling, x: Any) -> Any:
        shape = result_shape(how, x.shape)
        return _ffi.call(target, shape, x, rank=how.rank, **dict(how.attributes))

    return Operator(target, result_shape, run, _keep_others)


apply = _operator("backops_pool", _output_shape)
grad_input = _operator("backops_pool_backward", _input_shape)
transposes(apply, grad_input)
