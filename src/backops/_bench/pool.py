"""Benchmark of pooling backward against PyTorch's own and against the memory bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import backops
import backops.plan
from backops import _native
from backops._bench import pytorch
from backops._bench.pool_report import COLUMNS, HEADER, PoolResult, summarize
from backops._bench.problems import PoolCase, PoolProblem, measured_together
from backops._bench.progress import Progress
from backops._bench.report import SummaryRow, print_results
from backops._bench.timing import Budget, Call, Measurement, fastest


@dataclass(frozen=True)
class Tensors:
    grad_output: Any
    grad_input: Any
    # Only its shape and layout are read, so its pages are never touched.
    input: Any
    # PyTorch's 3-D kernels write a channels-last output as if it were contiguous, so that side
    # gets a contiguous one, which is what its autograd allocates too.
    pytorch_grad_input: Any


def run(
    torch: Any, cases: Sequence[PoolCase], threads: int, budget: Budget, progress: Progress
) -> tuple[list[PoolResult], list[SummaryRow]]:
    """Measures the cases, printing each as it is done."""
    measured = measure_all(torch, cases, threads, budget, progress)
    results = print_results(progress, COLUMNS, HEADER, measured)
    return results, summarize(results)


def measure_all(
    torch: Any, cases: Sequence[PoolCase], threads: int, budget: Budget, progress: Progress
) -> Iterator[PoolResult]:
    for group in measured_together(cases):
        progress.begin(group[0].label)
        yield from measure(torch, group, threads, budget)


def measure(
    torch: Any, cases: Sequence[PoolCase], threads: int, budget: Budget
) -> list[PoolResult]:
    """Measures these cases in one interleaved run; their tensors live only as long as it lasts."""
    sides: dict[str, Call] = {}
    tensors_of: dict[str, Tensors] = {}
    pytorch_notes: dict[str, str | None] = {}
    for case in cases:
        name = case.problem.name
        tensors_of[name] = tensors = make_tensors(torch, case)
        our_call = ours(case.problem, tensors)
        check_first_item(torch, case, our_call, tensors)
        sides[f"{name} ours"] = our_call
        sides[f"{name} bound"] = memory_bound(tensors, threads)
        pytorch_call = pytorchs(torch, case.problem, tensors)
        pytorch_notes[name] = note = why_not_timed(case.problem, pytorch_call)
        if note is None:
            sides[f"{name} pytorch"] = pytorch_call
    measurement = fastest(sides, budget)
    return [
        make_result(
            case,
            threads,
            tensors_of[case.problem.name],
            measurement,
            pytorch_notes[case.problem.name],
        )
        for case in cases
    ]


def make_result(
    case: PoolCase,
    threads: int,
    tensors: Tensors,
    measurement: Measurement,
    pytorch_note: str | None,
) -> PoolResult:
    name = case.problem.name
    seconds = measurement.seconds
    return PoolResult(
        name=name,
        problem=case.problem.description,
        pair=case.problem.pair,
        dtype=case.dtype,
        layout=case.layout,
        threads=threads,
        kernel=kernel_name(case),
        grad_input_bytes=tensors.grad_input.nbytes,
        moved_bytes=tensors.grad_input.nbytes + tensors.grad_output.nbytes,
        seconds=seconds[f"{name} ours"],
        bound_seconds=seconds[f"{name} bound"],
        pytorch_seconds=seconds.get(f"{name} pytorch"),
        pytorch_note=pytorch_note,
        disturbed=measurement.disturbed,
    )


def make_tensors(torch: Any, case: PoolCase) -> Tensors:
    problem = case.problem
    layout = pytorch.memory_format(torch, case.layout, problem.rank)
    (grad_output,) = pytorch.random_tensors(torch, case.dtype, layout, problem.output_shape)
    empty = {"dtype": grad_output.dtype, "memory_format": layout}
    grad_input = torch.empty(problem.input_shape, **empty).zero_()
    needs_contiguous = problem.rank == 3 and not grad_input.is_contiguous()
    return Tensors(
        grad_output=grad_output,
        grad_input=grad_input,
        input=torch.empty(problem.input_shape, **empty),
        pytorch_grad_input=grad_input.contiguous() if needs_contiguous else grad_input,
    )


def ours(problem: PoolProblem, tensors: Tensors) -> Call:
    operator = getattr(backops, f"{problem.operator}_backward")
    return partial(
        operator,
        tensors.grad_output,
        problem.input_shape,
        *problem.operator_arguments,
        out=tensors.grad_input,
    )


def memory_bound(tensors: Tensors, threads: int) -> Call:
    """The least any implementation does: read all of `grad_output`, write all of `grad_input`."""
    destination, source = tensors.grad_input, tensors.grad_output
    return partial(
        _native.fill_and_copy,
        destination.data_ptr(),
        destination.nbytes,
        source.data_ptr(),
        source.nbytes,
        threads,
    )


def pytorchs(torch: Any, problem: PoolProblem, tensors: Tensors) -> Call:
    """PyTorch's backward with a preallocated output, by the operator its autograd would call."""
    aten = torch.ops.aten
    grad_output, input_ = tensors.grad_output, tensors.input
    grad_input = tensors.pytorch_grad_input
    if problem.rank == 1:  # PyTorch pools one axis as a plane with one row
        grad_output, input_, grad_input = (
            tensor.unsqueeze(-2) for tensor in (grad_output, input_, grad_input)
        )
    if problem.adaptive:
        if problem.rank == 3:
            operator = aten.adaptive_avg_pool3d_backward.grad_input
            return partial(operator, grad_output, input_, grad_input=grad_input)
        operator = aten._adaptive_avg_pool2d_backward.out
        return partial(operator, grad_output, input_, out=grad_input)
    kernel, stride, padding = (
        _pytorch_axes(value, neutral, problem.rank)
        for value, neutral in zip(problem.kernel_stride_padding, (1, 1, 0), strict=True)
    )
    pool = aten.avg_pool3d_backward if problem.rank == 3 else aten.avg_pool2d_backward
    return partial(
        pool.grad_input,
        grad_output,
        input_,
        kernel,
        stride,
        padding,
        False,
        True,
        None,
        grad_input=grad_input,
    )


def _pytorch_axes(value: int, neutral: int, rank: int) -> list[int]:
    return [neutral, value] if rank == 1 else [value] * rank


def why_not_timed(problem: PoolProblem, pytorch_call: Call) -> str | None:
    if problem.pair is not None:
        return "not timed"
    try:
        pytorch_call()
    except (RuntimeError, NotImplementedError):
        return "PyTorch cannot"
    return None


def check_first_item(torch: Any, case: PoolCase, our_call: Call, tensors: Tensors) -> None:
    """Compares the first batch item with PyTorch in float32."""
    our_call()
    expected = torch.empty(case.problem.input_shape[1:]).unsqueeze(0)
    first = Tensors(
        grad_output=tensors.grad_output[:1].float().contiguous(),
        grad_input=expected,
        input=expected.clone(),
        pytorch_grad_input=expected,
    )
    pytorchs(torch, case.problem, first)()
    pytorch.check_close(torch, case.label, tensors.grad_input[:1], expected)


def kernel_name(case: PoolCase) -> str:
    """Name of what runs for this case, as its plan tells it."""
    problem = case.problem
    make_plan: Callable[..., Any] = getattr(backops.plan, f"{problem.operator}_backward")
    parameters = (problem.output_size,) if problem.adaptive else problem.kernel_stride_padding
    return str(make_plan(problem.input_shape, *parameters, dtype=case.dtype).kernel)
