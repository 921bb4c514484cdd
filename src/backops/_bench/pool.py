"""Benchmark of pooling backward against PyTorch's own and against the memory bound."""

from __future__ import annotations

import importlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import backops
import backops.plan
from backops import _native
from backops._bench import CommandError, case_lines
from backops._bench.timing import Budget, Call, Measurement, fastest

DTYPES = ("float32", "bfloat16", "float16")
# From here on a tensor counts as well beyond the last-level cache.
LARGE_TENSOR_BYTES = 128_000_000


@dataclass(frozen=True)
class Problem:
    """One line of a case file: a pooling problem without dtype and layout."""

    name: str
    operator: str
    input_shape: tuple[int, ...]
    window: str
    channels_last: bool = False
    pair: str | None = None

    @property
    def adaptive(self) -> bool:
        return self.operator.startswith("adaptive_")

    @property
    def rank(self) -> int:
        return len(self.input_shape) - 2

    @property
    def output_size(self) -> tuple[int, ...]:
        if self.adaptive:
            return _sizes(self.window.removeprefix("to"))
        kernel, stride, padding = self.kernel_stride_padding
        spatial = self.input_shape[2:]
        return tuple((size + 2 * padding - kernel) // stride + 1 for size in spatial)

    @property
    def output_shape(self) -> tuple[int, ...]:
        return self.input_shape[:2] + self.output_size

    @property
    def kernel_stride_padding(self) -> tuple[int, int, int]:
        match = re.fullmatch(r"k(\d+)s(\d+)p(\d+)", self.window)
        if match is None:
            raise ValueError(f"{self.name}: window is {self.window}, expected for example k3s2p1")
        kernel, stride, padding = map(int, match.groups())
        return kernel, stride, padding

    @property
    def operator_arguments(self) -> tuple[int, ...]:
        """What the operator takes after `grad_output` and `input`."""
        return () if self.adaptive else self.kernel_stride_padding

    @property
    def description(self) -> str:
        shape = ",".join(map(str, self.input_shape))
        operator = self.operator.replace("avg_pool", "")
        return f"{operator} ({shape}) {self.window}"


@dataclass(frozen=True)
class Case:
    """A problem in one dtype and layout: what one line of the report is about."""

    problem: Problem
    dtype: str
    layout: str

    @property
    def label(self) -> str:
        return f"{self.problem.name} {self.problem.description} {self.dtype} {self.layout}"


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
class Tensors:
    grad_output: Any
    grad_input: Any
    # Only its shape and layout are read, so its pages are never touched.
    input: Any
    # PyTorch's 3-D kernels write a channels-last output as if it were contiguous, so that side
    # gets a contiguous one, which is what its autograd allocates too.
    pytorch_grad_input: Any


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


def parse_problem(line: str) -> Problem:
    """Problem of one line of a case file; the format is at the top of pool.txt."""
    name, operator, shape, window, *options = line.split()
    pairs = [option.removeprefix("pair=") for option in options if option.startswith("pair=")]
    return Problem(
        name=name,
        operator=operator,
        input_shape=_sizes(shape),
        window=window,
        channels_last="channels_last" in options,
        pair=pairs[0] if pairs else None,
    )


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in text.split("x"))


def select_cases(dtypes: Sequence[str], text: str) -> list[Case]:
    """All cases in these dtypes whose label has `text` in it; problems of a pair are neighbours."""
    cases = [
        Case(problem, dtype, layout)
        for problems in _pairs_together(map(parse_problem, case_lines("pool.txt")))
        for layout in ("contiguous", "channels_last")
        for dtype in dtypes
        for problem in problems
        if layout == "contiguous" or problem.channels_last
    ]
    selected = [case for case in cases if text in case.label]
    if not selected:
        raise CommandError(f"no case has {text!r} in its name, problem, dtype or layout")
    return selected


def _pairs_together(problems: Iterable[Problem]) -> list[list[Problem]]:
    return [list(group) for _, group in groupby(problems, key=lambda p: p.pair or p.name)]


def _measured_together(cases: Iterable[Case]) -> Iterator[list[Case]]:
    def group_key(case: Case) -> tuple[str, str, str]:
        return case.problem.pair or case.problem.name, case.dtype, case.layout

    for _, group in groupby(cases, key=group_key):
        yield list(group)


