"""Memory formats and strides, as PyTorch's own kernels choose them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

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
# Those that compute groups one by one. oneDNN's transposed backend has no name in Python.
BY_GROUPS = (Backend.Slow2d, Backend.SlowDilated2d, Backend.SlowTranspose2d)
# Their gradient of the weight has the strides of the weight.
LIKE_THE_WEIGHT = (Backend.Slow2d, Backend.SlowTranspose2d)
CONTIGUOUS_ONLY = (
    Backend.Slow3d, Backend.SlowDilated3d, Backend.SlowTranspose3d, Backend.NnpackSpatial,
    Backend.Winograd3x3Depthwise, Backend.Xnnpack2d,
)  # fmt: skip


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


class _Image(NamedTuple):
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def suggested(self) -> Any:
        return _suggested(self.shape, self.strides)

    def contiguous(self, memory_format: Any) -> _Image:
        """What `Tensor.contiguous` makes of it: a copy, unless it is contiguous already.

        Strides of axes of one element do not count in that. A copy loses them, and with them
        perhaps what the tensor suggested.
        """
        step = 1
        for axis in _from_inside(len(self.shape), memory_format):
            if self.shape[axis] != 1:
                if self.strides[axis] != step:
                    return _Image(self.shape, dense_strides(self.shape, memory_format))
                step *= self.shape[axis]
        return self

    def part(self, axis: int, groups: int) -> _Image:
        """What PyTorch takes out of it for one group."""
        shape = list(self.shape)
        shape[axis] //= groups
        return _Image(tuple(shape), self.strides).contiguous(self.suggested())


def _image(tensor: Any) -> _Image:
    return _Image(tuple(tensor.shape), tensor.stride())


def _still_suggests(tensor: Any, memory_format: Any) -> bool:
    """Whether a tensor that was made contiguous in a format suggests that format."""
    return _image(tensor).contiguous(memory_format).suggested() is memory_format


def image_of(tensor: Any) -> Any:
    """What PyTorch's kernels see of a convolution's tensor: 1-D ones as 2-D ones of height one."""
    return tensor.unsqueeze(2) if tensor.dim() == 3 else tensor


def empty_image(tensor: Any, memory_format: Any) -> Any:
    """A new tensor like this one, whose image has the strides of a new one in that format."""
    new = torch.empty_like(image_of(tensor), memory_format=memory_format, requires_grad=False)
    return new.squeeze(2) if tensor.dim() == 3 else new


def empty_output(input: Any, shape: tuple[int, ...], memory_format: Any) -> Any:
    """A new tensor of that shape, whose image has the strides of a new one in that format."""
    if len(shape) > 3:
        return torch.empty(shape, dtype=input.dtype, memory_format=memory_format)
    image = _image_shape(shape)
    return torch.empty(image, dtype=input.dtype, memory_format=memory_format).squeeze(2)


def _image_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:2], 1, *shape[2:]) if len(shape) == 3 else shape


def output_format(
    input: Any,
    weight: Any,
    bias: Any,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    output_shape: tuple[int, ...],
) -> Any:
    """Memory format of the image of PyTorch's own output.

    Channels-last, if PyTorch's backend for this convolution can do that, and one of the tensors
    suggests it still when the backend has made both contiguous.
    """
    x, w = image_of(input), image_of(weight)
    copied = input.dim() == 3 and not input.is_contiguous()
    # PyTorch makes 1-D inputs contiguous, which then suggest nothing.
    formats_of = (w if copied else x), w
    chosen = backend_format(*formats_of, FOLLOWS_SUGGESTIONS[w.dim()])
    if chosen is torch.contiguous_format and groups == 1:
        return chosen
    backend = select_backend(
        input, weight, bias, stride, padding, dilation, transposed, output_padding, groups
    )
    if backend in CONTIGUOUS_ONLY:
        return torch.contiguous_format
    chosen = backend_format(*formats_of, backend)
    of_x = _image(x).contiguous(torch.contiguous_format) if copied else _image(x)
    images = of_x.contiguous(chosen), _image(w).contiguous(chosen)
    if groups == 1 or backend not in BY_GROUPS:
        return _of_either(*images)
    of_group = _of_either(images[0].part(1, groups), images[1].part(0, groups))
    batch, channels, *sizes = _image_shape(output_shape)
    shape = batch, channels // groups, *sizes
    # Of the groups' outputs, which PyTorch concatenates.
    return _Image(shape, dense_strides(shape, of_group)).suggested()


def _of_either(x: _Image, w: _Image) -> Any:
    suggested = x.suggested()
    return suggested if suggested is not torch.contiguous_format else w.suggested()


def gradient_formats(
    input: Any,
    weight: Any,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
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
    backend = select_backend(
        input, weight, None, stride, padding, dilation, transposed, output_padding, groups
    )
    chosen = of_input = of_weight = backend_format(x, w, backend)
    # Where sizes of one leave the format open, oneDNN's backend asks the tensors it has made
    # contiguous once more, and the others have ways of their own.
    is_onednn = backend not in BY_GROUPS + CONTIGUOUS_ONLY
    if is_onednn and not (_still_suggests(x, chosen) or _still_suggests(w, chosen)):
        return torch.contiguous_format, torch.contiguous_format
    if backend in LIKE_THE_WEIGHT and w.is_contiguous(memory_format=chosen):
        of_weight = suggested_format(w)
    one_per_group = input.shape[1] == groups and input.shape[2:].numel() == 1
    if groups > 1 and one_per_group and backend in BY_GROUPS:
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
    strides = [1] * len(shape)
    step = 1
    for axis in _from_inside(len(shape), memory_format):
        strides[axis] = step
        step *= max(1, shape[axis])
    return tuple(strides)


def _from_inside(axes: int, memory_format: Any) -> Iterable[int]:
    """The axes from the innermost on."""
    if memory_format is torch.contiguous_format:
        return range(axes - 1, -1, -1)
    return CHANNELS_LAST_ORDER[axes]
