"""The operators in plain NumPy float64, straight from their definition: slow, and easy to trust.

Each loops over the elements of `grad_output` and adds every one to the inputs it was made from.
Use it to check another implementation; nothing here is shared with the fast one.

>>> import numpy as np
>>> from backops import reference
>>> reference.avg_pool2d_backward(np.ones((1, 1, 2, 2)), (1, 1, 4, 4), 2)[0, 0, 0]
array([0.25, 0.25, 0.25, 0.25])
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "adaptive_avg_pool1d_backward",
    "adaptive_avg_pool2d_backward",
    "adaptive_avg_pool3d_backward",
    "avg_pool1d_backward",
    "avg_pool2d_backward",
    "avg_pool3d_backward",
]

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
    grad, dtype = _values(grad_output)
    grad = _round_inputs(grad, dtype, precision)
    shape = _input_shape(input, rank)
    kernels = _per_axis("kernel_size", kernel_size, rank, least=1)
    if stride is None or (isinstance(stride, Sequence) and len(stride) == 0):
        strides = kernels
    else:
        strides = _per_axis("stride", stride, rank, least=1)
    paddings = _per_axis("padding", padding, rank, least=0)
    divisor = 0 if divisor_override is None else _integer("divisor_override", divisor_override)

    axes = []
    for axis, length in enumerate(shape[-rank:]):
        k, s, p = kernels[axis], strides[axis], paddings[axis]
        if 2 * p > k:
            raise ValueError(
                f"padding[{axis}] is {p}, expected 0 to {k // 2} "
                f"(half of kernel_size[{axis}] = {k})"
            )
        if k > length + 2 * p:
            raise ValueError(
                f"kernel_size[{axis}] is {k}, expected at most {length + 2 * p} "
                f"(input size {length} plus twice padding[{axis}] = {p})"
            )
        axes.append(_fixed_windows(length, k, s, p, ceil_mode, count_include_pad))
    _check_grad_shape(grad.shape, shape, axes)
    return _spread(grad, shape, axes, divisor)


def _adaptive_avg_pool_backward(rank: int, grad_output: Any, input: Any) -> NDArray[np.float64]:
    grad, _ = _values(grad_output)
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


def _check_grad_shape(
    got: tuple[int, ...], shape: tuple[int, ...], axes: list[list[_Window]]
) -> None:
    expected = (*shape[: -len(axes)], *(len(windows) for windows in axes))
    if got != expected:
        raise ValueError(f"grad_output is {got}, but input {shape} pools to {expected}")


def _values(array: Any) -> tuple[NDArray[np.float64], str]:
    """The elements of `grad_output` in float64, and the name of its dtype."""
    if isinstance(array, np.ndarray | np.generic):
        values = np.asarray(array)
    elif hasattr(array, "detach") and hasattr(array, "double"):
        # A PyTorch tensor: NumPy knows neither its bfloat16 nor tensors that require gradients.
        name = str(array.dtype).removeprefix("torch.")
        if name not in _DTYPES:
            raise TypeError(f"grad_output is {name}, expected one of {', '.join(_DTYPES)}")
        if array.device.type != "cpu":
            raise ValueError(f"grad_output is on device {array.device}, expected the CPU")
        return np.asarray(array.detach().double().numpy(), dtype=np.float64), name
    elif hasattr(array, "__array__"):
        values = np.asarray(array)
    elif hasattr(array, "__dlpack__"):
        values = np.from_dlpack(array)
    else:
        raise TypeError(f"grad_output is a {type(array).__name__}, expected an array")
    name = values.dtype.name
    if name not in _DTYPES:
        raise TypeError(f"grad_output is {name}, expected one of {', '.join(_DTYPES)}")
    # A signalling NaN would warn.
    with np.errstate(invalid="ignore"):
        return values.astype(np.float64), name


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
    sizes = getattr(input, "shape", input)
    try:
        shape = tuple(operator.index(size) for size in sizes)
    except TypeError:
        raise TypeError(f"input is {input!r}, expected an array or a shape") from None
    if len(shape) not in (rank + 1, rank + 2):
        raise ValueError(f"input is {shape}, expected {rank + 1} or {rank + 2} dimensions")
    if min(shape) < 0 or 0 in shape[-rank - 1 :]:
        raise ValueError(f"input is {shape}, expected sizes of at least 1 after the batch size")
    return shape


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
