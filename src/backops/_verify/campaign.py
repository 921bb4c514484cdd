"""The cases of a suite as a standard wants them: its distributions, and as many as were asked."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from backops._verify.cases import Case


@dataclass(frozen=True)
class Normal:
    """A normal distribution whose mean and deviation are drawn for each case."""

    mean: tuple[float, float]
    deviation: tuple[float, float]

    def draw(self, generator: np.random.Generator) -> str:
        mean, deviation = generator.uniform(*self.mean), generator.uniform(*self.deviation)
        return f"normal:{mean:.3f},{deviation:.3f}"


@dataclass(frozen=True)
class Fixed:
    text: str

    def draw(self, generator: np.random.Generator) -> str:
        return self.text


UNIFORM, TINY = Fixed("uniform:-5,5"), Fixed("uniform:-0.001,0.001")
OUTLIERS = Fixed("outliers:-5,5")
NEAR, WIDE = Normal((-5, 5), (0.1, 2)), Normal((-100, 100), (1, 25))
# Tenths: 1 tiny, 3 uniform, 4 normal, 2 with outliers, mixed so that a short suite has them all.
MIXED = (WIDE, UNIFORM, OUTLIERS, WIDE, TINY, UNIFORM, WIDE, OUTLIERS, UNIFORM, WIDE)
# One after the other, so that their shares are those of the standard.
DISTRIBUTIONS: dict[str, tuple[Fixed | Normal, ...]] = {
    "cann": (UNIFORM, NEAR),
    "cann-2026-04": (UNIFORM, NEAR),
    "cann-L0": (UNIFORM, WIDE),
    "cann-L1": MIXED,
    "cann-L2": MIXED,
}


def campaign(cases: Sequence[Case], standard: str, count: int | None) -> list[Case]:
    """`count` cases: fewer than the suite has are spread over it, more are drawn anew.

    A case that names its values keeps them. The others have the standard's, another one each time.
    """
    count = count or len(cases)
    if count < len(cases):
        chosen = [cases[index * len(cases) // count] for index in range(count)]
        return [with_values(case, standard, place, 0) for place, case in enumerate(chosen)]
    pairs = (divmod(index, len(cases)) for index in range(count))
    return [with_values(cases[place], standard, place, turn) for turn, place in pairs]


def with_values(case: Case, standard: str, place: int, turn: int) -> Case:
    name = case.name if turn == 0 else f"{case.name}#{turn + 1}"
    kinds = DISTRIBUTIONS.get(standard)
    if case.values is not None or kinds is None:
        return replace(case, name=name)
    # One further each turn: a case meets every distribution, whatever the length of the suite.
    kind = kinds[(place + turn) % len(kinds)]
    generator = np.random.default_rng([case.seed, zlib.crc32(name.encode()), 1])
    return replace(case, name=name, values=kind.draw(generator))
