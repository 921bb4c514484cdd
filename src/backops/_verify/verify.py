"""Compares the gradients of one call with the truth, and says what is wrong with them."""

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
from backops._verify import places, samples, truth
from backops._verify.compare import THRESHOLDS, Comparison, Element
from backops._verify.origins import origin
from backops._verify.standards import make_standard


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


@dataclass
class TensorReport:
    """One gradient. Errors are over the elements that are finite in candidate and truth."""

    name: str
    is_right: bool
    shape: Shape
    expected_shape: Shape
    dtype: str
    expected_dtype: str
    standard: str
    standard_description: str
    truth: str = ""
    elements: int = 0
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


@dataclass
class Report:
    operator: str
    parameters: dict[str, Any]
    input_shape: Shape
    grad_output_shape: Shape
    tensors: list[TensorReport]

    @property
    def is_right(self) -> bool:
        return all(tensor.is_right for tensor in self.tensors)

    def to_json(self) -> dict[str, Any]:
        """Plain values; what JSON has no number for becomes text."""
        plain = printable({"is_right": self.is_right, **asdict(self)})
        assert isinstance(plain, dict)
        return plain


def verify(call: Call, candidates: Mapping[str, NDArray[Any]], standard: str = "float32") -> Report:
    """Compares each candidate, by the name of its gradient, with the truth."""
    shapes = call.result_shapes()
    for name in candidates:
        if name not in shapes:
            raise UsageError(f"{call.operator} computes no {name}, only {', '.join(shapes)}")
    if not candidates:
        raise UsageError(f"no candidate for any of {', '.join(shapes)}")
    return Report(
        operator=call.operator,
        parameters=dict(call.parameters),
        input_shape=call.input_shape,
        grad_output_shape=call.grad_output.shape,
        tensors=[verify_tensor(call, name, candidates[name], standard) for name in candidates],
    )


def verify_tensor(call: Call, name: str, candidate: NDArray[Any], standard: str) -> TensorReport:
    expected = call.result_shapes()[name]
    if candidate.dtype not in DTYPES.values():
        raise UsageError(f"{name} is {candidate.dtype}, expected one of {', '.join(DTYPES)}")
    chosen = make_standard(standard, candidate.dtype)
    report = TensorReport(
        name=name,
        is_right=False,
        shape=candidate.shape,
        expected_shape=expected,
        dtype=candidate.dtype.name,
        expected_dtype=call.grad_output.dtype.name,
        standard=chosen.name,
        standard_description=chosen.description,
    )
    if candidate.shape != expected:
        report.findings.append(shape_finding(candidate.shape, expected))
        return report
    right = truth.truth_of(call, name, with_magnitudes=chosen.needs_magnitude)
    leading = places.leading_axes(call, name)
    planes, plane = math.prod(expected[:leading]), expected[leading:] or (1,)
    flat = candidate.reshape(-1)
    comparison = Comparison(planes, plane, candidate.dtype, chosen, right.terms)
    for block in right.blocks:
        add_block(comparison, flat, block)
    fill(report, call, comparison, right.source)
    explain(report, call, comparison, flat.reshape(planes, *plane))
    return report


def add_block(comparison: Comparison, candidate: NDArray[Any], block: truth.Block) -> None:
    """`candidate` is flat."""
    values = block.values.reshape(-1)
    magnitudes = None if block.magnitudes is None else block.magnitudes.reshape(-1)
    got = np.asarray(candidate[block.position : block.position + len(values)])
    for part in cache_sized_parts(len(values), math.prod(comparison.plane)):
        comparison.add(
            block.position + part.start,
            got[part],
            values[part],
            None if magnitudes is None else magnitudes[part],
        )


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


def fill(report: TensorReport, call: Call, comparison: Comparison, source: str) -> None:
    report.is_right = comparison.is_right
    report.truth = source
    for name in ("elements", "wrong", "missing_nans", "unexpected_nans", "wrong_infinities"):
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


def explain(report: TensorReport, call: Call, comparison: Comparison, planes: NDArray[Any]) -> None:
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
    if not report.is_right:
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
