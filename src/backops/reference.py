"""The operators in plain NumPy float64, straight from their definition: slow, and easy to trust.

Pooling loops over its windows, convolution over the elements of the kernel; both add what each
contributes. Use them to check another implementation; nothing here is shared with the
fast one.

>>> import numpy as np
>>> from backops import reference
>>> reference.avg_pool2d_backward(np.ones((1, 1, 2, 2)), (1, 1, 4, 4), 2)[0, 0, 0]
array([0.25, 0.25, 0.25, 0.25])
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool1d_backward",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool2d_backward",
    "adaptive_avg_pool3d",
    "adaptive_avg_pool3d_backward",
    "avg_pool1d",
    "avg_pool1d_backward",
    "avg_pool2d",
    "avg_pool2d_backward",
    "avg_pool3d",
    "avg_pool3d_backward",
    "conv",
    "conv_backward",
    "conv_transpose",
    "conv_transpose_backward",
]

_OutputSize: TypeAlias = int | Sequence[int | None] | None

_DTYPES = ("float16", "bfloat16", "float32", "float64")

# What `precision` rounds the inputs to, by dtype; a combination that is not here is refused.
_ROUNDING = {
    ("keep", "float16"): "none",
    ("keep", "bfloat16"): "none",
    ("keep", "float32"): "none",
    ("keep", "float64"): "none",
    ("allow_fp32_down", "float16"): "none",
    ("allow_fp32_down", "bfloat16"): "none",
    ("allow_fp32_down", "float32"): "hf32",
    ("allow_fp32_down", "float64"): "none",
    ("fp16", "float16"): "none",
    ("fp16", "float32"): "float16",
    ("hf32", "float32"): "hf32",
}


def avg_pool1d(
    input: Any,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    *,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    precision: str = "keep",
) -> NDArray[np.float64]:
    """1-D average pooling, in float64.

    >>> avg_pool1d(np.array([[[1.0, 3.0, 5.0, 7.0]]]), kernel_size=2)
    array([[[2., 6.]]])

    Arguments and errors: those of `avg_pool2d`, with one spatial axis.
    """
    return _avg_pool(
        1,
        input,
        kernel_size,
        stride,
        padding,
        ceil_mode,
        count_include_pad,
        divisor_override,
        precision,
    )


def avg_pool2d(
    input: Any,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    *,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    precision: str = "keep",
) -> NDArray[np.float64]:
    """2-D average pooling, in float64.

    >>> avg_pool2d(np.arange(16.0).reshape(1, 4, 4), kernel_size=2)
    array([[[ 2.5,  4.5],
            [10.5, 12.5]]])

    Arguments:
        input: the tensor to pool, `(N, C, H, W)` or `(C, H, W)`: a NumPy, PyTorch or JAX array, or
            any other CPU array that speaks DLPack.
        others: those of `avg_pool2d_backward`.

    Raises what `avg_pool2d_backward` does.
    """
    return _avg_pool(
        2,
        input,
        kernel_size,
        stride,
        padding,
        ceil_mode,
        count_include_pad,
        divisor_override,
        precision,
    )


def avg_pool3d(
    input: Any,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    *,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    precision: str = "keep",
) -> NDArray[np.float64]:
    """3-D average pooling, in float64.

    >>> avg_pool3d(np.arange(8.0).reshape(1, 2, 2, 2), kernel_size=2)
    array([[[[3.5]]]])

    Arguments and errors: those of `avg_pool2d`, with three spatial axes.
    """
    return _avg_pool(
        3,
        input,
        kernel_size,
        stride,
        padding,
        ceil_mode,
        count_include_pad,
        divisor_override,
        precision,
    )


def adaptive_avg_pool1d(input: Any, output_size: _OutputSize) -> NDArray[np.float64]:
    """1-D adaptive average pooling, in float64.

    >>> adaptive_avg_pool1d(np.array([[[1.0, 3.0, 5.0]]]), 2)
    array([[[2., 4.]]])

    Arguments and errors: those of `adaptive_avg_pool2d`, with one spatial axis.
    """
    return _adaptive_avg_pool(1, input, output_size)


def adaptive_avg_pool2d(input: Any, output_size: _OutputSize) -> NDArray[np.float64]:
    """2-D adaptive average pooling, in float64.

    >>> adaptive_avg_pool2d(np.arange(8.0).reshape(1, 2, 4), (None, 2))
    array([[[0.5, 2.5],
            [4.5, 6.5]]])

    Arguments:
        input: the tensor to pool, `(N, C, H, W)` or `(C, H, W)`: a NumPy, PyTorch or JAX array, or
            any other CPU array that speaks DLPack.
        output_size: an int, or one per axis; None keeps a size.

    Raises:
        TypeError: `input` is not an array of float16, bfloat16, float32 or float64, or a size is no
            int.
        ValueError: the shape does not fit, or a size is not positive.
    """
    return _adaptive_avg_pool(2, input, output_size)


def adaptive_avg_pool3d(input: Any, output_size: _OutputSize) -> NDArray[np.float64]:
    """3-D adaptive average pooling, in float64.

    >>> adaptive_avg_pool3d(np.arange(8.0).reshape(1, 2, 2, 2), 1)
    array([[[[3.5]]]])

    Arguments and errors: those of `adaptive_avg_pool2d`, with three spatial axes.
    """
    return _adaptive_avg_pool(3, input, output_size)


def avg_pool1d_backward(
    grad_output: Any,
    input: Any,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    *,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    precision: str = "keep",
) -> NDArray[np.float64]:
    """Gradient of 1-D average pooling with respect to its input, in float64.

    >>> avg_pool1d_backward(np.array([[[2.0, 6.0]]]), (1, 1, 4), kernel_size=2)
    array([[[1., 1., 3., 3.]]])

    Arguments and errors: those of `avg_pool2d_backward`, with one spatial axis.
    """
    return _avg_pool_backward(
        1,
        grad_output,
        input,
        kernel_size,
        stride,
        padding,
        ceil_mode,
        count_include_pad,
        divisor_override,
        precision,
    )


def avg_pool2d_backward(
    grad_output: Any,
    input: Any,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    *,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    precision: str = "keep",
) -> NDArray[np.float64]:
    """Gradient of 2-D average pooling with respect to its input, in float64.

    >>> avg_pool2d_backward(np.full((1, 1, 1, 2), 8.0), (1, 1, 2, 3), kernel_size=2, stride=1)
    array([[[[2., 4., 2.],
             [2., 4., 2.]]]])

    Arguments:
        grad_output: gradient of the pooled tensor, `(N, C, H, W)` or `(C, H, W)`: a NumPy, PyTorch
            or JAX array, or any other CPU array that speaks DLPack.
        input: the forward input, or its shape. Only the shape is used.
        kernel_size: window size in elements, an int or one per axis.
        stride: distance of windows in elements; None or () means `kernel_size`.
        padding: zeros on both sides of each axis, at most half of `kernel_size`.
        ceil_mode: whether a last window that overhangs the padded input counts.
        count_include_pad: whether padding counts in the divisor.
        divisor_override: what to divide by instead of the window's size; None or 0 means the size.
        precision: what float32 gradients are rounded to first: "keep" (nothing),
            "allow_fp32_down" or "hf32" (HF32 with 11 mantissa bits), "fp16" (float16).

    Raises:
        TypeError: `grad_output` is not an array of float16, bfloat16, float32 or float64, or a
            parameter is not of its type.
        ValueError: shapes do not fit, a parameter is out of range, or `precision` does not go
            with the dtype.
    """
    return _avg_pool_backward(
        2,
        grad_output,
        input,
        kernel_size,
        stride,
        padding,
        ceil_mode,
        count_include_pad,
        divisor_override,
        precision,
    )


def avg_pool3d_backward(
    grad_output: Any,
    input: Any,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    *,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    precision: str = "keep",
) -> NDArray[np.float64]:
    """Gradient of 3-D average pooling with respect to its input, in float64.

    >>> avg_pool3d_backward(np.full((1, 1, 1, 1), 8.0), (1, 2, 2, 3), kernel_size=2)
    array([[[[1., 1., 0.],
             [1., 1., 0.]],
    <BLANKLINE>
            [[1., 1., 0.],
             [1., 1., 0.]]]])

    Arguments and errors: those of `avg_pool2d_backward`, with three spatial axes.
    """
    return _avg_pool_backward(
        3,
        grad_output,
        input,
        kernel_size,
        stride,
        padding,
        ceil_mode,
        count_include_pad,
        divisor_override,
        precision,
    )


def adaptive_avg_pool1d_backward(grad_output: Any, input: Any) -> NDArray[np.float64]:
    """Gradient of 1-D adaptive average pooling with respect to its input, in float64.

    >>> adaptive_avg_pool1d_backward(np.array([[[2.0, 6.0]]]), (1, 1, 3))
    array([[[1., 4., 3.]]])

    Arguments and errors: those of `adaptive_avg_pool2d_backward`, with one spatial axis.
    """
    return _adaptive_avg_pool_backward(1, grad_output, input)


def adaptive_avg_pool2d_backward(grad_output: Any, input: Any) -> NDArray[np.float64]:
    """Gradient of 2-D adaptive average pooling with respect to its input, in float64.

    >>> adaptive_avg_pool2d_backward(np.full((1, 1, 1, 1), 6.0), (1, 1, 2, 3))
    array([[[[1., 1., 1.],
             [1., 1., 1.]]]])

    Arguments:
        grad_output: gradient of the pooled tensor, `(N, C, H, W)` or `(C, H, W)`: a NumPy, PyTorch
            or JAX array, or any other CPU array that speaks DLPack. Its spatial size is the
            pooling's output size.
        input: the forward input, or its shape. Only the shape is used.

    Raises:
        TypeError: `grad_output` is not an array of float16, bfloat16, float32 or float64.
        ValueError: shapes do not fit.
    """
    return _adaptive_avg_pool_backward(2, grad_output, input)


def adaptive_avg_pool3d_backward(grad_output: Any, input: Any) -> NDArray[np.float64]:
    """Gradient of 3-D adaptive average pooling with respect to its input, in float64.

    >>> adaptive_avg_pool3d_backward(np.full((1, 1, 1, 1), 6.0), (1, 1, 2, 3))
    array([[[[1., 1., 1.],
             [1., 1., 1.]]]])

    Arguments and errors: those of `adaptive_avg_pool2d_backward`, with three spatial axes.
    """
    return _adaptive_avg_pool_backward(3, grad_output, input)


def conv(
    input: Any,
    weight: Any,
    bias: Any = None,
    *,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    precision: str = "keep",
) -> NDArray[np.float64]:
    """1-D, 2-D or 3-D convolution, which does not flip the kernel, in float64.

    >>> conv(np.array([[[1.0, 2.0, 3.0]]]), np.array([[[4.0, 5.0]]]), np.array([100.0]))
    array([[[114., 123.]]])

    Arguments:
        input: `(N, C_in, *spatial)` or `(C_in, *spatial)`: a NumPy, PyTorch or JAX array, or any
            other CPU array that speaks DLPack.
        weight: the kernels, `(C_out, C_in / groups, *kernel)`.
        bias: what is added to each output channel, `(C_out,)`; None adds nothing.
        stride: distance of windows in elements, an int or one per axis.
        padding: zeros on both sides of each axis.
        dilation: distance of the elements of a window.
        groups: parts that the channels are cut into; each is convolved by itself.
        precision: what float32 `input` and `weight` are rounded to first: "keep" (nothing),
            "allow_fp32_down" or "hf32" (HF32 with 11 mantissa bits), "fp16" (float16).

    Raises:
        TypeError: a tensor is not an array of float16, bfloat16, float32 or float64, the tensors
            differ in dtype, or a parameter is not of its type.
        ValueError: shapes do not fit, a parameter is out of range, or `precision` does not go
            with the dtype.
    """
    values, kernels, added = _forward_operands(input, weight, bias, precision)
    rank = kernels.ndim - 2
    parts = _integer("groups", groups)
    _check_channels(values.shape[-rank - 1], kernels.shape, parts)
    axes = _conv_axes(values.shape, kernels.shape, stride, padding, dilation)
    shape = _output_shape(values.shape, kernels.shape, axes)
    _check_bias(added, kernels.shape[0])
    # Infinities of both signs in one place make a NaN, as they should: no warning.
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        result = _output_product(_grouped(values, parts, rank), _in_groups(kernels, parts), axes)
        return _with_bias(result.reshape(shape), added, rank)


def conv_backward(
    grad_output: Any,
    input: Any,
    weight: Any,
    *,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    output_mask: Sequence[bool] = (True, True, True),
    precision: str = "keep",
) -> tuple[NDArray[np.float64] | None, NDArray[np.float64] | None, NDArray[np.float64] | None]:
    """Gradients of 1-D, 2-D or 3-D convolution with respect to input, weight and bias, in float64.

    >>> grad_output = np.array([[[1.0, 10.0]]])
    >>> input, weight = np.array([[[1.0, 2.0, 3.0]]]), np.array([[[4.0, 5.0]]])
    >>> grad_input, grad_weight, grad_bias = conv_backward(grad_output, input, weight)
    >>> grad_input
    array([[[ 4., 45., 50.]]])
    >>> grad_weight
    array([[[21., 32.]]])
    >>> grad_bias
    array([11.])

    Arguments:
        grad_output: gradient of the convolved tensor, `(N, C_out, *spatial)` or
            `(C_out, *spatial)`: a NumPy, PyTorch or JAX array, or any other CPU array that speaks
            DLPack.
        input: the forward input, `(N, C_in, *spatial)` or `(C_in, *spatial)`; its shape is enough
            where `output_mask[1]` is false.
        weight: the kernels, `(C_out, C_in / groups, *kernel)`; their shape is enough where
            `output_mask[0]` is false.
        stride: distance of windows in elements, an int or one per axis.
        padding: zeros on both sides of each axis.
        dilation: distance of the elements of a window.
        groups: parts that the channels are cut into; each is convolved by itself.
        output_mask: which of the three gradients to compute; the others are None.
        precision: what float32 tensors are rounded to first, `grad_output` of the bias included:
            "keep" (nothing), "allow_fp32_down" or "hf32" (HF32 with 11 mantissa bits), "fp16"
            (float16).

    Raises:
        TypeError: a tensor is not an array of float16, bfloat16, float32 or float64, the tensors
            differ in dtype, or a parameter is not of its type.
        ValueError: shapes do not fit, a parameter is out of range, or `precision` does not go
            with the dtype.
    """
    grad, dtype = _values("grad_output", grad_output)
    grad = _round_inputs(grad, dtype, precision)
    wants_input, wants_weight, wants_bias = _mask(output_mask)
    weight_shape = _weight_shape(weight)
    rank = len(weight_shape) - 2
    input_shape = _input_shape(input, rank)
    parts = _integer("groups", groups)
    _check_channels(input_shape[-rank - 1], weight_shape, parts)
    axes = _conv_axes(input_shape, weight_shape, stride, padding, dilation)
    _check_conv_grad_shape(grad.shape, input_shape, weight_shape, axes)

    grad = _grouped(grad, parts, rank)
    grad_input = grad_weight = grad_bias = None
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        if wants_input:
            kernels = _round_inputs(_values_in("weight", weight, dtype), dtype, precision)
            grad_input = _input_product(grad, _in_groups(kernels, parts), input_shape[-rank:], axes)
            grad_input = grad_input.reshape(input_shape)
        if wants_weight:
            values = _round_inputs(_values_in("input", input, dtype), dtype, precision)
            grad_weight = _weight_product(
                grad, _grouped(values, parts, rank), weight_shape[2:], axes
            ).reshape(weight_shape)
        if wants_bias:
            grad_bias = _sum_of_channels(grad)
    return grad_input, grad_weight, grad_bias


def conv_transpose(
    input: Any,
    weight: Any,
    bias: Any = None,
    *,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    precision: str = "keep",
) -> NDArray[np.float64]:
    """1-D, 2-D or 3-D transposed convolution, in float64: each input adds its kernel to the output.

    >>> conv_transpose(np.array([[[1.0, 10.0]]]), np.array([[[4.0, 5.0]]]))
    array([[[ 4., 45., 50.]]])

    Along each axis it has `(in - 1) * stride - 2 * padding + dilation * (kernel - 1) +
    output_padding + 1` outputs: what it would be the input of, were it a convolution.

    Arguments, where they are not those of `conv`:
        weight: the kernels, `(C_in, C_out / groups, *kernel)`.
        stride: distance of the kernels of neighbouring inputs in the output.
        padding: outputs that are left off on both sides of each axis.
        output_padding: outputs that are added at the end of each axis, fewer than the stride or
            the dilation, whichever is larger.

    Raises: as `conv` does.
    """
    values, kernels, added = _forward_operands(input, weight, bias, precision)
    rank = kernels.ndim - 2
    parts = _integer("groups", groups)
    _check_transposed_channels(values.shape[-rank - 1], kernels.shape, parts)
    shape, axes = _transposed_axes(
        values.shape, kernels.shape, parts, stride, padding, output_padding, dilation
    )
    _check_bias(added, shape[-rank - 1])
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        result = _input_product(
            _grouped(values, parts, rank), _in_groups(kernels, parts), shape[-rank:], axes
        )
        return _with_bias(result.reshape(shape), added, rank)


def conv_transpose_backward(
    grad_output: Any,
    input: Any,
    weight: Any,
    *,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    output_mask: Sequence[bool] = (True, True, True),
    precision: str = "keep",
) -> tuple[NDArray[np.float64] | None, NDArray[np.float64] | None, NDArray[np.float64] | None]:
    """Gradients of transposed convolution with respect to input, weight and bias, in float64.

    >>> grad_output = np.array([[[1.0, 2.0, 3.0]]])
    >>> input, weight = np.array([[[1.0, 10.0]]]), np.array([[[4.0, 5.0]]])
    >>> grad_input, grad_weight, grad_bias = conv_transpose_backward(grad_output, input, weight)
    >>> grad_input
    array([[[14., 23.]]])
    >>> grad_weight
    array([[[21., 32.]]])
    >>> grad_bias
    array([6.])

    Arguments are those of `conv_transpose` and of `conv_backward`, and it raises what they raise.
    """
    grad, dtype = _values("grad_output", grad_output)
    grad = _round_inputs(grad, dtype, precision)
    wants_input, wants_weight, wants_bias = _mask(output_mask)
    weight_shape = _weight_shape(weight)
    rank = len(weight_shape) - 2
    input_shape = _input_shape(input, rank)
    parts = _integer("groups", groups)
    _check_transposed_channels(input_shape[-rank - 1], weight_shape, parts)
    shape, axes = _transposed_axes(
        input_shape, weight_shape, parts, stride, padding, output_padding, dilation
    )
    if grad.shape != shape:
        raise ValueError(
            f"grad_output is {grad.shape}, but the transposed convolution of input {input_shape} "
            f"with weight {weight_shape} is {shape}"
        )

    grad = _grouped(grad, parts, rank)
    grad_input = grad_weight = grad_bias = None
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        if wants_input:
            kernels = _round_inputs(_values_in("weight", weight, dtype), dtype, precision)
            grad_input = _output_product(grad, _in_groups(kernels, parts), axes)
            grad_input = grad_input.reshape(input_shape)
        if wants_weight:
            values = _round_inputs(_values_in("input", input, dtype), dtype, precision)
            grad_weight = _weight_product(
                _grouped(values, parts, rank), grad, weight_shape[2:], axes
            ).reshape(weight_shape)
        if wants_bias:
            grad_bias = _sum_of_channels(grad)
    return grad_input, grad_weight, grad_bias


class _Window(NamedTuple):
    """The inputs that one output averages, along one axis."""

    begin: int
    end: int
    divisor: int


def _avg_pool_backward(
    rank: int,
    grad_output: Any,
    input: Any,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None,
    padding: int | Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
    precision: str,
) -> NDArray[np.float64]:
    grad, dtype = _values("grad_output", grad_output)
    grad = _round_inputs(grad, dtype, precision)
    shape = _input_shape(input, rank)
    axes = _pool_axes(shape, rank, kernel_size, stride, padding, ceil_mode, count_include_pad)
    divisor = 0 if divisor_override is None else _integer("divisor_override", divisor_override)
    _check_grad_shape(grad.shape, shape, axes)
    return _spread(grad, shape, axes, divisor)


def _avg_pool(
    rank: int,
    input: Any,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None,
    padding: int | Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
    precision: str,
) -> NDArray[np.float64]:
    values, dtype = _values("input", input)
    values = _round_inputs(values, dtype, precision)
    shape = _input_shape(values, rank)
    axes = _pool_axes(shape, rank, kernel_size, stride, padding, ceil_mode, count_include_pad)
    divisor = 0 if divisor_override is None else _integer("divisor_override", divisor_override)
    return _average(values, axes, divisor)


def _pool_axes(
    shape: tuple[int, ...],
    rank: int,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None,
    padding: int | Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
) -> list[list[_Window]]:
    """The windows of each spatial axis."""
    kernels = _per_axis("kernel_size", kernel_size, rank, least=1)
    if stride is None or (isinstance(stride, Sequence) and len(stride) == 0):
        strides = kernels
    else:
        strides = _per_axis("stride", stride, rank, least=1)
    paddings = _per_axis("padding", padding, rank, least=0)
    axes = []
    for axis, length in enumerate(shape[-rank:]):
        k, s, p = kernels[axis], strides[axis], paddings[axis]
        if 2 * p > k:
            raise ValueError(
                f"padding[{axis}] is {p}, expected 0 to {k // 2} "
                f"(half of kernel_size[{axis}] = {k})"
            )
        windows = _fixed_windows(length, k, s, p, ceil_mode, count_include_pad)
        if not windows:
            overhang = f", and stride[{axis}] - 1 in ceil_mode" if ceil_mode else ""
            raise ValueError(
                f"kernel_size[{axis}] is {k}, expected at most "
                f"{length + 2 * p + (s - 1 if ceil_mode else 0)} "
                f"(input size {length} plus twice padding[{axis}] = {p}{overhang})"
            )
        axes.append(windows)
    return axes


def _adaptive_avg_pool(rank: int, input: Any, output_size: _OutputSize) -> NDArray[np.float64]:
    values, _ = _values("input", input)
    shape = _input_shape(values, rank)
    sizes = output_size if isinstance(output_size, Sequence) else (output_size,)
    if len(sizes) not in (1, rank):
        raise ValueError(f"output_size is {output_size!r}, expected one size or {rank}")
    if len(sizes) == 1:
        sizes = tuple(sizes) * rank
    kept = [
        length if size is None else size for length, size in zip(shape[-rank:], sizes, strict=True)
    ]
    outputs = _per_axis("output_size", kept, rank, least=1)
    axes = [
        _adaptive_windows(length, count)
        for length, count in zip(shape[-rank:], outputs, strict=True)
    ]
    return _average(values, axes, 0)


def _adaptive_avg_pool_backward(rank: int, grad_output: Any, input: Any) -> NDArray[np.float64]:
    grad, _ = _values("grad_output", grad_output)
    shape = _input_shape(input, rank)
    if grad.ndim != len(shape):
        raise ValueError(
            f"grad_output is {grad.shape}, expected {len(shape)} dimensions as input {shape}"
        )
    if 0 in grad.shape[-rank - 1 :]:
        raise ValueError(f"grad_output is {grad.shape}, expected no zero after the batch size")
    axes = [
        _adaptive_windows(length, outputs)
        for length, outputs in zip(shape[-rank:], grad.shape[-rank:], strict=True)
    ]
    _check_grad_shape(grad.shape, shape, axes)
    return _spread(grad, shape, axes, 0)


def _fixed_windows(
    length: int, kernel: int, stride: int, padding: int, ceil_mode: bool, count_include_pad: bool
) -> list[_Window]:
    steps = length + 2 * padding - kernel
    outputs = (-(-steps // stride) if ceil_mode else steps // stride) + 1
    if (outputs - 1) * stride >= length + padding:
        outputs -= 1
    windows = []
    for o in range(outputs):
        start = o * stride - padding
        # Padding on the right counts, what overhangs it in ceil_mode does not.
        padded_end = min(start + kernel, length + padding)
        begin, end = max(start, 0), min(start + kernel, length)
        divisor = padded_end - start if count_include_pad else end - begin
        windows.append(_Window(begin, end, divisor))
    return windows


def _adaptive_windows(length: int, outputs: int) -> list[_Window]:
    windows = []
    for o in range(outputs):
        begin, end = o * length // outputs, -(-(o + 1) * length // outputs)
        windows.append(_Window(begin, end, end - begin))
    return windows


def _spread(
    grad: NDArray[np.float64], shape: tuple[int, ...], axes: list[list[_Window]], divisor: int
) -> NDArray[np.float64]:
    """Adds each element of `grad`, divided, to its window; a `divisor` of 0 means the window's."""
    result = np.zeros(shape)
    spatial: tuple[Any, ...] = (..., *(np.newaxis for _ in axes))
    # Infinities of both signs in one place make a NaN, as they should: no warning.
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        for position in itertools.product(*(range(len(windows)) for windows in axes)):
            window = [windows[o] for windows, o in zip(axes, position, strict=True)]
            source: tuple[Any, ...] = (..., *position)
            target: tuple[Any, ...] = (..., *(slice(w.begin, w.end) for w in window))
            share = grad[source] / (divisor or math.prod(w.divisor for w in window))
            result[target] += share[spatial]
    return result


