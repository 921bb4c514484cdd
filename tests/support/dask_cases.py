"""Chunks to cut arrays into, and problems whose axes are long enough to be cut."""

from __future__ import annotations

import dask.array as da
import numpy as np
from hypothesis import strategies as st

from .conv_cases import ConvCase
from .pool_cases import Case


class Cuts:
    """Draws chunks by a seed: uneven, some of one element, rarely an empty one."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def chunks(self, shape):
        return tuple(self._axis(length) for length in shape)

    def _axis(self, length: int):
        most = min(length - 1, 3)
        if most < 1 or self.random.random() < 0.2:
            return (length,)
        ends = self.random.choice(np.arange(1, length), self.random.integers(1, most + 1), False)
        if self.random.random() < 0.1:
            ends = np.append(ends, ends[:1])
        return tuple(np.diff([0, *sorted(ends), length]).tolist())

    def cut(self, array):
        return da.from_array(np.asarray(array), chunks=self.chunks(array.shape))

    def choose(self, *options):
        return options[self.random.integers(len(options))]


@st.composite
def fixed_cases(draw) -> Case:
    rank = draw(st.integers(1, 3))
    longest = {1: 60, 2: 20, 3: 11}[rank]
    ceil_mode, has_stride = draw(st.booleans()), draw(st.booleans())
    axes = []
    for _ in range(rank):
        kernel = draw(st.integers(1, 5) | st.integers(1, longest))
        padding = draw(st.integers(0, kernel // 2))
        stride = draw(st.integers(1, kernel + 2)) if has_stride else kernel
        shortest = kernel - 2 * padding - (stride - 1 if ceil_mode else 0)
        axes.append((kernel, stride, padding, draw(st.integers(max(1, shortest), longest))))
    kernels, strides, paddings, sizes = zip(*axes, strict=True)
    shape = (*draw(batch_and_channels()), *sizes)
    stride = strides if has_stride else None
    divisor = draw(st.sampled_from([None, None, None, -7, 1000]))
    return Case(
        "generated", f"avg{rank}d", shape, kernels, stride, paddings, ceil_mode,
        draw(st.booleans()), divisor,
    )  # fmt: skip


@st.composite
def adaptive_cases(draw) -> Case:
    rank = draw(st.integers(1, 3))
    longest = {1: 60, 2: 20, 3: 9}[rank]
    sizes = draw(st.lists(st.integers(1, longest), min_size=rank, max_size=rank))
    # Often a divisor, or a size with which windows repeat.
    outputs = [
        draw(st.integers(1, longest) | st.sampled_from([n, n // 2 or 1, 2 * n])) for n in sizes
    ]
    shape = (*draw(batch_and_channels()), *sizes)
    return Case("generated", f"adaptive{rank}d", shape, output_size=tuple(outputs))


def batch_and_channels():
    return st.tuples(st.integers(0, 3), st.integers(1, 4)) | st.tuples(st.integers(1, 4))


@st.composite
def conv_cases(draw) -> ConvCase:
    rank = draw(st.integers(1, 3))
    batch = draw(st.sampled_from([(), (1,), (3,)]))
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    per_x, per_y = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    if draw(st.integers(0, 4)) == 0:
        groups, per_x = 8, 1
    longest = {1: 30, 2: 12, 3: 6}[rank]
    axes = []
    for _ in range(rank):
        kernel, dilation = draw(st.integers(1, 4)), draw(st.integers(1, 3))
        padding = draw(st.integers(0, 4))
        least = max(1, dilation * (kernel - 1) + 1 - 2 * padding)
        length = draw(st.integers(least, least + longest))
        axes.append((length, kernel, draw(st.integers(1, 4)), padding, dilation))
    lengths, kernels, strides, paddings, dilations = zip(*axes, strict=True)
    return ConvCase(
        "generated", (*batch, groups * per_x, *lengths), (groups * per_y, per_x, *kernels),
        strides, paddings, dilations, groups,
    )  # fmt: skip
