"""What runs in tasks, on NumPy arrays, each on one thread: chunks are what is run in parallel.

So the bits of a result do not depend on how many threads a worker has.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from backops import _native
from backops.dask._axes import Range

Array: TypeAlias = NDArray[Any]

THREADS = 1


@dataclass(frozen=True)
class Frame:
    """Where blocks lie in a region; the rest of it is zero."""

    shape: tuple[int, ...]
    dtype: Any
    places: tuple[tuple[int, ...], ...]

    def fill(self, blocks: Sequence[Array], dtype: Any = None, operand: int = 0) -> Array:
        """The region as one array, of the dtype of the blocks or of another.

        A block that is all of it is not copied. Otherwise it lies in memory that the thread's next
        region takes; operands of one task have numbers.
        """
        dtype = np.dtype(dtype or self.dtype)
        if len(blocks) == 1 and blocks[0].shape == self.shape:
            return np.asarray(blocks[0]).astype(dtype, copy=False)
        region = scratch.array(operand, self.shape, dtype)
        if sum(block.size for block in blocks) < region.size:
            region[...] = 0
        self.put(blocks, region)
        return region

    def put(self, blocks: Sequence[Array], region: Array) -> None:
        for block, place in zip(blocks, self.places, strict=True):
            target = tuple(slice(p, p + n) for p, n in zip(place, block.shape, strict=True))
            region[target] = block


HUGE_PAGE = 1 << 21
LEAST_HUGE = 1 << 22
"""From here on NumPy asks for huge pages."""


def empty(shape: tuple[int, ...], dtype: Any) -> Array:
    """New memory, in whole pages of 2 MB if it is large.

    Else its ends are thousands of small pages: on two threads, results of 16 MB took 1.2 to 1.3
    times as long.
    """
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    if size < LEAST_HUGE:
        return np.empty(shape, dtype)
    memory = np.empty((-(size // -HUGE_PAGE) + 1) * HUGE_PAGE, np.uint8)
    begin = -memory.ctypes.data % HUGE_PAGE
    return _as(memory[begin : begin + size], shape, dtype)


def _as(memory: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    return np.asarray(memory.view(dtype).reshape(shape))


class _Scratch(threading.local):
    """Memory that stays with a thread for what a task needs meanwhile: its pages are there already.

    Workers of dask.distributed give all freed memory back at once (MALLOC_TRIM_THRESHOLD_).
    """

    MOST = 1 << 26

    def __init__(self) -> None:
        self.memory = [np.empty(0, np.uint8), np.empty(0, np.uint8)]

    def array(self, operand: int, shape: tuple[int, ...], dtype: Any) -> Array:
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if size > self.MOST:
            return empty(shape, dtype)
        if size > self.memory[operand].size:
            self.memory[operand] = empty((size,), np.uint8)
        return _as(self.memory[operand][:size], shape, dtype)


scratch = _Scratch()


def cut(where: tuple[slice, ...], chunk: Array) -> Array:
    """A copy if it is small beside the chunk, which a view would keep in memory."""
    piece = np.asarray(chunk)[where]
    return piece.copy() if 2 * piece.size <= chunk.size else piece


def join(frame: Frame, takes: Sequence[tuple[slice, ...]], blocks: Sequence[Array]) -> Array:
    """A border of a chunk and its ends, which are in borders that the chunk has got."""
    border = empty(frame.shape, frame.dtype)
    frame.put([np.asarray(block)[take] for block, take in zip(blocks, takes, strict=True)], border)
    return border


def add(terms: Sequence[Array]) -> Array:
    """In the order that they are in."""
    if len(terms) == 1:
        return terms[0]
    with np.errstate(all="ignore"):
        total = terms[0] + terms[1]
        for term in terms[2:]:
            total += term
    return total


def sum_dtype(dtype: Any) -> Any:
    return np.dtype(np.float64 if np.dtype(dtype) == np.float64 else np.float32)


def rounded(total: Array, dtype: Any) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        return total.astype(dtype, copy=False)


def zeros(shape: tuple[int, ...], dtype: Any) -> Array:
    return np.zeros(shape, dtype)


def covers(places: Sequence[Range], chunk: Sequence[Range]) -> bool:
    return all(p[0] <= c[0] and c[1] <= p[1] for p, c in zip(places, chunk, strict=True))


def in_chunk(part: Array, places: Sequence[Range], chunk: Sequence[Range]) -> Array:
    """What of `part`, which lies at `places`, is in the chunk; elsewhere the chunk is zero."""
    if covers(places, chunk):
        inside = tuple(slice(c[0] - p[0], c[1] - p[0]) for p, c in zip(places, chunk, strict=True))
        return part[inside]
    result = np.zeros(tuple(end - begin for begin, end in chunk), part.dtype)
    source, target = [], []
    for p, c in zip(places, chunk, strict=True):
        begin, end = max(p[0], c[0]), min(p[1], c[1])
        source.append(slice(begin - p[0], max(begin, end) - p[0]))
        target.append(slice(begin - c[0], max(begin, end) - c[0]))
    result[tuple(target)] = part[tuple(source)]
    return result


def round_operands(array: Array, precision: str) -> Array:
    """What `precision` makes of operands: a window of one element does nothing else."""
    if precision == "keep" or array.size == 0:
        return array
    flat = np.ascontiguousarray(array).reshape(1, -1)
    result = _native.avg_pool_backward(
        "precision", 1, flat, flat.shape, 1, None, 0, False, True, None, precision, None, THREADS
    )
    return np.asarray(result).reshape(array.shape)