def run(
    *,
    dtypes: Sequence[str],
    text: str,
    threads: int,
    budget: Budget,
    json_path: Path | None,
    environment: Mapping[str, str],
) -> None:
    """Measures the selected cases, printing each as it is done, then the summary."""
    torch = import_torch()
    cases = select_cases(dtypes, text)
    if json_path is not None:
        json_path.touch()  # an unwritable path is reported now, not after minutes
    print(HEADER)
    results: list[Result] = []
    with same_threads(torch, threads), torch.inference_mode():
        for group in _measured_together(cases):
            for result in measure(torch, group, threads, budget):
                print(format_result(result), flush=True)
                results.append(result)
    rows = summarize(results)
    print()
    print(format_summary(rows))
    disturbed = sum(result.disturbed for result in results)
    if disturbed:
        print(
            f"\n{disturbed} of {len(results)} lines are marked disturbed: other processes kept "
            "taking the CPUs, so their figures, and the summary with them, are not to be trusted"
        )
    if json_path is not None:
        json_path.write_text(to_json(environment, results, rows), encoding="utf-8")


def import_torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise CommandError(f"this benchmark compares with PyTorch: {error}") from error


@contextmanager
def same_threads(torch: Any, threads: int) -> Iterator[None]:
    """Both sides with this many threads inside, as before afterwards."""
    before = backops.get_num_threads(), torch.get_num_threads()
    backops.set_num_threads(threads)
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        backops.set_num_threads(before[0])
        torch.set_num_threads(before[1])


def measure(torch: Any, cases: Sequence[Case], threads: int, budget: Budget) -> list[Result]:
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
    case: Case,
    threads: int,
    tensors: Tensors,
    measurement: Measurement,
    pytorch_note: str | None,
) -> Result:
    name = case.problem.name
    seconds = measurement.seconds
    return Result(
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


def make_tensors(torch: Any, case: Case) -> Tensors:
    problem = case.problem
    layout = {"memory_format": memory_format(torch, case)}
    dtype = getattr(torch, case.dtype)
    generator = torch.Generator().manual_seed(0)
    grad_output = torch.randn(problem.output_shape, generator=generator)
    grad_input = torch.empty(problem.input_shape, dtype=dtype, **layout).zero_()
    needs_contiguous = problem.rank == 3 and not grad_input.is_contiguous()
    return Tensors(
        grad_output=grad_output.to(dtype).contiguous(**layout),
        grad_input=grad_input,
        input=torch.empty(problem.input_shape, dtype=dtype, **layout),
        pytorch_grad_input=grad_input.contiguous() if needs_contiguous else grad_input,
    )


def memory_format(torch: Any, case: Case) -> Any:
    if case.layout == "contiguous":
        return torch.contiguous_format
    return {2: torch.channels_last, 3: torch.channels_last_3d}[case.problem.rank]


def ours(problem: Problem, tensors: Tensors) -> Call:
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


def pytorchs(torch: Any, problem: Problem, tensors: Tensors) -> Call:
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


def why_not_timed(problem: Problem, pytorch_call: Call) -> str | None:
    if problem.pair is not None:
        return "not timed"
    try:
        pytorch_call()
    except (RuntimeError, NotImplementedError):
        return "PyTorch cannot"
    return None


def check_first_item(torch: Any, case: Case, our_call: Call, tensors: Tensors) -> None:
    """Compares the first batch item with PyTorch in float32: a fast wrong answer is no result."""
    our_call()
    expected = torch.empty(case.problem.input_shape[1:]).unsqueeze(0)
    first = Tensors(
        grad_output=tensors.grad_output[:1].float().contiguous(),
        grad_input=expected,
        input=expected.clone(),
        pytorch_grad_input=expected,
    )
    pytorchs(torch, case.problem, first)()
    info = torch.finfo(getattr(torch, case.dtype))
    # PyTorch sums in float32, one window after another: its own error grows with the window.
    float32_noise = 1e-5 * expected.abs().max().item()
    subnormal_spacing = info.smallest_normal * info.eps
    actual = tensors.grad_input[:1].float()
    tolerance = {"rtol": 4 * info.eps, "atol": float32_noise + subnormal_spacing}
    if not torch.allclose(actual, expected, **tolerance):
        difference = (actual - expected).abs().max().item()
        raise CommandError(f"{case.label}: differs from PyTorch by up to {difference:.3g}")


def kernel_name(case: Case) -> str:
    """Name of what runs for this case, as its plan tells it."""
    problem = case.problem
    make_plan: Callable[..., Any] = getattr(backops.plan, f"{problem.operator}_backward")
    parameters = (problem.output_size,) if problem.adaptive else problem.kernel_stride_padding
    return str(make_plan(problem.input_shape, *parameters, dtype=case.dtype).kernel)


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
