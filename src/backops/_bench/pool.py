"""Benchmark of pooling, in either direction, against PyTorch's own and the memory bound."""

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
    source: Any
    target: Any
    # The forward input of a gradient: only its shape and layout are read, so its pages are never
    # touched.
    input: Any
    # PyTorch's 3-D gradients write a channels-last result as if it were contiguous, so that side
    # gets a contiguous one, which is what its autograd allocates too.
    pytorch_target: Any


def run(
    torch: Any, cases: Sequence[PoolCase], threads: int, budget: Budget, progress: Progress
) -> tuple[list[PoolResult], list[SummaryRow]]:
    """Measures the cases, printing each as it is done."""
    measured = measure_all(torch, cases, threads, budget, progress)
    results = print_results(progress, COLUMNS, HEADER, measured)
    return results, summarize(results, forward=cases[0].forward)


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
        our_call = ours(case, tensors)
        check_first_item(torch, case, our_call, tensors)
        sides[f"{name} ours"] = our_call
        sides[f"{name} bound"] = memory_bound(tensors, threads)
        pytorch_call = pytorchs(torch, case, tensors)
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
        grad_input_bytes=(tensors.source if case.forward else tensors.target).nbytes,
        moved_bytes=tensors.source.nbytes + tensors.target.nbytes,
        seconds=seconds[f"{name} ours"],
        bound_seconds=seconds[f"{name} bound"],
        pytorch_seconds=seconds.get(f"{name} pytorch"),
        pytorch_note=pytorch_note,
        disturbed=measurement.disturbed,
    )


def make_tensors(torch: Any, case: PoolCase) -> Tensors:
    problem = case.problem
    layout = pytorch.memory_format(torch, case.layout, problem.rank)
    (source,) = pytorch.random_tensors(torch, case.dtype, layout, case.source_shape)
    empty = {"dtype": source.dtype, "memory_format": layout}
    target = torch.empty(case.target_shape, **empty).zero_()
    needs_contiguous = not case.forward and problem.rank == 3 and not target.is_contiguous()
    return Tensors(
        source=source,
        target=target,
        input=None if case.forward else torch.empty(problem.input_shape, **empty),
        pytorch_target=target.contiguous() if needs_contiguous else target,
    )


def ours(case: PoolCase, tensors: Tensors) -> Call:
    operator = getattr(backops, case.operator)
    return partial(operator, tensors.source, *case.operator_arguments, out=tensors.target)


def memory_bound(tensors: Tensors, threads: int) -> Call:
    """The least any implementation does: read all of the source, write all of the target."""
    target, source = tensors.target, tensors.source
    return partial(
        _native.fill_and_copy,
        target.data_ptr(),
        target.nbytes,
        source.data_ptr(),
        source.nbytes,
        threads,
    )


def pytorchs(torch: Any, case: PoolCase, tensors: Tensors) -> Call:
    """PyTorch's operator with a preallocated result; of gradients, that its autograd would call."""
    aten, problem = torch.ops.aten, case.problem
    operands = (tensors.source,) if case.forward else (tensors.source, tensors.input)
    target = tensors.pytorch_target
    if problem.rank == 1:  # PyTorch pools one axis as a plane with one row
        operands = tuple(tensor.unsqueeze(-2) for tensor in operands)
        target = target.unsqueeze(-2)
    if problem.adaptive:
        if case.forward:
            operator = getattr(aten, problem.operator).out
            return partial(operator, *operands, problem.output_size, out=target)
        if problem.rank == 3:
            operator = aten.adaptive_avg_pool3d_backward.grad_input
            return partial(operator, *operands, grad_input=target)
        return partial(aten._adaptive_avg_pool2d_backward.out, *operands, out=target)
    windows = [
        _pytorch_axes(value, neutral, problem.rank)
        for value, neutral in zip(problem.kernel_stride_padding, (1, 1, 0), strict=True)
    ]
    name = "avg_pool3d" if problem.rank == 3 else "avg_pool2d"
    if case.forward:
        return partial(getattr(aten, name).out, *operands, *windows, False, True, None, out=target)
    pool = getattr(aten, f"{name}_backward").grad_input
    return partial(pool, *operands, *windows, False, True, None, grad_input=target)


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
    expected = torch.empty(case.target_shape[1:]).unsqueeze(0)
    first = Tensors(
        source=tensors.source[:1].float().contiguous(),
        target=expected,
        input=None if case.forward else expected.clone(),
        pytorch_target=expected,
    )
    pytorchs(torch, case, first)()
    pytorch.check_close(torch, case.label, tensors.target[:1], expected)


def kernel_name(case: PoolCase) -> str:
    """Name of what runs for this case, as its plan tells it."""
    make_plan: Callable[..., Any] = getattr(backops.plan, case.operator)
    return str(make_plan(case.problem.input_shape, *case.plan_arguments, dtype=case.dtype).kernel)
