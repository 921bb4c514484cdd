"""Memory formats and strides, as PyTorch's own kernels choose them."""

from __future__ import annotations

from typing import Any

import torch

# The axes from the innermost on.
CHANNELS_LAST_ORDER = {4: (1, 3, 2, 0), 5: (1, 4, 3, 2, 0)}
CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}

# What PyTorch asks itself at each convolution: who computes it, and in which memory format.
Backend = torch._C._ConvBackend
select_backend = torch._C._select_conv_backend
backend_format = torch._C._conv_determine_backend_memory_format
# By number of axes: a backend that takes channels-last whenever input or weight suggest it.
FOLLOWS_SUGGESTIONS = {4: Backend.Slow2d, 5: Backend.Mkldnn}


def suggested_format(tensor: Any) -> Any:
    """What PyTorch's kernels ask of a tensor before they allocate: its memory format, roughly.

    Unlike `is_contiguous(memory_format=...)` this is one answer, also for tensors that are dense in
    neither format or in both.
    """
    return _suggested(tensor.shape, tensor.stride())


def _suggested(sizes: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    order = CHANNELS_LAST_ORDER.get(len(sizes))
    if order is None:
        return torch.contiguous_format
    if strides[1] == 0:
        return torch.contiguous_format
    least = 0
    for axis in order:
        ambiguous = axis == 0 and least == strides[1]
        if sizes[axis] == 0 or strides[axis] < least or ambiguous:
            return torch.contiguous_format
        least = strides[axis] * max(1, sizes[axis])
    return CHANNELS_LAST[len(sizes)]


def _still_suggests(tensor: Any, memory_format: Any) -> bool:
    """Whether a tensor that was made contiguous in a format suggests that format.

    Sizes of one may leave it open: then the copy suggests nothing, and so does a tensor that needed
    none.
    """
    dense = tensor.is_contiguous(memory_format=memory_format)
    strides = tensor.stride() if dense else dense_strides(tensor.shape, memory_format)
    return _suggested(tensor.shape, strides) is memory_format


def image_of(tensor: Any) -> Any:
    """What PyTorch's kernels see of a convolution's tensor: 1-D ones as 2-D ones of height one."""
    return tensor.unsqueeze(2) if tensor.dim() == 3 else tensor


def empty_image(tensor: Any, memory_format: Any) -> Any:
    """A new tensor like this one, whose image has the strides of a new one in that format."""
    new = torch.empty_like(image_of(tensor), memory_format=memory_format, requires_grad=False)
    return new.squeeze(2) if tensor.dim() == 3 else new


def gradient_formats(
    input: Any, weight: Any, stride: list[int], padding: list[int], dilation: list[int], groups: int
) -> tuple[Any, Any]:
    """Memory formats of the images of PyTorch's own gradients, for input and weight.

    Channels-last, if PyTorch's backend for this convolution can do that and either tensor suggests
    it.
    """
    x, w = image_of(input), image_of(weight)
    if input.dim() == 3 and not input.is_contiguous():
        x = w  # PyTorch makes 1-D inputs contiguous, which then suggest nothing
    chosen = backend_format(x, w, FOLLOWS_SUGGESTIONS[w.dim()])
    if chosen is torch.contiguous_format:
        return chosen, chosen
    backend = select_backend(input, weight, None, stride, padding, dilation, False, [0], groups)
    chosen = of_input = of_weight = backend_format(x, w, backend)
    # Where sizes of one leave the format open, oneDNN's backend asks the tensors it has made
    # contiguous once more, and the others have ways of their own.
    if backend == Backend.Mkldnn and not (_still_suggests(x, chosen) or _still_suggests(w, chosen)):
        return torch.contiguous_format, torch.contiguous_format
    if backend == Backend.Slow2d and w.is_contiguous(memory_format=chosen):
        of_weight = suggested_format(w)
    one_per_group = weight.shape[1] == 1 and input.shape[2:].numel() == 1
    if groups > 1 and one_per_group and backend != Backend.Mkldnn:
        of_input = torch.contiguous_format
    return of_input, of_weight


def with_usual_strides(tensor: Any) -> Any:
    """The tensor, or a view of it in which axes of one element have the strides of a new tensor.

    PyTorch's float32 convolution backward was seen to crash on a contiguous weight with others. The
    view suggests the same memory format, on which the strides of PyTorch's results depend.
    """
    image = image_of(tensor)
    suggested = suggested_format(image)
    if not image.is_contiguous(memory_format=suggested):
        return tensor
    strides = dense_strides(image.shape, suggested)
    if image.stride() == strides:
        return tensor
    usual = image.as_strided(image.shape, strides)
    if suggested_format(usual) is not suggested:
        return tensor
    return usual.squeeze(2) if tensor.dim() == 3 else usual


def dense_strides(shape: tuple[int, ...], memory_format: Any) -> tuple[int, ...]:
    last = memory_format is not torch.contiguous_format
    order = CHANNELS_LAST_ORDER[len(shape)] if last else range(len(shape) - 1, -1, -1)
    strides = [1] * len(shape)
    step = 1
    for axis in order:
        strides[axis] = step
        step *= max(1, shape[axis])
    return tuple(strides)
