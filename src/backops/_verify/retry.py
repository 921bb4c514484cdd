"""A failed case of a double benchmark, tried again with other seeds: chance, or worse for real?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from backops._verify.limits import Limit

LEAST = 200
"""The standard takes fewer seeds for a failure."""
RESAMPLES = 2000
ENDS = (0.025, 0.975)

Figure = tuple[str, str]
"""The tensor, and the name of a limit."""
Limits = Mapping[Figure, Limit]


@dataclass(frozen=True)
class Interval:
    """The median of a figure's ratios to the benchmark's, and its 95 % bootstrap interval."""

    tensor: str
    name: str
    median: float
    low: float
    high: float

    @property
    def is_worse(self) -> bool:
        return self.low > 1

    def sentence(self) -> str:
        return (
            f"{self.tensor}: the {self.name} is {self.median:.3g} times the benchmark's in the "
            f"median, {self.low:.3g} to {self.high:.3g} with 95 %"
        )


@dataclass(frozen=True)
class Retry:
    seeds: int
    intervals: list[Interval]

    @property
    def is_right(self) -> bool:
        return not any(interval.is_worse for interval in self.intervals)


def try_again(
    failed: Sequence[Figure], attempt: Callable[[int], Limits], seeds: int, seed: Sequence[int]
) -> Retry:
    """Ratios of the failed figures over other seeds.

    Stops at the fewest that count if one figure was worse than the benchmark's in all of them: the
    interval is then above 1 whatever the rest would say.
    """
    ratios: dict[Figure, list[float]] = {figure: [] for figure in failed}
    done = 0
    for number in range(1, seeds + 1):
        limits = attempt(number)
        done = number
        for figure, values in ratios.items():
            values.append(limits[figure].ratio or 0.0)
        if number == LEAST and any(min(values) > 1 for values in ratios.values()):
            break
    return Retry(done, list(intervals(ratios, seed)))


def intervals(ratios: Mapping[Figure, Sequence[float]], seed: Sequence[int]) -> Iterator[Interval]:
    for (tensor, name), values in ratios.items():
        low, high = bootstrap(values, seed)
        yield Interval(tensor, name, float(np.median(values)), low, high)


def bootstrap(values: Sequence[float], seed: Sequence[int]) -> tuple[float, float]:
    """The 95 % interval of the median, by resampling."""
    array = np.asarray(values)
    generator = np.random.default_rng(seed)
    picks = generator.integers(0, len(array), (RESAMPLES, len(array)))
    medians = np.median(array[picks], axis=1)
    # Without interpolation, which makes a NaN of two infinities.
    low, high = np.quantile(medians, ENDS, method="inverted_cdf")
    return float(low), float(high)
