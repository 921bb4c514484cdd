"""Pooling problems: those of cases/pool.txt, and the gradients to give them."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from .cases import assert_names_differ, join, number_or_numbers, numbers, per_axis, read_lines
from .floats import DTYPES, round_to

# Operators as the case files spell them.
OPERATORS = {
    f"{short}{rank}d": (f"{long}{rank}d_backward", rank)
    for short, long in (("avg", "avg_pool"), ("adaptive", "adaptive_avg_pool"))
    for rank in (1, 2, 3)
}


@dataclass(frozen=True)
class Case:
    """One pooling problem; a parameter is an int (for every axis) or a tuple."""

    name: str
    operator: str
    input_shape: tuple[int, ...]
    kernel_size: int | tuple[int, ...] = 1
    stride: int | tuple[int, ...] | None = None
    padding: int | tuple[int, ...] = 0
    ceil_mode: bool = False
    count_include_pad: bool = True
    divisor_override: int | None = None
    output_size: int | tuple[int, ...] = 1

    @property
    def function(self) -> str:
        """The operator's name in `backops`, `backops.plan` and `backops.reference`."""
        return OPERATORS[self.operator][0]

    @property
    def rank(self) -> int:
        return OPERATORS[self.operator][1]

    @property
    def adaptive(self) -> bool:
        return self.operator.startswith("adaptive")

    @property
    def positional(self) -> tuple:
        """What follows `grad_output, input`."""
        return () if self.adaptive else (self.kernel_size, self.stride, self.padding)

    @property
    def keywords(self) -> dict:
        if self.adaptive:
            return {}
        return {
            "ceil_mode": self.ceil_mode,
            "count_include_pad": self.count_include_pad,
            "divisor_override": self.divisor_override,
        }

    @property
    def problem(self) -> str:
        """The line of a case file, without the name."""
        parts = [self.operator, f"in={join(self.input_shape)}"]
        if self.adaptive:
            parts.append(f"out={join(self.output_size)}")
            return " ".join(parts)
        parts.append(f"k={join(self.kernel_size)}")
        if self.stride is not None:
            parts.append(f"s={join(self.stride)}")
        if self.padding != 0:
            parts.append(f"p={join(self.padding)}")
        if self.ceil_mode:
            parts.append("ceil")
        if not self.count_include_pad:
            parts.append("exclude_pad")
        if self.divisor_override is not None:
            parts.append(f"div={self.divisor_override}")
        return " ".join(parts)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of `grad_output`."""
        spatial = self.input_shape[-self.rank :]
        if self.adaptive:
            outputs = per_axis(self.output_size, self.rank)
        else:
            kernels = per_axis(self.kernel_size, self.rank)
            strides = kernels if self.stride is None else per_axis(self.stride, self.rank)
            paddings = per_axis(self.padding, self.rank)
            outputs = tuple(
                _count_windows(*axis, self.ceil_mode)
                for axis in zip(spatial, kernels, strides, paddings, strict=True)
            )
        return (*self.input_shape[: -self.rank], *outputs)

    def backward(self, module, grad_output, **more):
        """Calls this case's operator of `module` (`backops` or `backops.reference`)."""
        function = getattr(module, self.function)
        return function(grad_output, self.input_shape, *self.positional, **self.keywords, **more)

    def plan(self, module, **more):
        """Calls this case's plan of `module` (`backops.plan`)."""
        function = getattr(module, self.function)
        if self.adaptive:
            return function(self.input_shape, self.output_size, **more)
        return function(self.input_shape, *self.positional, **self.keywords, **more)


def _count_windows(length, kernel, stride, padding, ceil_mode) -> int:
    padded = length + 2 * padding
    slack = stride - 1 if ceil_mode else 0
    return sum(
        1
        for start in range(0, padded, stride)
        if start + kernel <= padded + slack and start < length + padding
    )


def parse_case(line: str) -> Case:
    """A case from a line of a case file; the name may be missing."""
    words = line.split()
    name = "unnamed" if words[0] in OPERATORS else words.pop(0)
    values = {"name": name, "operator": words[0]}
    fields = {"in": "input_shape", "k": "kernel_size", "s": "stride", "p": "padding"}
    fields |= {"out": "output_size", "div": "divisor_override"}
    for word in words[1:]:
        key, _, text = word.partition("=")
        if key == "ceil":
            values["ceil_mode"] = True
        elif key == "exclude_pad":
            values["count_include_pad"] = False
        elif key == "div":
            values["divisor_override"] = int(text)
        else:
            values[fields[key]] = (numbers if key == "in" else number_or_numbers)(text)
    return Case(**values)


@functools.cache
def load_cases() -> tuple[Case, ...]:
    cases = tuple(map(parse_case, read_lines("pool")))
    assert_names_differ(cases)
    return cases


def find_case(name: str) -> Case:
    return next(case for case in load_cases() if case.name == name)


def make_grad(case: Case, dtype: str = "float32", seed: int = 0, kind: str = "normal"):
    """The gradient of a case: the same arguments give the same values everywhere.

    kind "normal" is normally distributed, "integer" small whole numbers, "wide" spreads over many
    powers of two.
    """
    random = np.random.default_rng([seed, *case.output_shape])
    if kind == "integer":
        values = random.integers(-8, 9, case.output_shape).astype(np.float64)
    else:
        values = random.standard_normal(case.output_shape)
        if kind == "wide":
            values *= 2.0 ** random.integers(-12, 13, case.output_shape)
    return round_to(values, dtype).astype(DTYPES[dtype])
