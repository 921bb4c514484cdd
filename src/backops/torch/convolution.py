"""Kernels of convolution and transposed convolution, forward and backward."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from backops import _native, errors
from backops.torch import choice
from backops.torch.kernels import (
    Kernel,
    are_supported,
    computed_on_one_side,
    computed_unless_refused,
)
from backops.torch.layouts import (
    empty_image,
    empty_output,
    gradient_formats,
    output_format,
    with_usual_strides,
)
from backops.torch.trials import Operator

# What calls are told apart by, and how `backops.torch.choices()` names it; by `transposed`.
WINDOWS = {
    False: ("stride", "padding", "dilation"),
    True: ("stride", "padding", "output_padding", "dilation"),
}
NAMES = {False: "conv", True: "conv_transpose"}
FORWARD = {
    transposed: Operator(name, ("input", "weight", "bias"), (*WINDOWS[transposed], "groups"))
    for transposed, name in NAMES.items()
}
BACKWARD = {
    transposed: Operator(
        f"{name}_backward",
        ("grad_output", "input", "weight"),
        (*WINDOWS[transposed], "groups", "output_mask"),
    )
    for transposed, name in NAMES.items()
}


def convolution(own: Any) -> Kernel:
    def forward(
        keyset: Any,
        input: Any,
        weight: Any,
        bias: Any,
        stride: list[int],
        padding: list[int],
        dilation: list[int],
        transposed: bool,
        output_padding: list[int],
        groups: int,
    ) -> Any:
        windows = stride, padding, dilation, transposed, output_padding, groups

        def pytorchs() -> Any:
            return own.call_boxed(keyset, input, weight, bias, *windows)

        tensors = (input, weight) if bias is None else (input, weight, bias)
        if not is_ours(input, weight, transposed, output_padding) or not are_supported(*tensors):
            return pytorchs()
        operator = FORWARD[transposed]
        parameters = in_our_order(*windows)

        def ours(threads: int) -> Any:
            return computed_unless_refused(
                pytorchs, operator.name, operator.name, input, weight, bias, *parameters, "keep",
                result_of_forward(operator.name, input, weight, bias, *windows), threads,
            )  # fmt: skip

        def is_faster() -> bool:
            return choice.conv_is_faster(operator.name, input, weight, *windows)

        return computed_on_one_side(operator, tensors, parameters, ours, pytorchs, is_faster)

    return forward


def convolution_backward(own: Any) -> Kernel:
    def backward(
        keyset: Any,
        grad_output: Any,
        input: Any,
        weight: Any,
        bias_sizes: list[int] | None,
        stride: list[int],
        padding: list[int],
        dilation: list[int],
        transposed: bool,
        output_padding: list[int],
        groups: int,
        output_mask: list[bool],
    ) -> Any:
        windows = stride, padding, dilation, transposed, output_padding, groups

        def pytorchs() -> Any:
            with torch._C.DisableTorchFunctionSubclass():
                usual = [
                    tensor if tensor is None else with_usual_strides(tensor)
                    for tensor in (grad_output, input, weight)
                ]
            return own.call_boxed(keyset, *usual, bias_sizes, *windows, output_mask)

        tensors = grad_output, input, weight
        if not are_supported(*tensors) or not is_ours(input, weight, transposed, output_padding):
            return pytorchs()
        operator = BACKWARD[transposed]
        parameters = (*in_our_order(*windows), output_mask)

        def ours(threads: int) -> Any:
            return computed_unless_refused(
                pytorchs, operator.name, operator.name, *tensors, *parameters, "keep",
                results_of_backward(input, weight, *windows, output_mask), threads,
            )  # fmt: skip

        def is_faster() -> bool:
            return choice.conv_is_faster(operator.name, input, weight, *windows, output_mask)

        return computed_on_one_side(operator, tensors, parameters, ours, pytorchs, is_faster)

    return backward


def is_ours(input: Any, weight: Any, transposed: bool, output_padding: list[int]) -> bool:
    """Whether numbers of axes are ours, and PyTorch takes the `output_padding`."""
    if not 2 < input.dim() == weight.dim() < 6:
        return False
    return transposed or output_padding in ([0], [0] * (weight.dim() - 2))


def in_our_order(
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
) -> tuple[Any, ...]:
    if transposed:
        return stride, padding, output_padding, dilation, groups
    return stride, padding, dilation, groups


def result_of_forward(
    name: str,
    input: Any,
    weight: Any,
    bias: Any,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
) -> Any:
    """A new tensor with the strides that PyTorch gives it; None for what is wrong."""
    shape = _output_shape(
        name, tuple(input.shape), tuple(weight.shape), tuple(stride), tuple(padding),
        tuple(dilation), tuple(output_padding), groups,
    )  # fmt: skip
    if shape is None:
        return None
    windows = stride, padding, dilation, transposed, output_padding, groups
    return empty_output(input, shape, output_format(input, weight, bias, *windows, shape))


@lru_cache(maxsize=4096)
def _output_shape(
    name: str,
    input_shape: tuple[int, ...],
    weight_shape: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    output_padding: tuple[int, ...],
    groups: int,
) -> tuple[int, ...] | None:
    windows = stride, padding, dilation, groups, "float32", name, output_padding
    try:
        return _native.conv_geometry(input_shape, weight_shape, *windows)[0]
    except errors.Error:
        return None


def results_of_backward(
    input: Any,
    weight: Any,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    output_mask: list[bool],
) -> tuple[Any, Any, Any]:
    """New tensors with the strides that PyTorch gives them, None where not asked for."""
    windows = stride, padding, dilation, transposed, output_padding, groups
    of_input, of_weight = gradient_formats(input, weight, *windows)
    outputs = weight.shape[1] * groups if transposed else weight.shape[0]
    return (
        empty_image(input, of_input) if output_mask[0] else None,
        empty_image(weight, of_weight) if output_mask[1] else None,
        weight.new_empty(outputs) if output_mask[2] else None,
    )
