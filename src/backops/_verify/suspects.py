"""Candidates that nothing was computed for: zeros, one value everywhere, an operand handed back.

A loose standard would let some of them pass where gradients are small. They are right only where
the truth is the same.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from backops._calls import Call
from backops._verify.standards import Format

Floats = NDArray[np.float64]

# Looked at first: nearly every candidate is cleared by its first elements.
FIRST = 4096
# Roundings by which the truth may differ and still be called the same.
ROUNDINGS = 4
PRECISION_ROUNDOFF = {"hf32": 2**-12, "allow_fp32_down": 2**-12, "fp16": 2**-11}


class Suspect(Protocol):
    @property
    def text(self) -> str:
        """What the candidate is."""

    @property
    def is_truth(self) -> bool:
        """Whether the truth is the same, as far as it was added."""

    def add(self, position: int, truth: Floats) -> None:
        """Adds elements of the truth, at least one, from `position` on."""


class Zeros:
    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.text = "the candidate is all zeros"
        self.dtype = dtype
        self.is_truth = True

    def add(self, position: int, truth: Floats) -> None:
        self.is_truth = self.is_truth and not rounded_to(self.dtype, truth).any()


class Constant:
    def __init__(self, value: Any, roundoff: float) -> None:
        self.text = f"the candidate is {float(value):g} everywhere"
        self.dtype, self.roundoff = value.dtype, roundoff
        self.first: Any = None
        self.is_one_value = True
        self.low, self.high = np.inf, -np.inf

    @property
    def is_truth(self) -> bool:
        if self.is_one_value:
            return True
        spread = self.high - self.low
        largest = max(abs(self.low), abs(self.high))
        return math.isfinite(spread) and spread <= ROUNDINGS * self.roundoff * largest

    def add(self, position: int, truth: Floats) -> None:
        # A NaN goes on into both ends.
        self.low, self.high = (
            float(np.minimum(self.low, truth.min())),
            float(np.maximum(self.high, truth.max())),
        )
        rounded = rounded_to(self.dtype, truth)
        if self.first is None:
            self.first = rounded[0]
        self.is_one_value = self.is_one_value and equal(rounded, self.first)


class Operand:
    def __init__(self, name: str, values: NDArray[Any], roundoff: float) -> None:
        self.text = f"the candidate is {name}, handed back"
        self.values, self.roundoff = values, roundoff
        self.is_truth = True

    def add(self, position: int, truth: Floats) -> None:
        values = self.values[position : position + len(truth)].astype(np.float64)
        rtol = ROUNDINGS * self.roundoff
        self.is_truth = self.is_truth and np.allclose(
            values, truth, rtol=rtol, atol=0.0, equal_nan=True
        )


def suspect_of(call: Call, candidate: NDArray[Any]) -> Suspect | None:
    """What the candidate, which is flat, looks like; None if it looks computed."""
    if len(candidate) == 0:
        return None
    roundoff = Format.of(candidate.dtype).unit_roundoff
    if call.source.dtype == np.float32:
        given = call.parameters.get("precision", "keep")
        roundoff = max(roundoff, PRECISION_ROUNDOFF.get(given, 0.0))
    if not candidate[:FIRST].any() and not candidate.any():
        return Zeros(candidate.dtype)
    for name, tensor in call.operands().items():
        if isinstance(tensor, np.ndarray) and tensor.size == candidate.size:
            values = tensor.reshape(-1).astype(candidate.dtype, copy=False)
            if equal(candidate[:FIRST], values[:FIRST]) and equal(candidate, values):
                return Operand(name, values, roundoff)
    value = candidate[0]
    if len(candidate) > 1 and equal(candidate[:FIRST], value) and equal(candidate, value):
        return Constant(value, roundoff)
    return None


def rounded_to(dtype: np.dtype[Any], truth: Floats) -> NDArray[Any]:
    with np.errstate(over="ignore"):  # what the dtype cannot hold is infinite
        return truth.astype(dtype)


def equal(one: NDArray[Any], other: Any) -> bool:
    return bool(np.all((one == other) | (np.isnan(one) & np.isnan(other))))
