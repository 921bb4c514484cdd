"""Results of the pooling benchmark as lines, as a summary beside its targets, and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

# From here on a tensor counts as well beyond the last-level cache.
LARGE_TENSOR_BYTES = 128_000_000


@dataclass(frozen=True)
class Result:
    """One measured case; `pytorch_seconds` is None where PyTorch was not timed."""

    name: str
    problem: str
    pair: str | None
    dtype: str
    layout: str
    threads: int
    kernel: str
    grad_input_bytes: int
    moved_bytes: int
    seconds: float
    bound_seconds: float
    pytorch_seconds: float | None
    pytorch_note: str | None
    disturbed: bool

    @property
    def gigabytes_per_second(self) -> float:
        return self.moved_bytes / self.seconds / 1e9

    @property
    def share_of_bound(self) -> float:
        return self.bound_seconds / self.seconds

    @property
    def ratio(self) -> float | None:
        return None if self.pytorch_seconds is None else self.pytorch_seconds / self.seconds


@dataclass(frozen=True)
class SummaryRow:
    """One figure of the summary for one class of dtypes, beside its target."""

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


TOY_TARGET = 1.0
PAIR_TARGET = 2.0
DTYPE_CLASSES = (
    DtypeClass("float32", ("float32",), mean_target=5.0, worst_target=1.1, share_target=0.7),
    DtypeClass(
        "bfloat16, float16",
        ("bfloat16", "float16"),
        mean_target=20.0,
        worst_target=3.0,
        share_target=0.5,
    ),
)


COLUMNS = (
    "{name:<20} {problem:<40} {dtype:<8} {layout:<13} {threads:>7} {kernel:<28} "
    "{time:>10} {rate:>6} {share:>6} {pytorch:>14} {ratio:>7}  {note}"
)
HEADER = COLUMNS.format(
    name="case",
    problem="problem",
    dtype="dtype",
    layout="layout",
    threads="threads",
    kernel="kernel",
    time="time",
    rate="GB/s",
    share="bound",
    pytorch="PyTorch",
    ratio="ratio",
    note="",
).rstrip()


def format_result(result: Result) -> str:
    pytorch = result.pytorch_note or format_seconds(result.pytorch_seconds or math.nan)
    return COLUMNS.format(
        name=result.name,
        problem=result.problem,
        dtype=result.dtype,
        layout=result.layout,
        threads=result.threads,
        kernel=result.kernel,
        time=format_seconds(result.seconds),
        rate=f"{result.gigabytes_per_second:.1f}",
        share=f"{result.share_of_bound:.2f}",
        pytorch=pytorch,
        ratio="" if result.ratio is None else format_ratio(result.ratio),
        note="disturbed" if result.disturbed else "",
    ).rstrip()


def format_seconds(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.2f} us"


def format_ratio(ratio: float) -> str:
    return f"{ratio:.2f}x" if ratio < 10 else f"{ratio:.1f}x"


def summarize(results: Sequence[Result]) -> list[SummaryRow]:
    rows: list[SummaryRow] = []
    for dtype_class in DTYPE_CLASSES:
        of_class = [result for result in results if result.dtype in dtype_class.dtypes]
        rows += _against_pytorch(dtype_class, of_class)
        rows += _against_bound(dtype_class, of_class)
        rows += _kernel_growth(dtype_class, of_class)
    return rows


def _against_pytorch(dtype_class: DtypeClass, results: Sequence[Result]) -> list[SummaryRow]:
    toys = _by_ratio(result for result in results if result.name == "toy")
    models = _by_ratio(result for result in results if result.name != "toy")
    rows: list[SummaryRow] = []
    if models:
        mean = math.exp(math.fsum(math.log(ratio) for ratio, _ in models) / len(models))
        worst, where = models[0]
        rows = [
            SummaryRow(
                "geometric mean against PyTorch",
                dtype_class.title,
                mean,
                dtype_class.mean_target,
                at_most=False,
                where=f"{len(models)} cases, without toy",
            ),
            SummaryRow(
                "worst case against PyTorch",
                dtype_class.title,
                worst,
                dtype_class.worst_target,
                at_most=False,
                where=where,
            ),
        ]
    if toys:
        worst, where = toys[0]
        rows.append(
            SummaryRow(
                "toy against PyTorch",
                dtype_class.title,
                worst,
                TOY_TARGET,
                at_most=False,
                where=where,
            )
        )
    return rows


def _by_ratio(results: Iterable[Result]) -> list[tuple[float, str]]:
    return sorted((r.ratio, _where(r)) for r in results if r.ratio is not None)


def _against_bound(dtype_class: DtypeClass, results: Sequence[Result]) -> list[SummaryRow]:
    large = [result for result in results if result.grad_input_bytes >= LARGE_TENSOR_BYTES]
    if not large:
        return []
    lowest = min(large, key=lambda result: result.share_of_bound)
    return [
        SummaryRow(
            "smallest share of memory bound, 128 MB and more",
            dtype_class.title,
            lowest.share_of_bound,
            dtype_class.share_target,
            at_most=False,
            where=_where(lowest),
        )
    ]


def _kernel_growth(dtype_class: DtypeClass, results: Sequence[Result]) -> list[SummaryRow]:
    """Time of the longer kernel of each pair over that of the shorter one, the worst dtype."""
    rows: list[SummaryRow] = []
    for pair in dict.fromkeys(result.pair for result in results if result.pair):
        growths: list[tuple[float, str]] = []
        for dtype in dtype_class.dtypes:
            members = [r for r in results if r.pair == pair and r.dtype == dtype]
            if len(members) == 2:
                short, long = members
                growths.append((long.seconds / short.seconds, f"{long.name} {dtype}"))
        if growths:
            worst, where = max(growths)
            rows.append(
                SummaryRow(
                    f"time of k=15 over k=3, stride 1, {pair}",
                    dtype_class.title,
                    worst,
                    PAIR_TARGET,
                    at_most=True,
                    where=where,
                )
            )
    return rows


def _where(result: Result) -> str:
    return f"{result.name} {result.dtype} {result.layout}"


def format_summary(rows: Sequence[SummaryRow]) -> str:
    lines = [f"{'summary':<48} {'dtypes':<18} {'value':>7}  {'target':<16} "]
    for row in rows:
        target = f"{'at most' if row.at_most else 'at least'} {row.target:g}"
        verdict = "reached" if row.reached else "missed"
        lines.append(
            f"{row.figure:<48} {row.dtypes:<18} {row.value:>7.2f}  {target:<13} "
            f"{verdict:<8} {row.where}"
        )
    return "\n".join(line.rstrip() for line in lines)


def to_json(
    environment: Mapping[str, str], results: Sequence[Result], rows: Sequence[SummaryRow]
) -> str:
    document = {
        "environment": dict(environment),
        "results": [
            asdict(result)
            | {
                "gigabytes_per_second": result.gigabytes_per_second,
                "share_of_bound": result.share_of_bound,
                "ratio": result.ratio,
            }
            for result in results
        ],
        "summary": [asdict(row) | {"reached": row.reached} for row in rows],
    }
    return json.dumps(document, indent=2) + "\n"
