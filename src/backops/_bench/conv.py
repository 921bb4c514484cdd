"""Benchmark of convolution backward against PyTorch's own and against a matrix product."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import backops
import backops.plan
from backops._bench import pytorch
from backops._bench.conv_report import COLUMNS, HEADER, ConvResult, summarize
from backops._bench.problems import GRADIENTS, ConvCase
from backops._bench.report import SummaryRow, print_results
from backops._bench.timing import Budget, Call, fastest

# Rows and columns of the matrix product.
MATRIX_SIZE = 2048
# float16 is computed in float32, and held against its rate.
RATE_DTYPES = {"float32": "float32", "bfloat16": "bfloat16", "float16": "float32"}


def run(
    torch: Any, cases: Sequence[ConvCase], threads: int, budget: Budget
) -> tuple[list[ConvResult], list[SummaryRow]]:
    """Measures the cases, printing each as it is done."""
    rates = matrix_rates(torch, (RATE_DTYPES[case.dtype] for case in cases), budget)
    measured = (measure(torch, case, threads, budget, rates) for case in cases)
    results = print_results(COLUMNS, HEADER, measured)
    return results, summarize(results)


def matrix_rates(torch: Any, dtypes: Iterable[str], budget: Budget) -> dict[str, float]:
    """Operations per second of a large matrix product in each of these dtypes; prints them."""
    rates = {dtype: matrix_rate(torch, dtype, budget) for dtype in dict.fromkeys(dtypes)}
    shown = ", ".join(f"{dtype} {rate / 1e9:.1f}" for dtype, rate in rates.items())
    print(f"matrix rate (torch.matmul of {MATRIX_SIZE}x{MATRIX_SIZE}), GFLOP/s: {shown}")
    return rates


def matrix_rate(torch: Any, dtype: str, budget: Budget) -> float:
    shape = (MATRIX_SIZE, MATRIX_SIZE)
    a, b, product = pytorch.random_tensors(
        torch, dtype, torch.contiguous_format, shape, shape, shape
    )
    call = partial(torch.matmul, a, b, out=product)
    return 2.0 * MATRIX_SIZE**3 / fastest({"matmul": call}, budget).seconds["matmul"]


def measure(
    torch: Any, case: ConvCase, threads: int, budget: Budget, rates: Mapping[str, float]
) -> ConvResult:
    problem = case.problem
    # Before anything else: oneDNN would serve a second creation from its own cache.
    plan, plan_seconds = make_plan(case)
    tensors = pytorch.random_tensors(
        torch,
        case.dtype,
        pytorch.memory_format(torch, case.layout, problem.rank),
        problem.output_shape,
        problem.input_shape,
        problem.weight_shape,
    )
    check_gradients(torch, case, tensors)
    sides = {"ours": ours(case, tensors), "pytorch": pytorchs(torch, case, tensors)}
    measurement = fastest(sides, budget)
    return ConvResult(
        name=problem.name,
        problem=problem.description,
        dtype=case.dtype,
        layout=case.layout,
        gradients=case.gradients,
        dense_3x3=problem.dense_3x3,
        threads=threads,
        kernel=plan.kernel,
        flops=case.flops,
        plan_seconds=plan_seconds,
        seconds=measurement.seconds["ours"],
        bound_seconds=case.flops / rates[RATE_DTYPES[case.dtype]],
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


def check_gradients(torch: Any, case: ConvCase, tensors: Sequence[Any]) -> None:
    in_float32 = [tensor.float().contiguous() for tensor in tensors]
    all_expected: Any = pytorchs(torch, case, in_float32)()
    all_actual: Any = ours(case, tensors)()
    for name, actual, expected in zip(GRADIENTS, all_actual, all_expected, strict=True):
        if expected is not None:
            pytorch.check_close(torch, f"{case.label}: grad_{name}", actual, expected)
