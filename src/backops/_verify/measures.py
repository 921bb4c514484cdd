"""Figures that the published standards look at, added up over blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# What the standards add to the truth's magnitude before they divide by it.
OFFSET = 1e-7


@dataclass(frozen=True)
class SmallValues:
    """Truths below `below` in magnitude are apart: counted if off by more than `error`."""

    below: float
    error: float


@dataclass
class Measures:
    """Errors of one result over the elements where it and the truth are finite."""

    small: SmallValues | None = None

    elements: int = 0
    """Finite, and not small."""
    small_elements: int = 0
    small_beyond: int = 0
    max_error: float = 0.0
    max_size: float = 0.0
    max_relative: float = 0.0
    sum_relative: float = 0.0
    sum_squares: float = 0.0

    @property
    def mean_relative(self) -> float:
        return self.sum_relative / max(1, self.elements)

    @property
    def root_mean_square(self) -> float:
        return math.sqrt(self.sum_squares / max(1, self.elements))

    def add(self, got: NDArray[Any], truth: Floats) -> None:
        with np.errstate(all="ignore"):
            error = np.abs(got.astype(np.float64) - truth)
            size = np.abs(truth)
            finite = np.isfinite(error)
            if not finite.all():
                error, size = error[finite], size[finite]
            if self.small is not None:
                error, size = self._without_small(self.small, error, size)
            relative = error / (size + OFFSET)
        self.elements += len(error)
        self.max_error = max(self.max_error, float(error.max(initial=0.0)))
        self.max_size = max(self.max_size, float(size.max(initial=0.0)))
        self.max_relative = max(self.max_relative, float(relative.max(initial=0.0)))
        self.sum_relative += float(relative.sum())
        self.sum_squares += float(np.square(error).sum())

    def _without_small(
        self, small: SmallValues, error: Floats, size: Floats
    ) -> tuple[Floats, Floats]:
        is_small = size < small.below
        count = int(np.count_nonzero(is_small))
        if count == 0:
            return error, size
        self.small_elements += count
        self.small_beyond += int(np.count_nonzero(error[is_small] > small.error))
        return error[~is_small], size[~is_small]
