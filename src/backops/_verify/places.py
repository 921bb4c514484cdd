"""Where in a tensor the wrong elements are, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backops import _geometry
from backops._calls import FIXED, Call
from backops._verify import truth

SPATIAL = {1: ("width",), 2: ("height", "width"), 3: ("depth", "height", "width")}
# From this share on, one index is named although others have wrong elements too.
MOSTLY = 0.95
# Results that have the axes of images; the others have those of a weight or a bias.
IMAGES = ("output", "grad_input")
LINES = {"height": "row", "width": "column", "depth": "slice"}


@dataclass(frozen=True)
class Axis:
    """How many wrong elements each index of an axis has."""

    name: str
    counts: NDArray[np.int64]


def axis_names(call: Call, gradient: str) -> tuple[str, ...]:
    spatial = SPATIAL[call.rank]
    if gradient == "grad_bias":
        return ("channel",)
    if gradient == "grad_weight":
        channels = ("output channel", "input channel")
        channels = channels[::-1] if call.is_transposed else channels
        return (*channels, *(f"kernel {name}" for name in spatial))
    leading = ("batch", "channel") if len(call.input_shape) == call.rank + 2 else ("channel",)
    return (*leading, *spatial)


def leading_axes(call: Call, gradient: str) -> int:
    """How many axes come before those of a plane."""
    if gradient in IMAGES:
        return len(call.input_shape) - call.rank
    return 2 if gradient == "grad_weight" else 1


def axes_of(
    call: Call, gradient: str, by_plane: NDArray[np.int64], by_position: NDArray[np.int32]
) -> list[Axis]:
    """Wrong elements by index, for each axis of the tensor."""
    names = axis_names(call, gradient)
    shape = call.result_shapes()[gradient]
    leading = leading_axes(call, gradient)
    axes = []
    for array, offset in (
        (by_plane.reshape(shape[:leading]), 0),
        (by_position.reshape(shape[leading:]), leading),
    ):
        for index in range(array.ndim):
            others = tuple(axis for axis in range(array.ndim) if axis != index)
            axes.append(Axis(names[offset + index], array.sum(axis=others, dtype=np.int64)))
    return axes


def findings(
    call: Call, gradient: str, axes: Sequence[Axis], by_position: NDArray[np.int32], wrong: int
) -> list[str]:
    """Short sentences, the most telling first."""
    if wrong == 0:
        return []
    sentences = [text for text in map(describe_axis, axes) if text]
    if gradient in IMAGES:
        plane = call.result_shapes()[gradient][-call.rank :]
        sentences += plane_findings(call, by_position.reshape(plane))
    if not sentences:
        total = int(axes[0].counts.sum())
        size = int(np.prod([len(axis.counts) for axis in axes]))
        share = "all elements are wrong" if total == size else f"{total / size:.2%} of them"
        sentences.append(f"wrong elements are spread over the whole tensor ({share})")
    return sentences


def describe_axis(axis: Axis) -> str:
    """Which indices of an axis have all wrong elements, or nearly all, if those are not all."""
    length = len(axis.counts)
    hit = np.flatnonzero(axis.counts)
    total, most = int(axis.counts.sum()), int(axis.counts.max())
    if len(hit) > 1 and most >= MOSTLY * total:
        where = one_index(axis.name, int(axis.counts.argmax()), length)
        return f"{most:,} of {total:,} wrong elements lie in {where}"
    if len(hit) == length:
        return ""
    return f"all wrong elements lie in {index_set(axis.name, hit, length)}"


def one_index(name: str, index: int, length: int) -> str:
    line = LINES.get(name)
    if line and index in (0, length - 1):
        return f"the {'first' if index == 0 else 'last'} {line} ({name} index {index})"
    return f"{name} index {index} of {length}"


def index_set(name: str, hit: NDArray[np.intp], length: int) -> str:
    first, last, count = int(hit[0]), int(hit[-1]), len(hit)
    if count == 1:
        return one_index(name, first, length)
    if count == 2 and (first, last) == (0, length - 1):
        return f"the first and the last {LINES.get(name, name)} ({name} 0 and {last})"
    if last - first + 1 == count:
        where = f"{count} of {length}"
        if last == length - 1:
            where = f"the last {where}"
        elif first == 0:
            where = f"the first {where}"
        return f"{name} indices {first} to {last} ({where})"
    steps = np.unique(np.diff(hit))
    if len(steps) == 1 and count > 2:
        return f"{name} indices {first} to {last} in steps of {steps[0]}"
    shown = ", ".join(map(str, hit[:8])) + (", ..." if count > 8 else "")
    return f"{count} of {length} {name} indices: {shown}"


def plane_findings(call: Call, plane: NDArray[np.int32]) -> list[str]:
    sentences = []
    if all(size > 2 for size in plane.shape):
        inner = plane[(slice(1, -1),) * plane.ndim]
        corners = plane[np.ix_(*[(0, size - 1) for size in plane.shape])]
        if plane.ndim > 1 and corners.sum() == plane.sum():
            sentences.append("all wrong elements lie in the corners of the planes")
        elif inner.sum() == 0:
            sentences.append("all wrong elements lie on the border of the planes")
    return sentences + region_findings(plane, special_regions(call))


Regions = dict[str, list[NDArray[np.bool_]]]


def region_findings(plane: NDArray[np.int32], regions: Regions) -> list[str]:
    """Whether all wrong elements are where padding or another parameter makes them special."""
    sentences = []
    for what, masks in regions.items():
        # An element is in such a place if it is along any axis.
        region = np.zeros(plane.shape, bool)
        for axis, inside in enumerate(masks):
            region |= inside.reshape([-1 if index == axis else 1 for index in range(plane.ndim)])
        if region.any() and not region.all() and plane[~region].sum() == 0:
            sentences.append(f"all wrong elements lie in {what}")
    return sentences


def special_regions(call: Call) -> Regions:
    """Per axis, which indices of the result are in each kind of place."""
    if call.operator in FIXED:
        return {
            "windows that reach into the padding": special_windows(call, "padding"),
            "the last, shorter windows of ceil_mode": special_windows(call, "ceil"),
        }
    if call.operator == "conv":
        return {"windows that reach into the padding": padded_outputs(call)}
    if call.operator == "conv_transpose":
        more = _geometry.output_padding(call.rank, call.parameters)
        sizes = call.output_shape[-call.rank :]
        pairs = zip(sizes, more, strict=True)
        return {"what output_padding adds": [np.arange(size) >= size - n for size, n in pairs]}
    return {}


def special_windows(call: Call, kind: str) -> list[NDArray[np.bool_]]:
    """Windows that reach into padding, or beyond it: outputs, or the inputs that are in them."""
    masks = []
    for axis, windows in enumerate(truth.pool_axes(call)):
        size = call.input_shape[axis - call.rank]
        kernel, stride, padding = (numbers[axis] for numbers in truth.pool_numbers(call))
        inside = np.zeros(len(windows) if call.is_forward else size, bool)
        for output, window in enumerate(windows):
            start = output * stride - padding
            end = start + kernel
            reaches_padding = start < 0 or size < end <= size + padding
            if reaches_padding if kind == "padding" else end > size + padding:
                inside[output if call.is_forward else slice(window.begin, window.end)] = True
        masks.append(inside)
    return masks


def padded_outputs(call: Call) -> list[NDArray[np.bool_]]:
    """Outputs of a convolution whose kernel reaches into the padding."""
    masks = []
    for axis, outputs in enumerate(call.output_shape[-call.rank :]):
        stride, padding, dilation = (numbers[axis] for numbers in truth.conv_numbers(call))
        start = np.arange(outputs) * stride - padding
        end = start + dilation * (call.weight_shape[2 + axis] - 1) + 1
        masks.append((start < 0) | (end > call.input_shape[axis - call.rank]))
    return masks
