"""Kernels of average pooling, forward and backward."""

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
from backops.torch.layouts import suggested_format
from backops.torch.trials import Operator

# What calls are told apart by, and how `backops.torch.choices()` names it.
BACKWARD_TENSORS = ("grad_output", "input", "grad_input")
WINDOWS = (
    "kernel_size",
    "stride",
    "padding",
    "ceil_mode",
    "count_include_pad",
    "divisor_override",
)
HALVES = (torch.float16, torch.bfloat16)


def avg_pool(own: Any, rank: int) -> Kernel:
    function = f"avg_pool{rank}d"
    operator = Operator(function, ("input",), WINDOWS)

    def forward(
        keyset: Any,
        input: Any,
        kernel_size: list[int],
        stride: list[int] = [],  # noqa: B006 (PyTorch leaves out what is as in its schema)
        padding: list[int] = [0],  # noqa: B006
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        windows = kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override

        def pytorchs() -> Any:
            return own.call_boxed(keyset, input, *windows)

        # PyTorch refuses a divisor of 0, which means none here.
        if divisor_override == 0 or not are_supported(input):
            return pytorchs()

        def ours(threads: int) -> Any:
            shape = _avg_pool_shape(
                function, rank, tuple(input.shape), tuple(kernel_size), tuple(stride),
                tuple(padding), *windows[3:], "float32",
            )  # fmt: skip
            return computed_unless_refused(
                pytorchs, function, "avg_pool",
                function, rank, input, *windows, "keep", empty_output(input, rank, shape), threads,
            )  # fmt: skip

        if only_here(function, input):
            return ours(torch.get_num_threads())
        if not choice.pool_is_faster(input):
            return pytorchs()
        return computed_on_one_side(
            operator, (input,), windows, ours, pytorchs,
            lambda: choice.forward_pool_is_faster(input, kernel_size),
        )  # fmt: skip

    return forward


def avg_pool_backward(own: Any, rank: int) -> Kernel:
    function = f"avg_pool{rank}d_backward"
    operator = Operator(function, BACKWARD_TENSORS, WINDOWS)

    def backward(
        keyset: Any,
        grad_output: Any,
        input: Any,
        kernel_size: list[int],
        stride: list[int],
        padding: list[int],
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None,
        **out: Any,
    ) -> Any:
        windows = kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override

        def pytorchs() -> Any:
            check_leading_sizes(function, rank, grad_output, input)
            return own.call_boxed(keyset, grad_output, input, *windows, **out)

        # PyTorch refuses a divisor of 0, which means none here.
        if divisor_override == 0 or not are_ours(grad_output, input, **out):
            return pytorchs()

        def ours(threads: int) -> Any:
            return computed_unless_refused(
                pytorchs, function, "avg_pool_backward",
                function, rank, grad_output, input, *windows, "keep",
                grad_input_of(input, rank, **out), threads,
            )  # fmt: skip

        if only_here(function, input):
            return ours(torch.get_num_threads())
        if not choice.pool_is_faster(input):
            return pytorchs()
        tensors = (grad_output, input, *out.values())
        return computed_on_one_side(operator, tensors, windows, ours, pytorchs, lambda: True)

    return backward


def adaptive_avg_pool(own: Any, rank: int) -> Kernel:
    function = f"adaptive_avg_pool{rank}d"
    operator = Operator(function, ("input",), ("output_size",))

    def forward(keyset: Any, input: Any, output_size: list[int]) -> Any:
        def pytorchs() -> Any:
            return own.call_boxed(keyset, input, output_size)

        # PyTorch has empty results.
        if 0 in output_size or not are_supported(input) or not choice.pool_is_faster(input):
            return pytorchs()

        def ours(threads: int) -> Any:
            shape = _adaptive_avg_pool_shape(
                function, rank, tuple(input.shape), tuple(output_size), "float32"
            )
            return computed_unless_refused(
                pytorchs, function, "adaptive_avg_pool",
                function, rank, input, output_size, empty_output(input, rank, shape), threads,
            )  # fmt: skip

        return computed_on_one_side(
            operator, (input,), (output_size,), ours, pytorchs,
            lambda: True,
        )  # fmt: skip

    return forward


def adaptive_avg_pool_backward(own: Any, rank: int) -> Kernel:
    function = f"adaptive_avg_pool{rank}d_backward"
    operator = Operator(function, BACKWARD_TENSORS, ())

    def backward(keyset: Any, grad_output: Any, input: Any, **out: Any) -> Any:
        def pytorchs() -> Any:
            check_leading_sizes(function, rank, grad_output, input)
            return own.call_boxed(keyset, grad_output, input, **out)

        if not are_ours(grad_output, input, **out) or not choice.pool_is_faster(input):
            return pytorchs()

        def ours(threads: int) -> Any:
            return computed_unless_refused(
                pytorchs, function, "adaptive_avg_pool_backward",
                function, rank, grad_output, input, grad_input_of(input, rank, **out), threads,
            )  # fmt: skip

        tensors = (grad_output, input, *out.values())
        return computed_on_one_side(operator, tensors, (), ours, pytorchs, lambda: True)

    return backward


def are_ours(grad_output: Any, input: Any, grad_input: Any = None) -> bool:
    """Whether a pooling operator takes these; `grad_input` is there in an out-variant only."""
    if not are_supported(grad_output, input):
        return False
    # PyTorch changes the size of a result that does not fit.
    return grad_input is None or (
        are_supported(input, grad_input) and grad_input.shape == input.shape
    )


def only_here(function: str, input: Any) -> bool:
    """Whether PyTorch has no kernel for this on the CPU, so that there is nothing to choose."""
    return function.startswith("avg_pool3d") and input.dtype in HALVES


def grad_input_of(input: Any, rank: int, grad_input: Any = None) -> Any:
    if grad_input is not None:
        return grad_input
    memory_format = format_of_pool(input, rank)
    return torch.empty_like(input, memory_format=memory_format, requires_grad=False)


def empty_output(input: Any, rank: int, shape: tuple[int, ...] | None) -> Any:
    """None for what is wrong."""
    if shape is None:
        return None
    return torch.empty(shape, dtype=input.dtype, memory_format=format_of_pool(input, rank))


def format_of_pool(input: Any, rank: int) -> Any:
    """Of PyTorch's results. Its 3-D pooling has contiguous ones only."""
    return suggested_format(input) if rank == 2 else torch.contiguous_format


@lru_cache(maxsize=4096)
def _avg_pool_shape(*problem: Any) -> tuple[int, ...] | None:
    try:
        return _native.avg_pool_geometry(*problem)[0]
    except errors.Error:
        return None


@lru_cache(maxsize=4096)
def _adaptive_avg_pool_shape(*problem: Any) -> tuple[int, ...] | None:
    try:
        return _native.adaptive_avg_pool_geometry(*problem)[0]
    except errors.Error:
        return None


def check_leading_sizes(function: str, rank: int, grad_output: Any, input: Any) -> None:
    """Batch and channels of `grad_output`: PyTorch's kernels read beyond one that is smaller."""
    with torch._C.DisableTorchFunctionSubclass():
        got, wanted = grad_output.shape[:-rank], input.shape[:-rank]
        if got != wanted:
            raise RuntimeError(
                f"{function}: grad_output is {tuple(grad_output.shape)}, expected the batch and "
                f"channels of input {tuple(input.shape)}"
            )