def _average(
    values: NDArray[np.float64], axes: list[list[_Window]], divisor: int
) -> NDArray[np.float64]:
    """Adds what each window holds and divides it; a `divisor` of 0 means the window's."""
    spatial = tuple(range(-len(axes), 0))
    result = np.empty((*values.shape[: -len(axes)], *(len(windows) for windows in axes)))
    # Infinities of both signs in one window make a NaN, as they should: no warning.
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        for position in itertools.product(*(range(len(windows)) for windows in axes)):
            window = [windows[o] for windows, o in zip(axes, position, strict=True)]
            source: tuple[Any, ...] = (..., *(slice(w.begin, w.end) for w in window))
            total = values[source].sum(axis=spatial)
            target: tuple[Any, ...] = (..., *position)
            result[target] = total / (divisor or math.prod(w.divisor for w in window))
    return result


class _Tap(NamedTuple):
    """One position in the kernel, and the inputs it meets in the windows of `outputs`.

    Along one axis; element by element, `inputs` belong to `outputs`.
    """

    position: int
    outputs: slice
    inputs: slice


class _ConvAxis(NamedTuple):
    outputs: int
    taps: list[_Tap]


def _conv_axes(
    input_shape: tuple[int, ...],
    weight_shape: tuple[int, ...],
    stride: int | Sequence[int],
    padding: int | Sequence[int],
    dilation: int | Sequence[int],
) -> list[_ConvAxis]:
    rank = len(weight_shape) - 2
    strides = _per_axis("stride", stride, rank, least=1)
    paddings = _per_axis("padding", padding, rank, least=0)
    dilations = _per_axis("dilation", dilation, rank, least=1)
    axes = []
    for axis, (length, kernel) in enumerate(
        zip(input_shape[-rank:], weight_shape[2:], strict=True)
    ):
        s, p, d = strides[axis], paddings[axis], dilations[axis]
        span = d * (kernel - 1) + 1
        if span > length + 2 * p:
            raise ValueError(
                f"weight is {weight_shape}, which with dilation[{axis}] = {d} spans {span} on "
                f"spatial axis {axis}, expected at most {length + 2 * p} "
                f"(input size {length} plus twice padding[{axis}] = {p})"
            )
        outputs = (length + 2 * p - span) // s + 1
        axes.append(_ConvAxis(outputs, _taps(length, outputs, kernel, s, p, d)))
    return axes


