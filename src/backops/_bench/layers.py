"""Benchmark of the convolutions of public networks: which of them is PyTorch faster at?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from backops._bench import conv, pytorch
from backops._bench.conv_report import ConvResult
from backops._bench.problems import FORWARD, ConvCase
from backops._bench.progress import Progress
from backops._bench.report import (
    TIME_COLUMNS,
    SummaryRow,
    format_header,
    mean_against_pytorch,
    print_results,
    ratios_of,
    smallest,
)
from backops._bench.timing import Budget

# Smaller than that of `bench conv`, which would take longer than most layers.
MATRIX_SIZE = 1024
# Of two times, for calling a choice of backops.torch wrong.
CHOICE_MARGIN = 1.05

COLUMNS = (
    "{name:<32} {problem:<46} {dtype:<8} {layout:<13} {gradients:<10} "
    f"{TIME_COLUMNS}  {{note:<9}} {{choice:<12}} {{kernel}}"
)
HEADER = format_header(COLUMNS, rate="GFLOP/s", share="matmul")


@dataclass(frozen=True, kw_only=True)
class LayerResult(ConvResult):
    """`choice` is "wrong choice" where backops.torch would take the slower side."""

    choice: str


def run(
    torch: Any, cases: Sequence[ConvCase], threads: int, budget: Budget, progress: Progress
) -> tuple[list[LayerResult], list[SummaryRow]]:
    """Measures the cases, printing each as it is done."""
    measured = measure_all(torch, cases, threads, budget, progress)
    results = print_results(progress, COLUMNS, HEADER, measured)
    return results, summarize(results)


def measure_all(
    torch: Any, cases: Sequence[ConvCase], threads: int, budget: Budget, progress: Progress
) -> Iterator[LayerResult]:
    measured = conv.measure_all(torch, cases, threads, budget, progress, MATRIX_SIZE)
    for case, result in zip(cases, measured, strict=True):
        choice = judge(is_chosen(torch, case), result.ratio or 1.0)
        yield LayerResult(**vars(result), choice=choice)


def is_chosen(torch: Any, case: ConvCase) -> bool:
    """Whether backops.torch would compute this rather than leave it to PyTorch."""
    from backops.torch import choice

    problem = case.problem
    layout = pytorch.memory_format(torch, case.layout, problem.rank)
    input, weight = (
        torch.empty(shape, dtype=getattr(torch, case.dtype), memory_format=layout)
        for shape in (problem.input_shape, problem.weight_shape)
    )
    stride, padding, dilation, output_padding = map(
        problem.of_each_axis, ("stride", "padding", "dilation", "output_padding")
    )
    windows = stride, padding, dilation, problem.transposed, output_padding
    mask = () if case.is_forward else case.output_mask
    return choice.conv_is_faster(
        conv.operator_name(case), input, weight, *windows, problem.keywords["groups"], mask
    )


def judge(chosen: bool, ratio: float) -> str:
    wrong = ratio * CHOICE_MARGIN < 1 if chosen else ratio > CHOICE_MARGIN
    return "wrong choice" if wrong else ""


def summarize(results: Sequence[LayerResult]) -> list[SummaryRow]:
    """Of each dtype: mean, worst and number of the layers that are slower, of all gradients or
    forward."""
    rows: list[SummaryRow] = []
    for dtype in dict.fromkeys(result.dtype for result in results):
        of_dtype = [result for result in results if result.dtype == dtype]
        layers = [result for result in of_dtype if result.gradients in ("all", FORWARD)]
        slower = sum(ratio < 1 for ratio, _ in ratios_of(layers))
        wrong = sum(bool(result.choice) for result in of_dtype)
        rows += mean_against_pytorch(dtype, layers, 1.0)
        rows += smallest("worst layer against PyTorch", dtype, ratios_of(layers), 1.0)
        rows += [
            count("layers slower than PyTorch", dtype, slower, len(layers)),
            count("wrong choices of backops.torch", dtype, wrong, len(of_dtype)),
        ]
    return rows


def count(figure: str, dtype: str, value: int, cases: int) -> SummaryRow:
    return SummaryRow(figure, dtype, value, 0, at_most=True, where=f"of {cases} cases")
