"""The operator functions. Each makes a plan, or finds it in a bounded cache, and runs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from backops import _native

Axes: TypeAlias = int | Sequence[int]
OutputSize: TypeAlias = int | Sequence[int | None] | None

# Arrays are typed as Any: NumPy, PyTorch, JAX and every other library that speaks DLPack.


def avg_pool1d(
    input: Any,
    kernel_size: Axes,
    stride: Axes | None = None,
    padding: Axes = 0,
    *,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    precision: str = "keep",
    out: Any = None,
) -> Any:
    """1-D average pooling.

    >>> import numpy as np, backops
    >>> backops.avg_pool1d(np.array([[[1, 3, 5, 7]]], np.float32), 2)
    array([[[2., 6.]]], dtype=float32)

    Arguments, result and errors are those of :func:`avg_pool2d`, for one axis.
    """
    return _native.avg_pool(
        "avg_pool1d", 1, input, kernel_size, stride, padding,
        ceil_mode, count_include_pad, divisor_override, precision, out,
    )  # fmt: skip


def avg_pool2d(
    input: Any,
    kernel_size: Axes,
    stride: Axes | None = None,
    padding: Axes = 0,
    *,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    precision: str = "keep",
    out: Any = None,
) -> Any:
    """2-D average pooling.

    >>> import numpy as np, backops
    >>> backops.avg_pool2d(np.arange(16, dtype=np.float32).reshape(1, 4, 4), 2)
    array([[[ 2.5,  4.5],
            [10.5, 12.5]]], dtype=float32)

    Arguments:
        input: ``(N, C, H, W)``, or without ``N``. A NumPy, PyTorch or JAX array, or any other that
            speaks DLPack, on the CPU; any strides; float16, bfloat16, float32 or float64.
        kernel_size: the window; an int, or a sequence of one or two ints.
        stride: from window to window; None or ``()`` means ``kernel_size``.
        padding: zeros on both sides of each axis, at most half of ``kernel_size``.
        ceil_mode: whether a last window that does not fit the padded input counts.
        count_include_pad: whether the divisor counts padding.
        divisor_override: what to divide by instead of the number of elements; None or 0: nothing
            else.
        precision: what a float32 ``input`` is rounded to first: "keep" (nothing), "fp16", "hf32",
            or "allow_fp32_down" (HF32 for float32, nothing for others).
        out: an array to write to and return, of any strides, instead of a new one. It must not
            share memory with ``input``.

    Returns the averages, in the array type and dtype of ``input``; channels-last where a dense
    ``input`` is.

    Raises DTypeError, ShapeError, ParamError or LayoutError before anything is written.
    """
    return _native.avg_pool(
        "avg_pool2d", 2, input, kernel_size, stride, padding,
        ceil_mode, count_include_pad, divisor_override, precision, out,
    )  # fmt: skip


def avg_pool3d(
    input: Any,
    kernel_size: Axes,
    stride: Axes | None = None,
    padding: Axes = 0,
    *,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    precision: str = "keep",
    out: Any = None,
) -> Any:
    """3-D average pooling.

    >>> import numpy as np, backops
    >>> backops.avg_pool3d(np.arange(8.0).reshape(1, 2, 2, 2), 2)
    array([[[[3.5]]]])

    Arguments, result and errors are those of :func:`avg_pool2d`, for three axes.
    """
    return _native.avg_pool(
        "avg_pool3d", 3, input, kernel_size, stride, padding,
        ceil_mode, count_include_pad, divisor_override, precision, out,
    )  # fmt: skip


def adaptive_avg_pool1d(input: Any, output_size: OutputSize, *, out: Any = None) -> Any:
    """1-D adaptive average pooling: as many windows as there are outputs, over all of the input.

    >>> import numpy as np, backops
    >>> backops.adaptive_avg_pool1d(np.array([[[1.0, 3.0, 5.0]]]), 2)
    array([[[2., 4.]]])

    Arguments, result and errors are those of :func:`adaptive_avg_pool2d`, for one axis.
    """
    return _native.adaptive_avg_pool("adaptive_avg_pool1d", 1, input, output_size, out)


def adaptive_avg_pool2d(input: Any, output_size: OutputSize, *, out: Any = None) -> Any:
    """2-D adaptive average pooling: as many windows as there are outputs, over all of the input.

    >>> import numpy as np, backops
    >>> backops.adaptive_avg_pool2d(np.arange(8.0).reshape(1, 2, 4), (None, 2))
    array([[[0.5, 2.5],
            [4.5, 6.5]]])

    Arguments:
        input: ``(N, C, H, W)``, or without ``N``. A NumPy, PyTorch or JAX array, or any other that
            speaks DLPack, on the CPU; any strides; float16, bfloat16, float32 or float64.
        output_size: an int for both axes, or a sequence of one or two; None keeps a size.
        out: an array to write to and return, of any strides, instead of a new one. It must not
            share memory with ``input``.

    Returns the averages, in the array type and dtype of ``input``; channels-last where a dense
    ``input`` is.

    Raises DTypeError, ShapeError, ParamError or LayoutError before anything is written.
    """
    return _native.adaptive_avg_pool("adaptive_avg_pool2d", 2, input, output_size, out)


def adaptive_avg_pool3d(input: Any, output_size: OutputSize, *, out: Any = None) -> Any:
    """3-D adaptive average pooling: as many windows as there are outputs, over all of the input.

    >>> import numpy as np, backops
    >>> backops.adaptive_avg_pool3d(np.arange(8.0).reshape(1, 2, 2, 2), 1)
    array([[[[3.5]]]])

    Arguments, result and errors are those of :func:`adaptive_avg_pool2d`, for three axes.
    """
    return _native.adaptive_avg_pool("adaptive_avg_pool3d", 3, input, output_size, out)


def avg_pool1d_backward(
    grad_output: Any,
    input: Any,
    kernel_size: Axes,
    stride: Axes | None = None,
    padding: Axes = 0,
    *,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    precision: str = "keep",
    out: Any = None,
) -> Any:
    """Gradient of 1-D average pooling with respect to its input.

    >>> import numpy as np, backops
    >>> backops.avg_pool1d_backward(np.ones((1, 1, 2), np.float32), (1, 1, 4), 2)[0, 0]
    array([0.5, 0.5, 0.5, 0.5], dtype=float32)

    Arguments, result and errors are those of :func:`avg_pool2d_backward`, for one axis.
    """
    return _native.avg_pool_backward(
        "avg_pool1d_backward", 1, grad_output, input, kernel_size, stride, padding,
        ceil_mode, count_include_pad, divisor_override, precision, out,
    )  # fmt: skip


def avg_pool2d_backward(
    grad_output: Any,
    input: Any,
    kernel_size: Axes,
    stride: Axes | None = None,
    padding: Axes = 0,
    *,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    precision: str = "keep",
    out: Any = None,
) -> Any:
    """Gradient of 2-D average pooling with respect to its input.

    >>> import numpy as np, backops
    >>> backops.avg_pool2d_backward(np.ones((1, 1, 2, 2), np.float32), (1, 1, 4, 4), 2)[0, 0, 0]
    array([0.25, 0.25, 0.25, 0.25], dtype=float32)

    Arguments:
        grad_output: gradient of the pooled tensor, ``(N, C, H_out, W_out)`` or without ``N``. A
            NumPy, PyTorch or JAX array, or any other that speaks DLPack, on the CPU; any strides;
            float16, bfloat16, float32 or float64.
        input: the forward input, or its shape: nothing else of it is used.
        kernel_size, stride, padding: an int, or a sequence of one or two ints, in elements.
            ``stride=None`` means ``kernel_size``; padding is at most half of the kernel.
        ceil_mode: round the output size up, so that a last, shorter window may be there.
        count_include_pad: padding counts in the divisor of the windows it reaches into.
        divisor_override: divide every window by this instead of its size; None or 0: do not.
        precision: what float32 operands are rounded to first: "keep" (nothing), "fp16", "hf32",
            or "allow_fp32_down" (HF32 for float32, nothing for others).
        out: an array to write to and return, of any strides, instead of a new one. It must not
            share memory with ``grad_output``.

    Returns the gradient, in the array type and dtype of ``grad_output``.

    Raises DTypeError, ShapeError, ParamError or LayoutError before anything is written.
    """
    return _native.avg_pool_backward(
        "avg_pool2d_backward", 2, grad_output, input, kernel_size, stride, padding,
        ceil_mode, count_include_pad, divisor_override, precision, out,
    )  # fmt: skip


def avg_pool3d_backward(
    grad_output: Any,
    input: Any,
    kernel_size: Axes,
    stride: Axes | None = None,
    padding: Axes = 0,
    *,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    precision: str = "keep",
    out: Any = None,
) -> Any:
    """Gradient of 3-D average pooling with respect to its input.

    >>> import numpy as np, backops
    >>> grad_output = np.ones((1, 1, 1, 1, 2), np.float32)
    >>> backops.avg_pool3d_backward(grad_output, (1, 1, 2, 2, 4), 2)[0, 0, 0, 0]
    array([0.125, 0.125, 0.125, 0.125], dtype=float32)

    Arguments, result and errors are those of :func:`avg_pool2d_backward`, for three axes.
    """
    return _native.avg_pool_backward(
        "avg_pool3d_backward", 3, grad_output, input, kernel_size, stride, padding,
        ceil_mode, count_include_pad, divisor_override, precision, out,
    )  # fmt: skip


def adaptive_avg_pool1d_backward(grad_output: Any, input: Any, *, out: Any = None) -> Any:
    """Gradient of 1-D adaptive average pooling with respect to its input.

    >>> import numpy as np, backops
    >>> backops.adaptive_avg_pool1d_backward(np.ones((1, 1, 2)), (1, 1, 4))[0, 0]
    array([0.5, 0.5, 0.5, 0.5])

    Arguments, result and errors are those of :func:`adaptive_avg_pool2d_backward`, for one axis.
    """
    return _native.adaptive_avg_pool_backward(
        "adaptive_avg_pool1d_backward", 1, grad_output, input, out
    )


def adaptive_avg_pool2d_backward(grad_output: Any, input: Any, *, out: Any = None) -> Any:
    """Gradient of 2-D adaptive average pooling with respect to its input.

    >>> import numpy as np, backops
    >>> backops.adaptive_avg_pool2d_backward(np.ones((1, 1, 1, 2)), (1, 1, 2, 4))[0, 0, 0]
    array([0.25, 0.25, 0.25, 0.25])

    Arguments:
        grad_output: gradient of the pooled tensor, ``(N, C, H_out, W_out)`` or without ``N``; its
            sizes are the output sizes of the forward operator.
        input: the forward input, or its shape: nothing else of it is used.
        out: an array to write to and return, of any strides, instead of a new one. It must not
            share memory with ``grad_output``.

    Returns the gradient, in the array type and dtype of ``grad_output``.

    Raises DTypeError, ShapeError or LayoutError before anything is written.
    """
    return _native.adaptive_avg_pool_backward(
        "adaptive_avg_pool2d_backward", 2, grad_output, input, out
    )


def adaptive_avg_pool3d_backward(grad_output: Any, input: Any, *, out: Any = None) -> Any:
    """Gradient of 3-D adaptive average pooling with respect to its input.

    >>> import numpy as np, backops
    >>> backops.adaptive_avg_pool3d_backward(np.ones((1, 1, 1, 1, 2)), (1, 1, 2, 2, 4))[0, 0, 0, 0]
    array([0.125, 0.125, 0.125, 0.125])

    Arguments, result and errors are those of :func:`adaptive_avg_pool2d_backward`, for three axes.
    """
    return _native.adaptive_avg_pool_backward(
        "adaptive_avg_pool3d_backward", 3, grad_output, input, out
    )


def conv(
    input: Any,
    weight: Any,
    bias: Any = None,
    *,
    stride: Axes = 1,
    padding: Axes = 0,
    dilation: Axes = 1,
    groups: int = 1,
    precision: str = "keep",
    out: Any = None,
) -> Any:
    """Convolution with one to three spatial axes; as in every framework, kernels are not flipped.

    >>> import numpy as np, backops
    >>> x = np.arange(4, dtype=np.float32).reshape(1, 1, 4)
    >>> w = np.array([[[1, 10]]], np.float32)
    >>> backops.conv(x, w, np.array([100], np.float32))[0, 0]
    array([110., 121., 132.], dtype=float32)

    Arguments:
        input: ``(N, C_in, *spatial)`` or without ``N``. A NumPy, PyTorch or JAX array, or any
            other that speaks DLPack, on the CPU; any strides; float16, bfloat16, float32 or
            float64.
        weight: ``(C_out, C_in / groups, *kernel)``.
        bias: ``(C_out,)``, added before the result is rounded; None adds nothing.
        stride, padding, dilation: an int, or a sequence of one int or one per spatial axis.
        groups: into how many independent convolutions the channels are divided.
        precision: what float32 ``input`` and ``weight`` are rounded to first: "keep" (nothing),
            "fp16", "hf32", or "allow_fp32_down" (HF32 for float32, nothing for others).
        out: an array to write to and return, of any strides, instead of a new one. It must not
            share memory with the operands.

    Returns the result, in the array type and dtype of ``input``.

    Raises DTypeError, ShapeError, ParamError or LayoutError before anything is written.
    """
    return _native.conv(input, weight, bias, stride, padding, dilation, groups, precision, out)


def conv_backward(
    grad_output: Any,
    input: Any,
    weight: Any,
    *,
    stride: Axes = 1,
    padding: Axes = 0,
    dilation: Axes = 1,
    groups: int = 1,
    output_mask: Sequence[bool] = (True, True, True),
    precision: str = "keep",
    out: Sequence[Any] | None = None,
) -> tuple[Any, Any, Any]:
    """Gradients of a convolution with respect to its input, weight and bias.

    >>> import numpy as np, backops
    >>> x = np.arange(4, dtype=np.float32).reshape(1, 1, 4)
    >>> w = np.array([[[1, 10]]], np.float32)
    >>> grad_x, grad_w, grad_b = backops.conv_backward(np.ones((1, 1, 3), np.float32), x, w)
    >>> grad_x[0, 0], grad_w[0, 0], grad_b
    (array([ 1., 11., 11., 10.], dtype=float32), array([3., 6.], dtype=float32), \
array([3.], dtype=float32))

    Arguments:
        grad_output: gradient of the convolution's result, ``(N, C_out, *spatial)`` or without
            ``N``; one to three spatial axes. A NumPy, PyTorch or JAX array, or any other that
            speaks DLPack, on the CPU; any strides; float16, bfloat16, float32 or float64.
        input: the forward input; its shape will do where no weight gradient is asked for.
        weight: ``(C_out, C_in / groups, *kernel)``; its shape will do where no input gradient is
            asked for.
        stride, padding, dilation: an int, or a sequence of one int or one per spatial axis.
        groups: into how many independent convolutions the channels are divided.
        output_mask: which of the three gradients to compute; the others come back as None.
        precision: what float32 operands are rounded to first: "keep" (nothing), "fp16", "hf32",
            or "allow_fp32_down" (HF32 for float32, nothing for others).
        out: three arrays to write to and return, None where a new one is wanted. They must share
            memory neither with the operands nor with each other.

    Returns (grad_input, grad_weight, grad_bias), in the array type and dtype of ``grad_output``.

    Raises DTypeError, ShapeError, ParamError or LayoutError before anything is written.
    """
    return _native.conv_backward(
        grad_output, input, weight, stride, padding, dilation, groups, output_mask, precision, out
    )


def conv_transpose(
    input: Any,
    weight: Any,
    bias: Any = None,
    *,
    stride: Axes = 1,
    padding: Axes = 0,
    output_padding: Axes = 0,
    dilation: Axes = 1,
    groups: int = 1,
    precision: str = "keep",
    out: Any = None,
) -> Any:
    """Transposed convolution: each input adds its kernel to the result.

    >>> import numpy as np, backops
    >>> x = np.arange(1, 4, dtype=np.float32).reshape(1, 1, 3)
    >>> w = np.array([[[1, 10]]], np.float32)
    >>> backops.conv_transpose(x, w)[0, 0], backops.conv_transpose(x, w, stride=2)[0, 0]
    (array([ 1., 12., 23., 30.], dtype=float32), \
array([ 1., 10.,  2., 20.,  3., 30.], dtype=float32))

    An axis of ``in`` elements becomes one of ``(in - 1) * stride - 2 * padding + dilation *
    (kernel - 1) + output_padding + 1``.

    Arguments:
        weight: ``(C_in, C_out / groups, *kernel)``.
        stride: distance of the kernels of neighbouring inputs.
        padding: elements that are left off at both ends of an axis.
        output_padding: elements that are added at the end of an axis, fewer than the stride or the
            dilation, whichever is larger.

    The others, result and errors are those of :func:`conv`.
    """
    return _native.conv_transpose(
        input, weight, bias, stride, padding, output_padding, dilation, groups, precision, out
    )


def conv_transpose_backward(
    grad_output: Any,
    input: Any,
    weight: Any,
    *,
    stride: Axes = 1,
    padding: Axes = 0,
    output_padding: Axes = 0,
    dilation: Axes = 1,
    groups: int = 1,
    output_mask: Sequence[bool] = (True, True, True),
    precision: str = "keep",
    out: Sequence[Any] | None = None,
) -> tuple[Any, Any, Any]:
    """Gradients of a transposed convolution with respect to its input, weight and bias.

    >>> import numpy as np, backops
    >>> x = np.arange(1, 4, dtype=np.float32).reshape(1, 1, 3)
    >>> w = np.array([[[1, 10]]], np.float32)
    >>> grad_x, grad_w, grad_b = backops.conv_transpose_backward(
    ...     np.ones((1, 1, 4), np.float32), x, w
    ... )
    >>> grad_x[0, 0], grad_w[0, 0], grad_b
    (array([11., 11., 11.], dtype=float32), array([6., 6.], dtype=float32), \
array([4.], dtype=float32))

    Arguments are those of :func:`conv_transpose` and of :func:`conv_backward`: ``input`` may be a
    shape where no weight gradient is asked for, ``weight`` where no input gradient is. Result and
    errors are those of :func:`conv_backward`.
    """
    return _native.conv_transpose_backward(
        grad_output, input, weight, stride, padding, output_padding, dilation, groups, output_mask,
        precision, out,
    )  # fmt: skip