def _transposed_axes(
    input_shape: tuple[int, ...],
    weight_shape: tuple[int, ...],
    groups: int,
    stride: int | Sequence[int],
    padding: int | Sequence[int],
    output_padding: int | Sequence[int],
    dilation: int | Sequence[int],
) -> tuple[tuple[int, ...], list[_ConvAxis]]:
    """The shape of the result, and the convolution that makes `input_shape` of it."""
    rank = len(weight_shape) - 2
    strides = _per_axis("stride", stride, rank, least=1)
    paddings = _per_axis("padding", padding, rank, least=0)
    more = _per_axis("output_padding", output_padding, rank, least=0)
    dilations = _per_axis("dilation", dilation, rank, least=1)
    lengths, axes = [], []
    for axis, (inputs, kernel) in enumerate(
        zip(input_shape[-rank:], weight_shape[2:], strict=True)
    ):
        s, p, d = strides[axis], paddings[axis], dilations[axis]
        if more[axis] >= max(s, d):
            raise ValueError(
                f"output_padding[{axis}] is {more[axis]}, expected less than stride[{axis}] = {s} "
                f"or dilation[{axis}] = {d}"
            )
        # The places of the last input's last kernel element and of what is added, from the first
        # kernel element of the first input on; the padding is cut off at both ends.
        length = (inputs - 1) * s + (kernel - 1) * d + 1 + more[axis] - 2 * p
        if length < 1:
            raise ValueError(
                f"padding[{axis}] is {p}, which leaves {length} outputs on spatial axis {axis} of "
                f"input {input_shape} and weight {weight_shape}, expected at least 1"
            )
        lengths.append(length)
        axes.append(_ConvAxis(inputs, _taps(length, inputs, kernel, s, p, d)))
    return (*input_shape[: -rank - 1], weight_shape[1] * groups, *lengths), axes


