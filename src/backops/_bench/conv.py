"""Benchmark of convolution backward against PyTorch's own and against a matrix product."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import backops
import backops.plan
from backops._bench import pytorch
from backops._bench.conv_report import COLUMNS, HEADER, ConvResult, summarize
from backops._bench.problems import GRADIENTS, ConvCase
from backops._bench.progress import Progress
from backops._bench.report import SummaryRow, print_results
from backops._bench.timing import Budget, Call, fastest

# Rows and columns of the matrix product, and its operations.
MATRIX_SIZE = 2048
MATRIX_FLOPS = 2 * MATRIX_SIZE**3
# float16 is computed in float32, and held against its rate.
MATRIX_DTYPES = {"float32": "float32", "bfloat16": "bfloat16", "float16": "float32"}


def run(
    torch: Any, cases: Sequence[ConvCase], threads: int, budget: Budget, progress: Progress
) -> tuple[list[ConvResult], list[SummaryRow]]:
    """Measures the cases, printing each as it is done."""
    measured = measure_all(torch, cases, threads, budget, progress)
    results = print_results(progress, COLUMNS, HEADER, measured)
    return results, summarize(results)


def measure_all(
    torch: Any, cases: Sequence[ConvCase], threads: int, budget: Budget, progress: Progress
) -> Iterator[ConvResult]:
    for case in cases:
        progress.begin(case.label)
        yield measure(torch, case, threads, budget)


def measure(torch: Any, case: ConvCase, threads: int, budget: Budget) -> ConvResult:
    # Before anything else: oneDNN would serve a second creation from its own cache.
    plan, plan_seconds = make_plan(case)
    tensors = make_tensors(torch, case)
    check_gradients(torch, case, tensors)
    sides = {
        "ours": ours(case, tensors),
        "pytorch": pytorchs(torch, case, tensors),
        "matrix": matrix_product(torch, MATRIX_DTYPES[case.dtype]),
    }
    measurement = fastest(sides, budget)
    return ConvResult(
        name=case.problem.name,
        problem=case.problem.description,
        dtype=case.dtype,
        layout=case.layout,
        gradients=case.gradients,
        dense_3x3=case.problem.dense_3x3,
        threads=threads,
        kernel=plan.kernel,
        flops=case.flops,
        plan_seconds=plan_seconds,
        seconds=measurement.seconds["ours"],
        bound_seconds=measurement.seconds["matrix"] * case.flops / MATRIX_FLOPS,
        pytorch_seconds=measurement.seconds["pytorch"],
        disturbed=measurement.disturbed,
    )


def make_plan(case: ConvCase) -> tuple[Any, float]:
    """The plan, and the seconds it took to make."""
    problem = case.problem
    start = time.perf_counter()
    plan = backops.plan.conv_backward(
        problem.input_shape,
        problem.weight_shape,
        **problem.keywords,
        output_mask=case.output_mask,
        dtype=case.dtype,
    )
    return plan, time.perf_counter() - start


def make_tensors(torch: Any, case: ConvCase) -> list[Any]:
    """`grad_output`, `input` and `weight`."""
    problem = case.problem
    layout = pytorch.memory_format(torch, case.layout, problem.rank)
    shapes = (problem.output_shape, problem.input_shape, problem.weight_shape)
    return pytorch.random_tensors(torch, case.dtype, layout, *shapes)


def ours(case: ConvCase, tensors: Sequence[Any]) -> Call:
    """Returns new tensors, as PyTorch's operator does."""
    return partial(
        backops.conv_backward, *tensors, **case.problem.keywords, output_mask=case.output_mask
    )


def pytorchs(torch: Any, case: ConvCase, tensors: Sequence[Any]) -> Call:
    """The operator that PyTorch's autograd would call."""
    rank = case.problem.rank
    stride, padding, dilation, groups = case.problem.keywords.values()
    return partial(
        torch.ops.aten.convolution_backward.default,
        *tensors,
        [case.problem.weight_shape[0]],
        [stride] * rank,
        [padding] * rank,
        [dilation] * rank,
        False,
        [0] * rank,
        groups,
        case.output_mask,
    )


def matrix_product(torch: Any, dtype: str) -> Call:
    shape = (MATRIX_SIZE, MATRIX_SIZE)
    a, b, out = pytorch.random_tensors(torch, dtype, torch.contiguous_format, shape, shape, shape)
    return partial(torch.matmul, a, b, out=out)


def check_gradients(torch: Any, case: ConvCase, tensors: Sequence[Any]) -> None:
    in_float32 = [tensor.float().contiguous() for tensor in tensors]
    all_expected: Any = pytorchs(torch, case, in_float32)()
    all_actual: Any = ours(case, tensors)()
    gradients = zip(GRADIENTS, case.output_mask, all_actual, all_expected, strict=True)
    for name, asked, actual, expected in gradients:
        if asked:
            pytorch.check_close(torch, f"{case.label}: grad_{name}", actual, expected)
