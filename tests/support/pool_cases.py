"""Pooling problems: those of cases/pool.txt, in both directions, and what to give them."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass

import numpy as np

from .cases import assert_names_differ, join, number_or_numbers, numbers, per_axis, read_lines
from .floats import DTYPES, round_to

# Operators as the case files spell them.
OPERATORS = {
    f"{short}{rank}d": (f"{long}{rank}d", rank)
    for short, long in (("avg", "avg_pool"), ("adaptive", "adaptive_avg_pool"))
    for rank in (1, 2, 3)
}


@dataclass(frozen=True)
class Case:
    """One pooling problem; a parameter is an int (for every axis) or a tuple.

    Its source is what the operator reads, its target what it makes: `grad_output` and `grad_input`,
    or, forward, `input` and the result.
    """

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
    is_forward: bool = False

    @property
    def forward(self) -> Case:
        """The operator whose gradient this case is."""
        return dataclasses.replace(self, name=f"forward_{self.name}", is_forward=True)

    @property
    def function(self) -> str:
        """The operator's name in `backops`, `backops.plan` and `backops.reference`."""
        return OPERATORS[self.operator][0] + ("" if self.is_forward else "_backward")

    @property
    def rank(self) -> int:
        return OPERATORS[self.operator][1]

    @property
    def adaptive(self) -> bool:
        return self.operator.startswith("adaptive")

    @property
    def positional(self) -> tuple:
        """What follows the tensors."""
        if self.adaptive:
            return (self.output_size,) if self.is_forward else ()
        return (self.kernel_size, self.stride, self.padding)

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
        parts = ["forward"] if self.is_forward else []
        parts += [self.operator, f"in={join(self.input_shape)}"]
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
        """The shape of `grad_output`, or of the forward result."""
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

    @property
    def source_shape(self) -> tuple[int, ...]:
        return self.input_shape if self.is_forward else self.output_shape

    @property
    def target_shape(self) -> tuple[int, ...]:
        return self.output_shape if self.is_forward else self.input_shape

    def run(self, module, source, **more):
        """Calls this case's operator of `module` (`backops` or `backops.reference`)."""
        tensors = (source,) if self.is_forward else (source, self.input_shape)
        function = getattr(module, self.function)
        return function(*tensors, *self.positional, **self.keywords, **more)

    def backward(self, module, grad_output, **more):
        """The same where only gradients are looked at."""
        assert not self.is_forward
        return self.run(module, grad_output, **more)

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
    name = "unnamed" if words[0] in (*OPERATORS, "forward") else words.pop(0)
    values = {"name": name, "is_forward": words[0] == "forward"}
    if values["is_forward"]:
        words.pop(0)
    values["operator"] = words[0]
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


def both_ways(cases) -> tuple[Case, ...]:
    """Gradients, then the operators they belong to."""
    return (*cases, *(case.forward for case in cases))


def find_case(name: str) -> Case:
    return next(case for case in both_ways(load_cases()) if case.name == name)


def make_source(case: Case, dtype: str = "float32", seed: int = 0, kind: str = "normal"):
    """What a case reads: the same arguments give the same values everywhere.

    kind "normal" is normally distributed, "integer" small whole numbers, "wide" spreads over many
    powers of two.
    """
    random = np.random.default_rng([seed, *case.source_shape])
    if kind == "integer":
        values = random.integers(-8, 9, case.source_shape).astype(np.float64)
    else:
        values = random.standard_normal(case.source_shape)
        if kind == "wide":
            values *= 2.0 ** random.integers(-12, 13, case.source_shape)
    return round_to(values, dtype).astype(DTYPES[dtype])


def make_grad(case: Case, *arguments, **keywords):
    """The same where only gradients are looked at."""
    assert not case.is_forward
    return make_source(case, *arguments, **keywords)
