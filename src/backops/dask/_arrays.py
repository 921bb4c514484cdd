"""Arguments of the functions: arrays, chunks, and checks by the plain operators themselves."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import dask.array as da
import numpy as np
from dask.array.core import normalize_chunks

from backops.dask._graph import Chunks, boundaries
from backops.errors import DTypeError, Error, LayoutError, ParamError, ShapeError


def data(function: str, argument: str, value: Any) -> da.Array:
    """A dask array of which all sizes are known."""
    if not isinstance(value, da.Array):
        raise DTypeError(
            f"{function}: {argument} is a {type(value).__name__}, expected a dask array"
        )
    if any(math.isnan(size) for sizes in value.chunks for size in sizes):
        raise ShapeError(
            f"{function}: {argument} has chunks of unknown sizes, expected known ones "
            "(compute_chunk_sizes() finds them)"
        )
    return value


def small(function: str, argument: str, value: Any) -> da.Array:
    """A weight or a bias: one chunk, from a dask array that has no more, or from NumPy."""
    if isinstance(value, np.ndarray):
        return da.from_array(value, chunks=-1)
    array = data(function, argument, value)
    if array.npartitions != 1:
        raise LayoutError(
            f"{function}: {argument} has {array.npartitions} chunks, expected one, or a NumPy array"
        )
    return array


def stand_in(value: Any) -> Any:
    """For checks: an array of that shape and dtype without memory of its own; or the shape."""
    if isinstance(value, (da.Array, np.ndarray)):
        return np.broadcast_to(np.zeros((), value.dtype), value.shape)
    return value


def check(run: Callable[[], Any]) -> None:
    """Lets the plain operator check the arguments, as far as its complaint about `out`.

    `run` calls it on stand-ins, with an `out` that it cannot write to: what it refuses before is
    what is wrong, in its own words.
    """
    try:
        run()
    except Error as error:
        if not re.match(r"[^:]+: out\b", str(error)):
            raise


NOTHING = np.broadcast_to(np.zeros((), np.float32), ())
"""An `out` that fits nothing, for results whose shape the operator knows best."""


def shape_of(value: Any) -> tuple[int, ...]:
    """As the plain operator reads it; what it would refuse has no shape here."""
    try:
        return tuple(int(size) for size in getattr(value, "shape", value))
    except (TypeError, ValueError):
        return ()


def shape_or_value(value: Any) -> Any:
    """Of an operand of which only the shape is used."""
    return tuple(value.shape) if isinstance(value, da.Array) else value


def no_memory(shape: Sequence[int], dtype: Any) -> Any:
    """An `out` that is refused: it may not be written to."""
    return np.broadcast_to(np.zeros((), dtype), tuple(shape))


def given_chunks(function: str, chunks: Any, shape: tuple[int, ...], dtype: Any) -> Chunks | None:
    if chunks is None:
        return None
    try:
        found: Chunks = normalize_chunks(chunks, shape, dtype=dtype)
    except (ValueError, TypeError) as error:
        raise ParamError(f"{function}: chunks is {chunks!r}: {error}") from error
    return found


def derived_chunks(
    chunks: Chunks, shape: tuple[int, ...], bounds: Sequence[Callable[[int], int]]
) -> Chunks:
    """Chunks of a result, from those of an operand.

    They are the same but for the last axes, where `bounds` says which place of the result goes
    with the end of a chunk.
    """
    derived = list(chunks[: -len(bounds)])
    for axis, bound in enumerate(bounds, len(shape) - len(bounds)):
        ends = [min(bound(end), shape[axis]) for end in boundaries(tuple(chunks[axis]))[1:-1]]
        sizes = np.diff([0, *ends, shape[axis]]).tolist()
        derived.append(tuple(size for size in sizes if size) or (0,))
    return tuple(derived)
