"""Convolution of dask arrays: its three products, chunk by chunk.

`x` is the array on the input side, `y` on the output side; conv makes y of x, conv_transpose x of
y, and the gradients are these two and the product that gives the weight. A chunk of x or y is a sum
over the chunks of channels on the other side, a weight gradient one over all chunks of y.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import dask.array as da

from backops.dask import _conv_tasks
from backops.dask._arrays import derived_chunks
from backops.dask._axes import Part, Range, TapAxis
from backops.dask._conv_tasks import Channels, Product
from backops.dask._graph import Chunks, Cost, Graph, Key, grid, new_graph, ranges

SPARE = 1.5
"""Channels of so many times the largest chunk of them are brought to one task."""


@dataclass(frozen=True)
class Convolution:
    function: str
    axes: tuple[TapAxis, ...]
    x_shape: tuple[int, ...]
    weight_shape: tuple[int, ...]
    groups: int
    product: Product

    @property
    def rank(self) -> int:
        return len(self.axes)

    @property
    def batch(self) -> int:
        """How many axes are before the channels."""
        return len(self.x_shape) - self.rank - 1

    @property
    def y_shape(self) -> tuple[int, ...]:
        outputs = (axis.outputs for axis in self.axes)
        return (*self.x_shape[: self.batch], self.weight_shape[0], *outputs)

    def channels(self, x: Range, y: Range) -> list[Channels]:
        """The convolutions between channels `x` and channels `y`, whole groups as one."""
        per_x, per_y = self.weight_shape[1], self.weight_shape[0] // self.groups
        found: list[Channels] = []
        first = max(x[0] // per_x, y[0] // per_y)
        for group in range(first, min(-(x[1] // -per_x), -(y[1] // -per_y))):
            all_x, all_y = (
                (group * per_x, (group + 1) * per_x),
                (group * per_y, (group + 1) * per_y),
            )
            own_x, own_y = _common(x, all_x), _common(y, all_y)
            if own_x[0] == own_x[1] or own_y[0] == own_y[1]:
                continue
            is_whole = own_x == all_x and own_y == all_y
            if is_whole and found and found[-1].is_whole:
                last = found.pop()
                own_x, own_y = (last.x[0], own_x[1]), (last.y[0], own_y[1])
            weight = (own_x[0] - all_x[0], own_x[1] - all_x[0]) if not is_whole else (0, per_x)
            groups = (own_x[1] - own_x[0]) // per_x if is_whole else 1
            found.append(Channels(own_x, own_y, weight, groups, is_whole))
        return found

    def parts(self, chunk: tuple[Range, ...], is_y: bool) -> list[Part] | None:
        """The problem that a chunk is along each spatial axis; None if nothing adds to it."""
        space = zip(self.axes, chunk[self.batch + 1 :], strict=True)
        if any(begin == end for begin, end in chunk):
            return None
        found = [axis.from_outputs(r) if is_y else axis.from_inputs(r) for axis, r in space]
        there = [part for part in found if part is not None]
        return there if len(there) == len(found) else None

    def y_of(self, x: Range) -> Range:
        """The channels of y that those of x are in a group with."""
        return _same_groups(x, self.weight_shape[1], self.weight_shape[0] // self.groups)

    def x_of(self, y: Range) -> Range:
        return _same_groups(y, self.weight_shape[0] // self.groups, self.weight_shape[1])

    def operations(self, outputs: Iterable[Range], channels: Sequence[Channels], batch: int) -> int:
        positions = math.prod(end - begin for begin, end in outputs)
        pairs = sum((c.x[1] - c.x[0]) * (c.y[1] - c.y[0]) // c.groups for c in channels)
        return 2 * batch * positions * pairs * math.prod(self.weight_shape[2:])


def make_y(
    conv: Convolution, x: da.Array, weight: da.Array, bias: da.Array | None, chunks: Chunks | None
) -> tuple[Graph, da.Array]:
    """The product that conv is, and the input gradient of conv_transpose."""
    chunks = chunks or _like(x, conv.y_shape, conv.batch, [axis.owner_end for axis in conv.axes])
    return _make(conv, x, weight, bias, chunks, is_y=True)


def make_x(
    conv: Convolution, y: da.Array, weight: da.Array, bias: da.Array | None, chunks: Chunks | None
) -> tuple[Graph, da.Array]:
    """The product that conv_transpose is, and the input gradient of conv."""
    chunks = chunks or _like(y, conv.x_shape, conv.batch, [axis.begin_of for axis in conv.axes])
    return _make(conv, y, weight, bias, chunks, is_y=False)


def _make(
    conv: Convolution,
    source: da.Array,
    weight: da.Array,
    bias: da.Array | None,
    chunks: Chunks,
    *,
    is_y: bool,
) -> tuple[Graph, da.Array]:
    sources = [source, weight] if bias is None else [source, weight, bias]
    graph = new_graph(conv.function, sources, conv, chunks, is_y)
    name = graph.name("y" if is_y else "x")
    small = [(array.name, *(0 for _ in array.shape)) for array in sources[1:]]
    for index, chunk in grid(chunks):
        _add_chunk(graph, conv, source, small, (name, *index), chunk, is_y)
    return graph, graph.result(name, chunks, source.dtype)


def _add_chunk(
    graph: Graph,
    conv: Convolution,
    source: da.Array,
    small: list[Key],
    key: Key,
    chunk: tuple[Range, ...],
    is_y: bool,
) -> None:
    shape, dtype = tuple(end - begin for begin, end in chunk), source.dtype
    own, bias = chunk[conv.batch], small[1] if len(small) > 1 else None
    parts = conv.parts(chunk, is_y)
    if parts is None:
        size = math.prod(shape) * dtype.itemsize
        cost = Cost("zeros", held=size, touched=size)
        run = partial(_conv_tasks.only_bias, shape, dtype, own, conv.rank)
        graph.add(key, cost, run, bias)
        return
    terms = _terms(conv, own, source, is_y)
    if len(terms) == 1:
        _add_term(graph, conv, source, (small[0], bias), key, chunk, terms[0], parts, is_y)
        return
    wide = replace(conv, product=conv.product.in_sums(dtype))
    keys = [
        _add_term(
            graph, wide, source, (small[0], None), (f"{key[0]}-part", *key[1:], number), chunk,
            other, parts, is_y,
        )
        for number, other in enumerate(terms)
    ]  # fmt: skip
    size = math.prod(shape) * wide.product.dtype.itemsize
    total = graph.tree_sum(f"{key[0]}-sum", key[1:], keys, size)
    cost = Cost("sum", held=2 * size, touched=2 * size)
    run = partial(_conv_tasks.finish, own, conv.rank, dtype)
    graph.add(key, cost, run, total, bias)


def _add_term(
    graph: Graph,
    conv: Convolution,
    source: da.Array,
    small: tuple[Key, Key | None],
    key: Key,
    chunk: tuple[Range, ...],
    other: Range,
    parts: list[Part],
    is_y: bool,
) -> Key:
    """What the channels `other` of the source add to a chunk."""
    outer, own = chunk[: conv.batch], chunk[conv.batch]
    channels = conv.channels(*((other, own) if is_y else (own, other)))
    sides = [(p.inputs, p.outputs) if is_y else (p.outputs, p.inputs) for p in parts]
    lengths = source.shape[conv.batch + 1 :]
    inside = (_common(s[0], (0, n)) for s, n in zip(sides, lengths, strict=True))
    region = graph.region(source, (*outer, other, *inside), (*outer, other, *(s[0] for s in sides)))
    places = (*outer, own, *(s[1] for s in sides))
    size = math.prod(end - begin for begin, end in places) * conv.product.dtype.itemsize
    batch = math.prod(end - begin for begin, end in outer)
    operations = conv.operations([p.outputs for p in parts], channels, batch)
    cost = Cost("conv", region.moved, region.bytes + size, region.bytes + size, operations)
    run = partial(
        _conv_tasks.make_y if is_y else _conv_tasks.make_x, _on(conv.product, conv.axes, parts),
        tuple(channels), other[0], region.frame, places, chunk,
    )  # fmt: skip
    return graph.add(key, cost, run, *small, region.keys)


def _terms(conv: Convolution, own: Range, source: da.Array, is_y: bool) -> list[Range]:
    """The channels on the other side, as many at once as a chunk of them has, or hardly more."""
    needed = conv.x_of(own) if is_y else conv.y_of(own)
    sizes = source.chunks[conv.batch]
    if needed[1] - needed[0] <= SPARE * max(sizes):
        return [needed]
    return [_common(r, needed) for r in ranges(sizes) if r[0] < needed[1] and needed[0] < r[1]
            and r[0] < r[1]]  # fmt: skip


def make_weight(conv: Convolution, y: da.Array, x: da.Array) -> tuple[Graph, da.Array]:
    """The weight gradient: a sum over the chunks of y for each pair of chunks of channels."""
    graph = new_graph(conv.function, [y, x], conv, "weight")
    name = graph.name("weight")
    others = [range(len(sizes)) for i, sizes in enumerate(y.chunks) if i != conv.batch]
    count = math.prod(len(other) for other in others)
    product = conv.product if count == 1 else conv.product.in_sums(y.dtype)
    places, totals = [], []
    for (i, own_y), (j, own_x) in itertools.product(
        enumerate(ranges(y.chunks[conv.batch])), enumerate(ranges(x.chunks[conv.batch]))
    ):
        for k, channels in enumerate(conv.channels(own_x, own_y)):
            terms = []
            for number, chunk in enumerate(_chunks_of(y, conv, channels.y)):
                key = (f"{name}-part", i, j, k, number)
                terms.append(_add_weight_part(graph, conv, product, y, x, channels, chunk, key))
            if not terms:
                continue
            rows = channels.y[1] - channels.y[0]
            per = channels.weight[1] - channels.weight[0]
            size = rows * per * math.prod(conv.weight_shape[2:]) * 4
            totals.append(graph.tree_sum(f"{name}-sum", (i, j, k), terms, size))
            places.append((slice(*channels.y), slice(*channels.weight)))
    zeros = (0,) * len(conv.weight_shape)
    size = math.prod(conv.weight_shape) * y.dtype.itemsize
    run = partial(_conv_tasks.assemble, conv.weight_shape, y.dtype, tuple(places))
    graph.add((name, *zeros), Cost("sum", size, 2 * size, 2 * size), run, totals)
    return graph, graph.result(name, tuple((n,) for n in conv.weight_shape), y.dtype)


def _chunks_of(y: da.Array, conv: Convolution, channels: Range) -> list[tuple[Range, ...]]:
    """The chunks of y over batch and space, each with these channels alone."""
    axes = [ranges(sizes) for sizes in y.chunks]
    axes[conv.batch] = [channels]
    return [chunk for chunk in itertools.product(*axes) if all(b < e for b, e in chunk)]


def _add_weight_part(
    graph: Graph,
    conv: Convolution,
    product: Product,
    y: da.Array,
    x: da.Array,
    channels: Channels,
    chunk: tuple[Range, ...],
    key: Key,
) -> Key:
    outer, space = chunk[: conv.batch], chunk[conv.batch + 1 :]
    parts = [axis.from_outputs(r) for axis, r in zip(conv.axes, space, strict=True)]
    frame = (*outer, channels.x, *(part.inputs for part in parts))
    inside = [
        _common(part.inputs, (0, axis.length)) for part, axis in zip(parts, conv.axes, strict=True)
    ]
    y_region = graph.region(y, chunk, chunk)
    x_region = graph.region(x, (*outer, channels.x, *inside), frame)
    batch = math.prod(end - begin for begin, end in outer)
    held = y_region.bytes + x_region.bytes
    cost = Cost("conv", x_region.moved + y_region.moved, held, held,
                conv.operations(space, [channels], batch))  # fmt: skip
    kernel = conv.weight_shape[2:]
    run = partial(
        _conv_tasks.make_weight, _on(product, conv.axes, parts), channels, kernel, y_region.frame,
        x_region.frame,
    )  # fmt: skip
    return graph.add(key, cost, run, y_region.keys, x_region.keys)


def make_bias(conv: Convolution, grad: da.Array) -> tuple[Graph, da.Array]:
    """The bias gradient: sums over batch and space."""
    graph = new_graph(conv.function, [grad], conv, "bias")
    name = graph.name("bias")
    places, totals = [], []
    for i, channels in enumerate(ranges(grad.chunks[conv.batch])):
        terms = []
        for number, chunk in enumerate(_chunks_of(grad, conv, channels)):
            region = graph.region(grad, chunk, chunk)
            cost = Cost("bias", region.moved, region.bytes, region.bytes)
            key = (f"{name}-part", i, number)
            run = partial(_conv_tasks.sum_channels, conv.product, region.frame)
            terms.append(graph.add(key, cost, run, region.keys))
        if terms:
            size = 4 * (channels[1] - channels[0])
            totals.append(graph.tree_sum(f"{name}-sum", (i,), terms, size))
            places.append((slice(*channels),))
    shape = (grad.shape[conv.batch],)
    last = partial(_conv_tasks.assemble, shape, grad.dtype, tuple(places))
    graph.add((name, 0), Cost("sum"), last, totals)
    return graph, graph.result(name, (shape,), grad.dtype)


def _on(product: Product, axes: Sequence[TapAxis], parts: Sequence[Part]) -> Product:
    """The product on a piece: how it pads, and where zeros stand for padding."""
    zeros = tuple(
        (max(0, -part.inputs[0]), max(0, part.inputs[1] - axis.length))
        for part, axis in zip(parts, axes, strict=True)
    )
    return replace(product, padding=tuple(part.padding for part in parts), zeros=zeros)


def _common(one: Range, other: Range) -> Range:
    begin = max(one[0], other[0])
    return begin, max(begin, min(one[1], other[1]))


def _same_groups(own: Range, per_own: int, per_other: int) -> Range:
    return own[0] // per_own * per_other, -(own[1] // -per_own) * per_other


def _like(source: da.Array, shape: tuple[int, ...], batch: int, bounds: list[Any]) -> Chunks:
    """Chunks of a result on the other side. Its channels are cut as those of the source where there
    are as many, else not at all."""
    derived = list(derived_chunks(source.chunks, shape, bounds))
    if shape[batch] != source.shape[batch]:
        derived[batch] = (shape[batch],)
    return tuple(derived)
