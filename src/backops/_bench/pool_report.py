"""Lines and summary of the pooling benchmark, beside its targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from backops._bench.report import (
    CASE_COLUMNS,
    TIME_COLUMNS,
    DtypeClass,
    Result,
    SummaryRow,
    format_header,
    largest,
    mean_against_pytorch,
    ratios_of,
    shares_of,
    smallest,
)

# From here on a tensor counts as well beyond the last-level cache.
LARGE_TENSOR_BYTES = 128_000_000

TOY_TARGET = 1.0
PAIR_TARGET = 2.0
BACKWARD_CLASSES = (
    DtypeClass("float32", ("float32",), mean_target=5.0, worst_target=1.1, share_target=0.7),
    DtypeClass(
        "bfloat16, float16",
        ("bfloat16", "float16"),
        mean_target=20.0,
        worst_target=3.0,
        share_target=0.5,
    ),
)

# Forward, what is asked of channels-last tensors is asked of them alone.
FORWARD_CLASSES = (
    DtypeClass("float32", ("float32",), mean_target=5.0, worst_target=0.97, share_target=0.8),
    DtypeClass(
        "bfloat16, float16",
        ("bfloat16", "float16"),
        mean_target=10.0,
        worst_target=1.0,
        share_target=0.6,
    ),
)

COLUMNS = f"{CASE_COLUMNS} {{threads:>7}} {{kernel:<28}} {TIME_COLUMNS}  {{note}}"
HEADER = format_header(COLUMNS, rate="GB/s", share="bound")


@dataclass(frozen=True, kw_only=True)
class PoolResult(Result):
    pair: str | None
    grad_input_bytes: int
    moved_bytes: int

    @property
    def rate(self) -> float:
        return self.moved_bytes / self.seconds / 1e9

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"gigabytes_per_second": self.rate}


def summarize(results: Sequence[PoolResult], *, forward: bool) -> list[SummaryRow]:
    rows: list[SummaryRow] = []
    for dtype_class in FORWARD_CLASSES if forward else BACKWARD_CLASSES:
        of_class = [result for result in results if result.dtype in dtype_class.dtypes]
        against_pytorch = _forward_against_pytorch if forward else _against_pytorch
        rows += against_pytorch(dtype_class, of_class)
        rows += _against_bound(dtype_class, of_class)
        rows += _kernel_growth(dtype_class, of_class)
    return rows


def _against_pytorch(dtype_class: DtypeClass, results: Sequence[PoolResult]) -> list[SummaryRow]:
    title = dtype_class.title
    toys = [result for result in results if result.name == "toy"]
    models = [result for result in results if result.name != "toy"]
    worst_target = dtype_class.worst_target
    return [
        *mean_against_pytorch(title, models, dtype_class.mean_target, ", without toy"),
        *smallest("worst case against PyTorch", title, ratios_of(models), worst_target),
        *smallest("toy against PyTorch", title, ratios_of(toys), TOY_TARGET),
    ]


def _forward_against_pytorch(
    dtype_class: DtypeClass, results: Sequence[PoolResult]
) -> list[SummaryRow]:
    title = dtype_class.title
    toys = [result for result in results if result.name == "toy"]
    models = [result for result in results if result.name != "toy"]
    contiguous = [result for result in models if result.layout == "contiguous"]
    channels_last = [result for result in models if result.layout == "channels_last"]
    worst = "worst channels-last case against PyTorch"
    return [
        *mean_against_pytorch(title, contiguous, dtype_class.mean_target, " contiguous, no toy"),
        *smallest(worst, title, ratios_of(channels_last), dtype_class.worst_target),
        *smallest("toy against PyTorch", title, ratios_of(toys), TOY_TARGET),
    ]


def _against_bound(dtype_class: DtypeClass, results: Sequence[PoolResult]) -> list[SummaryRow]:
    large = [result for result in results if result.grad_input_bytes >= LARGE_TENSOR_BYTES]
    figure = "smallest share of memory bound, 128 MB and more"
    return smallest(figure, dtype_class.title, shares_of(large), dtype_class.share_target)


def _kernel_growth(dtype_class: DtypeClass, results: Sequence[PoolResult]) -> list[SummaryRow]:
    """Time of the longer kernel of each pair over that of the shorter one, the worst dtype."""
    rows: list[SummaryRow] = []
    for pair in dict.fromkeys(result.pair for result in results if result.pair):
        growths: list[tuple[float, str]] = []
        for dtype in dtype_class.dtypes:
            members = [r for r in results if r.pair == pair and r.dtype == dtype]
            if len(members) == 2:
                short, long = members
                growths.append((long.seconds / short.seconds, f"{long.name} {dtype}"))
        figure = f"time of k=15 over k=3, stride 1, {pair}"
        rows += largest(figure, dtype_class.title, growths, PAIR_TARGET)
    return rows
