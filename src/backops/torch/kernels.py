"""The kernels that PyTorch calls in place of its own.

Each is made around PyTorch's own kernel, `own`, and hands it every call that is not for us: what
is not supported here, and what PyTorch is better at. What is wrong with a call is told as PyTorch
would, by a RuntimeError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import profiler

from backops import _native, errors
from backops.torch import choice
from backops.torch.layouts import (
    empty_image,
    gradient_formats,
    suggested_format,
    with_usual_strides,
)
from backops.torch.trials import Call, Operator, layer_of

Kernel = Callable[..., Any]

# What calls are told apart by, and how `backops.torch.choices()` names it.
POOL_TENSORS = ("grad_output", "input", "grad_input")
WINDOWS = (
    "kernel_size",
    "stride",
    "padding",
    "ceil_mode",
    "count_include_pad",
    "divisor_override",
)
CONVOLUTION = Operator(
    "conv_backward",
    ("grad_output", "input", "weight"),
    ("stride", "padding", "dilation", "groups", "output_mask"),
)

# Subclasses may have other ideas of what a size or a dtype is.
PLAIN_TYPES = frozenset((torch.Tensor, torch.nn.Parameter))
DTYPES = frozenset((torch.float16, torch.bfloat16, torch.float32, torch.float64))
# Refused here, but not wrong: memory on another device, a result that overlaps.
NOT_FOR_US = (errors.LayoutError, errors.DTypeError, MemoryError)


def are_supported(first: Any, *others: Any) -> bool:
    """Whether all are there, not empty, of PyTorch's own types and of one dtype that is ours."""
    if type(first) not in PLAIN_TYPES or first.dtype not in DTYPES or not first.numel():
        return False
    for other in others:
        if type(other) not in PLAIN_TYPES or other.dtype is not first.dtype or not other.numel():
            return False
    return True


def computed(name: str, operator: Callable[..., Any], *arguments: Any) -> Any:
    """What `operator` returns; profilers, which know PyTorch's name for it, see ours inside."""
    if not profiler._is_profiler_enabled:  # a range costs some microseconds, watched or not
        return operator(*arguments)
    with profiler.record_function(f"backops::{name}"):
        return operator(*arguments)


def computed_unless_refused(
    pytorchs: Call, name: str, operator: Callable[..., Any], *arguments: Any
) -> Any:
    """What `operator` returns, or PyTorch's own kernel where this is not for us."""
    try:
        return computed(name, operator, *arguments)
    except NOT_FOR_US:
        pass
    except errors.Error as error:
        raise RuntimeError(str(error)) from None
    return pytorchs()


# ---- pooling -------------------------------------------------------------------------------------


def avg_pool_backward(own: Any, rank: int) -> Kernel:
    function = f"avg_pool{rank}d_backward"
    operator = Operator(function, POOL_TENSORS, WINDOWS)

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
        if divisor_override == 0 or not is_ours(grad_output, input, **out):
            return pytorchs()
        threads = torch.get_num_threads()

        def ours() -> Any:
            return computed_unless_refused(
                pytorchs, function, _native.avg_pool_backward,
                function, rank, grad_output, input, *windows, "keep",
                result_of_pool(input, rank, **out), threads,
            )  # fmt: skip

        trials = choice.active_trials()
        if trials is None:
            return ours()
        tensors = (grad_output, input, *out.values())
        return trials.run(layer_of(operator, threads, tensors, windows), ours, pytorchs)

    return backward


def adaptive_avg_pool_backward(own: Any, rank: int) -> Kernel:
    function = f"adaptive_avg_pool{rank}d_backward"
    operator = Operator(function, POOL_TENSORS, ())

    def backward(keyset: Any, grad_output: Any, input: Any, **out: Any) -> Any:
        def pytorchs() -> Any:
            check_leading_sizes(function, rank, grad_output, input)
            return own.call_boxed(keyset, grad_output, input, **out)

        if not is_ours(grad_output, input, **out):
            return pytorchs()
        threads = torch.get_num_threads()

        def ours() -> Any:
            return computed_unless_refused(
                pytorchs, function, _native.adaptive_avg_pool_backward,
                function, rank, grad_output, input, result_of_pool(input, rank, **out), threads,
            )  # fmt: skip

        trials = choice.active_trials()
        if trials is None:
            return ours()
        tensors = (grad_output, input, *out.values())
        return trials.run(layer_of(operator, threads, tensors, ()), ours, pytorchs)

    return backward


def is_ours(grad_output: Any, input: Any, grad_input: Any = None) -> bool:
    """Whether a pooling operator takes these; `grad_input` is there in an out-variant only."""
    if not are_supported(grad_output, input) or not choice.pool_is_faster(input):
        return False
    # PyTorch changes the size of a result that does not fit.
    return grad_input is None or (
        are_supported(input, grad_input) and grad_input.shape == input.shape
    )


def result_of_pool(input: Any, rank: int, grad_input: Any = None) -> Any:
    if grad_input is not None:
        return grad_input
    # PyTorch's 3-D pooling has contiguous results only.
    memory_format = suggested_format(input) if rank == 2 else torch.contiguous_format
    return torch.empty_like(input, memory_format=memory_format, requires_grad=False)


def check_leading_sizes(function: str, rank: int, grad_output: Any, input: Any) -> None:
    """Batch and channels of `grad_output`: PyTorch's kernels read beyond one that is smaller."""
    with torch._C.DisableTorchFunctionSubclass():
        got, wanted = grad_output.shape[:-rank], input.shape[:-rank]
        if got != wanted:
            raise RuntimeError(
                f"{function}: grad_output is {tuple(grad_output.shape)}, expected the batch and "
                f"channels of input {tuple(input.shape)}"
            )


# ---- convolution ---------------------------------------------------------------------------------


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
        windows = stride, padding, dilation

        def pytorchs() -> Any:
            with torch._C.DisableTorchFunctionSubclass():
                tensors = [
                    tensor if tensor is None else with_usual_strides(tensor)
                    for tensor in (grad_output, input, weight)
                ]
            return own.call_boxed(
                keyset, *tensors, bias_sizes, *windows, transposed, output_padding, groups,
                output_mask,
            )  # fmt: skip

        if (
            transposed
            or not are_supported(grad_output, input, weight)
            or not 2 < input.dim() == weight.dim() < 6
            or output_padding not in ([0], [0] * (weight.dim() - 2))  # PyTorch refuses others
        ):
            return pytorchs()
        threads = torch.get_num_threads()

        def ours() -> Any:
            return computed_unless_refused(
                pytorchs, CONVOLUTION.name, _native.conv_backward,
                grad_output, input, weight, *windows, groups, output_mask, "keep",
                results_of_conv(input, weight, *windows, groups, output_mask), threads,
            )  # fmt: skip

        trials = choice.active_trials()
        if trials is None:
            faster = choice.conv_is_faster(input, weight, *windows, groups, output_mask)
            return ours() if faster else pytorchs()
        tensors, parameters = (grad_output, input, weight), (*windows, groups, output_mask)
        return trials.run(layer_of(CONVOLUTION, threads, tensors, parameters), ours, pytorchs)

    return backward


def results_of_conv(
    input: Any,
    weight: Any,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    output_mask: list[bool],
) -> tuple[Any, Any, Any]:
    """New tensors with the strides that PyTorch gives them, None where not asked for."""
    of_input, of_weight = gradient_formats(input, weight, stride, padding, dilation, groups)
    return (
        empty_image(input, of_input) if output_mask[0] else None,
        empty_image(weight, of_weight) if output_mask[1] else None,
        weight.new_empty(weight.shape[0]) if output_mask[2] else None,
    )
