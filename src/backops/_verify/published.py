"""The published precision standards for Ascend operators; docs/verify.md says how they are read."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from backops._command import UsageError
from backops._verify.limits import (
    Limit,
    at_most,
    below,
    percent_at_least,
    power_of_two,
    times_benchmark,
)
from backops._verify.measures import OFFSET, Measures, SmallValues
from backops._verify.standards import Format, Standard

if TYPE_CHECKING:
    from backops._verify.compare import Comparison

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Column:
    """The numbers of one dtype in all three standards."""

    name: str
    rtol: float
    atol: float
    largest_error: float
    threshold: float
    small: SmallValues


COLUMNS = {
    column.name: column
    for column in (
        Column("float16", 2**-9, 2**-9, 1e-1, 2**-10, SmallValues(2**-11, 2**-16)),
        Column("bfloat16", 2**-6, 2**-6, 1.0, 2**-7, SmallValues(2**-8, 2**-16)),
        Column("float32", 2**-10, 2**-16, 1e-2, 2**-13, SmallValues(2**-14, 2**-30)),
        Column("HF32", 2**-9, 2**-10, 1e-1, 2**-11, SmallValues(2**-12, 2**-28)),
    )
}
HF32_PRECISIONS = ("hf32", "allow_fp32_down")
PASSING_PERCENT = 99
ULPS = 32
SMALL_FACTOR = 2.0


@dataclass(frozen=True)
class Level:
    """How many times the second implementation's errors a candidate may have."""

    largest: float
    mean: float
    root_mean_square: float
    cases: int
    """What a whole campaign has."""
    runs: int


LEVELS = {
    "cann-L0": Level(10, 2, 2, cases=5_000, runs=50),
    "cann-L1": Level(5, 1.5, 1.5, cases=10_000, runs=50),
    "cann-L2": Level(2, 1.2, 1.2, cases=30_000, runs=1_000),
}
NAMES = ("cann", "cann-2026-04", *LEVELS)


class NotCovered(UsageError):
    """The standard says nothing of this dtype."""


def make(name: str, dtype: np.dtype[Any], precision: str) -> Standard:
    column = column_of(dtype, precision)
    if name == "cann":
        return Cann(column)
    if name == "cann-2026-04":
        return Cann202604(column)
    if dtype == np.float64:
        raise NotCovered(f"{name} has no float64: its truth would be no better than the candidate")
    return DoubleBenchmark(name, LEVELS[name], column)


def column_of(dtype: np.dtype[Any], precision: str) -> Column:
    """No standard has float64, which is held to the numbers of float32."""
    if dtype == np.float32 and precision in HF32_PRECISIONS:
        return COLUMNS["HF32"]
    return COLUMNS["float32" if dtype == np.float64 else dtype.name]


def ulp(size: float, dtype: np.dtype[Any]) -> float:
    """The distance from a value of this magnitude to the next larger one of the dtype."""
    finfo: Any = ml_dtypes.finfo
    info = finfo(dtype)
    with np.errstate(over="ignore"):
        rounded = float(np.asarray(size).astype(dtype))
    inside = min(max(rounded, float(info.smallest_normal)), float(info.max))
    return float(info.eps) * 2.0 ** (math.frexp(inside)[1] - 1)


@dataclass(frozen=True)
class Cann:
    """The standard of July 2026."""

    column: Column
    name: str = "cann"
    needs_magnitude: bool = False
    needs_measures: bool = True
    small: SmallValues | None = None

    @property
    def description(self) -> str:
        column = self.column
        return (
            f"{column.name}: |candidate - truth| <= {power_of_two(column.atol)} + "
            f"{power_of_two(column.rtol)} |truth| for "
            f"{PASSING_PERCENT} % of the elements, no error above {column.largest_error:g} or "
            f"{ULPS} ulps"
        )

    def allowed(self, size: Floats, magnitude: Floats | None, format: Format, terms: int) -> Floats:
        return self.column.atol + self.column.rtol * size

    def limits(self, found: Comparison) -> list[Limit]:
        measures = found.measures
        largest = max(self.column.largest_error, ULPS * ulp(measures.max_size, found.dtype))
        share = "share of elements within atol + rtol |truth|"
        return [
            percent_at_least(share, found.wrong, found.elements, PASSING_PERCENT),
            at_most("largest absolute error", measures.max_error, largest),
        ]


@dataclass(frozen=True)
class Cann202604:
    """Its predecessor of April 2026."""

    column: Column
    name: str = "cann-2026-04"
    needs_magnitude: bool = False
    needs_measures: bool = True
    small: SmallValues | None = None

    @property
    def description(self) -> str:
        threshold = self.column.threshold
        return (
            f"{self.column.name}: |candidate - truth| / (|truth| + 1e-7) is below "
            f"{power_of_two(threshold)} in the mean, and below 10 times that everywhere"
        )

    def allowed(self, size: Floats, magnitude: Floats | None, format: Format, terms: int) -> Floats:
        return 10 * self.column.threshold * (size + OFFSET)

    def limits(self, found: Comparison) -> list[Limit]:
        measures, threshold = found.measures, self.column.threshold
        return [
            below("mean relative error", measures.mean_relative, threshold),
            below("largest relative error", measures.max_relative, 10 * threshold),
        ]


@dataclass(frozen=True)
class DoubleBenchmark:
    """At most so many times the errors of a second implementation."""

    name: str
    level: Level
    column: Column
    benchmark: Measures | None = None
    needs_magnitude: bool = False
    needs_measures: bool = True

    def against(self, benchmark: Measures) -> DoubleBenchmark:
        """The same, now that the second implementation's errors are known."""
        return replace(self, benchmark=benchmark)

    @property
    def small(self) -> SmallValues:
        return self.column.small

    @property
    def description(self) -> str:
        level, small = self.level, self.small
        return (
            f"{self.column.name}: at most {level.largest:g} times the largest and {level.mean:g} "
            f"times the mean relative error and {level.root_mean_square:g} times the root mean "
            f"square error of the benchmark; truths below {power_of_two(small.below)} apart"
        )

    def allowed(self, size: Floats, magnitude: Floats | None, format: Format, terms: int) -> Floats:
        """From here on an element breaks a limit all alone; a small one is counted."""
        assert self.benchmark is not None
        theirs, level, elements = self.benchmark, self.level, max(1, self.benchmark.elements)
        relative = min(
            level.largest * theirs.max_relative, elements * level.mean * theirs.mean_relative
        )
        absolute = math.sqrt(elements) * level.root_mean_square * theirs.root_mean_square
        allowed = np.minimum(relative * (size + OFFSET), absolute)
        allowed[size < self.small.below] = self.small.error
        return allowed

    def limits(self, found: Comparison) -> list[Limit]:
        assert self.benchmark is not None
        mine, theirs, level = found.measures, self.benchmark, self.level
        rms = "root mean square error"
        beyond = f"small values off by more than {power_of_two(self.small.error)}"
        count = max(1, theirs.small_beyond)
        return [
            times_benchmark(
                "largest relative error", mine.max_relative, level.largest, theirs.max_relative
            ),
            times_benchmark(
                "mean relative error", mine.mean_relative, level.mean, theirs.mean_relative
            ),
            times_benchmark(
                rms, mine.root_mean_square, level.root_mean_square, theirs.root_mean_square
            ),
            replace(
                times_benchmark(beyond, mine.small_beyond, SMALL_FACTOR, count),
                benchmark=theirs.small_beyond,
            ),
        ]
