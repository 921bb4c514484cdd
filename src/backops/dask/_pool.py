"""Average pooling of dask arrays: which problem each chunk of a result is."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import partial
from typing import Any

import dask.array as da

from backops.dask import _pool_tasks
from backops.dask._arrays import derived_chunks
from backops.dask._axes import AdaptiveAxis, FixedAxis, Part, Range
from backops.dask._graph import Chunks, Cost, Graph, Key, Region, grid, new_graph, overlaps, ranges
from backops.dask._pool_steps import backward_in_steps, find_steps
from backops.dask._pool_tasks import Pooling

SPARE = 1.5
"""A problem may be so many times as large as the chunk that is wanted of it."""
SPARE_ELEMENTS = 4096


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
        run = partial(_pool_tasks.zeros, shape, grad_output.dtype)
        graph.add(key, Cost("zeros", held=size, touched=size), run)
        return
    windows, parts = p.parts(outputs, inputs)
    wanted = (*outer, *outputs)
    if fits(parts, outputs, inputs):
        places = (*outer, *(part.inputs for part in parts))
        region = graph.region(grad_output, wanted, (*outer, *(part.outputs for part in parts)))
        first = tuple(part.outputs[0] for part in parts)
        shapes = [block.shape for block in region.blocks]
        steps = find_steps(p, region.frame, shapes, first, outputs, chunk)
        if steps:
            cost = replace(_cost("pool", region, size), touched=region.bytes + size)
            graph.add(key, cost, partial(backward_in_steps, steps), region.keys)
            return
        cost = _cost("pool", region, _count(places) * grad_output.dtype.itemsize)
        run = partial(_pool_tasks.backward, windows.padded(parts), region.frame, places, chunk)
        graph.add(key, cost, run, region.keys)
        return
    region = graph.region(grad_output, wanted, wanted)
    run = partial(
        _pool_tasks.backward_by_sums, p.windows, p.axes, region.frame, tuple(outputs), tuple(inputs)
    )
    graph.add(key, _cost("pool", region, 2 * size), run, region.keys)


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
        graph.add(key, Cost("zeros"), partial(_pool_tasks.zeros, shape, x.dtype))
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
        cost = _cost("pool", region, _count(places) * x.dtype.itemsize)
        run = partial(_pool_tasks.forward, windows.padded(parts), region.frame, places, chunk)
        graph.add(key, cost, run, region.keys)
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
    found = [overlaps(c, w).pieces for c, w in zip(x.chunks, wanted, strict=True)]
    terms = []
    for number, piece in enumerate(itertools.product(*found[-p.rank :])):
        inputs = tuple(spans[i - p.rank][o.chunk] for i, o in enumerate(piece))
        inputs = tuple(
            (max(i[0], w[0]), min(i[1], w[1]))
            for i, w in zip(inputs, wanted[-p.rank :], strict=True)
        )
        region = graph.region(x, (*outer, *inputs), (*outer, *inputs))
        key_of_sum = (name, *index, number)
        run = partial(_pool_tasks.window_sums, p.windows, p.axes, region.frame, outputs, inputs)
        terms.append(graph.add(key_of_sum, _cost("pool", region, sums_size), run, region.keys))
    total = graph.tree_sum(name, index, terms, sums_size)
    run_last = partial(_pool_tasks.divide, p.windows, p.axes, outputs, x.dtype)
    graph.add(key, Cost("sum", held=2 * sums_size, touched=2 * sums_size), run_last, total)


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