def _taps(
    length: int, outputs: int, kernel: int, stride: int, padding: int, dilation: int
) -> list[_Tap]:
    """Every position in the kernel that meets an input; one that only meets padding is left out."""
    taps = []
    for position in range(kernel):
        offset = position * dilation - padding
        met = [o for o in range(outputs) if 0 <= o * stride + offset < length]
        if met:
            first, last = met[0], met[-1]
            inputs = slice(first * stride + offset, last * stride + offset + 1, stride)
            taps.append(_Tap(position, slice(first, last + 1), inputs))
    return taps


def _kernel_elements(axes: list[_ConvAxis]) -> Iterator[tuple[Any, Any, Any]]:
    """Indices of a kernel element, of outputs, and of the inputs it meets there; for each one."""
    for taps in itertools.product(*(axis.taps for axis in axes)):
        positions, outputs, inputs = zip(*taps, strict=True)
        yield (..., *positions), (..., *outputs), (..., *inputs)


# A convolution joins its input, its weight and its output; each is a product of the other two. The
# letters of einsum are n batch, g group, o output and i input channel, xyz space.


def _output_product(
    input: NDArray[np.float64], weight: NDArray[np.float64], axes: list[_ConvAxis]
) -> NDArray[np.float64]:
    result = np.zeros((*input.shape[:2], weight.shape[1], *(axis.outputs for axis in axes)))
    space = "xyz"[: len(axes)]
    product = f"ngi{space},goi->ngo{space}"
    for element, outputs, inputs in _kernel_elements(axes):
        result[outputs] += np.einsum(product, input[inputs], weight[element])
    return result


