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
from backops.dask._pool_tasks import Pooling, Windows

PoolParameters: TypeAlias = tuple[Any, Any, Any, Any, Any, Any]
"""kernel_size, stride, padding, ceil_mode, count_include_pad and divisor_override."""

ConvParameters: TypeAlias = tuple[Any, ...]
"""stride, padding, of the transposed operators output_padding, dilation and groups."""

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
    _arrays.check(
        lambda: _native.avg_pool(
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
) -> Pooling:
    geometry = _native.avg_pool_geometry(function, rank, shape, *parameters, dtype.name)
    ceil_mode, count_include_pad = bool(parameters[3]), bool(parameters[4])
    axes = _pool.fixed_axes(shape, geometry, ceil_mode, count_include_pad)
    windows = Windows(
        rank, *geometry[1:4], ceil_mode, count_include_pad, geometry[4],
        precision if dtype.name == "float32" else "keep",
    )  # fmt: skip
    return Pooling(function, axes, tuple(shape), windows)


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
    pooling = Pooling(function, axes, shape, Windows(rank))
    chunks = _result_chunks(function, chunks, input, shape, grad.dtype)
    return _finish(_pool.backward(pooling, grad, chunks))


def adaptive(function: str, rank: int, input: Any, output_size: Any, chunks: Any) -> da.Array:
    x = _arrays.data(function, "input", input)
    _arrays.check(
        lambda: _native.adaptive_avg_pool(
            function, rank, stand_in(x), output_size, _arrays.NOTHING, 1
        )
    )
    sizes = output_size if isinstance(output_size, Sequence) else (output_size,)
    sizes = tuple(sizes) * (rank if len(sizes) == 1 else 1)
    own = x.shape[-rank:]
    sizes = tuple(n if size is None else int(size) for size, n in zip(sizes, own, strict=True))
    pooling = Pooling(function, _pool.adaptive_axes(x.shape, sizes), x.shape, Windows(rank))
    chunks = _arrays.given_chunks(function, chunks, pooling.output_shape, x.dtype)
    return _finish(_pool.forward(pooling, x, chunks))


def conv(
    function: str,
    input: Any,
    weight: Any,
    bias: Any,
    parameters: ConvParameters,
    precision: str,
    chunks: Any,
) -> da.Array:
    """`conv` or `conv_transpose`."""
    source = _arrays.data(function, "input", input)
    operands = [stand_in(each) for each in (source, weight, bias)]
    _arrays.check(
        lambda: getattr(_native, function)(*operands, *parameters, precision, _arrays.NOTHING, 1)
    )
    small = _arrays.small(function, "weight", weight)
    added = None if bias is None else _arrays.small(function, "bias", bias)
    convolution = _convolution(
        function, source.shape, small.shape, parameters, precision, source.dtype
    )
    is_y = function == "conv"
    shape = convolution.y_shape if is_y else convolution.x_shape
    cut = _arrays.given_chunks(function, chunks, shape, source.dtype)
    make = _conv.make_y if is_y else _conv.make_x
    return _finish(make(convolution, source, small, added, cut))


def conv_backward(
    function: str,
    grad_output: Any,
    input: Any,
    weight: Any,
    parameters: ConvParameters,
    output_mask: Any,
    precision: str,
    chunks: Any,
) -> tuple[da.Array | None, da.Array | None, da.Array | None]:
    """Of `conv_backward` or `conv_transpose_backward`."""
    is_y = function == "conv_transpose_backward"
    grad = _arrays.data(function, "grad_output", grad_output)
    shape, weight_shape = _arrays.shape_of(input), _arrays.shape_of(weight)
    _check_backward(function, grad, input, weight, parameters, output_mask, precision)
    conv = _convolution(function, shape, weight_shape, parameters, precision, grad.dtype)
    wants_input, wants_weight, wants_bias = output_mask
    grad_input = grad_weight = grad_bias = None
    if wants_input:
        small = _arrays.small(function, "weight", weight)
        cut = _result_chunks(function, chunks, input, shape, grad.dtype)
        make = _conv.make_y if is_y else _conv.make_x
        grad_input = _finish(make(conv, grad, small, None, cut))
    if wants_weight:
        other = _arrays.data(function, "input", input)
        y, x = (other, grad) if is_y else (grad, other)
        grad_weight = _finish(_conv.make_weight(conv, y, x))
    if wants_bias:
        grad_bias = _finish(_conv.make_bias(conv, grad))
    return grad_input, grad_weight, grad_bias


def _check_backward(
    function: str,
    grad: da.Array,
    input: Any,
    weight: Any,
    parameters: ConvParameters,
    output_mask: Any,
    precision: str,
) -> None:
    weight_shape = _arrays.shape_of(weight)
    channels = grad.shape[-len(weight_shape) + 1 : -len(weight_shape) + 2 or None]
    shapes = (_arrays.shape_of(input), weight_shape, channels)
    out = None
    if _is_mask(output_mask):
        pairs = zip(shapes, output_mask, strict=True)
        out = tuple(no_memory(shape, grad.dtype) if wanted else None for shape, wanted in pairs)
    operands = (stand_in(grad), stand_in(input), stand_in(weight))
    run = getattr(_native, function)
    _arrays.check(lambda: run(*operands, *parameters, output_mask, precision, out, 1))


def _convolution(
    function: str,
    shape: tuple[int, ...],
    weight_shape: tuple[int, ...],
    parameters: ConvParameters,
    precision: str,
    dtype: Any,
) -> _conv.Convolution:
    """What is convolved by a function whose input has that shape."""
    operator = function.removesuffix("_backward")
    is_transposed = operator == "conv_transpose"
    *shared, dilation, groups = parameters
    made, strides, paddings, dilations, group_count, *_ = _native.conv_geometry(
        shape, weight_shape, shared[0], shared[1], dilation, groups, dtype.name, operator,
        shared[2] if is_transposed else 0,
    )  # fmt: skip
    x_shape, y_shape = (made, shape) if is_transposed else (shape, made)
    rank = len(strides)
    lengths = zip(
        x_shape[-rank:], y_shape[-rank:], weight_shape[2:], strides, paddings, dilations,
        strict=True,
    )  # fmt: skip
    product = Product(strides, dilations, precision if dtype.name == "float32" else "keep", dtype)
    axes = tuple(TapAxis(*each) for each in lengths)
    return _conv.Convolution(function, axes, tuple(x_shape), weight_shape, group_count, product)


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
