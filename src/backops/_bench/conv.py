"""Benchmark of convolutions, forward and backward, against PyTorch's and a matrix product."""

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
    check_results(torch, case, tensors)
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
    plan = getattr(backops.plan, operator_name(case))(
        problem.input_shape, problem.weight_shape, **keywords_of(case), dtype=case.dtype
    )
    return plan, time.perf_counter() - start


def operator_name(case: ConvCase) -> str:
    name = "conv_transpose" if case.problem.transposed else "conv"
    return name if case.is_forward else f"{name}_backward"


def keywords_of(case: ConvCase) -> dict[str, Any]:
    mask = {} if case.is_forward else {"output_mask": case.output_mask}
    return case.problem.keywords | mask


def make_tensors(torch: Any, case: ConvCase) -> list[Any]:
    """`input` and `weight`, backward behind `grad_output`."""
    problem = case.problem
    layout = pytorch.memory_format(torch, case.layout, problem.rank)
    shapes = [problem.output_shape, problem.input_shape, problem.weight_shape]
    tensors = pytorch.random_tensors(torch, case.dtype, layout, *shapes)
    return tensors[1:] if case.is_forward else tensors


def ours(case: ConvCase, tensors: Sequence[Any]) -> Call:
    """Returns new tensors, as PyTorch's operator does."""
    return partial(getattr(backops, operator_name(case)), *tensors, **keywords_of(case))


def pytorchs(torch: Any, case: ConvCase, tensors: Sequence[Any]) -> Call:
    """The operator that PyTorch's autograd would call."""
    problem = case.problem
    stride, padding, dilation, output_padding = (
        list(problem.of_each_axis(name))
        for name in ("stride", "padding", "dilation", "output_padding")
    )
    parameters = (stride, padding, dilation, problem.transposed, output_padding)
    groups = problem.keywords["groups"]
    if case.is_forward:
        operator = torch.ops.aten.convolution.default
        return partial(operator, *tensors, None, *parameters, groups)
    operator = torch.ops.aten.convolution_backward.default
    outputs = [problem.output_shape[1]]
    return partial(operator, *tensors, outputs, *parameters, groups, case.output_mask)


def matrix_product(torch: Any, dtype: str, size: int) -> Call:
    # float16 is computed in float32, and held against its rate.
    dtype = "float32" if dtype == "float16" else dtype
    shapes = [(size, size)] * 3
    a, b, out = pytorch.random_tensors(torch, dtype, torch.contiguous_format, *shapes)
    return partial(torch.matmul, a, b, out=out)


def check_results(torch: Any, case: ConvCase, tensors: Sequence[Any]) -> None:
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
    if case.is_forward:
        return pytorch.check_close(torch, f"{case.label}", all_actual, all_expected)
    gradients = zip(GRADIENTS, case.output_mask, all_actual, all_expected, strict=True)
    for name, asked, actual, expected in gradients:
        if asked:
            pytorch.check_close(torch, f"{case.label}: grad_{name}", actual, expected)