def _input_product(
    output: NDArray[np.float64],
    weight: NDArray[np.float64],
    lengths: tuple[int, ...],
    axes: list[_ConvAxis],
) -> NDArray[np.float64]:
    result = np.zeros((*output.shape[:2], weight.shape[2], *lengths))
    space = "xyz"[: len(axes)]
    product = f"ngo{space},goi->ngi{space}"
    for element, outputs, inputs in _kernel_elements(axes):
        result[inputs] += np.einsum(product, output[outputs], weight[element])
    return result


def _weight_product(
    output: NDArray[np.float64],
    input: NDArray[np.float64],
    kernel: tuple[int, ...],
    axes: list[_ConvAxis],
) -> NDArray[np.float64]:
    result = np.zeros((input.shape[1], output.shape[2], input.shape[2], *kernel))
    space = "xyz"[: len(axes)]
    product = f"ngo{space},ngi{space}->goi"
    for element, outputs, inputs in _kernel_elements(axes):
        result[element] = np.einsum(product, output[outputs], input[inputs])
    return result


def _grouped(values: NDArray[np.float64], groups: int, rank: int) -> NDArray[np.float64]:
    """`(N, groups, channels of a group, *spatial)`; without a batch, N is 1."""
    channels, *space = values.shape[-rank - 1 :]
    batch = math.prod(values.shape[: -rank - 1])
    return values.reshape(batch, groups, channels // groups, *space)


def _in_groups(weight: NDArray[np.float64], groups: int) -> NDArray[np.float64]:
    """`(groups, output channels of a group, input channels of a group, *kernel)`."""
    return weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])


