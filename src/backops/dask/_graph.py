"""The tasks of one call: pieces cut out of chunks, and what is computed from them.

A region of an array is brought to the task that needs it as blocks. A block is a whole chunk, or
what a task of its own cuts out of one, where the chunk is: then only the block travels, and the
chunk can be forgotten.

A chunk that is cut along three axes has 26 neighbours, and each block is a task and a transfer. So
borders are handed on, axis by axis: a border along the second axis brings the ends along, which its
chunk has got from its neighbours along the first. There are then two borders for each axis at most;
edges and corners travel inside them.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
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

    def add(self, key: Key, cost: Cost, run: Callable[..., Any], *keys: Any) -> Key:
        """Whatever is no key is bound to `run`, where dask does not search it for keys."""
        self.tasks[key] = (run, *keys)
        self.costs[key] = cost
        return key

    def region(self, array: da.Array, wanted: Sequence[Range], frame: Sequence[Range]) -> Region:
        """The elements `wanted` of an array, in a frame of zeros."""
        along = [overlaps(c, r) for c, r in zip(array.chunks, wanted, strict=True)]
        choices = [[run] if run.is_chunk_with_border else run.singles for run in along]
        blocks = []
        for box in itertools.product(*choices):
            for runs, axis in _around(box):
                shape = tuple(run.size for run in runs)
                place = tuple(run.begin - f[0] for run, f in zip(runs, frame, strict=True))
                size = math.prod(shape) * array.dtype.itemsize
                blocks.append(Block(self._piece(array, runs, axis), place, shape, size))
        shape = tuple(end - begin for begin, end in frame)
        return Region(shape, array.dtype, tuple(blocks))

    def _piece(self, array: da.Array, runs: Runs, axis: int | None) -> Key:
        """A piece of one chunk, which is a border along `axis`, and its ends along axes before."""
        chunk = (array.name, *(run.home.chunk for run in runs))
        if all(run.is_whole for run in runs):
            return chunk
        ends = itertools.chain.from_iterable((run.begin, run.end) for run in runs)
        is_cut = all(run.is_one for run in runs)
        # A mere cut is named after the array, so that other calls share it, too.
        name = f"backops-cut-{array.name}" if is_cut else f"backops-cut-{array.name}-{self.token}"
        key = (name, *chunk[1:], *ends)
        if key not in self.tasks:
            size = math.prod(run.size for run in runs) * array.dtype.itemsize
            cost = Cost("cut", held=size, touched=2 * size)
            if is_cut:
                self.add(key, cost, partial(_tasks.cut, _cut(runs)), chunk)
            else:
                self.add(key, cost, *self._with_ends(array, runs, axis))
        return key

    def _with_ends(self, array: da.Array, runs: Runs, axis: int | None) -> tuple[Any, list[Key]]:
        """A border and its ends, taken from its chunk and from the borders that this has got.

        Those are as long as the chunk, as its own task wants them: nothing travels for this one.
        """
        home, *borders = _around(tuple(r.whole if i == axis else r for i, r in enumerate(runs)))
        keys = [(array.name, *(run.home.chunk for run in runs))]
        keys += [self._piece(array, *border) for border in borders]
        end = tuple(_cut(runs)[i] if i == axis else slice(None) for i in range(len(runs)))
        takes = (_cut(runs), *(end for _ in borders))
        places = tuple(
            tuple(0 if i == axis else p.begin - runs[i].begin for i, p in enumerate(part))
            for part, _ in (home, *borders)
        )
        frame = _tasks.Frame(tuple(run.size for run in runs), array.dtype, places)
        return partial(_tasks.join, frame, takes), keys

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
    length: int
    """Of the chunk."""

    @property
    def size(self) -> int:
        return self.within[1] - self.within[0]


class Run:
    """A range, by the neighbouring chunks that it lies in; `home` is the one with most of it."""

    def __init__(self, pieces: Sequence[Overlap]) -> None:
        self.pieces = pieces
        self.is_one = len(pieces) == 1

    @functools.cached_property
    def home(self) -> Overlap:
        return max(self.pieces, key=lambda o: o.size)

    @functools.cached_property
    def begin(self) -> int:
        return self.pieces[0].begin

    @functools.cached_property
    def end(self) -> int:
        return self.pieces[-1].begin + self.pieces[-1].size

    @functools.cached_property
    def size(self) -> int:
        return self.end - self.begin

    @functools.cached_property
    def is_whole(self) -> bool:
        return self.is_one and self.size == self.home.length

    @functools.cached_property
    def singles(self) -> list[Run]:
        return [self] if self.is_one else [Run((o,)) for o in self.pieces]

    @functools.cached_property
    def at_home(self) -> Run:
        return self if self.is_one else Run((self.home,))

    @functools.cached_property
    def sides(self) -> list[Run]:
        return [run for run in self.singles if run.home is not self.home]

    @functools.cached_property
    def whole(self) -> Run:
        """All of the chunk."""
        o = self.home
        return Run((Overlap(o.chunk, o.begin - o.within[0], (0, o.length), o.length),))

    @functools.cached_property
    def is_chunk_with_border(self) -> bool:
        """One whole chunk and little else. Larger pieces of others do not take a way round."""
        return bool(self.pieces) and self.at_home.is_whole and 3 * self.home.size >= 2 * self.size


Runs: TypeAlias = tuple[Run, ...]
"""One for each axis."""


@functools.lru_cache(maxsize=4096)
def overlaps(chunks: tuple[int, ...], wanted: Range) -> Run:
    bounds = boundaries(chunks)
    found = []
    for i in range(max(0, bisect.bisect_right(bounds, wanted[0]) - 1), len(chunks)):
        begin, end = max(wanted[0], bounds[i]), min(wanted[1], bounds[i + 1])
        if bounds[i] >= wanted[1]:
            break
        if begin < end:
            found.append(Overlap(i, begin, (begin - bounds[i], end - bounds[i]), chunks[i]))
    return Run(found)


def _around(runs: Runs) -> Iterator[tuple[Runs, int | None]]:
    """The home of all runs, then the borders around it and the axes that they lie along.

    A border has ends along the axes before its own, none along those behind.
    """
    home = tuple(run.at_home for run in runs)
    yield home, None
    for axis, run in enumerate(runs):
        for side in run.sides:
            yield (*runs[:axis], side, *home[axis + 1 :]), axis


def _cut(runs: Sequence[Run]) -> tuple[slice, ...]:
    return tuple(slice(*run.home.within) for run in runs)


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
