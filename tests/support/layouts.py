"""Arrays in any layout, inside memory that shows what was written beside them."""

from __future__ import annotations

import numpy as np

from .floats import DTYPES

# Bytes on both sides of every placed array, so that a write past its ends is seen.
GUARD_BYTES = 192
FILL_BYTE = 0xA5

LAYOUTS = (
    "contiguous",
    "channels_last",
    "transposed",
    "every_second",
    "reversed",
    "padded_rows",
    "offset_by_element",
    "offset_by_byte",
)
# Where each element of one axis repeats the first: for arrays that are only read.
READ_LAYOUTS = (*LAYOUTS, "broadcast_channels", "broadcast_last_axis", "broadcast_everything")


def place(shape, rank: int, dtype: str, layout: str):
    """Memory filled with FILL_BYTE, and an array of that shape and layout inside it.

    `rank` is the number of spatial axes; the axis before them holds the channels. A vector has only
    these, and nothing to transpose.
    """
    if len(shape) == 1:
        rank, layout = 0, "contiguous" if layout == "transposed" else layout
    itemsize = DTYPES[dtype].itemsize
    channel = len(shape) - rank - 1
    order = list(range(len(shape)))
    sizes = list(shape)
    offset = GUARD_BYTES
    if layout == "channels_last":
        order.append(order.pop(channel))
    elif layout == "transposed":
        # With one spatial axis, swapping it with the channels would be channels-last.
        order = order[::-1] if rank == 1 else [*order[:-2], order[-1], order[-2]]
    elif layout == "every_second":
        sizes = [2 * size for size in sizes]
    elif layout == "padded_rows":
        sizes[-1] += 3
    elif layout == "offset_by_element":
        offset += itemsize
    elif layout == "offset_by_byte":
        offset += 1
    strides = [0] * len(shape)
    span_bytes = itemsize
    for axis in reversed(order):
        strides[axis] = span_bytes
        span_bytes *= max(sizes[axis], 1)
    if layout == "every_second":
        strides = [2 * stride for stride in strides]
    elif layout == "reversed":
        offset += span_bytes - itemsize
        strides = [-stride for stride in strides]
    elif layout == "broadcast_channels":
        strides[channel] = 0
    elif layout == "broadcast_last_axis":
        strides[-1] = 0
    elif layout == "broadcast_everything":
        strides = [0] * len(shape)
    memory = np.full(span_bytes + 2 * GUARD_BYTES + itemsize, FILL_BYTE, np.uint8)
    return memory, np.ndarray(shape, DTYPES[dtype], memory, offset, strides)


def in_layout(values, case, layout: str):
    """`values` in that layout; for a broadcast layout, what fits of them."""
    dtype = values.dtype.name
    _, array = place(values.shape, case.rank, dtype, layout)
    array[...] = values
    return array