def _sum_of_channels(grad: NDArray[np.float64]) -> NDArray[np.float64]:
    sums: NDArray[np.float64] = grad.sum(axis=(0, *range(3, grad.ndim)))
    return sums.reshape(-1)


def _with_bias(
    result: NDArray[np.float64], bias: NDArray[np.float64] | None, rank: int
) -> NDArray[np.float64]:
    return result if bias is None else result + bias.reshape(-1, *[1] * rank)


def _forward_operands(
    input: Any, weight: Any, bias: Any, precision: str
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64] | None]:
    """The values of the three; input and weight rounded, the bias not."""
    values, dtype = _values("input", input)
    kernels = _values_in("weight", weight, dtype, "input")
    added = None if bias is None else _values_in("bias", bias, dtype, "input")
    _input_shape(values, len(_weight_shape(kernels)) - 2)
    values, kernels = (_round_inputs(array, dtype, precision) for array in (values, kernels))
    return values, kernels, added


def _check_bias(bias: NDArray[np.float64] | None, channels: int) -> None:
    if bias is not None and bias.shape != (channels,):
        raise ValueError(
            f"bias is {bias.shape}, expected ({channels},), one element per output channel"
        )


def _check_channels(channels: int, weight_shape: tuple[int, ...], groups: int) -> None:
    if groups < 1:
        raise ValueError(f"groups is {groups}, expected at least 1")
    if weight_shape[0] % groups != 0:
        raise ValueError(
            f"weight is {weight_shape}, expected its first size to be a multiple of "
            f"groups = {groups}"
        )
    if channels != weight_shape[1] * groups:
        raise ValueError(
            f"input has {channels} channels, expected {weight_shape[1] * groups} "
            f"(weight {weight_shape} with groups = {groups})"
        )


