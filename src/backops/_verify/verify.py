"""Compares the results of one call with the truth, and says what is wrong with them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backops._calls import Call
from backops._command import UsageError
from backops._files import DTYPES, Shape
from backops._verify import mistakes, places, samples, truth
from backops._verify.benchmark import Second, preferred
from backops._verify.compare import MISPLACED, THRESHOLDS, Comparison, Element
from backops._verify.limits import Limit
from backops._verify.measures import Measures
from backops._verify.origins import origin
from backops._verify.published import DoubleBenchmark
from backops._verify.standards import Elementwise, Standard, make_standard
from backops._verify.suspects import Suspect, suspect_of

COPIED = ("elements", "finite", "wrong", "missing_nans", "unexpected_nans", "wrong_infinities")


@dataclass(frozen=True)
class Worst:
    """One of the elements that are furthest off."""

    index: Shape
    candidate: float
    truth: float
    rounded: float
    error: float
    relative: float
    ulps: float
    times_allowed: float
    origin: str


@dataclass(frozen=True)
class SmallCounts:
    """Truths that a standard holds apart because they are small."""

    below: float
    elements: int
    error: float
    beyond: int
    """How many of them are off by more than `error`."""
    benchmark_beyond: int


@dataclass
class TensorReport:
    """One result. Errors are over the elements that are finite in candidate and truth."""

    name: str
    is_right: bool
    shape: Shape
    expected_shape: Shape
    dtype: str
    expected_dtype: str
    standard: str
    standard_description: str
    benchmark: str = ""
    """The second implementation, where the standard has one."""
    limits: list[Limit] = field(default_factory=list)
    """What decides; all must hold."""
    suspicion: str = ""
    """What the candidate is, if it is nothing that was computed."""
    small_values: SmallCounts | None = None
    truth: str = ""
    elements: int = 0
    finite: int = 0
    wrong: int = 0
    missing_nans: int = 0
    unexpected_nans: int = 0
    wrong_infinities: int = 0
    max_error: float = 0.0
    mean_error: float = 0.0
    max_relative: float = 0.0
    mean_relative: float = 0.0
    max_ulps: int = 0
    times_allowed: float = 0.0
    """The largest error in units of what the standard allows; in ulps for `exact`."""
    ulp_histogram: list[tuple[int, int, int]] = field(default_factory=list)
    """(from, to, elements), both ends included; distance to the rounded truth."""
    beyond: dict[str, int] = field(default_factory=dict)
    """Elements whose relative error is beyond each threshold."""
    worst: list[Worst] = field(default_factory=list)
    wrong_by_axis: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """For each axis, (index, wrong elements) of the indices that have any; at most 1024 of them."""
    worst_planes: list[int] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    @property
    def times_limit(self) -> float:
        """The figure that is nearest to its limit, or furthest beyond, in units of the limit."""
        if len(self.limits) <= 2:  # elements alone decide
            return self.times_allowed
        return max(limit.times for limit in self.limits)


@dataclass
class Report:
    operator: str
    parameters: dict[str, Any]
    input_shape: Shape
    grad_output_shape: Shape | None
    tensors: list[TensorReport]

    @property
    def is_right(self) -> bool:
        return all(tensor.is_right for tensor in self.tensors)

    def to_json(self) -> dict[str, Any]:
        """Plain values; what JSON has no number for becomes text."""
        plain = printable({"is_right": self.is_right, **asdict(self)})
        assert isinstance(plain, dict)
        return plain


def verify(
    call: Call,
    candidates: Mapping[str, NDArray[Any]],
    standard: str = "float32",
    second: Second | None = None,
) -> Report:
    """Compares each candidate, by the name of its result, with the truth."""
    shapes = call.result_shapes()
    for name in candidates:
        if name not in shapes:
            raise UsageError(f"{call.operator} computes no {name}, only {', '.join(shapes)}")
    if not candidates:
        raise UsageError(f"no candidate for any of {', '.join(shapes)}")
    second = second_of(call, candidates, standard, second)
    return Report(
        operator=call.operator,
        parameters=dict(call.parameters),
        input_shape=call.input_shape,
        grad_output_shape=None if call.is_forward else call.output_shape,
        tensors=[
            verify_tensor(call, name, candidates[name], standard, second) for name in candidates
        ],
    )


def second_of(
    call: Call, candidates: Mapping[str, NDArray[Any]], standard: str, given: Second | None
) -> Second | None:
    """The second implementation if the standard has one, checked: as the candidate should be."""
    chosen = [standard_of(call, array, standard) for array in candidates.values()]
    if not any(isinstance(each, DoubleBenchmark) for each in chosen):
        return None
    second = given or preferred(call)
    for name, candidate in candidates.items():
        if name not in second.results:
            raise UsageError(f"the benchmark {second.name} has no {name}")
        got, expected = second.results[name], call.result_shapes()[name]
        if got.shape != expected:
            raise UsageError(
                f"{name} of the benchmark {second.name} is {got.shape}, expected {expected}"
            )
        if got.dtype != candidate.dtype:
            raise UsageError(
                f"{name} of the benchmark {second.name} is {got.dtype}, expected the candidate's "
                f"{candidate.dtype}"
            )
    return second


def standard_of(call: Call, candidate: NDArray[Any], standard: str) -> Standard:
    if candidate.dtype not in DTYPES.values():
        raise UsageError(f"a candidate is {candidate.dtype}, expected one of {', '.join(DTYPES)}")
    precision = call.parameters.get("precision", "keep")
    if call.source.dtype != np.float32:
        precision = "keep"  # it has no effect
    return make_standard(standard, candidate.dtype, precision)


def verify_tensor(
    call: Call, name: str, candidate: NDArray[Any], standard: str, second: Second | None
) -> TensorReport:
    expected = call.result_shapes()[name]
    chosen = standard_of(call, candidate, standard)
    report = TensorReport(
        name=name,
        is_right=False,
        shape=candidate.shape,
        expected_shape=expected,
        dtype=candidate.dtype.name,
        expected_dtype=call.source.dtype.name,
        standard=chosen.name,
        standard_description=chosen.description,
        benchmark="" if second is None else second.name,
    )
    if candidate.shape != expected:
        report.findings.append(shape_finding(candidate.shape, expected))
        for what in mistakes.shapes(call, name, candidate.shape):
            report.findings.append(f"it would have this shape {what}")
        return report
    other = None if second is None else second.results[name]
    compared = compare(call, name, candidate, chosen, other)
    fill(report, call, compared)
    flat = candidate.reshape(-1)
    explain(report, call, compared, flat.reshape(compared.found.planes, *compared.found.plane))
    return report


@dataclass(frozen=True)
class Compared:
    """One result after the comparison with the truth."""

    found: Comparison
    limits: list[Limit]
    suspicion: str
    """What the candidate is, if it is nothing that was computed."""
    source: str
    """Where the truth came from."""

    @property
    def is_right(self) -> bool:
        return not self.suspicion and all(limit.holds for limit in self.limits)


def compare(
    call: Call,
    name: str,
    candidate: NDArray[Any],
    standard: Standard,
    second: NDArray[Any] | None,
) -> Compared:
    """A candidate of the right shape with the truth; `second` where the standard has one."""
    right = truth.Repeated(call, name, with_magnitudes=standard.needs_magnitude)
    flat = candidate.reshape(-1)
    other = None if second is None else second.reshape(-1)
    if isinstance(standard, DoubleBenchmark):
        assert other is not None
        standard = standard.against(measure(right, other, standard))
    expected, leading = call.result_shapes()[name], places.leading_axes(call, name)
    planes, plane = math.prod(expected[:leading]), expected[leading:] or (1,)
    found = Comparison(planes, plane, candidate.dtype, standard, right.terms)
    suspect = suspect_of(call, flat)
    for block in right:
        add_block(found, flat, block, other, suspect)
    is_suspicious = suspect is not None and not suspect.is_truth
    suspicion = suspect.text if suspect is not None and is_suspicious else ""
    return Compared(found, found.limits(), suspicion, right.source)


def measure(right: truth.Repeated, got: NDArray[Any], standard: Standard) -> Measures:
    """The errors of a flat result, without looking for where they are."""
    measures = Measures(standard.small)
    for block in right:
        values = block.values.reshape(-1)
        for first in range(0, len(values), truth.BLOCK_ELEMENTS):
            part = values[first : first + truth.BLOCK_ELEMENTS]
            start = block.position + first
            measures.add(np.asarray(got[start : start + len(part)]), part)
    return measures


def add_block(
    comparison: Comparison,
    candidate: NDArray[Any],
    block: truth.Block,
    second: NDArray[Any] | None,
    suspect: Suspect | None,
) -> None:
    """`candidate` and `second` are flat."""
    values = block.values.reshape(-1)
    magnitudes = None if block.magnitudes is None else block.magnitudes.reshape(-1)
    span = slice(block.position, block.position + len(values))
    got = np.asarray(candidate[span])
    other = None if second is None else np.asarray(second[span])
    for part in cache_sized_parts(len(values), math.prod(comparison.plane)):
        comparison.add(
            block.position + part.start,
            got[part],
            values[part],
            None if magnitudes is None else magnitudes[part],
            None if other is None else other[part],
        )
        if suspect is not None:
            suspect.add(block.position + part.start, values[part])


def cache_sized_parts(elements: int, plane_size: int) -> Iterator[slice]:
    """Parts of a block, each of whole planes or of a part of one."""
    step = truth.BLOCK_ELEMENTS
    if plane_size <= step:
        step -= step % plane_size
        yield from (slice(start, start + step) for start in range(0, elements, step))
        return
    for plane in range(0, elements, plane_size):
        end = min(plane + plane_size, elements)
        yield from (slice(start, min(start + step, end)) for start in range(plane, end, step))


def fill(report: TensorReport, call: Call, compared: Compared) -> None:
    comparison = compared.found
    report.is_right, report.limits = compared.is_right, compared.limits
    report.suspicion = compared.suspicion
    report.small_values = small_counts(comparison)
    report.truth = compared.source
    for name in COPIED:
        setattr(report, name, getattr(comparison, name))
    count = max(1, comparison.finite)
    report.max_error, report.mean_error = comparison.max_error, comparison.sum_error / count
    report.max_relative = comparison.max_relative
    report.mean_relative = comparison.sum_relative / count
    report.max_ulps = comparison.max_ulps
    report.times_allowed = max((element.score for element in comparison.worst), default=0.0)
    report.ulp_histogram = histogram_rows(comparison.histogram)
    report.beyond = dict(zip(THRESHOLDS, comparison.beyond, strict=True))
    shape = report.expected_shape
    report.worst = [
        worst_element(call, report.name, element, shape)
        for element in sorted(comparison.worst, reverse=True)
        if element.error != 0
    ]


def small_counts(comparison: Comparison) -> SmallCounts | None:
    standard, found = comparison.standard, comparison.measures
    if not isinstance(standard, DoubleBenchmark) or standard.benchmark is None:
        return None
    return SmallCounts(
        below=standard.small.below,
        elements=found.small_elements,
        error=standard.small.error,
        beyond=found.small_beyond,
        benchmark_beyond=standard.benchmark.small_beyond,
    )


def limit_findings(compared: Compared) -> Iterator[str]:
    """Which limits do not hold; of an elementwise standard the elements themselves tell more."""
    if compared.suspicion:
        yield f"{compared.suspicion}, and the truth is not"
    for limit in compared.limits:
        if not limit.holds and not (
            isinstance(compared.found.standard, Elementwise) and limit.name != MISPLACED
        ):
            yield limit.sentence()
    if compared.found.elements and compared.found.finite == 0:
        yield "no element is finite, so no error could be measured"


def explain(report: TensorReport, call: Call, compared: Compared, planes: NDArray[Any]) -> None:
    comparison = compared.found
    report.findings += limit_findings(compared)
    if report.dtype != report.expected_dtype:
        report.findings.append(
            f"the candidate is {report.dtype}, the operands are {report.expected_dtype}"
        )
    report.worst_planes = worst_planes(comparison)
    axes = places.axes_of(call, report.name, comparison.by_plane, comparison.by_position)
    report.wrong_by_axis = {
        axis.name: [(int(i), int(axis.counts[i])) for i in np.flatnonzero(axis.counts)[:1024]]
        for axis in axes
    }
    if comparison.wrong == 1:
        report.findings.append(f"the wrong element is {report.name}{list(report.worst[0].index)}")
    else:
        report.findings += places.findings(
            call, report.name, axes, comparison.by_position, comparison.wrong
        )
    if not report.is_right and not compared.suspicion and report.worst_planes:
        report.findings += samples.explanations(call, report.name, planes, report.worst_planes[0])


def worst_planes(comparison: Comparison) -> list[int]:
    """Up to three planes with the most wrong elements, or the one with the largest error."""
    order = np.argsort(-comparison.by_plane, kind="stable")[:3]
    found = [int(plane) for plane in order if comparison.by_plane[plane] > 0]
    if not found and comparison.worst:
        found = [max(comparison.worst).position // len(comparison.by_position)]
    return found


def worst_element(call: Call, name: str, element: Element, shape: Shape) -> Worst:
    index = tuple(int(i) for i in np.unravel_index(element.position, shape))
    return Worst(
        index=index,
        candidate=element.candidate,
        truth=element.truth,
        rounded=element.rounded,
        error=element.error,
        relative=element.relative,
        ulps=element.ulps,
        times_allowed=element.score,
        origin=origin(call, name, index),
    )


def histogram_rows(histogram: NDArray[np.int64]) -> list[tuple[int, int, int]]:
    rows = []
    for bin, count in enumerate(histogram.tolist()):
        low = bin if bin < 2 else 2 ** (bin - 2) + 1
        high = bin if bin < 2 else 2 ** (bin - 1)
        if count:
            rows.append((low, high, count))
    return rows


def shape_finding(got: Shape, expected: Shape) -> str:
    text = f"the shape is {got}, expected {expected}"
    if sorted(got) == sorted(expected):
        return f"{text}: the same sizes in another order, so axes are exchanged"
    if math.prod(got) == math.prod(expected):
        return f"{text}: as many elements"
    return text


def printable(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): printable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [printable(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
