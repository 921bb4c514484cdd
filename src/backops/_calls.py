"""One call of an operator as a value: which one, with which tensors and parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

import backops
from backops._command import CommandError, UsageError
from backops._files import Shape

FIXED = ("avg_pool1d_backward", "avg_pool2d_backward", "avg_pool3d_backward")
ADAPTIVE = tuple(f"adaptive_{name}" for name in FIXED)
OPERATORS = (*FIXED, *ADAPTIVE, "conv_backward")
GRADIENTS = ("grad_input", "grad_weight", "grad_bias")

PARAMETERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        FIXED,
        (
            "kernel_size",
            "stride",
            "padding",
            "ceil_mode",
            "count_include_pad",
            "divisor_override",
            "precision",
        ),
    ),
    **dict.fromkeys(ADAPTIVE, ()),
    "conv_backward": ("stride", "padding", "dilation", "groups", "output_mask", "precision"),
}


@dataclass(frozen=True)
class Call:
    """Arguments of one of the operators; `parameters` holds those that were given.

    A tensor whose elements do not matter is a shape, as in the operator itself.
    """

    operator: str
    grad_output: NDArray[Any]
    input: NDArray[Any] | Shape
    weight: NDArray[Any] | Shape | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.operator not in OPERATORS:
            raise UsageError(f"{self.operator!r} is not one of {', '.join(OPERATORS)}")
        for name in self.parameters:
            if name not in PARAMETERS[self.operator]:
                known = ", ".join(PARAMETERS[self.operator]) or "no parameters"
                raise UsageError(f"{self.operator} has no {name}: it takes {known}")
        if self.operator in FIXED and "kernel_size" not in self.parameters:
            raise UsageError(f"{self.operator} needs kernel_size")
        if self.is_conv != (self.weight is not None):
            raise UsageError(f"{self.operator} {'needs a' if self.is_conv else 'has no'} weight")
        if len(self.input_shape) not in (self.rank + 1, self.rank + 2):
            raise UsageError(
                f"{self.operator}: input is {self.input_shape}, expected {self.rank + 1} or "
                f"{self.rank + 2} dimensions"
            )

    @property
    def is_conv(self) -> bool:
        return self.operator == "conv_backward"

    @property
    def rank(self) -> int:
        """Number of spatial axes."""
        if self.weight is not None:
            return len(shape_of(self.weight)) - 2
        return int(self.operator[self.operator.index("pool") + 4])

    @property
    def input_shape(self) -> Shape:
        return shape_of(self.input)

    @property
    def weight_shape(self) -> Shape:
        return () if self.weight is None else shape_of(self.weight)

    @property
    def output_mask(self) -> tuple[bool, bool, bool]:
        given = tuple(self.parameters.get("output_mask", (True, True, True)))
        return (bool(given[0]), bool(given[1]), bool(given[2]))

    def result_shapes(self) -> dict[str, Shape]:
        """The gradients this call computes, by name."""
        if not self.is_conv:
            return {"grad_input": self.input_shape}
        shapes = (self.input_shape, self.weight_shape, self.weight_shape[:1])
        chosen = zip(GRADIENTS, shapes, self.output_mask, strict=True)
        return {name: shape for name, shape, wanted in chosen if wanted}

    def run(self, namespace: Any = backops) -> dict[str, NDArray[Any]]:
        """Calls the operator of `namespace`; the gradients by name."""
        return self.named(getattr(namespace, self.operator)(*self.tensors(), **self.parameters))

    def tensors(self) -> tuple[Any, ...]:
        if self.weight is None:
            return (self.grad_output, self.input)
        return (self.grad_output, self.input, self.weight)

    def named(self, result: Any) -> dict[str, NDArray[Any]]:
        results = result if isinstance(result, tuple | list) else (result,)
        if self.is_conv and len(results) != 3:
            raise CommandError(f"conv_backward returned {len(results)} values, expected 3")
        pairs = zip(GRADIENTS, results, strict=False)
        return {name: np.asarray(array) for name, array in pairs if array is not None}


def shape_of(tensor: NDArray[Any] | Shape) -> Shape:
    return tensor if isinstance(tensor, tuple) else tensor.shape