def _check_transposed_channels(channels: int, weight_shape: tuple[int, ...], groups: int) -> None:
    if groups < 1:
        raise ValueError(f"groups is {groups}, expected at least 1")
    if channels != weight_shape[0]:
        raise ValueError(
            f"input has {channels} channels, expected {weight_shape[0]} (weight {weight_shape})"
        )
    if channels % groups != 0:
        raise ValueError(f"input has {channels} channels, expected a multiple of groups = {groups}")


def _output_shape(
    input_shape: tuple[int, ...], weight_shape: tuple[int, ...], axes: list[_ConvAxis]
) -> tuple[int, ...]:
    batch = input_shape[: -len(axes) - 1]
    return (*batch, weight_shape[0], *(axis.outputs for axis in axes))


def _check_conv_grad_shape(
    got: tuple[int, ...],
    input_shape: tuple[int, ...],
    weight_shape: tuple[int, ...],
    axes: list[_ConvAxis],
) -> None:
    expected = _output_shape(input_shape, weight_shape, axes)
    if got != expected:
        raise ValueError(
            f"grad_output is {got}, but input {input_shape} convolved with weight {weight_shape} "
            f"is {expected}"
        )


def _mask(value: Sequence[bool]) -> tuple[bool, bool, bool]:
    try:
        wanted = tuple(value)
    except TypeError:
        wanted = ()
    if not wanted or not all(isinstance(item, bool | np.bool_) for item in wanted):
        raise TypeError(f"output_mask is {value!r}, expected 3 bools")
    if len(wanted) != 3:
        raise ValueError(f"output_mask is {value!r}, expected 3 bools")
    return bool(wanted[0]), bool(wanted[1]), bool(wanted[2])


