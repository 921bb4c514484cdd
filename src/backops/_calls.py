"""One call of an operator as a value: which one, with which tensors and parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

import backops
from backops import _geometry
from backops._command import CommandError, UsageError
from backops._files import Shape


def both(*names: str) -> tuple[str, ...]:
    """The operators of these names, and their gradients."""
    return (*names, *(f"{name}_backward" for name in names))


FIXED = both("avg_pool1d", "avg_pool2d", "avg_pool3d")
ADAPTIVE = tuple(f"adaptive_{name}" for name in FIXED)
CONVOLUTIONS = both("conv", "conv_transpose")
OPERATORS = (*FIXED, *ADAPTIVE, *CONVOLUTIONS)
OPERANDS = ("grad_output", "input", "weight", "bias")
GRADIENTS = ("grad_input", "grad_weight", "grad_bias")
RESULTS = ("output", *GRADIENTS)


def parameters_of(operator: str) -> tuple[str, ...]:
    is_backward = operator.endswith("_backward")
    if operator in FIXED:
        return ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad",
                "divisor_override", "precision")  # fmt: skip
    if operator in ADAPTIVE:
        return () if is_backward else ("output_size",)
    added = ("output_padding",) if "transpose" in operator else ()
    masked = ("output_mask",) if is_backward else ()
    return ("stride", "padding", *added, "dilation", "groups", *masked, "precision")


PARAMETERS = {operator: parameters_of(operator) for operator in OPERATORS}
NEEDED = {
    **dict.fromkeys(FIXED, "kernel_size"),
    **{name: "output_size" for name in ADAPTIVE if "output_size" in PARAMETERS[name]},
}


@dataclass(frozen=True)
class Call:
    """Arguments of one of the operators; `parameters` holds those that were given.

    A tensor whose elements do not matter is a shape, as in the operator itself.
    """

    operator: str
    grad_output: Any
    """An array; None for an operator that is no gradient."""
    input: NDArray[Any] | Shape
    weight: NDArray[Any] | Shape | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    bias: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        if self.operator not in OPERATORS:
            raise UsageError(f"{self.operator!r} is not one of {', '.join(OPERATORS)}")
        for name in self.parameters:
            if name not in PARAMETERS[self.operator]:
                known = ", ".join(PARAMETERS[self.operator]) or "no parameters"
                raise UsageError(f"{self.operator} has no {name}: it takes {known}")
        needed = NEEDED.get(self.operator)
        if needed is not None and needed not in self.parameters:
            raise UsageError(f"{self.operator} needs {needed}")
        self._check_operands()
        if len(self.input_shape) not in (self.rank + 1, self.rank + 2):
            raise UsageError(
                f"{self.operator}: input is {self.input_shape}, expected {self.rank + 1} or "
                f"{self.rank + 2} dimensions"
            )

    def _check_operands(self) -> None:
        if self.is_conv != (self.weight is not None):
            raise UsageError(f"{self.operator} {'needs a' if self.is_conv else 'has no'} weight")
        if self.is_forward != (self.grad_output is None):
            has = "has no" if self.is_forward else "needs a"
            raise UsageError(f"{self.operator} {has} grad_output")
        if self.bias is not None and not (self.is_conv and self.is_forward):
            raise UsageError(f"{self.operator} has no bias")
        if self.is_forward:
            for name, tensor in self.operands().items():
                if isinstance(tensor, tuple):
                    raise UsageError(f"{self.operator}: {name} is a shape, expected its elements")

    @property
    def is_forward(self) -> bool:
        return not self.operator.endswith("_backward")

    @property
    def is_conv(self) -> bool:
        return self.operator in CONVOLUTIONS

    @property
    def is_transposed(self) -> bool:
        return "transpose" in self.operator

    @property
    def rank(self) -> int:
        """Number of spatial axes."""
        if self.weight is not None:
            return len(shape_of(self.weight)) - 2
        return int(self.operator[self.operator.index("pool") + 4])

    @property
    def source(self) -> NDArray[Any]:
        """The first operand, whose dtype is that of the result: grad_output, or forward input."""
        first: Any = self.input if self.is_forward else self.grad_output
        assert isinstance(first, np.ndarray)
        return first

    @property
    def input_shape(self) -> Shape:
        return shape_of(self.input)

    @property
    def weight_shape(self) -> Shape:
        return () if self.weight is None else shape_of(self.weight)

    @cached_property
    def output_shape(self) -> Shape:
        """Of the operator's result, which grad_output has too."""
        if not self.is_forward:
            return shape_of(self.grad_output)
        return output_shape(self.operator, self.input_shape, self.weight_shape, self.parameters)

    @property
    def output_mask(self) -> tuple[bool, bool, bool]:
        given = tuple(self.parameters.get("output_mask", (True, True, True)))
        return (bool(given[0]), bool(given[1]), bool(given[2]))

    @property
    def output_channels(self) -> int:
        """Of a convolution."""
        if self.is_transposed:
            return self.weight_shape[1] * int(self.parameters.get("groups", 1))
        return self.weight_shape[0]

    def result_shapes(self) -> dict[str, Shape]:
        """What this call computes, by name."""
        if self.is_forward:
            return {"output": self.output_shape}
        if not self.is_conv:
            return {"grad_input": self.input_shape}
        shapes = (self.input_shape, self.weight_shape, (self.output_channels,))
        chosen = zip(GRADIENTS, shapes, self.output_mask, strict=True)
        return {name: shape for name, shape, wanted in chosen if wanted}

    def run(self, namespace: Any = backops) -> dict[str, NDArray[Any]]:
        """Calls the operator of `namespace`; its results by name."""
        return self.named(getattr(namespace, self.operator)(*self.tensors(), **self.parameters))

    def operands(self) -> dict[str, Any]:
        """By name, in the operator's order."""
        every = zip(OPERANDS, (self.grad_output, self.input, self.weight, self.bias), strict=True)
        return {name: tensor for name, tensor in every if tensor is not None}

    def tensors(self) -> tuple[Any, ...]:
        return tuple(self.operands().values())

    def named(self, result: Any) -> dict[str, NDArray[Any]]:
        results = result if isinstance(result, tuple | list) else (result,)
        if self.is_forward:
            if len(results) != 1:
                raise CommandError(f"{self.operator} returned {len(results)} values, expected 1")
            return {"output": np.asarray(results[0])}
        if self.is_conv and len(results) != 3:
            raise CommandError(f"{self.operator} returned {len(results)} values, expected 3")
        pairs = zip(GRADIENTS, results, strict=False)
        return {name: np.asarray(array) for name, array in pairs if array is not None}


def output_shape(
    operator: str, input_shape: Shape, weight_shape: Shape, given: Mapping[str, Any]
) -> Shape:
    """Of an operator's result, or of the grad_output of its gradient; `given` are parameters."""
    try:
        if operator in CONVOLUTIONS:
            transposed = "transpose" in operator
            return _geometry.convolved_shape(
                input_shape, weight_shape, given, transposed=transposed
            )
        rank = int(operator[operator.index("pool") + 4])
        return _geometry.pooled_shape(rank, input_shape, given)
    except (ValueError, TypeError) as error:
        raise UsageError(f"{operator}: {error}") from error


def shape_of(tensor: NDArray[Any] | Shape) -> Shape:
    return tensor if isinstance(tensor, tuple) else tensor.shape
