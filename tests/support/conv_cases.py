"""Convolution problems: those of cases/conv*.txt and generated ones, and data to give them."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from .cases import assert_names_differ, join, number_or_numbers, numbers, per_axis, read_lines
from .floats import DTYPES, round_to

GRADIENTS = ("grad_input", "grad_weight", "grad_bias")
# Every output_mask; the last asks for nothing.
MASKS = tuple(itertools.product((True, False), repeat=3))
# Words of a case file, with what they stand for and the default.
_PARAMETERS = {"s": ("stride", 1), "p": ("padding", 0), "d": ("dilation", 1), "g": ("groups", 1)}


@dataclass(frozen=True)
class ConvCase:
    """One convolution problem; a parameter is an int (for every axis) or a tuple."""

    name: str
    input_shape: tuple[int, ...]
    weight_shape: tuple[int, ...]
    stride: int | tuple[int, ...] = 1
    padding: int | tuple[int, ...] = 0
    dilation: int | tuple[int, ...] = 1
    groups: int = 1

    @property
    def rank(self) -> int:
        return len(self.weight_shape) - 2

    @property
    def batched(self) -> bool:
        return len(self.input_shape) == self.rank + 2

    @property
    def keywords(self) -> dict:
        return {
            "stride": self.stride,
            "padding": self.padding,
            "dilation": self.dilation,
            "groups": self.groups,
        }

    @property
    def problem(self) -> str:
        """The line of a case file, without the name."""
        words = ["conv", f"in={join(self.input_shape)}", f"w={join(self.weight_shape)}"]
        for word, (name, default) in _PARAMETERS.items():
            if getattr(self, name) != default:
                words.append(f"{word}={join(getattr(self, name))}")
        return " ".join(words)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of `grad_output`."""
        axes = zip(
            self.input_shape[-self.rank :],
            self.weight_shape[2:],
            per_axis(self.stride, self.rank),
            per_axis(self.padding, self.rank),
            per_axis(self.dilation, self.rank),
            strict=True,
        )
        outputs = (_count_windows(*axis) for axis in axes)
        return (*self.input_shape[: -self.rank - 1], self.weight_shape[0], *outputs)

    @property
    def gradient_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the results, in the order of GRADIENTS."""
        return self.input_shape, self.weight_shape, self.weight_shape[:1]

    def backward(self, module, grad_output, input, weight, **more):
        """Calls `conv_backward` of `module` (`backops` or `backops.reference`)."""
        return module.conv_backward(grad_output, input, weight, **self.keywords, **more)

    def plan(self, module, **more):
        """Calls `conv_backward` of `module` (`backops.plan`)."""
        return module.conv_backward(self.input_shape, self.weight_shape, **self.keywords, **more)


def _count_windows(length, kernel, stride, padding, dilation) -> int:
    padded = length + 2 * padding
    return sum(1 for start in range(0, padded, stride) if start + dilation * (kernel - 1) < padded)


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
DEPTHWISE_VECTORS = [case for case in CASES if case.name.startswith("vectors_")]


def find_conv_case(name: str) -> ConvCase:
    return next(case for case in CASES if case.name == name)


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
def _axes(draw, longest: int):
    kernel, dilation = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    padding = draw(st.integers(0, 5))
    least = max(1, dilation * (kernel - 1) + 1 - 2 * padding)
    length = draw(st.integers(least, least + longest))
    return length, kernel, draw(st.integers(1, 5)), padding, dilation


def make_arrays(case: ConvCase, dtype: str = "float32", seed: int = 0, kind: str = "normal"):
    """`grad_output, input, weight`: the same arguments give the same values everywhere.

    kind "normal" is normally distributed, "integer" whole numbers so small that float32 adds them
    without rounding, "wide" spreads over many powers of two.
    """
    random = np.random.default_rng([seed, *case.input_shape, *case.weight_shape])
    shapes = (case.output_shape, case.input_shape, case.weight_shape)
    return tuple(
        round_to(_draw(random, shape, kind), dtype).astype(DTYPES[dtype]) for shape in shapes
    )


def _draw(random, shape, kind):
    if kind == "integer":
        return random.integers(-4, 5, shape).astype(np.float64)
    values = random.standard_normal(shape)
    return values * 2.0 ** random.integers(-6, 7, shape) if kind == "wide" else values


def empty_gradients(case: ConvCase, dtype: str, fill: float = 7.0):
    """Arrays for `out`, filled with a number that shows whether they were written to."""
    return tuple(np.full(shape, fill, DTYPES[dtype]) for shape in case.gradient_shapes)