def _check_grad_shape(
    got: tuple[int, ...], shape: tuple[int, ...], axes: list[list[_Window]]
) -> None:
    expected = (*shape[: -len(axes)], *(len(windows) for windows in axes))
    if got != expected:
        raise ValueError(f"grad_output is {got}, but input {shape} pools to {expected}")


def _values(argument: str, array: Any) -> tuple[NDArray[np.float64], str]:
    """The elements of an array in float64, and the name of its dtype."""
    if isinstance(array, np.ndarray | np.generic):
        values = np.asarray(array)
    elif hasattr(array, "detach") and hasattr(array, "double"):
        # A PyTorch tensor: NumPy knows neither its bfloat16 nor tensors that require gradients.
        name = str(array.dtype).removeprefix("torch.")
        if name not in _DTYPES:
            raise TypeError(f"{argument} is {name}, expected one of {', '.join(_DTYPES)}")
        if array.device.type != "cpu":
            raise ValueError(f"{argument} is on device {array.device}, expected the CPU")
        return np.asarray(array.detach().double().numpy(), dtype=np.float64), name
    elif hasattr(array, "__array__"):
        values = np.asarray(array)
    elif hasattr(array, "__dlpack__"):
        values = np.from_dlpack(array)
    else:
        raise TypeError(f"{argument} is a {type(array).__name__}, expected an array")
    name = values.dtype.name
    if name not in _DTYPES:
        raise TypeError(f"{argument} is {name}, expected one of {', '.join(_DTYPES)}")
    # A signalling NaN would warn.
    with np.errstate(invalid="ignore"):
        return values.astype(np.float64), name


def _values_in(
    argument: str, array: Any, dtype: str, like: str = "grad_output"
) -> NDArray[np.float64]:
    """The elements, in float64, of an array that must be of that dtype."""
    values, name = _values(argument, array)
    if name != dtype:
        raise TypeError(f"{argument} is {name}, expected {dtype} as {like}")
    return values


def _round_inputs(values: NDArray[np.float64], dtype: str, precision: str) -> NDArray[np.float64]:
    known = list(dict.fromkeys(name for name, _ in _ROUNDING))
    if precision not in known:
        raise ValueError(f"precision is {precision!r}, expected one of {', '.join(known)}")
    rounding = _ROUNDING.get((precision, dtype))
    if rounding is None:
        allowed = ", ".join(name for name in known if (name, dtype) in _ROUNDING)
        raise ValueError(f"precision is {precision!r}, expected one of {allowed} for {dtype}")
    if rounding == "hf32":
        return _round_to_hf32(values)
    if rounding == "float16":
        with np.errstate(over="ignore", under="ignore"):
            return values.astype(np.float16).astype(np.float64)
    return values


def _round_to_hf32(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """float32 values cut to 11 of their 23 mantissa bits, to nearest, ties away from zero."""
    exact = values.astype(np.float32)
    bits = exact.view(np.uint32)
    rounded = ((bits + np.uint32(1 << 11)) & np.uint32(0xFFFFF000)).view(np.float32)
    return np.where(np.isfinite(exact), rounded, exact).astype(np.float64)


def _input_shape(input: Any, rank: int) -> tuple[int, ...]:
    shape = _shape("input", input)
    if len(shape) not in (rank + 1, rank + 2):
        raise ValueError(f"input is {shape}, expected {rank + 1} or {rank + 2} dimensions")
    if min(shape) < 0 or 0 in shape[-rank - 1 :]:
        raise ValueError(f"input is {shape}, expected sizes of at least 1 after the batch size")
    return shape


def _weight_shape(weight: Any) -> tuple[int, ...]:
    shape = _shape("weight", weight)
    if len(shape) not in (3, 4, 5):
        raise ValueError(f"weight is {shape}, expected 3 to 5 dimensions")
    if min(shape) < 1:
        raise ValueError(f"weight is {shape}, expected sizes of at least 1")
    return shape


def _shape(argument: str, value: Any) -> tuple[int, ...]:
    if not hasattr(value, "shape") and hasattr(value, "__dlpack__"):
        value = np.from_dlpack(value)
    try:
        return tuple(operator.index(size) for size in getattr(value, "shape", value))
    except TypeError:
        raise TypeError(f"{argument} is {value!r}, expected an array or a shape") from None


def _per_axis(name: str, value: int | Sequence[int], rank: int, least: int) -> tuple[int, ...]:
    """One int per spatial axis, from an int, a sequence of one, or a sequence of `rank`."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        numbers = tuple(_integer(f"{name}[{axis}]", item) for axis, item in enumerate(value))
        if len(numbers) not in (1, rank):
            lengths = "1 int" if rank == 1 else f"1 or {rank} ints"
            raise ValueError(f"{name} is {numbers}, expected an int or {lengths}")
    else:
        numbers = (_integer(name, value),)
    if len(numbers) == 1:
        numbers *= rank
    for axis, number in enumerate(numbers):
        if number < least:
            raise ValueError(f"{name}[{axis}] is {number}, expected at least {least}")
    return numbers


def _integer(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}, expected an int") from None
