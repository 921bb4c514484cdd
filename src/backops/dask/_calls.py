"""From the arguments of a function to its graph: checks, geometry, chunks."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import dask.array as da

from backops import _native
from backops.dask import _arrays, _conv, _pool
from backops.dask._arrays import no_memory, stand_in
from backops.dask._axes import TapAxis
from backops.dask._conv_tasks import Product
from backops.dask._graph import Chunks, Graph
from backops.dask._pool_tasks import Windows

PoolParameters: TypeAlias = tuple[Any, Any, Any, Any, Any, Any]
"""kernel_size, stride, padding, ceil_mode, count_include_pad and divisor_override."""

_recorded: contextvars.ContextVar[list[Graph] | None] = contextvars.ContextVar(
    "graphs", default=None
)


@contextlib.contextmanager
def recording() -> Iterator[list[Graph]]:
    """The graphs that calls inside make."""
    graphs: list[Graph] = []
    token = _recorded.set(graphs)
    try:
        yield graphs
    finally:
        _recorded.reset(token)


def _finish(made: tuple[Graph, da.Array]) -> da.Array:
    graphs = _recorded.get()
    if graphs is not None:
        graphs.append(made[0])
    return made[1]


def fixed_backward(
    function: str,
    rank: int,
    grad_output: Any,
    input: Any,
    parameters: PoolParameters,
    precision: str,
    chunks: Any,
) -> da.Array:
    grad = _arrays.data(function, "grad_output", grad_output)
    shape = _arrays.shape_of(input)
    _arrays.check(
        lambda: _native.avg_pool_backward(
            function, rank, stand_in(grad), _arrays.shape_or_value(input), *parameters, precision,
            no_memory(shape, grad.dtype), 1,
        )
    )  # fmt: skip
    pooling = _fixed(function, rank, shape, parameters, precision, grad.dtype)
    chunks = _result_chunks(function, chunks, input, shape, grad.dtype)
    return _finish(_pool.backward(pooling, grad, chunks))


def fixed(
    function: str, rank: int, input: Any, parameters: PoolParameters, precision: str, chunks: Any
) -> da.Array:
    x = _arrays.data(function, "input", input)
    native: Any = _native
    _arrays.check(
        lambda: native.avg_pool(
            function, rank, stand_in(x), *parameters, precision, _arrays.NOTHING, 1
        )
    )
    pooling = _fixed(function, rank, x.shape, parameters, precision, x.dtype)
    chunks = _arrays.given_chunks(function, chunks, pooling.output_shape, x.dtype)
    return _finish(_pool.forward(pooling, x, chunks))


def _fixed(
    function: str,
    rank: int,
    shape: tuple[int, ...],
    parameters: PoolParameters,
    precision: str,
    dtype: Any,
) -> _pool.Pooling:
    geometry = _native.avg_pool_geometry(function, rank, shape, *parameters, dtype.name)
    ceil_mode, count_include_pad = bool(parameters[3]), bool(parameters[4])
    axes = _pool.fixed_axes(shape, geometry, ceil_mode, count_include_pad)
    windows = Windows(
        rank, *geometry[1:4], ceil_mode, count_include_pad, geometry[4],
        precision if dtype.name == "float32" else "keep",
    )  # fmt: skip
    return _pool.Pooling(function, axes, tuple(shape), windows)


def adaptive_backward(
    function: str, rank: int, grad_output: Any, input: Any, chunks: Any
) -> da.Array:
    grad = _arrays.data(function, "grad_output", grad_output)
    shape = _arrays.shape_of(input)
    _arrays.check(
        lambda: _native.adaptive_avg_pool_backward(
            function, rank, stand_in(grad), _arrays.shape_or_value(input),
            no_memory(shape, grad.dtype), 1,
        )
    )  # fmt: skip
    axes = _pool.adaptive_axes(shape, grad.shape[-rank:])
    pooling = _pool.Pooling(function, axes, shape, Windows(rank))
    chunks = _result_chunks(function, chunks, input, shape, grad.dtype)
    return _finish(_pool.backward(pooling, grad, chunks))


def adaptive(function: str, rank: int, input: Any, output_size: Any, chunks: Any) -> da.Array:
    x = _arrays.data(function, "input", input)
    native: Any = _native
    _arrays.check(
        lambda: native.adaptive_avg_pool(
            function, rank, stand_in(x), output_size, _arrays.NOTHING, 1
        )
    )
    sizes = output_size if isinstance(output_size, Sequence) else (output_size,)
    sizes = tuple(sizes) * (rank if len(sizes) == 1 else 1)
    own = x.shape[-rank:]
    sizes = tuple(n if size is None else int(size) for size, n in zip(sizes, own, strict=True))
    pooling = _pool.Pooling(function, _pool.adaptive_axes(x.shape, sizes), x.shape, Windows(rank))
    chunks = _arrays.given_chunks(function, chunks, pooling.output_shape, x.dtype)
    return _finish(_pool.forward(pooling, x, chunks))


def conv_backward(
    grad_output: Any,
    input: Any,
    weight: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: Any,
    output_mask: Any,
    precision: str,
    chunks: Any,
) -> tuple[da.Array | None, da.Array | None, da.Array | None]:
    function = "conv_backward"
    y = _arrays.data(function, "grad_output", grad_output)
    x_shape, weight_shape = _arrays.shape_of(input), _arrays.shape_of(weight)
    shapes = (x_shape, weight_shape, weight_shape[:1])
    parameters = (stride, padding, dilation, groups)
    _arrays.check(
        lambda: _native.conv_backward(
            stand_in(y), stand_in(input), stand_in(weight), *parameters, output_mask, precision,
            tuple(
                no_memory(shape, y.dtype) if wanted else None
                for shape, wanted in zip(shapes, output_mask, strict=True)
            ) if _is_mask(output_mask) else None, 1,
        )
    )  # fmt: skip
    wants_x, wants_weight, wants_bias = output_mask
    conv = _convolution(function, x_shape, weight_shape, parameters, precision, y.dtype)
    grad_x = grad_weight = grad_bias = None
    if wants_x:
        small = _arrays.small(function, "weight", weight)
        cut = _result_chunks(function, chunks, input, x_shape, y.dtype)
        grad_x = _finish(_conv.make_x(conv, y, small, None, cut))
    if wants_weight:
        x = _arrays.data(function, "input", input)
        grad_weight = _finish(_conv.make_weight(conv, y, x))
    if wants_bias:
        grad_bias = _finish(_conv.make_bias(conv, y))
    return grad_x, grad_weight, grad_bias


def _convolution(
    function: str,
    x_shape: tuple[int, ...],
    weight_shape: tuple[int, ...],
    parameters: tuple[Any, Any, Any, Any],
    precision: str,
    dtype: Any,
) -> _conv.Convolution:
    y_shape, strides, paddings, dilations, groups = _native.conv_geometry(
        x_shape, weight_shape, *parameters, dtype.name
    )
    rank = len(strides)
    lengths = zip(
        x_shape[-rank:], y_shape[-rank:], weight_shape[2:], strides, paddings, dilations,
        strict=True,
    )  # fmt: skip
    product = Product(strides, dilations, precision if dtype.name == "float32" else "keep", dtype)
    axes = tuple(TapAxis(*each) for each in lengths)
    return _conv.Convolution(function, axes, x_shape, weight_shape, groups, product)


def _is_mask(value: Any) -> bool:
    try:
        return len(value) == 3
    except TypeError:
        return False


def _result_chunks(
    function: str, chunks: Any, input: Any, shape: tuple[int, ...], dtype: Any
) -> Chunks | None:
    """As given, else those of the array that the result is the gradient of."""
    if chunks is None and isinstance(input, da.Array):
        own: Chunks = _arrays.data(function, "input", input).chunks
        return own
    return _arrays.given_chunks(function, chunks, shape, dtype)
