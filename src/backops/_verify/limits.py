"""What a standard limits: a figure, what it may be, and how far it is from that."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Limit:
    """One figure of a tensor and its limit."""

    name: str
    value: float
    rule: str
    """at most, below or at least"""
    limit: float
    holds: bool
    times: float
    """The figure in units of its limit: what is above 1 is too much."""
    benchmark: float | None = None
    """The same figure of the second implementation, where the limit comes from it."""
    ratio: float | None = None
    """The figure in units of the second implementation's."""

    def sentence(self) -> str:
        """What is wrong, and by how much."""
        text = f"{self.name}: {shown(self.value)}, {self.rule} {shown(self.limit)}"
        if self.limit == 0:
            return text
        if self.rule == "at least":
            return f"{text} ({self.times:.3g} times as many are missing as may be)"
        return f"{text} ({self.times:.3g} times the limit)"


def at_most(name: str, value: float, limit: float) -> Limit:
    return Limit(name, value, "at most", limit, value <= limit, quotient(value, limit))


def below(name: str, value: float, limit: float) -> Limit:
    return Limit(name, value, "below", limit, value < limit, quotient(value, limit))


def percent_at_least(name: str, missing: int, elements: int, percent: int) -> Limit:
    """`missing` of the elements do not have what so many in a hundred must have."""
    share = 1 - missing / max(1, elements)
    times = quotient(100 * missing, (100 - percent) * elements)
    return Limit(name, share, "at least", percent / 100, times <= 1, times)


def times_benchmark(name: str, value: float, factor: float, benchmark: float) -> Limit:
    """At most `factor` times what the second implementation has."""
    limit = factor * benchmark
    return Limit(
        name, value, "at most", limit, value <= limit, quotient(value, limit),
        benchmark=benchmark, ratio=quotient(value, benchmark),
    )  # fmt: skip


def quotient(value: float, unit: float) -> float:
    if value == 0:
        return 0.0
    return value / unit if unit else math.inf


def shown(value: float) -> str:
    """A number as people read it: counts as they are, errors with an exponent."""
    if math.isfinite(value) and value == int(value) and abs(value) < 1e9:
        return f"{int(value):,}"
    return f"{value:.4g}" if 0.01 <= abs(value) < 1000 else f"{value:.3e}"


def power_of_two(value: float) -> str:
    """A threshold as the standards write it."""
    return f"2^{math.frexp(value)[1] - 1}"
