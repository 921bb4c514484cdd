"""Named standards: how far from the truth an element may be. docs/verify.md has the sources."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from backops._command import UsageError

Floats = NDArray[np.float64]

NAMES = "exact, float32, allclose:RTOL,ATOL or cann"


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
    def wrong_share(self) -> float:
        """The share of elements that may be beyond what is allowed."""

    def allowed(
        self, size: Floats, magnitude: Floats | None, format: Format, terms: int
    ) -> Floats | None:
        """The absolute error that each element may have; None: it must be the rounded truth."""


@dataclass(frozen=True)
class Exact:
    name: str = "exact"
    description: str = "every element is the float64 truth, rounded once to the dtype"
    needs_magnitude: bool = False
    wrong_share: float = 0.0

    def allowed(self, size: Floats, magnitude: Floats | None, format: Format, terms: int) -> None:
        return None


@dataclass(frozen=True)
class Float32Sums:
    """What sums of `terms` rounded products come to, in any order, and one rounding at the end."""

    name: str = "float32"
    description: str = "as close as sums in float32, or float64 for float64, rounded once"
    needs_magnitude: bool = True
    wrong_share: float = 0.0

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
class AllClose:
    rtol: float
    atol: float
    needs_magnitude: bool = False
    wrong_share: float = 0.0

    @property
    def name(self) -> str:
        return f"allclose:{self.rtol:g},{self.atol:g}"

    @property
    def description(self) -> str:
        return f"|candidate - truth| <= {self.atol:g} + {self.rtol:g} |truth|, as numpy.allclose"

    def allowed(self, size: Floats, magnitude: Floats | None, format: Format, terms: int) -> Floats:
        return self.atol + self.rtol * size


# CANN's operators have no float64.
CANN_LOSSES = {"float16": 1e-3, "bfloat16": 4e-3, "float32": 1e-4, "float64": 1e-4}


@dataclass(frozen=True)
class Cann:
    """The double rule: at most a share L of the elements is off by more than L."""

    loss: float
    name: str = "cann"
    needs_magnitude: bool = False

    @property
    def wrong_share(self) -> float:
        return self.loss

    @property
    def description(self) -> str:
        loss = f"{self.loss:g}"
        return f"|candidate - truth| <= {loss} + {loss} |truth|, but for a share of {loss}"

    def allowed(self, size: Floats, magnitude: Floats | None, format: Format, terms: int) -> Floats:
        return self.loss + self.loss * size


def make_standard(text: str, dtype: np.dtype[Any]) -> Standard:
    """The standard of that name for results of that dtype."""
    if text == "exact":
        return Exact()
    if text == "float32":
        return Float32Sums()
    if text == "cann":
        return Cann(CANN_LOSSES[dtype.name])
    if text.startswith("allclose:"):
        try:
            rtol, atol = map(float, text.removeprefix("allclose:").split(","))
        except ValueError:
            rtol = atol = -1.0
        if 0 <= rtol < math.inf and 0 <= atol < math.inf:
            return AllClose(rtol, atol)
    raise UsageError(f"{text!r} is not a standard, expected {NAMES}")
