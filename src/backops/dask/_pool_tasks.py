"""What pooling runs in tasks: a problem of its own on a piece, or plain sums where none is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from backops import _native
from backops.dask._axes import AdaptiveAxis, FixedAxis, Part, Range
from backops.dask._tasks import (
    THREADS,
    Array,
    Frame,
    empty,
    in_chunk,
    round_operands,
    rounded,
    sum_dtype,
    zeros,
)

__all__ = ["sum_dtype", "zeros"]

Axis: TypeAlias = FixedAxis | AdaptiveAxis


@dataclass(frozen=True)
class Windows:
    """Parameters of the operator; a `kernel_size` of None is adaptive."""

    rank: int
    kernel_size: tuple[int, ...] | None = None
    stride: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    ceil_mode: bool = False
    count_include_pad: bool = True
    divisor: int = 0
    precision: str = "keep"

    def dividing_by(self, divisor: int) -> Windows:
        return replace(self, divisor=divisor)

    def padded(self, parts: Sequence[Part]) -> Windows:
        return replace(self, padding=tuple(part.padding for part in parts))

    def turned(self, order: Sequence[int]) -> Windows:
        """With the spatial axes in another order."""
        if self.kernel_size is None:
            return self
        kernel, stride, padding = (
            tuple(each[axis] for axis in order)
            for each in (self.kernel_size, self.stride, self.padding)
        )
        return replace(self, kernel_size=kernel, stride=stride, padding=padding)

    def run(
        self, function: str, out_shape: tuple[int, ...], *arrays: Any, out: Array | None = None
    ) -> Array:
        out = empty(out_shape, arrays[0].dtype) if out is None else out
        if self.kernel_size is None:
            name = f"adaptive_avg_pool{function}"
            getattr(_native, name)(name, self.rank, *arrays, out, THREADS)
        else:
            name = f"avg_pool{function}"
            getattr(_native, name)(
                name, self.rank, *arrays, self.kernel_size, self.stride, self.padding,
                self.ceil_mode, self.count_include_pad, self.divisor, self.precision, out, THREADS,
            )  # fmt: skip
        return out


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


def backward(
    windows: Windows,
    frame: Frame,
    places: tuple[Range, ...],
    chunk: tuple[Range, ...],
    blocks: Sequence[Array],
) -> Array:
    """The chunk of grad_input, from the problem whose inputs are at `places`."""
    shape = tuple(end - begin for begin, end in places)
    return in_chunk(windows.run("_backward", shape, frame.fill(blocks), shape), places, chunk)


def forward(
    windows: Windows,
    frame: Frame,
    places: tuple[Range, ...],
    chunk: tuple[Range, ...],
    blocks: Sequence[Array],
) -> Array:
    """The chunk of the pooled array, from the problem whose outputs are at `places`."""
    x = frame.fill(blocks)
    shape = tuple(end - begin for begin, end in places)
    more = () if windows.kernel_size is not None else (shape[-windows.rank :],)
    return in_chunk(windows.run("", shape, x, *more), places, chunk)


def backward_by_sums(
    windows: Windows,
    axes: tuple[FixedAxis | AdaptiveAxis, ...],
    frame: Frame,
    outputs: tuple[Range, ...],
    inputs: tuple[Range, ...],
    blocks: Sequence[Array],
) -> Array:
    """Axis by axis, the sum of the outputs that cover an input.

    The last axis comes first, while there is little to spread; the others copy whole rows.
    """
    grad = _operand(windows, frame, blocks)
    with np.errstate(all="ignore"):
        grad = grad / _divisors(windows, axes, outputs).astype(grad.dtype)
        for number in reversed(range(len(axes))):
            first = outputs[number][0]
            covers = [axes[number].covering((i, i + 1)) for i in range(*inputs[number])]
            runs = [(begin - first, end - first) for begin, end in covers]
            grad = _sum_runs(grad, runs, number - len(axes))
        return rounded(grad, frame.dtype)


def window_sums(
    windows: Windows,
    axes: tuple[FixedAxis | AdaptiveAxis, ...],
    frame: Frame,
    outputs: tuple[Range, ...],
    inputs: tuple[Range, ...],
    blocks: Sequence[Array],
) -> Array:
    """For each output, the sum of its window's elements among the inputs, not divided yet."""
    x = _operand(windows, frame, blocks)
    with np.errstate(all="ignore"):
        for number, axis in enumerate(axes):
            begin, end = inputs[number]
            cuts = [axis.window(o) for o in range(*outputs[number])]
            runs = [(max(b, begin) - begin, max(min(e, end), begin) - begin) for b, e in cuts]
            x = _sum_runs(x, runs, number - len(axes))
    return x


def divide(
    windows: Windows,
    axes: tuple[FixedAxis | AdaptiveAxis, ...],
    outputs: tuple[Range, ...],
    dtype: Any,
    total: Array,
) -> Array:
    with np.errstate(all="ignore"):
        return rounded(total / _divisors(windows, axes, outputs).astype(total.dtype), dtype)


def _operand(windows: Windows, frame: Frame, blocks: Sequence[Array]) -> Array:
    """In the dtype that sums are kept in."""
    array = frame.fill(blocks)
    if frame.dtype == np.float32:
        array = round_operands(array, windows.precision)
    return array.astype(sum_dtype(frame.dtype), copy=False)


def _divisors(
    windows: Windows, axes: tuple[FixedAxis | AdaptiveAxis, ...], outputs: tuple[Range, ...]
) -> Array:
    if windows.divisor:
        return np.float64(windows.divisor)  # type: ignore[return-value]
    along = [[a.divisor(o) for o in range(*r)] for a, r in zip(axes, outputs, strict=True)]
    result = np.ones((), np.float64)
    for divisors in along:
        result = np.multiply.outer(result, np.asarray(divisors, np.float64))
    return result


def _sum_runs(array: Array, runs: Sequence[Range], axis: int) -> Array:
    """Sums of array[begin:end] along the axis, one for each run. Neighbours that are the same run
    are summed once."""
    indices = np.asarray(runs, np.intp)
    is_new = np.ones(len(indices), bool)
    is_new[1:] = (indices[1:] != indices[:-1]).any(axis=1)
    distinct = indices[is_new]
    counts = np.diff(np.flatnonzero(np.append(is_new, True)))
    # A zero behind the end, for runs that reach it.
    ends = [(0, 0)] * array.ndim
    ends[axis] = (0, 1)
    sums = np.add.reduceat(np.pad(array, ends), distinct.reshape(-1), axis=axis)
    sums = np.moveaxis(np.moveaxis(sums, axis, 0)[::2], 0, axis)
    empty = distinct[:, 0] >= distinct[:, 1]
    if empty.any():
        sums = sums.copy()
        np.moveaxis(sums, axis, 0)[empty] = 0
    return sums if (counts == 1).all() else np.repeat(sums, counts, axis=axis)
