"""The gradient of pooling from several blocks, without putting them together.

A region of several blocks is put together before it is pooled, which costs as much again. Where one
block is most of it, that block is pooled as it lies, and what windows of others reach is then
computed again, in strips along the borders.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from backops.dask._axes import Range
from backops.dask._pool_tasks import Pooling
from backops.dask._tasks import Array, Frame, in_chunk, scratch

LEAST_MAIN = 0.7
MOST_STRIPS = 0.3
LEAST_BYTES = 1 << 20
"""Below, putting it together takes less time than calls."""


@dataclass(frozen=True)
class Steps:
    """What is done is found here; how, in the task, out of sight of the scheduler."""

    pooling: Pooling
    frame: Frame
    """Of all blocks."""
    first: tuple[int, ...]
    """The outputs that it begins with, along the spatial axes."""
    chunk: tuple[Range, ...]
    own: tuple[Range, ...]
    """Outputs of the main block."""
    near: tuple[Range, ...]
    """Inputs of the chunk that they reach."""
    strips: tuple[tuple[int, tuple[Range, ...]], ...]
    """Inputs that others reach, too, and the axis along which they are thin."""

    @property
    def outer(self) -> tuple[Range, ...]:
        return self.chunk[: -self.pooling.rank]

    def main(self, blocks: Sequence[Array]) -> Array:
        target = self.chunk[-self.pooling.rank :]
        return self._pool(blocks, self.own, self.near, target, None)

    def strip(self, blocks: Sequence[Array], axis: int, target: tuple[Range, ...]) -> Array:
        axes = self.pooling.axes
        outputs = tuple(a.covering(r) for a, r in zip(axes, target, strict=True))
        return self._pool(blocks, outputs, target, target, axis)

    def _pool(
        self,
        blocks: Sequence[Array],
        outputs: tuple[Range, ...],
        near: tuple[Range, ...],
        target: tuple[Range, ...],
        thin: int | None,
    ) -> Array:
        """The target from these outputs. A strip's thin axis comes first: its rows are then as long
        as they can be. It lies in memory that the next one takes."""
        rank, skipped = self.pooling.rank, len(self.outer)
        windows, parts = self.pooling.parts(list(outputs), list(near))
        order = sorted(range(rank), key=lambda axis: axis != thin)
        axes = (*range(skipped), *(skipped + axis for axis in order))
        pieces, corners = self._cut(blocks, outputs, tuple(part.outputs[0] for part in parts))
        lengths = (part.outputs[1] - part.outputs[0] for part in parts)
        shape = (*self.frame.shape[:skipped], *lengths)
        places = tuple(_turned(corner, axes) for corner in corners)
        frame = Frame(_turned(shape, axes), self.frame.dtype, places)
        region = frame.fill([piece.transpose(axes) for piece in pieces])
        made_at = (*self.outer, *(part.inputs for part in parts))
        made = tuple(end - begin for begin, end in _turned(made_at, axes))
        out = None if thin is None else scratch.array(1, made, frame.dtype)
        windows = windows.padded(parts).turned(order)
        result = windows.run("_backward", made, region, made, out=out).transpose(np.argsort(axes))
        return in_chunk(result, made_at, (*self.outer, *target))

    def _cut(
        self, blocks: Sequence[Array], outputs: tuple[Range, ...], corner: tuple[int, ...]
    ) -> tuple[list[Array], list[tuple[int, ...]]]:
        """What of the blocks is in the outputs, and where it lies in a frame with that corner."""
        skipped = len(self.outer)
        pieces, corners = [], []
        for block, place in zip(blocks, self.frame.places, strict=True):
            begins = [p + f for p, f in zip(place[skipped:], self.first, strict=True)]
            ends = [b + n for b, n in zip(begins, block.shape[skipped:], strict=True)]
            cut = [
                (max(b, o[0]), min(e, o[1])) for b, e, o in zip(begins, ends, outputs, strict=True)
            ]
            if all(low < high for low, high in cut):
                pairs = zip(cut, begins, strict=True)
                where: Any = tuple(slice(low - b, high - b) for (low, high), b in pairs)
                pieces.append(np.asarray(block)[(..., *where)])
                lows = (low - c for (low, _), c in zip(cut, corner, strict=True))
                corners.append((*place[:skipped], *lows))
        return pieces, corners


def backward_in_steps(steps: Steps, blocks: Sequence[Array]) -> Array:
    """The chunk from its main block; then strips again that other blocks reach."""
    result = steps.main(blocks)
    for axis, strip in steps.strips:
        pairs = zip((*steps.outer, *strip), steps.chunk, strict=True)
        where = tuple(slice(s[0] - c[0], s[1] - c[0]) for s, c in pairs)
        result[where] = steps.strip(blocks, axis, strip)
    return result


def find_steps(
    p: Pooling,
    frame: Frame,
    shapes: Sequence[tuple[int, ...]],
    first: tuple[int, ...],
    outputs: list[Range],
    chunk: tuple[Range, ...],
) -> Steps | None:
    """For blocks of these shapes; nothing if it does not pay."""
    whole = math.prod(frame.shape)
    if len(shapes) < 2 or whole * np.dtype(frame.dtype).itemsize < LEAST_BYTES:
        return None
    number = max(range(len(shapes)), key=lambda i: math.prod(shapes[i]))
    shape, place = shapes[number], frame.places[number]
    if math.prod(shape) < LEAST_MAIN * whole or shape[: -p.rank] != frame.shape[: -p.rank]:
        return None
    begins = [b + f for b, f in zip(place[-p.rank :], first, strict=True)]
    own = tuple((b, b + n) for b, n in zip(begins, shape[-p.rank :], strict=True))
    inputs = chunk[-p.rank :]
    strips = _strips(p, own, outputs, inputs)
    if sum(_count(strip) for _, strip in strips) > MOST_STRIPS * _count(inputs):
        return None
    reach = [axis.reach(o) for axis, o in zip(p.axes, own, strict=True)]
    near = tuple((max(i[0], r[0]), min(i[1], r[1])) for i, r in zip(inputs, reach, strict=True))
    if any(begin >= end for begin, end in near):
        return None
    return Steps(p, frame, first, chunk, own, near, tuple(strips))


def _strips(
    p: Pooling, own: tuple[Range, ...], outputs: list[Range], inputs: tuple[Range, ...]
) -> list[tuple[int, tuple[Range, ...]]]:
    strips = []
    for number, (axis, o, i) in enumerate(zip(p.axes, outputs, inputs, strict=True)):
        first, last = own[number]
        if o[0] < first:
            strips.append((number, (i[0], min(i[1], axis.window(first - 1)[1]))))
        if last < o[1]:
            strips.append((number, (max(i[0], axis.window(last)[0]), i[1])))
    return [(axis, (*inputs[:axis], strip, *inputs[axis + 1 :])) for axis, strip in strips]


def _turned(of: Sequence[Any], axes: Sequence[int]) -> tuple[Any, ...]:
    return tuple(of[axis] for axis in axes)


def _count(of: Sequence[Range]) -> int:
    return math.prod(end - begin for begin, end in of)
