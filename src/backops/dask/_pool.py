"""Average pooling of dask arrays: which problem each chunk of a result is."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import dask.array as da

from backops.dask import _pool_tasks, _tasks
from backops.dask._arrays import derived_chunks
from backops.dask._axes import AdaptiveAxis, FixedAxis, Part, Range
from backops.dask._graph import Chunks, Cost, Graph, Key, Region, grid, new_graph, overlaps, ranges
from backops.dask._pool_tasks import Step, Windows

Axis: TypeAlias = FixedAxis | AdaptiveAxis

SPARE = 1.5
"""A problem may be so many times as large as the chunk that is wanted of it."""
SPARE_ELEMENTS = 4096


@dataclass(frozen=True)
class Pooling:
    """An operator on arrays of one shape, `input_shape` before pooling."""

    function: str
    axes: tuple[Axis, ...]
    input_shape: tuple[int, ...]
    windows: Windows

    @property
    def rank(self) -> int:
        return len(self.axes)

    @property
    def output_shape(self) -> tuple[int, ...]:
        return (*self.input_shape[: -self.rank], *(axis.outputs for axis in self.axes))

    def parts(self, outputs: list[Range], inputs: list[Range]) -> tuple[Windows, list[Part]]:
        """The problem with these outputs, on about these inputs."""
        pairs = zip(self.axes, outputs, inputs, strict=True)
        if self.windows.kernel_size is None:
            return self.windows, [
                axis.periods(o) for axis, o, _ in pairs if isinstance(axis, AdaptiveAxis)
            ]
        fixed = [(axis, o, i) for axis, o, i in pairs if isinstance(axis, FixedAxis)]
        if self.windows.divisor or all(axis.is_uniform(o) for axis, o, _ in fixed):
            divisor = self.windows.divisor or math.prod(axis.kernel for axis, _, _ in fixed)
            return self.windows.dividing_by(divisor), [axis.free(o, i) for axis, o, i in fixed]
        return self.windows, [axis.true(o) for axis, o, _ in fixed]


def backward(pooling: Pooling, grad_output: da.Array, chunks: Chunks | None) -> tuple[Graph, Any]:
    chunks = chunks or derived_chunks(
        grad_output.chunks, pooling.input_shape, [axis.begin_of for axis in pooling.axes]
    )
    graph = new_graph(pooling.function, [grad_output], pooling, chunks)
    name = graph.name("grad-input")
    for index, chunk in grid(chunks):
        _add_backward(graph, pooling, grad_output, (name, *index), chunk)
    return graph, graph.result(name, chunks, grad_output.dtype)


def _add_backward(
    graph: Graph, p: Pooling, grad_output: da.Array, key: Key, chunk: tuple[Range, ...]
) -> None:
    outer, inputs = chunk[: -p.rank], list(chunk[-p.rank :])
    size = _count(chunk) * grad_output.dtype.itemsize
    outputs = [axis.covering(i) for axis, i in zip(p.axes, inputs, strict=True)]
    if size == 0 or _count(outputs) == 0:
        shape = tuple(end - begin for begin, end in chunk)
        graph.add(key, Cost("zeros", held=size, touched=size), _pool_tasks.zeros, shape,
                  grad_output.dtype)  # fmt: skip
        return
    windows, parts = p.parts(outputs, inputs)
    wanted = (*outer, *outputs)
    if fits(parts, outputs, inputs):
        places = (*outer, *(part.inputs for part in parts))
        region = graph.region(grad_output, wanted, (*outer, *(part.outputs for part in parts)))
        steps = _steps(p, region, tuple(part.outputs for part in parts), outputs, chunk)
        if steps:
            cost = _cost("pool", region, size)
            cost = replace(cost, touched=region.bytes + size)
            graph.add(key, cost, _pool_tasks.backward_in_steps, steps, chunk, region.keys)
            return
        graph.add(
            key, _cost("pool", region, _count(places) * grad_output.dtype.itemsize),
            _pool_tasks.backward, windows.padded(parts), region.frame, places, chunk, region.keys,
        )  # fmt: skip
        return
    region = graph.region(grad_output, wanted, wanted)
    graph.add(
        key, _cost("pool", region, 2 * size), _pool_tasks.backward_by_sums, p.windows, p.axes,
        region.frame, tuple(outputs), tuple(inputs), region.keys,
    )  # fmt: skip


# A region of several blocks is put together before it is pooled, which costs as much again. Where
# one block is most of it, that block is pooled as it lies, and what windows of others reach is
# then computed again, in strips along the borders.

LEAST_MAIN = 0.7
MOST_STRIPS = 0.3
LEAST_BYTES = 1 << 20
"""Below, putting it together takes less time than calls."""


def _steps(
    p: Pooling,
    region: Region,
    frame: tuple[Range, ...],
    outputs: list[Range],
    chunk: tuple[Range, ...],
) -> tuple[Step, ...]:
    """The main block first, then strips; nothing if that does not pay."""
    outer, inputs = chunk[: -p.rank], chunk[-p.rank :]
    if len(region.blocks) < 2 or region.bytes < LEAST_BYTES:
        return ()
    main = max(region.blocks, key=lambda block: block.size)
    if main.size < LEAST_MAIN * region.bytes or main.shape[: -p.rank] != region.shape[: -p.rank]:
        return ()
    places = [place + f[0] for place, f in zip(main.place[-p.rank :], frame, strict=True)]
    own = [(b, b + n) for b, n in zip(places, main.shape[-p.rank :], strict=True)]
    strips: list[tuple[int, list[Range]]] = []
    for number, (axis, o, i) in enumerate(zip(p.axes, outputs, inputs, strict=True)):
        first, last = own[number]
        if o[0] < first:
            strips.append(
                (number, _with(inputs, number, (i[0], min(i[1], axis.window(first - 1)[1]))))
            )
        if last < o[1]:
            strips.append((number, _with(inputs, number, (max(i[0], axis.window(last)[0]), i[1]))))
    if sum(_count(strip) for _, strip in strips) > MOST_STRIPS * _count(inputs):
        return ()
    reach = [axis.reach(o) for axis, o in zip(p.axes, own, strict=True)]
    near = [(max(i[0], r[0]), min(i[1], r[1])) for i, r in zip(inputs, reach, strict=True)]
    if any(begin >= end for begin, end in near):
        return ()
    steps = [_step(p, region, frame, own, near, outer, inputs, None)]
    for number, strip in strips:
        covering = [axis.covering(r) for axis, r in zip(p.axes, strip, strict=True)]
        steps.append(_step(p, region, frame, covering, strip, outer, tuple(strip), number))
    return tuple(steps)


def _step(
    p: Pooling,
    region: Region,
    frame: tuple[Range, ...],
    outputs: list[Range],
    near: list[Range],
    outer: tuple[Range, ...],
    target: tuple[Range, ...],
    thin: int | None,
) -> Step:
    """The outputs, taken from the blocks of a region, as a problem whose target is `target`.

    A strip is turned so that its thin axis comes first: rows are then as long as they can be.
    """
    windows, parts = p.parts(outputs, near)
    skipped = len(outer)
    takes, corners = [], []
    for number, block in enumerate(region.blocks):
        cut, corner = [slice(None)] * skipped, [0] * skipped
        for axis in range(p.rank):
            begin = block.place[skipped + axis] + frame[axis][0]
            low = max(begin, outputs[axis][0])
            high = min(begin + block.shape[skipped + axis], outputs[axis][1])
            cut.append(slice(low - begin, max(low, high) - begin))
            corner.append(low - parts[axis].outputs[0])
        if all(c.stop is None or c.start < c.stop for c in cut):
            takes.append((number, tuple(cut)))
            corners.append(tuple(corner[:skipped]) + tuple(corner[skipped:]))
    # Of the axes before space, blocks have places of their own.
    corners = [
        (*region.blocks[take[0]].place[:skipped], *corner[skipped:])
        for take, corner in zip(takes, corners, strict=True)
    ]
    shape = (*region.shape[:skipped], *(o[1] - o[0] for o in (part.outputs for part in parts)))
    others = [axis for axis in range(p.rank) if axis != thin]
    order = tuple(others if thin is None else [thin, *others])
    return Step(
        windows.padded(parts), _tasks.Frame(shape, region.dtype, tuple(corners)), tuple(takes),
        (*outer, *(part.inputs for part in parts)), (*outer, *target), order,
    )  # fmt: skip


def _with(inputs: tuple[Range, ...], number: int, own: Range) -> list[Range]:
    return [own if i == number else each for i, each in enumerate(inputs)]


def forward(pooling: Pooling, x: da.Array, chunks: Chunks | None) -> tuple[Graph, Any]:
    chunks = chunks or derived_chunks(
        x.chunks, pooling.output_shape, [axis.owner_end for axis in pooling.axes]
    )
    graph = new_graph(pooling.function, [x], pooling, chunks)
    name = graph.name("output")
    for index, chunk in grid(chunks):
        _add_forward(graph, pooling, x, (name, *index), chunk)
    return graph, graph.result(name, chunks, x.dtype)


def _add_forward(graph: Graph, p: Pooling, x: da.Array, key: Key, chunk: tuple[Range, ...]) -> None:
    outer, outputs = chunk[: -p.rank], list(chunk[-p.rank :])
    size = _count(chunk) * x.dtype.itemsize
    if size == 0:
        shape = tuple(end - begin for begin, end in chunk)
        graph.add(key, Cost("zeros"), _pool_tasks.zeros, shape, x.dtype)
        return
    reach = [axis.reach(o) for axis, o in zip(p.axes, outputs, strict=True)]
    inputs = [(max(0, r[0]), min(axis.length, r[1])) for axis, r in zip(p.axes, reach, strict=True)]
    near = [
        (0, axis.length) if o == (0, axis.outputs) else i
        for axis, o, i in zip(p.axes, outputs, inputs, strict=True)
    ]
    windows, parts = p.parts(outputs, near)
    wanted = (*outer, *inputs)
    largest = math.prod(max(sizes) for sizes in x.chunks)
    if fits(parts, outputs, near) and _count(wanted) <= SPARE * largest + SPARE_ELEMENTS:
        region = graph.region(x, wanted, (*outer, *(part.inputs for part in parts)))
        places = (*outer, *(part.outputs for part in parts))
        graph.add(
            key, _cost("pool", region, _count(places) * x.dtype.itemsize), _pool_tasks.forward,
            windows.padded(parts), region.frame, places, chunk, region.keys,
        )  # fmt: skip
        return
    _add_forward_by_sums(graph, p, x, key, chunk, wanted)


def _add_forward_by_sums(
    graph: Graph,
    p: Pooling,
    x: da.Array,
    key: Key,
    chunk: tuple[Range, ...],
    wanted: tuple[Range, ...],
) -> None:
    """Windows far larger than chunks: each chunk is summed where it is, then these are added."""
    outer, outputs = chunk[: -p.rank], chunk[-p.rank :]
    sums_size = _count(chunk) * _pool_tasks.sum_dtype(x.dtype).itemsize
    name, index = f"{key[0]}-sums", key[1:]
    spans = [ranges(c) for c in x.chunks]
    found = [overlaps(c, w) for c, w in zip(x.chunks, wanted, strict=True)]
    terms = []
    for number, piece in enumerate(itertools.product(*found[-p.rank :])):
        inputs = tuple(spans[i - p.rank][o.chunk] for i, o in enumerate(piece))
        inputs = tuple(
            (max(i[0], w[0]), min(i[1], w[1]))
            for i, w in zip(inputs, wanted[-p.rank :], strict=True)
        )
        region = graph.region(x, (*outer, *inputs), (*outer, *inputs))
        key_of_sum = (name, *index, number)
        run = (_pool_tasks.window_sums, p.windows, p.axes, region.frame, outputs, inputs)
        terms.append(graph.add(key_of_sum, _cost("pool", region, sums_size), *run, region.keys))
    total = graph.tree_sum(name, index, terms, sums_size)
    graph.add(
        key, Cost("sum", held=2 * sums_size, touched=2 * sums_size), _pool_tasks.divide,
        p.windows, p.axes, outputs, x.dtype, total,
    )  # fmt: skip


def fits(parts: list[Part], outputs: list[Range], inputs: list[Range]) -> bool:
    """Whether the problem of the parts is hardly larger than what is wanted of it."""
    more_inputs = math.prod(part.length for part in parts)
    more_outputs = _count([part.outputs for part in parts])
    return (
        more_inputs <= SPARE * _count(inputs) + SPARE_ELEMENTS
        and more_outputs <= SPARE * _count(outputs) + SPARE_ELEMENTS
    )


def _count(of: Any) -> int:
    return math.prod(end - begin for begin, end in of)


def _cost(kind: str, region: Region, result: int) -> Cost:
    copied = 2 * region.bytes if len(region.blocks) != 1 else 0
    return Cost(kind, region.moved, region.bytes + result, region.bytes + copied + result)


def fixed_axes(
    input_shape: tuple[int, ...],
    geometry: tuple[Any, ...],
    ceil_mode: bool,
    count_include_pad: bool,
) -> tuple[FixedAxis, ...]:
    output_shape, kernels, strides, paddings = geometry[:4]
    rank = len(kernels)
    sizes = zip(input_shape[-rank:], output_shape[-rank:], kernels, strides, paddings, strict=True)
    return tuple(FixedAxis(*size, bool(ceil_mode), bool(count_include_pad)) for size in sizes)


def adaptive_axes(
    input_shape: tuple[int, ...], output_size: tuple[int, ...]
) -> tuple[AdaptiveAxis, ...]:
    lengths = input_shape[-len(output_size) :]
    return tuple(AdaptiveAxis(*pair) for pair in zip(lengths, output_size, strict=True))
