"""Errors of a candidate, added up over blocks of consecutive elements."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from backops._files import Shape
from backops._verify.limits import Limit, at_most
from backops._verify.measures import Measures
from backops._verify.standards import Format, Standard

Floats = NDArray[np.float64]

THRESHOLDS = {"1e-4": 1e-4, "1e-3": 1e-3, "1e-2": 1e-2, "1e-1": 1e-1}
WORST_KEPT = 10
MISPLACED = "NaN and infinities out of place"
SMALLEST = float(np.finfo(np.float64).tiny)
SIGNED = {2: np.int16, 4: np.int32, 8: np.int64}


class Element(NamedTuple):
    """One element and its error, ordered by how many times the allowed error it has."""

    score: float
    position: int
    candidate: float
    truth: float
    rounded: float
    error: float
    relative: float
    ulps: float


@dataclass
class Comparison:
    """What is known of a candidate after the blocks that were added.

    `planes` and `plane`: the number of planes and the shape of one. Errors are those of elements
    where candidate and truth are finite; where they are not, both must be the same. Under a
    standard that has one, a second implementation excuses what it has in common with the candidate,
    and what it gets wrong itself.
    """

    planes: int
    plane: Shape
    dtype: np.dtype[Any]
    standard: Standard
    terms: int

    elements: int = 0
    finite: int = 0
    wrong: int = 0
    missing_nans: int = 0
    unexpected_nans: int = 0
    wrong_infinities: int = 0
    max_error: float = 0.0
    sum_error: float = 0.0
    max_relative: float = 0.0
    sum_relative: float = 0.0
    max_ulps: int = 0
    beyond: list[int] = field(default_factory=lambda: [0] * len(THRESHOLDS))
    worst: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.format = Format.of(self.dtype)
        self.by_plane = np.zeros(self.planes, np.int64)
        self.by_position = np.zeros(math.prod(self.plane), np.int32)
        # By the bits of the distance: 0, 1, 2, 3-4, 5-8 and so on.
        self.histogram = np.zeros(66, np.int64)
        self.measures = Measures(self.standard.small)

    def limits(self) -> list[Limit]:
        """What decides whether the candidate is right; all of them must hold."""
        specials = self.missing_nans + self.unexpected_nans + self.wrong_infinities
        return [at_most(MISPLACED, specials, 0), *self.standard.limits(self)]

    def add(
        self,
        position: int,
        candidate: NDArray[Any],
        truth: Floats,
        magnitude: Floats | None,
        second: NDArray[Any] | None = None,
    ) -> None:
        """Adds elements from `position` on: flat, whole planes or a part of one plane."""
        with np.errstate(all="ignore"):
            self._add(position, candidate, truth, magnitude, second)
        if self.standard.needs_measures:
            self.measures.add(candidate, truth)

    def _add(
        self,
        position: int,
        candidate: NDArray[Any],
        truth: Floats,
        magnitude: Floats | None,
        second: NDArray[Any] | None,
    ) -> None:
        error = candidate.astype(np.float64)
        error -= truth
        np.abs(error, out=error)
        size = np.abs(truth)
        relative = error / np.maximum(size, SMALLEST)
        rounded = truth.astype(self.dtype)
        allowed = self.standard.allowed(size, magnitude, self.format, self.terms)
        differs, ulps = self._distances(candidate, rounded)
        if allowed is None:
            wrong = np.zeros(len(truth), bool)
            wrong[differs[ulps > 0]] = True
        else:
            wrong = error <= allowed
            np.logical_not(wrong, out=wrong)
        total = float(error.sum())
        finite = len(truth)
        special = None
        if not math.isfinite(total):
            special = ~np.isfinite(error)
            others = None if second is None else second[special]
            wrong[special] = self._add_specials(candidate[special], rounded[special], others)
            error[special] = relative[special] = 0.0
            ulps = ulps[~special[differs]]
            total = float(error.sum())
            finite -= int(np.count_nonzero(special))
        self.elements += len(truth)
        self.finite += finite
        self.sum_error += total
        self.max_error = max(self.max_error, float(error.max(initial=0.0)))
        self._add_relative(relative)
        self._add_ulps(ulps, finite)
        self._add_places(position, wrong)
        self._add_worst(
            position, candidate, truth, rounded, error, relative, allowed, wrong, special
        )

    def _distances(
        self, candidate: NDArray[Any], rounded: NDArray[Any]
    ) -> tuple[NDArray[np.intp], NDArray[np.uint64]]:
        """Where two arrays differ, and by how many values of the dtype."""
        kind = SIGNED[self.dtype.itemsize]
        differs = np.flatnonzero(candidate.view(kind) != rounded.view(kind))
        return differs, steps_between(candidate[differs].view(kind), rounded[differs].view(kind))

    def _steps(self, candidate: NDArray[Any], rounded: NDArray[Any]) -> Floats:
        kind = SIGNED[self.dtype.itemsize]
        return steps_between(candidate.view(kind), rounded.view(kind)).astype(np.float64)

    def _add_specials(
        self, candidate: NDArray[Any], rounded: NDArray[Any], second: NDArray[Any] | None
    ) -> NDArray[np.bool_]:
        """Which of these, where one is not finite, are wrong."""
        wrong = ~same(candidate, rounded)
        if second is not None:
            wrong &= ~same(candidate, second)
            wrong &= np.isfinite(rounded) | same(second, rounded)
        is_nan, wants_nan = np.isnan(candidate), np.isnan(rounded)
        missing, unexpected = wrong & wants_nan & ~is_nan, wrong & is_nan & ~wants_nan
        infinities = wrong & ~is_nan & ~wants_nan
        self.missing_nans += int(np.count_nonzero(missing))
        self.unexpected_nans += int(np.count_nonzero(unexpected))
        self.wrong_infinities += int(np.count_nonzero(infinities))
        result: NDArray[np.bool_] = missing | unexpected | infinities
        return result

    def _add_relative(self, relative: Floats) -> None:
        largest = float(relative.max(initial=0.0))
        self.max_relative = max(self.max_relative, largest)
        # An error where the truth is 0 has no relative size; the mean is over the others.
        total = float(relative.sum())
        if not total < 1e300:
            total = float(relative[relative < 1e300].sum())
        self.sum_relative += total
        for index, threshold in enumerate(THRESHOLDS.values()):
            if largest <= threshold:
                break
            self.beyond[index] += int(np.count_nonzero(relative > threshold))

    def _add_ulps(self, ulps: NDArray[np.uint64], finite: int) -> None:
        ulps = ulps[ulps > 0]
        self.histogram[0] += finite - len(ulps)
        if len(ulps):
            self.max_ulps = max(self.max_ulps, int(ulps.max()))
            bits = np.frexp((ulps - np.uint64(1)).astype(np.float64))[1]
            self.histogram += np.bincount(bits + 1, minlength=len(self.histogram))

    def _add_places(self, position: int, wrong: NDArray[np.bool_]) -> None:
        count = int(np.count_nonzero(wrong))
        if count == 0:
            return
        self.wrong += count
        size = len(self.by_position)
        plane, offset = divmod(position, size)
        if offset == 0 and len(wrong) % size == 0:
            maps = wrong.reshape(-1, size)
            self.by_position += maps.sum(axis=0, dtype=np.int32)
            self.by_plane[plane : plane + len(maps)] += maps.sum(axis=1)
        else:
            self.by_position[offset : offset + len(wrong)] += wrong
            self.by_plane[plane] += count

    def _add_worst(
        self,
        position: int,
        candidate: NDArray[Any],
        truth: Floats,
        rounded: NDArray[Any],
        error: Floats,
        relative: Floats,
        allowed: Floats | None,
        wrong: NDArray[np.bool_],
        special: NDArray[np.bool_] | None,
    ) -> None:
        if len(truth) == 0:
            return
        chosen = np.flatnonzero(self._may_be_worst(error, allowed, wrong, special))
        if len(chosen) == 0:
            if len(self.worst) == WORST_KEPT:
                return
            chosen = np.array([np.argmax(error)])
        if allowed is None:
            scores = self._steps(candidate[chosen], rounded[chosen])
        else:
            scores = error[chosen] / np.maximum(allowed[chosen], SMALLEST)
        if special is not None:
            # A NaN or infinity in its place is right, and no error at all.
            out_of_place = np.where(wrong[chosen], math.inf, 0.0)
            scores = np.where(special[chosen], out_of_place, scores)
        if len(chosen) > WORST_KEPT:
            most = np.argpartition(scores, -WORST_KEPT)[-WORST_KEPT:]
            chosen, scores = chosen[most], scores[most]
        steps = self._steps(candidate[chosen], rounded[chosen])
        for index, score, ulps in zip(
            chosen.tolist(), scores.tolist(), steps.tolist(), strict=True
        ):
            is_finite = math.isfinite(float(candidate[index])) and math.isfinite(truth[index])
            element = Element(
                score=score,
                position=position + index,
                candidate=float(candidate[index]),
                truth=float(truth[index]),
                rounded=float(rounded[index]),
                error=float(error[index]) if is_finite else math.nan,
                relative=float(relative[index]) if is_finite else math.nan,
                ulps=ulps if is_finite else math.nan,
            )
            if len(self.worst) < WORST_KEPT:
                heapq.heappush(self.worst, element)
            elif element.score > self.worst[0].score:
                heapq.heapreplace(self.worst, element)

    def _may_be_worst(
        self,
        error: Floats,
        allowed: Floats | None,
        wrong: NDArray[np.bool_],
        special: NDArray[np.bool_] | None,
    ) -> NDArray[np.bool_]:
        """The wrong elements that may be worse than the best of those kept."""
        if len(self.worst) < WORST_KEPT or allowed is None:
            return wrong
        worse = error > allowed * self.worst[0].score
        if special is not None and math.isfinite(self.worst[0].score):
            worse |= special
        worse &= wrong
        return worse


def same(one: NDArray[Any], other: NDArray[Any]) -> NDArray[np.bool_]:
    """Where two arrays have the same value, or both a NaN."""
    result: NDArray[np.bool_] = (one == other) | (np.isnan(one) & np.isnan(other))
    return result


def steps_between(one: NDArray[Any], other: NDArray[Any]) -> NDArray[np.uint64]:
    """How many values of a float dtype lie between two, given as bits."""
    steps = one.astype(np.int64)
    steps -= other
    np.abs(steps, out=steps)
    # Bits count up from either zero, so across zero the distances to it add up.
    across = np.flatnonzero((one ^ other) < 0)
    if len(across):
        largest = np.int64(np.iinfo(one.dtype).max)
        first, second = one[across].astype(np.int64), other[across].astype(np.int64)
        steps[across] = (first & largest) + (second & largest)
    return steps.view(np.uint64)
