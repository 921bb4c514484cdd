"""The problems of pool.txt, conv.txt, layers.txt and transposed.txt."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from backops._bench import case_lines

GRADIENTS = ("input", "weight", "bias")
# What a line of the report is about: the gradients that `output_mask` asks for, or the forward
# operator.
FORWARD = "output"
OUTPUT_MASKS = {
    FORWARD: (False, False, False),
    "all": (True, True, True),
    "input": (True, False, False),
    "weight": (False, True, False),
    "bias": (False, False, True),
    "parameters": (False, True, True),
}
CONV_OPTIONS = ("channels_last", "first", "single_gradients")


@dataclass(frozen=True)
class PoolProblem:
    """One line of pool.txt: a pooling problem without dtype and layout."""

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
    def description(self) -> str:
        operator = self.operator.replace("avg_pool", "")
        return f"{operator} {_format_shape(self.input_shape)} {self.window}"


@dataclass(frozen=True)
class PoolCase:
    """A problem in one direction, dtype and layout: what one line of the report is about."""

    problem: PoolProblem
    dtype: str
    layout: str
    forward: bool = False

    @property
    def source_shape(self) -> tuple[int, ...]:
        return self.problem.input_shape if self.forward else self.problem.output_shape

    @property
    def target_shape(self) -> tuple[int, ...]:
        return self.problem.output_shape if self.forward else self.problem.input_shape

    @property
    def operator(self) -> str:
        return self.problem.operator + ("" if self.forward else "_backward")

    @property
    def plan_arguments(self) -> tuple[Any, ...]:
        problem = self.problem
        return (problem.output_size,) if problem.adaptive else problem.kernel_stride_padding

    @property
    def operator_arguments(self) -> tuple[Any, ...]:
        """What the operator takes after its source."""
        if self.forward:
            return self.plan_arguments
        windows = () if self.problem.adaptive else self.plan_arguments
        return (self.problem.input_shape, *windows)

    @property
    def label(self) -> str:
        return f"{self.problem.name} {self.problem.description} {self.dtype} {self.layout}"


def parse_pool_problem(line: str) -> PoolProblem:
    """Problem of one line of a case file; the format is at the top of pool.txt."""
    name, operator, shape, window, *options = line.split()
    pairs = [option.removeprefix("pair=") for option in options if option.startswith("pair=")]
    return PoolProblem(
        name=name,
        operator=operator,
        input_shape=_sizes(shape),
        window=window,
        channels_last="channels_last" in options,
        pair=pairs[0] if pairs else None,
    )


def pool_cases(dtypes: Sequence[str], *, forward: bool = False) -> list[PoolCase]:
    """All cases in these dtypes; problems of a pair are neighbours."""
    return [
        PoolCase(problem, dtype, layout, forward)
        for problems in _pairs_together(map(parse_pool_problem, case_lines("pool.txt")))
        for layout in ("contiguous", "channels_last")
        for dtype in dtypes
        for problem in problems
        if layout == "contiguous" or problem.channels_last
    ]


def _pairs_together(problems: Iterable[PoolProblem]) -> list[list[PoolProblem]]:
    return [list(group) for _, group in groupby(problems, key=lambda p: p.pair or p.name)]


def measured_together(cases: Iterable[PoolCase]) -> Iterator[list[PoolCase]]:
    def group_key(case: PoolCase) -> tuple[str, str, str]:
        return case.problem.pair or case.problem.name, case.dtype, case.layout

    for _, group in groupby(cases, key=group_key):
        yield list(group)


@dataclass(frozen=True)
class ConvProblem:
    """One line of conv.txt, layers.txt or transposed.txt, without dtype, layout, gradients."""

    name: str
    input_shape: tuple[int, ...]
    weight_shape: tuple[int, ...]
    parameters: str
    options: frozenset[str]
    transposed: bool = False

    @property
    def rank(self) -> int:
        return len(self.weight_shape) - 2

    @property
    def keywords(self) -> dict[str, Any]:
        """What the operator takes: an axis has a number of its own where the line says so."""
        sizes = r"(\d+(?:x\d+)*)"
        pattern = f"s{sizes}p{sizes}(?:o{sizes})?(?:d{sizes})?(?:g(\\d+))?"
        match = re.fullmatch(pattern, self.parameters)
        if match is None:
            raise ValueError(f"{self.name}: {self.parameters}, expected for example s1p0x1d2g32")
        stride, padding, output_padding, dilation, groups = match.groups()
        words = {"stride": stride, "padding": padding, "output_padding": output_padding or "0"}
        words |= {"dilation": dilation or "1", "groups": groups or "1"}
        if not self.transposed:
            del words["output_padding"]
        values = {name: _sizes(digits) for name, digits in words.items()}
        return {name: value[0] if len(value) == 1 else value for name, value in values.items()}

    def of_each_axis(self, name: str) -> tuple[int, ...]:
        """A keyword, 0 where the operator does not have it."""
        value = self.keywords.get(name, 0)
        each = value if isinstance(value, tuple) else (value,) * self.rank
        if len(each) != self.rank:
            raise ValueError(f"{self.name}: {self.parameters}, expected {self.rank} axes")
        return each

    @property
    def axes(self) -> list[tuple[int, int, int]]:
        """Stride, padding and dilation of each axis."""
        return list(zip(*map(self.of_each_axis, ("stride", "padding", "dilation")), strict=True))

    @property
    def output_shape(self) -> tuple[int, ...]:
        sizes = zip(self.input_shape[2:], self.weight_shape[2:], self.axes, strict=True)
        if self.transposed:
            outputs = [
                (size - 1) * stride - 2 * padding + dilation * (kernel - 1) + 1
                for size, kernel, (stride, padding, dilation) in sizes
            ]
            more = self.of_each_axis("output_padding")
            channels = self.weight_shape[1] * self.keywords["groups"]
            return (self.input_shape[0], channels, *map(sum, zip(outputs, more, strict=True)))
        outputs = [
            (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
            for size, kernel, (stride, padding, dilation) in sizes
        ]
        return (self.input_shape[0], self.weight_shape[0], *outputs)

    @property
    def dense_3x3(self) -> bool:
        """Whether this is a layer whose speed is held against that of a matrix product."""
        return self.weight_shape[2:] == (3, 3) and min(self.weight_shape[:2]) >= 64

    @property
    def description(self) -> str:
        shapes = f"{_format_shape(self.input_shape)} {_format_shape(self.weight_shape)}"
        return f"{shapes} {self.parameters}"


@dataclass(frozen=True)
class ConvCase:
    """A problem in one dtype and layout, for all gradients or some: a line of the report."""

    problem: ConvProblem
    dtype: str
    layout: str
    gradients: str

    @property
    def label(self) -> str:
        name = f"{self.problem.name} {self.problem.description}"
        return f"{name} {self.dtype} {self.layout} {self.gradients}"

    @property
    def is_forward(self) -> bool:
        return self.gradients == FORWARD

    @property
    def output_mask(self) -> tuple[bool, ...]:
        return OUTPUT_MASKS[self.gradients]

    @property
    def flops(self) -> int:
        """Multiplications and additions of the definition, those with padding included."""
        problem = self.problem
        outputs = math.prod(problem.output_shape)
        windows = math.prod(problem.input_shape) if problem.transposed else outputs
        products = windows * math.prod(problem.weight_shape[1:])
        if self.is_forward:
            return 2 * products
        each = (2 * products, 2 * products, outputs)
        return sum(flops for flops, asked in zip(each, self.output_mask, strict=True) if asked)


def parse_conv_problem(line: str, transposed: bool = False) -> ConvProblem:
    """Problem of one line of a case file; the format is at the top of conv.txt."""
    name, input_shape, weight_shape, parameters, *options = line.split()
    unknown = set(options).difference(CONV_OPTIONS)
    if unknown:
        raise ValueError(f"{name}: {unknown}, expected some of {CONV_OPTIONS}")
    return ConvProblem(
        name=name,
        input_shape=_sizes(input_shape),
        weight_shape=_sizes(weight_shape),
        parameters=parameters,
        options=frozenset(options),
        transposed=transposed,
    )


def conv_cases(dtypes: Sequence[str]) -> list[ConvCase]:
    return _conv_cases("conv.txt", dtypes)


def layer_cases(dtypes: Sequence[str]) -> list[ConvCase]:
    return _conv_cases("layers.txt", dtypes)


def forward_cases(dtypes: Sequence[str]) -> list[ConvCase]:
    problems = map(parse_conv_problem, case_lines("layers.txt"))
    return [
        ConvCase(problem, dtype, layout, FORWARD)
        for problem in problems
        for layout in _layouts(problem)
        for dtype in dtypes
    ]


def transposed_cases(dtypes: Sequence[str]) -> list[ConvCase]:
    return [
        ConvCase(parse_conv_problem(line, transposed=True), dtype, layout, gradients)
        for line in case_lines("transposed.txt")
        for layout in _layouts(parse_conv_problem(line, transposed=True))
        for gradients in (FORWARD, "all")
        for dtype in dtypes
    ]


def _layouts(problem: ConvProblem) -> list[str]:
    more = ["channels_last"] if "channels_last" in problem.options else []
    return ["contiguous", *more]


def _conv_cases(file_name: str, dtypes: Sequence[str]) -> list[ConvCase]:
    return [
        ConvCase(problem, dtype, layout, gradients)
        for problem in map(parse_conv_problem, case_lines(file_name))
        for layout, gradients in _conv_variants(problem)
        for dtype in dtypes
    ]


def _conv_variants(problem: ConvProblem) -> list[tuple[str, str]]:
    variants = [(layout, "all") for layout in _layouts(problem)]
    if "first" in problem.options:
        variants.append(("contiguous", "parameters"))
    if "single_gradients" in problem.options:
        variants += [("contiguous", gradient) for gradient in GRADIENTS]
    return variants


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in text.split("x"))


def _format_shape(shape: tuple[int, ...]) -> str:
    return "({})".format(",".join(map(str, shape)))
