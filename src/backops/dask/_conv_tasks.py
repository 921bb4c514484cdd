"""What convolution runs in tasks: one of its products on one piece."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from backops import _native
from backops.dask._axes import Range
from backops.dask._tasks import THREADS, Array, Frame, covers, empty, in_chunk, rounded, sum_dtype

Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Channels:
    """A convolution between channels x and y; `weight` is where these x are in a group."""

    x: Range
    y: Range
    weight: Range
    groups: int
    is_whole: bool


@dataclass(frozen=True)
class Piece:
    """Along one axis: some outputs, the inputs and the taps that they meet, and padding."""

    y: slice
    x: slice
    taps: slice
    padding: int


@dataclass(frozen=True)
class Product:
    """Parameters; `dtype` is what is computed in. Of a piece, `padding` is left to the operator,
    and `zeros` are how far its x reach beyond the axes, before and after."""

    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    precision: str
    dtype: Any
    padding: tuple[int, ...] = ()
    zeros: tuple[Range, ...] = ()

    def in_sums(self, dtype: Any) -> Product:
        """For a term of a sum, which must not be rounded before it is added."""
        wide = sum_dtype(dtype)
        return self if wide == dtype else replace(self, dtype=wide, precision="keep")

    @property
    def rank(self) -> int:
        return len(self.stride)

    # Zeros that stand for padding are harmless while they meet finite numbers, but a NaN or an
    # infinity makes NaNs of them. Then outputs that meet zeros are taken one by one, with the taps
    # that lie inside the array.

    def outputs_without_zeros(self, y: Shape, x: Shape, kernel: Shape) -> list[Range]:
        """Along each axis, the outputs that meet none of the zeros of this piece."""
        found = []
        for axis, (before, after) in enumerate(self.zeros):
            s, outputs, length = self.stride[axis], y[axis - self.rank], x[axis - self.rank]
            span = self.dilation[axis] * (kernel[axis] - 1) + 1
            first = min(outputs, -(before // -s))
            last = outputs if after == 0 else max(0, (length - after - span) // s + 1)
            found.append((first, max(first, last)))
        return found

    def pieces(
        self, inner: Sequence[Range], y: Shape, x: Shape, kernel: Shape
    ) -> Iterator[tuple[Piece, ...]]:
        along = [
            self._pieces(axis, inner[axis], y[axis - self.rank], x[axis - self.rank], kernel[axis])
            for axis in range(self.rank)
        ]
        return itertools.product(*along)

    def _pieces(self, axis: int, inner: Range, outputs: int, length: int, taps: int) -> list[Piece]:
        s, d = self.stride[axis], self.dilation[axis]
        before, after = self.zeros[axis]
        if inner == (0, outputs):
            every = slice(None)
            return [Piece(every, every, every, self.padding[axis])]
        pieces = []
        if inner[0] < inner[1]:
            end = (inner[1] - 1) * s + d * (taps - 1) + 1
            pieces.append(Piece(slice(*inner), slice(inner[0] * s, end), slice(None), 0))
        for o in (*range(inner[0]), *range(inner[1], outputs)):
            low = max(0, -((before - o * s) // -d))
            high = min(taps, -((length - after - o * s) // -d))
            if low < high:
                met = slice(o * s + low * d, o * s + (high - 1) * d + 1)
                pieces.append(Piece(slice(o, o + 1), met, slice(low, high), 0))
        return pieces


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
    rank, own = product.rank, chunk[-product.rank - 1]
    is_one = _is_one(channels[0].x, channels, own) and covers(places, chunk)
    if bias is not None and not is_one:
        product = product.in_sums(product.dtype)
    y = frame.fill(blocks, product.dtype)
    shape = tuple(end - begin for begin, end in places)
    steps = zip(product.stride, product.padding, product.dilation, weight.shape[2:], strict=True)
    extents = zip(shape[-rank:], y.shape[-rank:], steps, strict=True)
    # What remains behind the last window.
    more = [n - ((m - 1) * s - 2 * p + d * (k - 1) + 1) for n, m, (s, p, d, k) in extents]

    def run(c: Channels) -> Array:
        result = empty((*shape[: -rank - 1], c.x[1] - c.x[0], *shape[-rank:]), product.dtype)
        _native.conv_transpose(
            _of(y, rank, c.y, first), _weight(product, weight, c),
            bias[slice(*own)] if is_one and bias is not None else None, product.stride,
            product.padding, more, product.dilation, c.groups, product.precision, result, THREADS,
        )  # fmt: skip
        return result

    result = _by_channels(run, [(c, c.x) for c in channels], own, shape, product)
    result = in_chunk(result, places, chunk)
    return result if is_one or bias is None else finish(own, rank, frame.dtype, result, bias)


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
    rank, own = product.rank, chunk[-product.rank - 1]
    is_one = _is_one(channels[0].y, channels, own)
    if bias is not None and not is_one:
        product = product.in_sums(product.dtype)
    x = frame.fill(blocks, product.dtype)
    shape = tuple(end - begin for begin, end in places)

    def run(c: Channels) -> Array:
        result = empty((*shape[: -rank - 1], c.y[1] - c.y[0], *shape[-rank:]), product.dtype)
        own_bias = bias[slice(*own)] if is_one and bias is not None else None
        own_x, own_weight = _of(x, rank, c.x, first), _weight(product, weight, c)
        if any(map(any, product.zeros)) and not np.isfinite(own_weight).all():
            return _by_pieces(product, own_x, own_weight, own_bias, c.groups, result)
        _native.conv(
            own_x, own_weight, own_bias, product.stride, product.padding, product.dilation,
            c.groups, product.precision, result, THREADS,
        )  # fmt: skip
        return result

    result = _by_channels(run, [(c, c.y) for c in channels], own, shape, product)
    return result if is_one or bias is None else finish(own, rank, frame.dtype, result, bias)


def _by_pieces(
    product: Product, x: Array, weight: Array, bias: Array | None, groups: int, result: Array
) -> Array:
    """A convolution whose weights must not meet the zeros of this piece."""
    rank, kernel = product.rank, weight.shape[2:]
    result[...] = 0 if bias is None else bias.reshape(-1, *(1,) * rank)
    inner = product.outputs_without_zeros(result.shape, x.shape, kernel)
    for pieces in product.pieces(inner, result.shape, x.shape, kernel):
        result[_all(piece.y for piece in pieces)] = _native.conv(
            x[_all(piece.x for piece in pieces)], weight[_all(piece.taps for piece in pieces)],
            bias, product.stride, tuple(piece.padding for piece in pieces), product.dilation,
            groups, product.precision, None, THREADS,
        )  # fmt: skip
    return result


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
    inner = product.outputs_without_zeros(y.shape, x.shape, kernel)
    if _is_finite_outside(y, inner):
        return _weight_gradient(product, y, x, shape, channels.groups, product.padding)
    result = np.zeros(shape, product.dtype)
    for pieces in product.pieces(inner, y.shape, x.shape, kernel):
        taps = _all(piece.taps for piece in pieces)
        gradient = _weight_gradient(
            product, y[_all(p.y for p in pieces)], x[_all(p.x for p in pieces)],
            result[taps].shape, channels.groups, tuple(p.padding for p in pieces),
        )  # fmt: skip
        with np.errstate(all="ignore"):
            result[taps] += gradient
    return result


def _weight_gradient(
    product: Product, y: Array, x: Array, shape: Shape, groups: int, padding: Shape
) -> Array:
    _, result, _ = _native.conv_backward(
        y, x, shape, product.stride, padding, product.dilation, groups, (False, True, False),
        product.precision, None, THREADS,
    )  # fmt: skip
    return np.asarray(result)


def _is_finite_outside(y: Array, inner: Sequence[Range]) -> bool:
    """Whether y is finite where outputs meet zeros that stand for padding."""
    rank = len(inner)
    for axis, (first, last) in enumerate(inner):
        rest = (slice(None),) * (rank - 1 - axis)
        for border in (slice(0, first), slice(last, None)):
            where: Any = (border, *rest)
            if not np.isfinite(y[(..., *where)]).all():
                return False
    return True


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


def finish(own: Range, rank: int, dtype: Any, total: Array, bias: Array | None) -> Array:
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


def _is_one(side: Range, channels: Sequence[Channels], own: Range) -> bool:
    """Whether the first of the convolutions makes all channels of the chunk."""
    return len(channels) == 1 and side == own


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


def _all(slices: Iterable[slice]) -> tuple[Any, ...]:
    return (..., *slices)


def _weight(product: Product, weight: Array, channels: Channels) -> Array:
    return weight[slice(*channels.y), slice(*channels.weight)].astype(product.dtype, copy=False)
