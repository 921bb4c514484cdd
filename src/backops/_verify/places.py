"""Where in a tensor the wrong elements are, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backops._calls import FIXED, Call
from backops._verify import truth

SPATIAL = {1: ("width",), 2: ("height", "width"), 3: ("depth", "height", "width")}
# From this share on, one index is named although others have wrong elements too.
MOSTLY = 0.95
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
        return ("output channel", "input channel", *(f"kernel {name}" for name in spatial))
    leading = ("batch", "channel") if len(call.input_shape) == call.rank + 2 else ("channel",)
    return (*leading, *spatial)


def leading_axes(call: Call, gradient: str) -> int:
    """How many axes come before those of a plane."""
    if gradient == "grad_input":
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
    if gradient == "grad_input":
        sentences += plane_findings(call, by_position.reshape(call.input_shape[-call.rank :]))
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
    if call.operator in FIXED:
        sentences += window_findings(call, plane)
    return sentences


def window_findings(call: Call, plane: NDArray[np.int32]) -> list[str]:
    """Whether all wrong elements are in windows that padding or ceil_mode makes special."""
    sentences = []
    regions = (
        (special_inputs(call, "padding"), "windows that reach into the padding"),
        (special_inputs(call, "ceil"), "the last, shorter windows of ceil_mode"),
    )
    for masks, what in regions:
        # An element is in such a window if it is along any axis.
        region = np.zeros(plane.shape, bool)
        for axis, inside in enumerate(masks):
            region |= inside.reshape([-1 if index == axis else 1 for index in range(plane.ndim)])
        if region.any() and not region.all() and plane[~region].sum() == 0:
            sentences.append(f"all wrong elements lie in {what}")
    return sentences


def special_inputs(call: Call, kind: str) -> list[NDArray[np.bool_]]:
    """Per axis, which inputs are in a window that reaches into padding, or beyond it."""
    masks = []
    for axis, windows in enumerate(truth.pool_axes(call)):
        size = call.input_shape[axis - call.rank]
        kernel, stride, padding = (numbers[axis] for numbers in truth.pool_numbers(call))
        inside = np.zeros(size, bool)
        for output, window in enumerate(windows):
            start = output * stride - padding
            end = start + kernel
            reaches_padding = start < 0 or size < end <= size + padding
            if reaches_padding if kind == "padding" else end > size + padding:
                inside[window.begin : window.end] = True
        masks.append(inside)
    return masks
