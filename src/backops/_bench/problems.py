"""The pooling problems of pool.txt."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from backops._bench import CommandError, case_lines

DTYPES = ("float32", "bfloat16", "float16")


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


def measured_together(cases: Iterable[Case]) -> Iterator[list[Case]]:
    def group_key(case: Case) -> tuple[str, str, str]:
        return case.problem.pair or case.problem.name, case.dtype, case.layout

    for _, group in groupby(cases, key=group_key):
        yield list(group)
