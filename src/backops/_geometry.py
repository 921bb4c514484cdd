"""Numbers per axis, windows, and the shape of a result: what follows from shapes and parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from backops import reference
from backops._files import Shape

Given = Mapping[str, Any]
Windows = list[list[reference._Window]]


def pool_numbers(rank: int, given: Given) -> tuple[Shape, Shape, Shape]:
    """Kernel size, stride and padding of a fixed pool, one per spatial axis."""
    kernels = reference._per_axis("kernel_size", given["kernel_size"], rank, least=1)
    strides = kernels
    if given.get("stride") not in (None, ()):
        strides = reference._per_axis("stride", given["stride"], rank, least=1)
    return kernels, strides, reference._per_axis("padding", given.get("padding", 0), rank, least=0)


def conv_numbers(rank: int, given: Given) -> tuple[Shape, Shape, Shape]:
    """Stride, padding and dilation, one per spatial axis."""
    return (
        reference._per_axis("stride", given.get("stride", 1), rank, least=1),
        reference._per_axis("padding", given.get("padding", 0), rank, least=0),
        reference._per_axis("dilation", given.get("dilation", 1), rank, least=1),
    )


def output_padding(rank: int, given: Given) -> Shape:
    return reference._per_axis("output_padding", given.get("output_padding", 0), rank, least=0)


def fixed_windows(rank: int, input_shape: Shape, given: Given) -> Windows:
    """The windows of every output along each spatial axis."""
    return reference._pool_axes(
        input_shape,
        rank,
        *pool_numbers(rank, given),
        given.get("ceil_mode", False),
        given.get("count_include_pad", True),
    )


def adaptive_windows(rank: int, input_shape: Shape, outputs: Shape) -> Windows:
    pairs = zip(input_shape[-rank:], outputs, strict=True)
    return [reference._adaptive_windows(size, count) for size, count in pairs]


def adaptive_outputs(rank: int, input_shape: Shape, output_size: Any) -> Shape:
    """One size for all axes or one each; None keeps a size."""
    sizes = tuple(output_size) if isinstance(output_size, Sequence) else (output_size,)
    if len(sizes) not in (1, rank):
        raise ValueError(f"output_size is {output_size}, expected one size or {rank}")
    sizes = sizes * rank if len(sizes) == 1 else sizes
    pairs = zip(input_shape[-rank:], sizes, strict=True)
    kept = [length if size is None else size for length, size in pairs]
    return reference._per_axis("output_size", kept, rank, least=1)


def pooled_shape(rank: int, input_shape: Shape, given: Given) -> Shape:
    """Of the pooled tensor; `output_size` is given for adaptive pooling."""
    leading = input_shape[:-rank]
    if "output_size" in given:
        return (*leading, *adaptive_outputs(rank, input_shape, given["output_size"]))
    return (*leading, *(len(windows) for windows in fixed_windows(rank, input_shape, given)))


def convolved_shape(
    input_shape: Shape, weight_shape: Shape, given: Given, *, transposed: bool
) -> Shape:
    rank = len(weight_shape) - 2
    groups = given.get("groups", 1)
    channels = input_shape[-rank - 1]
    stride, padding, dilation = conv_numbers(rank, given)
    if transposed:
        reference._check_transposed_channels(channels, weight_shape, groups)
        more = output_padding(rank, given)
        shape, _ = reference._transposed_axes(
            input_shape, weight_shape, groups, stride, padding, more, dilation
        )
        return shape
    reference._check_channels(channels, weight_shape, groups)
    axes = reference._conv_axes(input_shape, weight_shape, stride, padding, dilation)
    return reference._output_shape(input_shape, weight_shape, axes)
