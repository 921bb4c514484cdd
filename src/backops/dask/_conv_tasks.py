"""What convolution runs in tasks: one of its products on one piece."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from backops import _native
from backops.dask._axes import Range
from backops.dask._tasks import THREADS, Array, Frame, empty, in_chunk, rounded, sum_dtype


@dataclass(frozen=True)
class Channels:
    """A convolution between channels x and y; `weight` is where these x are in a group."""

    x: Range
    y: Range
    weight: Range
    groups: int
    is_whole: bool


@dataclass(frozen=True)
class Product:
    """Parameters; `dtype` is what is computed in, and `padding` differs from piece to piece."""

    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    precision: str
    dtype: Any
    padding: tuple[int, ...] = ()

    def in_sums(self, dtype: Any) -> Product:
        """For a term of a sum, which must not be rounded before it is added."""
        wide = sum_dtype(dtype)
        return self if wide == dtype else replace(self, dtype=wide, precision="keep")

    @property
    def rank(self) -> int:
        return len(self.stride)


def make_x(
    product: Product,
    channels: tuple[Channels, ...],
    first: int,
    frame: Frame,
    places: tuple[Range, ...],
    chunk: tuple[Range, ...],
    weight: Array,
    bias: Array | None,
    blocks: Sequence[Array],
) -> Array:
    """A chunk of x, from y whose channels begin with `first`."""
    rank = product.rank
    y = frame.fill(blocks, product.dtype)
    shape = tuple(end - begin for begin, end in places)

    def run(c: Channels) -> Array:
        part_shape = (*shape[: -rank - 1], c.x[1] - c.x[0], *shape[-rank:])
        result = empty(part_shape, product.dtype)
        _native.conv_backward(
            _of(y, rank, c.y, first), part_shape, _weight(product, weight, c), product.stride,
            product.padding, product.dilation, c.groups, (True, False, False), product.precision,
            (result, None, None), THREADS,
        )  # fmt: skip
        return result

    own = chunk[-rank - 1]
    result = _by_channels(run, [(c, c.x) for c in channels], own, shape, product)
    return _with_bias(in_chunk(result, places, chunk), bias, own, rank)


def make_y(
    product: Product,
    channels: tuple[Channels, ...],
    first: int,
    frame: Frame,
    places: tuple[Range, ...],
    chunk: tuple[Range, ...],
    weight: Array,
    bias: Array | None,
    blocks: Sequence[Array],
) -> Array:
    """A chunk of y, from x whose channels begin with `first`."""
    rank = product.rank
    x = frame.fill(blocks, product.dtype)
    own = chunk[-rank - 1]
    shape = tuple(end - begin for begin, end in places)
    is_one = len(channels) == 1 and channels[0].y == own
    native: Any = _native

    def run(c: Channels) -> Array:
        part_bias = bias[slice(*own)] if is_one and bias is not None else None
        result = empty((*shape[: -rank - 1], c.y[1] - c.y[0], *shape[-rank:]), product.dtype)
        native.conv(
            _of(x, rank, c.x, first), _weight(product, weight, c), part_bias, product.stride,
            product.padding, product.dilation, c.groups, product.precision, result, THREADS,
        )  # fmt: skip
        return result

    result = _by_channels(run, [(c, c.y) for c in channels], own, shape, product)
    return _with_bias(result, None if is_one else bias, own, rank)


def make_weight(
    product: Product,
    channels: Channels,
    kernel: tuple[int, ...],
    y_frame: Frame,
    x_frame: Frame,
    y_blocks: Sequence[Array],
    x_blocks: Sequence[Array],
) -> Array:
    """What one piece of y adds to the gradient of the weight."""
    y, x = y_frame.fill(y_blocks, product.dtype), x_frame.fill(x_blocks, product.dtype, 1)
    shape = (channels.y[1] - channels.y[0], channels.weight[1] - channels.weight[0], *kernel)
    _, result, _ = _native.conv_backward(
        y, x, shape, product.stride, product.padding, product.dilation, channels.groups,
        (False, True, False), product.precision, None, THREADS,
    )  # fmt: skip
    return np.asarray(result)


def sum_channels(product: Product, frame: Frame, blocks: Sequence[Array]) -> Array:
    """Sums over batch and space: the bias gradient of a convolution with one tap."""
    y = frame.fill(blocks, sum_dtype(frame.dtype))
    rank = product.rank
    ones = (1,) * rank
    x_shape = (*y.shape[: -rank - 1], 1, *y.shape[-rank:])
    weight_shape = (y.shape[-rank - 1], 1, *ones)
    _, _, result = _native.conv_backward(
        y, x_shape, weight_shape, ones, (0,) * rank, ones, 1, (False, False, True),
        product.precision, None, THREADS,
    )  # fmt: skip
    return np.asarray(result)


def assemble(
    shape: tuple[int, ...],
    dtype: Any,
    places: tuple[tuple[slice, ...], ...],
    totals: Sequence[Array],
) -> Array:
    """A gradient from its parts, each rounded now."""
    result = np.zeros(shape, dtype)
    for place, total in zip(places, totals, strict=True):
        result[place] = rounded(total, dtype)
    return result


def finish(total: Array, bias: Array | None, own: Range, rank: int, dtype: Any) -> Array:
    with np.errstate(all="ignore"):
        if bias is not None:
            total = total + _along_channels(bias, own, rank, total.dtype)
        return rounded(total, dtype)


def only_bias(
    shape: tuple[int, ...], dtype: Any, own: Range, rank: int, bias: Array | None
) -> Array:
    """A chunk that meets nothing else."""
    result = np.zeros(shape, dtype)
    if bias is not None:
        result += _along_channels(bias, own, rank, dtype)
    return result


def _with_bias(result: Array, bias: Array | None, own: Range, rank: int) -> Array:
    return result if bias is None else finish(result, bias, own, rank, result.dtype)


def _along_channels(bias: Array, own: Range, rank: int, dtype: Any) -> Array:
    return bias[slice(*own)].astype(dtype).reshape(-1, *(1,) * rank)


def _by_channels(
    run: Callable[[Channels], Array],
    channels: Sequence[tuple[Channels, Range]],
    own: Range,
    shape: tuple[int, ...],
    product: Product,
) -> Array:
    """Results of convolutions side by side, each at its channels of the result."""
    if len(channels) == 1 and channels[0][1] == own:
        return run(channels[0][0])
    result = np.zeros(shape, product.dtype)
    for each, place in channels:
        _of(result, product.rank, place, own[0])[...] += run(each)
    return result


def _of(array: Array, rank: int, channels: Range, first: int) -> Array:
    """Some channels of an array whose channels begin with `first`."""
    where: Any = (slice(channels[0] - first, channels[1] - first), *(slice(None),) * rank)
    return array[(..., *where)]


def _weight(product: Product, weight: Array, channels: Channels) -> Array:
    return weight[slice(*channels.y), slice(*channels.weight)].astype(product.dtype, copy=False)
