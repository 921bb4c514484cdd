"""What the benchmarks share of their results: lines, rows of the summary, and JSON."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any, TypeVar

from backops._bench.progress import Progress


@dataclass(frozen=True, kw_only=True)
class Result(ABC):
    """One measured case; `pytorch_seconds` is None where PyTorch was not timed."""

    name: str
    problem: str
    dtype: str
    layout: str
    threads: int
    kernel: str
    seconds: float
    bound_seconds: float
    pytorch_seconds: float | None
    pytorch_note: str | None = None
    disturbed: bool

    @property
    @abstractmethod
    def rate(self) -> float:
        """Billions per second, of what the benchmark counts."""

    @property
    def share_of_bound(self) -> float:
        return self.bound_seconds / self.seconds

    @property
    def ratio(self) -> float | None:
        return None if self.pytorch_seconds is None else self.pytorch_seconds / self.seconds

    @property
    def where(self) -> str:
        return f"{self.name} {self.dtype} {self.layout}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"share_of_bound": self.share_of_bound, "ratio": self.ratio}


AnyResult = TypeVar("AnyResult", bound=Result)

# Columns that all benchmarks have; each adds its own around them.
CASE_COLUMNS = "{name:<20} {problem:<40} {dtype:<8} {layout:<13}"
TIME_COLUMNS = "{time:>10} {rate:>6} {share:>6} {pytorch:>14} {ratio:>7}"


def format_header(columns: str, *, rate: str, share: str) -> str:
    return columns.format(
        name="case",
        problem="problem",
        dtype="dtype",
        layout="layout",
        gradients="gradients",
        threads="threads",
        kernel="kernel",
        time="time",
        rate=rate,
        share=share,
        pytorch="PyTorch",
        ratio="ratio",
        note="",
        choice="",
    ).rstrip()


def format_result(columns: str, result: Result) -> str:
    cells = asdict(result) | {
        "time": format_seconds(result.seconds),
        "rate": f"{result.rate:.1f}",
        "share": f"{result.share_of_bound:.2f}",
        "pytorch": result.pytorch_note or format_seconds(result.pytorch_seconds or math.nan),
        "ratio": "" if result.ratio is None else format_ratio(result.ratio),
        "note": "disturbed" if result.disturbed else "",
    }
    return columns.format(**cells).rstrip()


def format_seconds(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.2f} us"


def format_ratio(ratio: float) -> str:
    return f"{ratio:.2f}x" if ratio < 10 else f"{ratio:.1f}x"


def print_results(
    progress: Progress, columns: str, header: str, results: Iterable[AnyResult]
) -> list[AnyResult]:
    """Prints each result as it comes, under the header; returns them all."""
    progress.print(header)
    printed: list[AnyResult] = []
    for result in results:
        progress.print(format_result(columns, result))
        progress.advance()
        printed.append(result)
    return printed


@dataclass(frozen=True)
class SummaryRow:
    """One figure of the summary for one class of dtypes, beside its target; counts are ints."""

    figure: str
    dtypes: str
    value: float
    target: float
    at_most: bool
    where: str

    @property
    def reached(self) -> bool:
        return self.value <= self.target if self.at_most else self.value >= self.target


@dataclass(frozen=True)
class DtypeClass:
    """dtypes that share the targets of one column of the summary."""

    title: str
    dtypes: tuple[str, ...]
    mean_target: float
    worst_target: float
    share_target: float


def mean_against_pytorch(
    dtypes: str, results: Iterable[Result], target: float, note: str = ""
) -> list[SummaryRow]:
    """Row of the geometric mean; none without results."""
    ratios = [ratio for ratio, _ in ratios_of(results)]
    if not ratios:
        return []
    return [
        SummaryRow(
            "geometric mean against PyTorch",
            dtypes,
            math.exp(math.fsum(map(math.log, ratios)) / len(ratios)),
            target,
            at_most=False,
            where=f"{len(ratios)} cases{note}",
        )
    ]


def ratios_of(results: Iterable[Result]) -> list[tuple[float, str]]:
    return [(r.ratio, r.where) for r in results if r.ratio is not None]


def shares_of(results: Iterable[Result]) -> list[tuple[float, str]]:
    return [(r.share_of_bound, r.where) for r in results]


def smallest(
    figure: str, dtypes: str, values: Sequence[tuple[float, str]], target: float
) -> list[SummaryRow]:
    """Row of the smallest of these (value, where); none without values."""
    return [
        SummaryRow(figure, dtypes, value, target, at_most=False, where=where)
        for value, where in sorted(values)[:1]
    ]


def largest(
    figure: str, dtypes: str, values: Sequence[tuple[float, str]], target: float
) -> list[SummaryRow]:
    """Row of the largest of these (value, where); none without values."""
    return [
        SummaryRow(figure, dtypes, value, target, at_most=True, where=where)
        for value, where in sorted(values)[-1:]
    ]


def format_summary(rows: Sequence[SummaryRow]) -> str:
    lines = [f"{'summary':<48} {'dtypes':<18} {'value':>7}  {'target':<16} "]
    for row in rows:
        target = f"{'at most' if row.at_most else 'at least'} {row.target:g}"
        verdict = "reached" if row.reached else "missed"
        value = f"{row.value}" if isinstance(row.value, int) else f"{row.value:.2f}"
        lines.append(
            f"{row.figure:<48} {row.dtypes:<18} {value:>7}  {target:<13} {verdict:<8} {row.where}"
        )
    return "\n".join(line.rstrip() for line in lines)


def to_json(
    environment: Mapping[str, str], results: Sequence[Result], rows: Sequence[SummaryRow]
) -> dict[str, Any]:
    """Everything, as a JSON file holds it."""
    return {
        "date": date.today().isoformat(),
        "environment": dict(environment),
        "results": [result.to_json() for result in results],
        "summary": [asdict(row) | {"reached": row.reached} for row in rows],
    }
