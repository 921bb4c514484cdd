"""Lines and summary of the convolution benchmark, beside its targets."""

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

SINGLE_GRADIENT_TARGET = 1.0
PLAN_MILLISECONDS_TARGET = 30.0
DTYPE_CLASSES = (
    DtypeClass("float32", ("float32",), mean_target=1.7, worst_target=1.0, share_target=0.9),
    DtypeClass("bfloat16", ("bfloat16",), mean_target=1.6, worst_target=1.0, share_target=0.85),
    DtypeClass("float16", ("float16",), mean_target=8.0, worst_target=3.0, share_target=0.8),
)

# The kernel comes last: it has as many names as there are gradients.
COLUMNS = f"{CASE_COLUMNS} {{gradients:<9}} {{threads:>7}} {TIME_COLUMNS}  {{note:<9}} {{kernel}}"
HEADER = format_header(COLUMNS, rate="GFLOP/s", share="matmul")


@dataclass(frozen=True, kw_only=True)
class ConvResult(Result):
    """`bound_seconds` is what a matrix product of as many operations would take."""

    gradients: str
    dense_3x3: bool
    flops: int
    plan_seconds: float

    @property
    def rate(self) -> float:
        return self.flops / self.seconds / 1e9

    @property
    def where(self) -> str:
        return f"{super().where} {self.gradients}"

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"gigaflops_per_second": self.rate}


def summarize(results: Sequence[ConvResult]) -> list[SummaryRow]:
    rows: list[SummaryRow] = []
    for dtype_class in DTYPE_CLASSES:
        rows += _of_class(dtype_class, [r for r in results if r.dtype in dtype_class.dtypes])
    plans = [(result.plan_seconds * 1e3, result.where) for result in results]
    return rows + largest("slowest plan creation, ms", "all", plans, PLAN_MILLISECONDS_TARGET)


def _of_class(dtype_class: DtypeClass, results: Sequence[ConvResult]) -> list[SummaryRow]:
    title = dtype_class.title
    layers = [result for result in results if result.gradients == "all"]
    alone = [result for result in results if result.gradients != "all"]
    dense = [result for result in layers if result.dense_3x3]

    rows = mean_against_pytorch(title, layers, dtype_class.mean_target)
    figure = "worst layer against PyTorch"
    rows += smallest(figure, title, ratios_of(layers), dtype_class.worst_target)
    figure = "worst single gradient against PyTorch"
    rows += smallest(figure, title, ratios_of(alone), SINGLE_GRADIENT_TARGET)
    figure = "smallest share of matrix rate, 3x3, 64 channels"
    return rows + smallest(figure, title, shares_of(dense), dtype_class.share_target)
