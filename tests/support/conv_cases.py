"""Convolution problems: those of cases/conv*.txt and generated ones, and data to give them."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st

from .cases import assert_names_differ, join, number_or_numbers, numbers, per_axis, read_lines
from .floats import DTYPES, round_to

OPERATORS = ("conv", "conv_backward", "conv_transpose", "conv_transpose_backward")
GRADIENTS = ("grad_input", "grad_weight", "grad_bias")
# Every output_mask; the last asks for nothing.
MASKS = tuple(itertools.product((True, False), repeat=3))
# Words of a case file, with what they stand for and the default.
_PARAMETERS = {
    "s": ("stride", 1),
    "p": ("padding", 0),
    "d": ("dilation", 1),
    "g": ("groups", 1),
    "fewer": ("fewer", 0),
}


@dataclass(frozen=True)
class ConvCase:
    """One convolution problem; a parameter is an int (for every axis) or a tuple.

    It joins an input, a weight and an output, and every operator can be asked about it: the
    transposed ones read the output, where `input_shape` is what they make. `fewer` outputs than
    there are windows are something that only they know: their `output_padding` then is the stride
    or more.
    """

    name: str
    input_shape: tuple[int, ...]
    weight_shape: tuple[int, ...]
    stride: int | tuple[int, ...] = 1
    padding: int | tuple[int, ...] = 0
    dilation: int | tuple[int, ...] = 1
    groups: int = 1
    fewer: int | tuple[int, ...] = 0
    operator: str = "conv_backward"

    def read_as(self, operator: str) -> ConvCase:
        """The same problem, asked of another operator."""
        assert operator in self.operators, operator
        return replace(self, operator=operator)

    @property
    def operators(self) -> tuple[str, ...]:
        """Those that the problem can be asked of."""
        return OPERATORS if self.fewer == 0 else OPERATORS[2:]

    @property
    def rank(self) -> int:
        return len(self.weight_shape) - 2

    @property
    def batched(self) -> bool:
        return len(self.input_shape) == self.rank + 2

    @property
    def is_backward(self) -> bool:
        return self.operator.endswith("backward")

    @property
    def is_transposed(self) -> bool:
        return self.operator.startswith("conv_transpose")

    @property
    def keywords(self) -> dict:
        keywords = {
            "stride": self.stride,
            "padding": self.padding,
            "dilation": self.dilation,
            "groups": self.groups,
        }
        return (
            {**keywords, "output_padding": self.output_padding} if self.is_transposed else keywords
        )

    @property
    def problem(self) -> str:
        """The line of a case file, without the name."""
        words = ["conv", f"in={join(self.input_shape)}", f"w={join(self.weight_shape)}"]
        for word, (name, default) in _PARAMETERS.items():
            if getattr(self, name) != default:
                words.append(f"{word}={join(getattr(self, name))}")
        return " ".join(words)

    @property
    def _axes(self):
        """Length, kernel, stride, padding and dilation of every axis."""
        parameters = (self.stride, self.padding, self.dilation)
        return zip(
            self.input_shape[-self.rank :],
            self.weight_shape[2:],
            *(per_axis(value, self.rank) for value in parameters),
            strict=True,
        )

    @functools.cached_property
    def output_shape(self) -> tuple[int, ...]:
        windows = [_count_windows(*axis) for axis in self._axes]
        outputs = (n - m for n, m in zip(windows, per_axis(self.fewer, self.rank), strict=True))
        return (*self.input_shape[: -self.rank - 1], self.weight_shape[0], *outputs)

    @property
    def output_padding(self) -> tuple[int, ...]:
        """The inputs that remain behind the last window."""
        return tuple(
            length + padding - ((outputs - 1) * stride - padding + (kernel - 1) * dilation + 1)
            for outputs, (length, kernel, stride, padding, dilation) in zip(
                self.output_shape[-self.rank :], self._axes, strict=True
            )
        )

    @property
    def operand_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the tensors that the operator reads, by name and in its order."""
        made, read = self.output_shape, self.input_shape
        if self.is_transposed:
            made, read = read, made
        if self.is_backward:
            return {"grad_output": made, "input": read, "weight": self.weight_shape}
        bias = made[-self.rank - 1 : -self.rank]
        return {"input": read, "weight": self.weight_shape, "bias": bias}

    @property
    def result_names(self) -> tuple[str, ...]:
        return GRADIENTS if self.is_backward else ("result",)

    @property
    def result_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the results, in the order of `result_names`."""
        made, read = self.output_shape, self.input_shape
        if self.is_transposed:
            made, read = read, made
        if self.is_backward:
            return read, self.weight_shape, made[-self.rank - 1 : -self.rank]
        return (made,)

    def run(self, function, *operands, out=None, **more) -> tuple:
        """Calls the operator or its plan. Results are a tuple, and so is `out`, also of one."""
        if out is not None:
            more["out"] = out if self.is_backward else out[0]
        results = function(*operands, **more)
        return results if self.is_backward else (results,)

    def call(self, module, *operands, **more) -> tuple:
        """Runs the operator of `module` (`backops` or `backops.reference`)."""
        return self.run(getattr(module, self.operator), *operands, **self.keywords, **more)

    def backward(self, module, grad_output, input, weight, **more):
        """Calls `conv_backward` of `module` (`backops` or `backops.reference`)."""
        return self.read_as("conv_backward").call(module, grad_output, input, weight, **more)

    def plan(self, module, **more):
        """Makes the plan of the operator by `module` (`backops.plan`)."""
        shapes = self.operand_shapes
        make = getattr(module, self.operator)
        return make(shapes["input"], shapes["weight"], **self.keywords, **more)


def _count_windows(length, kernel, stride, padding, dilation) -> int:
    reach = dilation * (kernel - 1)
    return len(range(0, length + 2 * padding - reach, stride))


def parse_conv_case(line: str) -> ConvCase:
    """A case from a line of a case file; the name may be missing."""
    words = line.split()
    name = "unnamed" if words[0] == "conv" else words.pop(0)
    assert words[0] == "conv", line
    values = dict(word.split("=") for word in words[1:])
    shapes = [numbers(values.pop(word)) for word in ("in", "w")]
    more = {_PARAMETERS[word][0]: number_or_numbers(text) for word, text in values.items()}
    return ConvCase(name, *shapes, **more)


@functools.cache
def load_conv_cases(name: str = "conv") -> tuple[ConvCase, ...]:
    cases = tuple(map(parse_conv_case, read_lines(name)))
    assert_names_differ(cases)
    return cases


CASES = load_conv_cases()
LARGE_CASES = load_conv_cases("conv_large")
# Of transposed operators alone.
TRANSPOSED_CASES = load_conv_cases("conv_transpose")
DEPTHWISE_VECTORS = [case for case in CASES if case.name.startswith("vectors_")]


def find_conv_case(name: str) -> ConvCase:
    return next(case for case in CASES if case.name == name)


def readings(cases, operators=OPERATORS) -> list[ConvCase]:
    """Every case, asked of each of the operators that it can be asked of."""
    return [case.read_as(o) for case in cases for o in operators if o in case.operators]


def readings_in_turn(cases) -> list[ConvCase]:
    """Every case, asked of conv_backward and of one more operator: of the next one each time.

    For tests of what all operators share. tests/conv/test_engines.py asks every case of all.
    """
    others = itertools.cycle([name for name in OPERATORS if name != "conv_backward"])
    return [
        case.read_as(operator)
        for case, other in zip(cases, others, strict=False)
        for operator in ("conv_backward", other)
        if operator in case.operators
    ]


def reading_id(case: ConvCase) -> str:
    """What a test calls a case."""
    return f"{case.operator}-{case.name}"


@st.composite
def conv_cases(draw) -> ConvCase:
    rank = draw(st.integers(1, 3))
    batch = draw(st.sampled_from([(), (1,), (2,), (5,)]))
    groups = draw(st.sampled_from([1, 2, 3, 4, 9, 17]))
    most = 5 if groups < 5 else 2
    channels = st.integers(1, most)
    if groups <= 2:
        channels |= st.sampled_from([8, 15, 16, 24, 32, 40])  # around whole vectors
    input_channels, output_channels = draw(channels), draw(channels)
    if draw(st.booleans()) and groups in (1, 2):
        groups, input_channels, output_channels = 16 * groups, 1, 1
    axes = [draw(_axes(longest={1: 12, 2: 6, 3: 3}[rank])) for _ in range(rank)]
    lengths, kernels, strides, paddings, dilations = zip(*axes, strict=True)
    return ConvCase(
        "generated",
        (*batch, groups * input_channels, *lengths),
        (groups * output_channels, input_channels, *kernels),
        strides,
        paddings,
        dilations,
        groups,
    )


@st.composite
def conv_readings(draw, operators=OPERATORS) -> ConvCase:
    """A generated case, asked of one of the operators."""
    case, operator = draw(conv_cases()), draw(st.sampled_from(operators))
    if operator.startswith("conv_transpose"):
        case = replace(case, fewer=tuple(draw(st.sampled_from(_fewer(case)))))
    return replace(case, operator=operator)


def _fewer(case: ConvCase) -> list[tuple[int, ...]]:
    """How many outputs a transposed operator may leave off, axis by axis."""
    choices = []
    for outputs, rest, (_, _, stride, _, dilation) in zip(
        case.output_shape[-case.rank :], case.output_padding, case._axes, strict=True
    ):
        most = (max(stride, dilation) - 1 - rest) // stride
        choices.append(range(min(most, outputs - 1) + 1))
    return list(itertools.product(*choices))


@st.composite
def _axes(draw, longest: int):
    kernel, dilation = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    padding = draw(st.integers(0, 5))
    least = max(1, dilation * (kernel - 1) + 1 - 2 * padding)
    length = draw(st.integers(least, least + longest))
    return length, kernel, draw(st.integers(1, 5)), padding, dilation


def make_arrays(case: ConvCase, dtype: str = "float32", seed: int = 0, kind: str = "normal"):
    """The operands of the case: the same arguments give the same values everywhere.

    kind "normal" is normally distributed, "integer" whole numbers so small that float32 adds them
    without rounding, "wide" spreads over many powers of two.
    """
    seeds = seed, *case.input_shape, *case.weight_shape
    drawn = _drawn(seeds, tuple(case.operand_shapes.values()), dtype, kind)
    return tuple(array.copy() for array in drawn)


# Tests ask for those of a case again and again: for each engine, layout or number of threads.
@functools.lru_cache(maxsize=32)
def _drawn(seeds, shapes, dtype, kind) -> tuple[np.ndarray, ...]:
    random = np.random.default_rng(seeds)
    return tuple(
        round_to(_draw(random, shape, kind), dtype).astype(DTYPES[dtype]) for shape in shapes
    )


def _draw(random, shape, kind):
    if kind == "integer":
        return random.integers(-4, 5, shape).astype(np.float64)
    values = random.standard_normal(shape)
    return values * 2.0 ** random.integers(-6, 7, shape) if kind == "wide" else values


def empty_results(case: ConvCase, dtype: str, fill: float = 7.0):
    """Arrays for `out`, filled with a number that shows whether they were written to."""
    return tuple(np.full(shape, fill, DTYPES[dtype]) for shape in case.result_shapes)


empty_gradients = empty_results
