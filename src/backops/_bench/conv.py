"""Benchmark of convolution backward against PyTorch's own and against a matrix product."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import backops
import backops.plan
from backops._bench import CommandError, pytorch
from backops._bench.conv_report import COLUMNS, HEADER, ConvResult, summarize
from backops._bench.problems import GRADIENTS, ConvCase
from backops._bench.progress import Progress
from backops._bench.report import SummaryRow, print_results
from backops._bench.timing import Budget, Call, fastest

# Rows and columns of the matrix product.
MATRIX_SIZE = 2048


def run(
    torch: Any, cases: Sequence[ConvCase], threads: int, budget: Budget, progress: Progress
) -> tuple[list[ConvResult], list[SummaryRow]]:
    """Measures the cases, printing each as it is done."""
    measured = measure_all(torch, cases, threads, budget, progress)
    results = print_results(progress, COLUMNS, HEADER, measured)
    return results, summarize(results)


def measure_all(
    torch: Any,
    cases: Sequence[ConvCase],
    threads: int,
    budget: Budget,
    progress: Progress,
    matrix_size: int = MATRIX_SIZE,
) -> Iterator[ConvResult]:
    for case in cases:
        progress.begin(case.label)
        yield measure(torch, case, threads, budget, matrix_size)


def measure(
    torch: Any, case: ConvCase, threads: int, budget: Budget, matrix_size: int
) -> ConvResult:
    plan, plan_seconds = make_plan(case)
    tensors = make_tensors(torch, case)
    check_gradients(torch, case, tensors)
    sides = {
        "ours": ours(case, tensors),
        "pytorch": pytorchs(torch, case, tensors),
        "matrix": matrix_product(torch, case.dtype, matrix_size),
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
        bound_seconds=measurement.seconds["matrix"] * case.flops / (2 * matrix_size**3),
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
    problem = case.problem
    stride, padding, dilation = map(list, zip(*problem.axes, strict=True))
    return partial(
        torch.ops.aten.convolution_backward.default,
        *tensors,
        [problem.weight_shape[0]],
        stride,
        padding,
        dilation,
        False,
        [0] * problem.rank,
        problem.keywords["groups"],
        case.output_mask,
    )


def matrix_product(torch: Any, dtype: str, size: int) -> Call:
    # float16 is computed in float32, and held against its rate.
    dtype = "float32" if dtype == "float16" else dtype
    shapes = [(size, size)] * 3
    a, b, out = pytorch.random_tensors(torch, dtype, torch.contiguous_format, *shapes)
    return partial(torch.matmul, a, b, out=out)


def check_gradients(torch: Any, case: ConvCase, tensors: Sequence[Any]) -> None:
    all_actual: Any = ours(case, tensors)()
    try:
        compare(torch, case, all_actual, expected_in(torch, case, tensors, torch.float32))
    except CommandError:
        # PyTorch's float32 sums of a hundred thousand terms were seen to be wrong by more than is
        # allowed here. Its float64, many times slower, is the truth.
        compare(torch, case, all_actual, expected_in(torch, case, tensors, torch.float64))


def expected_in(torch: Any, case: ConvCase, tensors: Sequence[Any], dtype: Any) -> Any:
    return pytorchs(torch, case, [tensor.to(dtype).contiguous() for tensor in tensors])()


def compare(torch: Any, case: ConvCase, all_actual: Any, all_expected: Any) -> None:
    gradients = zip(GRADIENTS, case.output_mask, all_actual, all_expected, strict=True)
    for name, asked, actual, expected in gradients:
        if asked:
            pytorch.check_close(torch, f"{case.label}: grad_{name}", actual, expected)
