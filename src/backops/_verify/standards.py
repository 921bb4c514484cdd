"""Named standards: how far from the truth a result may be. docs/verify.md has the sources."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from backops._command import UsageError
from backops._verify.limits import Limit, at_most
from backops._verify.measures import SmallValues

if TYPE_CHECKING:
    from backops._verify.compare import Comparison

Floats = NDArray[np.float64]

NAMES = (
    "exact, float32, allclose:RTOL,ATOL, cann, cann-2026-04, cann-L0, cann-L1 or cann-L2"
)  # fmt: skip


@dataclass(frozen=True)
class Format:
    """What a dtype can hold."""

    unit_roundoff: float
    half_of_smallest: float
    accumulator_roundoff: float

    @staticmethod
    def of(dtype: np.dtype[Any]) -> Format:
        finfo: Any = ml_dtypes.finfo  # has no type annotations
        info = finfo(dtype)
        accumulator = np.finfo(np.float64 if dtype == np.float64 else np.float32)
        return Format(
            unit_roundoff=float(info.eps) / 2,
            half_of_smallest=float(info.smallest_subnormal) / 2,
            accumulator_roundoff=float(accumulator.eps) / 2,
        )


class Standard(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def needs_magnitude(self) -> bool:
        """Whether `allowed` asks for the sums of the absolute values of each element's terms."""

    @property
    def needs_measures(self) -> bool:
        """Whether `limits` asks for the figures of `Measures`."""

    @property
    def small(self) -> SmallValues | None:
        """Which truths are apart as small."""

    def allowed(
        self, size: Floats, magnitude: Floats | None, format: Format, terms: int
    ) -> Floats | None:
        """The absolute error from which on an element is called wrong; None: it must be the
        rounded truth."""

    def limits(self, found: Comparison) -> list[Limit]:
        """What decides whether a tensor is right, beside NaN and infinity in their places."""


@dataclass(frozen=True)
class Elementwise:
    """A standard that every element has to meet."""

    needs_magnitude: bool = False
    needs_measures: bool = False
    small: SmallValues | None = None

    def limits(self, found: Comparison) -> list[Limit]:
        return [at_most("wrong elements", found.wrong, 0)]


@dataclass(frozen=True)
class Exact(Elementwise):
    name: str = "exact"
    description: str = "every element is the float64 truth, rounded once to the dtype"

    def allowed(self, size: Floats, magnitude: Floats | None, format: Format, terms: int) -> None:
        return None


@dataclass(frozen=True)
class Float32Sums(Elementwise):
    """What sums of `terms` rounded products come to, in any order, and one rounding at the end."""

    name: str = "float32"
    description: str = "as close as sums in float32, or float64 for float64, rounded once"
    needs_magnitude: bool = True

    def allowed(self, size: Floats, magnitude: Floats | None, format: Format, terms: int) -> Floats:
        assert magnitude is not None
        slack = magnitude * (growth(terms) * format.accumulator_roundoff)
        rounding = (size + slack) * format.unit_roundoff
        slack += np.maximum(rounding, format.half_of_smallest, out=rounding)
        return slack


def growth(terms: int) -> float:
    """Roundings that add up in a sum of so many weighted terms.

    Each term may be rounded about four times before it is added; roundings of a long sum go both
    ways, so they grow with the root of its length. Eight times the root is far beyond chance.
    """
    return min(terms, 8 * math.sqrt(terms)) + 4


@dataclass(frozen=True)
class AllClose(Elementwise):
    rtol: float = 0.0
    atol: float = 0.0

    @property
    def name(self) -> str:
        return f"allclose:{self.rtol:g},{self.atol:g}"

    @property
    def description(self) -> str:
        return f"|candidate - truth| <= {self.atol:g} + {self.rtol:g} |truth|, as numpy.allclose"

    def allowed(self, size: Floats, magnitude: Floats | None, format: Format, terms: int) -> Floats:
        return self.atol + self.rtol * size


def make_standard(text: str, dtype: np.dtype[Any], precision: str = "keep") -> Standard:
    """The standard of that name for results of that dtype, computed with that precision."""
    from backops._verify import published

    if text == "exact":
        return Exact()
    if text == "float32":
        return Float32Sums()
    if text in published.NAMES:
        return published.make(text, dtype, precision)
    if text.startswith("allclose:"):
        try:
            rtol, atol = map(float, text.removeprefix("allclose:").split(","))
        except ValueError:
            rtol = atol = -1.0
        if 0 <= rtol < math.inf and 0 <= atol < math.inf:
            return AllClose(rtol=rtol, atol=atol)
    raise UsageError(f"{text!r} is not a standard, expected {NAMES}")


def check_standard(text: str) -> None:
    """Raises if there is no standard of that name."""
    make_standard(text, np.dtype(np.float32))
