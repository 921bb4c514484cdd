"""The operators on dask arrays: lazily, chunk by chunk, for arrays that fit no memory.

>>> import dask.array as da
>>> import backops.dask
>>> grad_output = da.ones((1, 1, 2, 2), chunks=1, dtype="float32")
>>> grad_input = backops.dask.avg_pool2d_backward(grad_output, (1, 1, 4, 4), 2)
>>> grad_input.chunks[2:]
((2, 2), (2, 2))
>>> grad_input.compute()[0, 0, 0]
array([0.25, 0.25, 0.25, 0.25], dtype=float32)

The functions have the names and the arguments of :mod:`backops`, but for ``out``. A gradient is cut
as the array it belongs to; where that is a shape, and in forward operators, as goes with the
operand's chunks; ``chunks`` says otherwise. A task holds its chunk and what it needs of the
neighbours, and runs on one thread. Wrong arguments raise here, before anything is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

try:
    import dask.array  # noqa: F401
except ImportError as missing:
    raise ImportError("backops.dask needs Dask: pip install 'backops[dask]'") from missing

from backops._ops import Axes, OutputSize
from backops.dask import _calls
from backops.dask._estimate import Estimate, Machine, estimate
from backops.dask._zarr import from_zarr

__all__ = [
    "Estimate",
    "Machine",
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
    "estimate",
    "from_zarr",
]


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
    chunks: Any = None,
) -> Any:
    """1-D average pooling.

    >>> backops.dask.avg_pool1d(da.ones((1, 1, 4), chunks=1), 2).compute()[0, 0]
    array([1., 1.])

    Arguments, result and errors are those of :func:`avg_pool2d`, for one axis.
    """
    return _calls.fixed(
        "avg_pool1d", 1, input,
        (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override),
        precision, chunks,
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
    chunks: Any = None,
) -> Any:
    """2-D average pooling.

    >>> backops.dask.avg_pool2d(da.ones((1, 1, 2, 4), chunks=1), 2).compute()[0, 0]
    array([[1., 1.]])

    Arguments:
        input: ``(N, C, H, W)`` or without ``N``: a dask array with any chunks; float16, bfloat16,
            float32 or float64.
        chunks: chunks of the result, as :mod:`dask.array` takes them; by default each chunk of
            ``input`` becomes one.

    The other arguments are those of :func:`backops.avg_pool2d`.
    """
    return _calls.fixed(
        "avg_pool2d", 2, input,
        (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override),
        precision, chunks,
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
    chunks: Any = None,
) -> Any:
    """3-D average pooling.

    >>> backops.dask.avg_pool3d(da.ones((1, 1, 2, 2, 4), chunks=1), 2).compute()[0, 0]
    array([[[1., 1.]]])

    Arguments, result and errors are those of :func:`avg_pool2d`, for three axes.
    """
    return _calls.fixed(
        "avg_pool3d", 3, input,
        (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override),
        precision, chunks,
    )  # fmt: skip


def adaptive_avg_pool1d(input: Any, output_size: OutputSize, *, chunks: Any = None) -> Any:
    """1-D adaptive average pooling.

    >>> x = da.ones((1, 1, 4), chunks=1)
    >>> backops.dask.adaptive_avg_pool1d(x, 2).compute()[0, 0]
    array([1., 1.])

    Arguments, result and errors are those of :func:`adaptive_avg_pool2d`, for one axis.
    """
    return _calls.adaptive("adaptive_avg_pool1d", 1, input, output_size, chunks)


def adaptive_avg_pool2d(input: Any, output_size: OutputSize, *, chunks: Any = None) -> Any:
    """2-D adaptive average pooling.

    >>> x = da.ones((1, 1, 2, 4), chunks=1)
    >>> backops.dask.adaptive_avg_pool2d(x, (1, 2)).compute()[0, 0]
    array([[1., 1.]])

    Arguments:
        input: a dask array with any chunks.
        output_size: an int, or one for each axis; None keeps the size of the input.
        chunks: chunks of the result, as :mod:`dask.array` takes them.

    Windows may lie across any number of chunks: each chunk is summed where it is.
    """
    return _calls.adaptive("adaptive_avg_pool2d", 2, input, output_size, chunks)


def adaptive_avg_pool3d(input: Any, output_size: OutputSize, *, chunks: Any = None) -> Any:
    """3-D adaptive average pooling.

    >>> x = da.ones((1, 1, 2, 2, 4), chunks=1)
    >>> backops.dask.adaptive_avg_pool3d(x, (1, 1, 2)).compute()[0, 0]
    array([[[1., 1.]]])

    Arguments, result and errors are those of :func:`adaptive_avg_pool2d`, for three axes.
    """
    return _calls.adaptive("adaptive_avg_pool3d", 3, input, output_size, chunks)


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
    chunks: Any = None,
) -> Any:
    """Gradient of 1-D average pooling with respect to its input.

    >>> grad_output = da.ones((1, 1, 2), chunks=1)
    >>> backops.dask.avg_pool1d_backward(grad_output, (1, 1, 4), 2).compute()[0, 0]
    array([0.5, 0.5, 0.5, 0.5])

    Arguments, result and errors are those of :func:`avg_pool2d_backward`, for one axis.
    """
    return _calls.fixed_backward(
        "avg_pool1d_backward", 1, grad_output, input,
        (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override),
        precision, chunks,
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
    chunks: Any = None,
) -> Any:
    """Gradient of 2-D average pooling with respect to its input.

    >>> grad_output = da.ones((1, 1, 2, 2), chunks=1)
    >>> backops.dask.avg_pool2d_backward(grad_output, (1, 1, 4, 4), 2).compute()[0, 0, 0]
    array([0.25, 0.25, 0.25, 0.25])

    Arguments:
        grad_output: gradient of the pooled array, ``(N, C, H_out, W_out)`` or without ``N``: a dask
            array with any chunks; float16, bfloat16, float32 or float64.
        input: the forward input, whose chunks the result then has, or its shape.
        chunks: chunks of the result, as :mod:`dask.array` takes them.

    The other arguments are those of :func:`backops.avg_pool2d_backward`.

    Returns the gradient, a dask array.

    Raises DTypeError, ShapeError, ParamError or LayoutError of :mod:`backops`.
    """
    return _calls.fixed_backward(
        "avg_pool2d_backward", 2, grad_output, input,
        (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override),
        precision, chunks,
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
    chunks: Any = None,
) -> Any:
    """Gradient of 3-D average pooling with respect to its input.

    >>> grad_output = da.ones((1, 1, 1, 1, 2), chunks=1)
    >>> backops.dask.avg_pool3d_backward(grad_output, (1, 1, 2, 2, 4), 2).compute()[0, 0, 0, 0]
    array([0.125, 0.125, 0.125, 0.125])

    Arguments, result and errors are those of :func:`avg_pool2d_backward`, for three axes.
    """
    return _calls.fixed_backward(
        "avg_pool3d_backward", 3, grad_output, input,
        (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override),
        precision, chunks,
    )  # fmt: skip


def adaptive_avg_pool1d_backward(grad_output: Any, input: Any, *, chunks: Any = None) -> Any:
    """Gradient of 1-D adaptive average pooling with respect to its input.

    >>> grad_output = da.ones((1, 1, 2), chunks=1)
    >>> backops.dask.adaptive_avg_pool1d_backward(grad_output, (1, 1, 4)).compute()[0, 0]
    array([0.5, 0.5, 0.5, 0.5])

    Arguments, result and errors are those of :func:`adaptive_avg_pool2d_backward`, for one axis.
    """
    return _calls.adaptive_backward("adaptive_avg_pool1d_backward", 1, grad_output, input, chunks)


def adaptive_avg_pool2d_backward(grad_output: Any, input: Any, *, chunks: Any = None) -> Any:
    """Gradient of 2-D adaptive average pooling with respect to its input.

    >>> grad_output = da.ones((1, 1, 1, 2), chunks=1)
    >>> backops.dask.adaptive_avg_pool2d_backward(grad_output, (1, 1, 2, 4)).compute()[0, 0, 0]
    array([0.25, 0.25, 0.25, 0.25])

    Arguments:
        grad_output: gradient of the pooled array, a dask array; its sizes are the output sizes of
            the forward operator.
        input: the forward input, whose chunks the result then has, or its shape.
        chunks: chunks of the result, as :mod:`dask.array` takes them.

    Windows may lie across any number of chunks.
    """
    return _calls.adaptive_backward("adaptive_avg_pool2d_backward", 2, grad_output, input, chunks)


def adaptive_avg_pool3d_backward(grad_output: Any, input: Any, *, chunks: Any = None) -> Any:
    """Gradient of 3-D adaptive average pooling with respect to its input.

    >>> grad_output = da.ones((1, 1, 1, 1, 2), chunks=1)
    >>> backops.dask.adaptive_avg_pool3d_backward(grad_output, (1, 1, 2, 2, 4)).compute()[0, 0, 0]
    array([[0.125, 0.125, 0.125, 0.125],
           [0.125, 0.125, 0.125, 0.125]])

    Arguments, result and errors are those of :func:`adaptive_avg_pool2d_backward`, for three axes.
    """
    return _calls.adaptive_backward("adaptive_avg_pool3d_backward", 3, grad_output, input, chunks)


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
    chunks: Any = None,
) -> tuple[Any, Any, Any]:
    """Gradients of a convolution with respect to its input, weight and bias.

    >>> x = da.arange(4, chunks=2, dtype="float32").reshape(1, 1, 4)
    >>> w = np.array([[[1, 10]]], np.float32)
    >>> grad_output = da.ones((1, 1, 3), chunks=2, dtype="float32")
    >>> grad_x, grad_w, grad_b = backops.dask.conv_backward(grad_output, x, w)
    >>> grad_x.compute()[0, 0], grad_w.compute()[0, 0]
    (array([ 1., 11., 11., 10.], dtype=float32), array([3., 6.], dtype=float32))

    Arguments:
        grad_output: gradient of the convolution's result, a dask array with any chunks.
        input: the forward input, a dask array; its shape will do where no weight gradient is asked
            for.
        weight: a NumPy array, or a dask array of one chunk; its shape will do where no input
            gradient is asked for.
        chunks: chunks of the input gradient; those of ``input`` if None. The other gradients are
            one chunk each.

    The other arguments are those of :func:`backops.conv_backward`.

    Returns three dask arrays, None where the mask says so. Weight and bias gradients are sums over
    all chunks, in float32 for the half types and rounded once, in an order that only the chunks
    decide: their bits are the same wherever they are computed.

    Raises DTypeError, ShapeError, ParamError or LayoutError of :mod:`backops`.
    """
    return _calls.conv_backward(
        "conv_backward", grad_output, input, weight, (stride, padding, dilation, groups),
        output_mask, precision, chunks,
    )  # fmt: skip


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
    chunks: Any = None,
) -> Any:
    """Convolution with one to three spatial axes.

    >>> x = da.arange(4, chunks=2, dtype="float32").reshape(1, 1, 4)
    >>> backops.dask.conv(x, np.array([[[1, 10]]], np.float32)).compute()[0, 0]
    array([10., 21., 32.], dtype=float32)

    Arguments:
        input: a dask array with any chunks. Where its channels are cut, each chunk of them adds a
            term to the result, in float32 for the half types; the sum is rounded once.
        weight, bias: NumPy arrays, or dask arrays of one chunk.
        chunks: chunks of the result; by default each chunk of ``input`` becomes one.

    The other arguments are those of :func:`backops.conv`.
    """
    return _calls.conv(
        "conv", input, weight, bias, (stride, padding, dilation, groups), precision, chunks
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
    chunks: Any = None,
) -> Any:
    """Transposed convolution: each input adds its kernel to the result.

    >>> x = da.arange(1, 4, chunks=2, dtype="float32").reshape(1, 1, 3)
    >>> backops.dask.conv_transpose(x, np.array([[[1, 10]]], np.float32)).compute()[0, 0]
    array([ 1., 12., 23., 30.], dtype=float32)

    Arguments are those of :func:`conv` and :func:`backops.conv_transpose`.
    """
    return _calls.conv(
        "conv_transpose", input, weight, bias,
        (stride, padding, output_padding, dilation, groups), precision, chunks,
    )  # fmt: skip


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
    chunks: Any = None,
) -> tuple[Any, Any, Any]:
    """Gradients of a transposed convolution with respect to its input, weight and bias.

    >>> x = da.arange(1, 4, chunks=2, dtype="float32").reshape(1, 1, 3)
    >>> grad_output = da.ones((1, 1, 4), chunks=2, dtype="float32")
    >>> w = np.array([[[1, 10]]], np.float32)
    >>> grad_x, grad_w, grad_b = backops.dask.conv_transpose_backward(grad_output, x, w)
    >>> grad_x.compute()[0, 0], grad_w.compute()[0, 0]
    (array([11., 11., 11.], dtype=float32), array([6., 6.], dtype=float32))

    Arguments and results are those of :func:`conv_backward`, and ``output_padding``.
    """
    return _calls.conv_backward(
        "conv_transpose_backward", grad_output, input, weight,
        (stride, padding, output_padding, dilation, groups), output_mask, precision, chunks,
    )  # fmt: skip
