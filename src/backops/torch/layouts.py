"""Memory formats and strides, as PyTorch's own kernels choose them."""

from __future__ import annotations

from typing import Any

import torch

# The axes from the innermost on.
CHANNELS_LAST_ORDER = {4: (1, 3, 2, 0), 5: (1, 4, 3, 2, 0)}
CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def suggested_format(tensor: Any) -> Any:
    """What PyTorch's kernels ask of a tensor before they allocate: its memory format, roughly.

    Unlike `is_contiguous(memory_format=...)` this is one answer, also for tensors that are dense in
    neither format or in both.
    """
    if tensor.is_contiguous() or tensor.dim() not in CHANNELS_LAST_ORDER:
        return torch.contiguous_format
    sizes, strides = tensor.shape, tensor.stride()
    if strides[1] == 0:
        return torch.contiguous_format
    least = 0
    for axis in CHANNELS_LAST_ORDER[tensor.dim()]:
        ambiguous = axis == 0 and least == strides[1]
        if sizes[axis] == 0 or strides[axis] < least or ambiguous:
            return torch.contiguous_format
        least = strides[axis] * max(1, sizes[axis])
    return CHANNELS_LAST[tensor.dim()]


def with_usual_strides(tensor: Any) -> Any:
    """The tensor, or a view of it in which axes of one element have the strides of a new tensor.

    PyTorch's float32 convolution backward was seen to crash on a contiguous weight with others.
    """
    channels_last = CHANNELS_LAST.get(tensor.dim())
    if tensor.is_contiguous():
        order = tuple(range(tensor.dim() - 1, -1, -1))
    elif channels_last is not None and tensor.is_contiguous(memory_format=channels_last):
        order = CHANNELS_LAST_ORDER[tensor.dim()]
    else:
        return tensor
    strides = _dense_strides(tensor.shape, order)
    return tensor if tensor.stride() == strides else tensor.as_strided(tensor.shape, strides)


def _dense_strides(shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1] * len(shape)
    step = 1
    for axis in order:
        strides[axis] = step
        step *= max(1, shape[axis])
    return tuple(strides)
