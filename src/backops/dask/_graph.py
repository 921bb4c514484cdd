"""The tasks of one call: pieces cut out of chunks, and what is computed from them.

A region of an array is brought to the task that needs it as blocks. A block is a whole chunk, or
what a task of its own cuts out of one, where the chunk is: then only the block travels, and the
chunk can be forgotten.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph

from backops.dask import _tasks
from backops.dask._axes import Range

Key: TypeAlias = tuple[Any, ...]
Chunks: TypeAlias = tuple[tuple[int, ...], ...]

FAN_IN = 8
"""So many terms are added at once: fewer tasks than pairs, and little to hold."""


@dataclass(frozen=True)
class Cost:
    """What a task reads that lies in other chunks, what it holds, and its arithmetic."""

    kind: str
    moved: int = 0
    held: int = 0
    touched: int = 0
    operations: int = 0


@dataclass
class Graph:
    """Grows while a call is worked out; `results` makes arrays of it."""

    operator: str
    token: str
    sources: tuple[da.Array, ...]
    tasks: dict[Key, Any] = field(default_factory=dict)
    costs: dict[Key, Cost] = field(default_factory=dict)

    def name(self, what: str) -> str:
        return f"{self.operator}-{what}-{self.token}"

    def add(self, key: Key, cost: Cost, function: Callable[..., Any], *arguments: Any) -> Key:
        self.tasks[key] = (function, *arguments)
        self.costs[key] = cost
        return key

    def region(self, array: da.Array, wanted: Sequence[Range], frame: Sequence[Range]) -> Region:
        """The elements `wanted` of an array, in a frame of zeros."""
        pieces = [overlaps(c, r) for c, r in zip(array.chunks, wanted, strict=True)]
        blocks = []
        for piece in itertools.product(*pieces):
            index = tuple(p.chunk for p in piece)
            whole = all(p.is_whole for p in piece)
            cut = tuple(slice(*p.within) for p in piece)
            key = (array.name, *index) if whole else self._cut(array, index, cut)
            place = tuple(p.begin - f[0] for p, f in zip(piece, frame, strict=True))
            block_shape = tuple(c.stop - c.start for c in cut)
            size = math.prod(block_shape) * array.dtype.itemsize
            blocks.append(Block(key, place, block_shape, size))
        shape = tuple(end - begin for begin, end in frame)
        return Region(shape, array.dtype, tuple(blocks))

    def _cut(self, array: da.Array, index: tuple[int, ...], cut: tuple[slice, ...]) -> Key:
        ends = itertools.chain.from_iterable((c.start, c.stop) for c in cut)
        # Named after the array, so that all tasks that want it share it, of other calls too.
        key = (f"backops-cut-{array.name}", *index, *ends)
        if key not in self.tasks:
            bytes_cut = math.prod(c.stop - c.start for c in cut) * array.dtype.itemsize
            cost = Cost("cut", held=bytes_cut, touched=2 * bytes_cut)
            self.add(key, cost, _tasks.cut, (array.name, *index), cut)
        return key

    def tree_sum(self, name: str, index: tuple[int, ...], terms: Sequence[Key], size: int) -> Key:
        """One task that is the sum of all, always added in the same order."""
        level = 0
        while len(terms) > 1:
            groups = [list(terms[i : i + FAN_IN]) for i in range(0, len(terms), FAN_IN)]
            terms = [
                self._add_sum((f"{name}-{level}", *index, number), group, size)
                for number, group in enumerate(groups)
            ]
            level += 1
        return terms[0]

    def _add_sum(self, key: Key, terms: list[Key], size: int) -> Key:
        moved, held = (len(terms) - 1) * size, (len(terms) + 1) * size
        return self.add(key, Cost("sum", moved, held, held), _tasks.add, terms)

    def result(self, name: str, chunks: Chunks, dtype: Any) -> da.Array:
        """The array whose chunks are the tasks of that name."""
        graph = HighLevelGraph.from_collections(name, self.tasks, dependencies=self.sources)
        return da.Array(graph, name, chunks, meta=np.empty((0,) * len(chunks), dtype))


@dataclass(frozen=True)
class Block:
    key: Key
    place: tuple[int, ...]
    """Where in the region it begins."""
    shape: tuple[int, ...]
    size: int
    """In bytes."""


@dataclass(frozen=True)
class Region:
    shape: tuple[int, ...]
    dtype: Any
    blocks: tuple[Block, ...]

    @property
    def frame(self) -> _tasks.Frame:
        return _tasks.Frame(self.shape, self.dtype, tuple(block.place for block in self.blocks))

    @property
    def keys(self) -> list[Key]:
        return [block.key for block in self.blocks]

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * int(self.dtype.itemsize)

    @property
    def moved(self) -> int:
        """Bytes of all blocks but the largest, at which the task is best run."""
        sizes = [block.size for block in self.blocks]
        return sum(sizes) - max(sizes, default=0)


@dataclass(frozen=True)
class Overlap:
    """The part of a range that lies in one chunk."""

    chunk: int
    begin: int
    within: Range
    is_whole: bool


def overlaps(chunks: Sequence[int], wanted: Range) -> list[Overlap]:
    bounds = boundaries(tuple(chunks))
    found = []
    for i in range(max(0, bisect.bisect_right(bounds, wanted[0]) - 1), len(chunks)):
        begin, end = max(wanted[0], bounds[i]), min(wanted[1], bounds[i + 1])
        if bounds[i] >= wanted[1]:
            break
        if begin < end:
            within = (begin - bounds[i], end - bounds[i])
            found.append(Overlap(i, begin, within, within == (0, chunks[i])))
    return found


@functools.lru_cache(maxsize=256)
def boundaries(chunks: tuple[int, ...]) -> list[int]:
    return [0, *itertools.accumulate(chunks)]


def ranges(chunks: Sequence[int]) -> list[Range]:
    return list(itertools.pairwise(boundaries(tuple(chunks))))


def grid(chunks: Chunks) -> Iterator[tuple[tuple[int, ...], tuple[Range, ...]]]:
    """Each chunk's place among the chunks, and the ranges of its elements."""
    numbers = [list(enumerate(ranges(axis))) for axis in chunks]
    for combination in itertools.product(*numbers):
        yield tuple(i for i, _ in combination), tuple(r for _, r in combination)


def new_graph(operator: str, sources: Sequence[da.Array], *identity: Any) -> Graph:
    token = tokenize(operator, *(source.name for source in sources), *identity)
    return Graph(operator, token, tuple(sources))
