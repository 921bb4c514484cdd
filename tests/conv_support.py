"""Convolution problems, their data and the tolerance that the tests share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from support import DTYPES, per_axis, round_to

from backops import reference

GRADIENTS = ("grad_input", "grad_weight", "grad_bias")
EPS_FLOAT32 = float(np.finfo(np.float32).eps)
EPS_FLOAT64 = float(np.finfo(np.float64).eps)


# Cases


@dataclass(frozen=True)
class ConvCase:
    """One convolution problem; a parameter is an int (for every axis) or a tuple."""

    name: str
    input_shape: tuple[int, ...]
    weight_shape: tuple[int, ...]
    stride: int | tuple[int, ...] = 1
    padding: int | tuple[int, ...] = 0
    dilation: int | tuple[int, ...] = 1
    groups: int = 1

    @property
    def rank(self) -> int:
        return len(self.weight_shape) - 2

    @property
    def batched(self) -> bool:
        return len(self.input_shape) == self.rank + 2

    @property
    def keywords(self) -> dict:
        return {
            "stride": self.stride,
            "padding": self.padding,
            "dilation": self.dilation,
            "groups": self.groups,
        }

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of `grad_output`."""
        axes = zip(
            self.input_shape[-self.rank :],
            self.weight_shape[2:],
            per_axis(self.stride, self.rank),
            per_axis(self.padding, self.rank),
            per_axis(self.dilation, self.rank),
            strict=True,
        )
        outputs = (_count_windows(*axis) for axis in axes)
        return (*self.input_shape[: -self.rank - 1], self.weight_shape[0], *outputs)

    def backward(self, module, grad_output, input, weight, **more):
        """Calls `conv_backward` of `module` (`backops` or `backops.reference`)."""
        return module.conv_backward(grad_output, input, weight, **self.keywords, **more)


def _count_windows(length, kernel, stride, padding, dilation) -> int:
    padded = length + 2 * padding
    return sum(1 for start in range(0, padded, stride) if start + dilation * (kernel - 1) < padded)


CASES = (
    # Smallest sizes
    ConvCase("one_element", (1, 1, 1), (1, 1, 1)),
    ConvCase("toy", (1, 2, 5, 5), (3, 2, 3, 3), stride=2, padding=1),
    ConvCase("empty_batch", (0, 3, 6, 6), (4, 3, 3, 3), padding=1),
    # Kernels of one element
    ConvCase("pointwise_1d", (2, 5, 9), (4, 5, 1)),
    ConvCase("pointwise_2d", (2, 16, 7, 7), (8, 16, 1, 1)),
    ConvCase("pointwise_strided", (2, 8, 9, 10), (5, 8, 1, 1), stride=2),
    ConvCase("pointwise_padded", (1, 3, 4, 5), (2, 3, 1, 1), padding=1),
    # Every rank
    ConvCase("plain_1d", (2, 3, 17), (4, 3, 3)),
    ConvCase("plain_2d", (2, 3, 9, 10), (4, 3, 3, 3), padding=1),
    ConvCase("plain_3d", (2, 3, 5, 6, 7), (4, 3, 3, 3, 3), padding=1),
    ConvCase("even_kernel", (2, 3, 8, 9), (4, 3, 4, 2), padding=1),
    ConvCase("wide_kernel_strided", (1, 3, 19, 20), (8, 3, 7, 7), stride=2, padding=3),
    ConvCase("batch_5", (5, 4, 6, 7), (3, 4, 3, 3), padding=1),
    # Without a batch
    ConvCase("unbatched_1d", (3, 14), (4, 3, 5), padding=2),
    ConvCase("unbatched_2d", (3, 7, 8), (4, 3, 3, 3), stride=2, padding=1),
    ConvCase("unbatched_3d", (2, 4, 5, 6), (3, 2, 2, 3, 2)),
    # Groups
    ConvCase("groups_1d", (2, 6, 13), (9, 2, 3), padding=1, groups=3),
    ConvCase("groups_2d", (2, 8, 7, 7), (6, 4, 3, 3), padding=1, groups=2),
    ConvCase("groups_3d", (1, 4, 5, 5, 5), (6, 2, 3, 3, 3), stride=2, padding=1, groups=2),
    ConvCase("depthwise_1d", (2, 7, 15), (7, 1, 3), padding=1, groups=7),
    ConvCase("depthwise_2d", (2, 17, 8, 9), (17, 1, 3, 3), stride=2, padding=1, groups=17),
    ConvCase("depthwise_3d", (1, 5, 4, 5, 6), (5, 1, 3, 3, 3), padding=1, groups=5),
    ConvCase("depthwise_multiplier", (2, 5, 8, 8), (15, 1, 3, 3), padding=1, groups=5),
    ConvCase("depthwise_dilated", (1, 8, 11, 11), (8, 1, 3, 3), dilation=2, padding=2, groups=8),
    # Dilation
    ConvCase("dilation_1d", (2, 3, 19), (4, 3, 3), dilation=4),
    ConvCase("dilation_2d", (2, 3, 9, 10), (4, 3, 3, 3), dilation=2, padding=2),
    ConvCase("dilation_3d", (1, 2, 7, 6, 7), (3, 2, 2, 2, 3), dilation=(3, 2, 2), padding=1),
    ConvCase("dilation_beyond_input", (1, 2, 3, 4), (3, 2, 3, 3), dilation=5, padding=6),
    # Stride
    ConvCase("kernel_equals_stride", (2, 3, 8, 12), (16, 3, 4, 4), stride=4),
    ConvCase("stride_beyond_kernel_1d", (2, 3, 23), (4, 3, 2), stride=5),
    ConvCase("stride_beyond_kernel_2d", (2, 3, 11, 13), (4, 3, 2, 2), stride=(3, 4), padding=1),
    ConvCase("rows_left_over", (2, 3, 12, 9), (4, 3, 3, 3), stride=(5, 3)),
    ConvCase("rows_left_over_padded", (1, 3, 10, 10), (2, 3, 4, 4), stride=7, padding=2),
    ConvCase("stride_and_dilation", (2, 4, 13, 14), (3, 4, 3, 3), stride=2, dilation=3, padding=3),
    # Parameters that differ by axis
    ConvCase("asymmetric_2d", (2, 3, 11, 7), (4, 3, 5, 2), (3, 1), (0, 2), (1, 2)),
    ConvCase("asymmetric_3d", (1, 2, 6, 5, 8), (3, 2, 1, 2, 3), (1, 2, 3), (0, 1, 2), (1, 3, 2)),
    ConvCase("asymmetric_groups", (2, 6, 9, 8), (4, 3, 1, 4), (2, 1), (0, 3), (1, 2), 2),
    # Padding and kernels that reach everywhere
    ConvCase("padding_beyond_kernel_1d", (1, 2, 5), (3, 2, 2), padding=4),
    ConvCase("padding_beyond_kernel_2d", (1, 2, 3, 4), (3, 2, 2, 3), stride=2, padding=(5, 4)),
    ConvCase("kernel_equals_input", (3, 4, 5, 6), (7, 4, 5, 6)),
    ConvCase("kernel_equals_padded_input", (2, 3, 4, 5), (4, 3, 6, 7), padding=1),
    ConvCase("kernel_beyond_input", (1, 2, 2, 3), (3, 2, 5, 5), padding=2),
    # Channels one below, at and above vector widths
    ConvCase("channels_1_to_33", (1, 1, 6, 7), (33, 1, 3, 3), padding=1),
    ConvCase("channels_7_to_8", (2, 7, 6, 7), (8, 7, 3, 3), padding=1),
    ConvCase("channels_8_to_15", (2, 8, 6, 7), (15, 8, 3, 3), padding=1),
    ConvCase("channels_15_to_17", (1, 15, 6, 7), (17, 15, 3, 3), padding=1),
    ConvCase("channels_16_to_16", (2, 16, 6, 7), (16, 16, 3, 3), padding=1),
    ConvCase("channels_17_to_31", (1, 17, 6, 7), (31, 17, 3, 3), padding=1),
    ConvCase("channels_31_to_3", (1, 31, 6, 7), (3, 31, 3, 3), padding=1),
    ConvCase("channels_32_to_32", (2, 32, 5, 6), (32, 32, 3, 3), padding=1),
    ConvCase("channels_33_to_1", (1, 33, 6, 7), (1, 33, 3, 3), padding=1),
)
assert len({case.name for case in CASES}) == len(CASES), "case names repeat"


def find_conv_case(name: str) -> ConvCase:
    return next(case for case in CASES if case.name == name)


@st.composite
def conv_cases(draw) -> ConvCase:
    rank = draw(st.integers(1, 3))
    batch = draw(st.sampled_from([(), (1,), (2,), (5,)]))
    groups = draw(st.integers(1, 4))
    input_channels, output_channels = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    axes = [draw(_axes(longest={1: 12, 2: 6, 3: 3}[rank])) for _ in range(rank)]
    lengths, kernels, strides, paddings, dilations = zip(*axes, strict=True)
    return ConvCase(
        "generated",
        (*batch, groups * input_channels, *lengths),
        (groups * output_channels, input_channels, *kernels),
        strides,
        paddings,
        dilations,
        groups,
    )


@st.composite
def _axes(draw, longest: int):
    kernel, dilation = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    padding = draw(st.integers(0, 5))
    least = max(1, dilation * (kernel - 1) + 1 - 2 * padding)
    length = draw(st.integers(least, least + longest))
    return length, kernel, draw(st.integers(1, 5)), padding, dilation


# Data


def make_arrays(case: ConvCase, dtype: str = "float32", seed: int = 0):
    """`grad_output, input, weight`: the same arguments give the same values everywhere."""
    random = np.random.default_rng([seed, *case.input_shape, *case.weight_shape])
    shapes = (case.output_shape, case.input_shape, case.weight_shape)
    return tuple(
        round_to(random.standard_normal(shape), dtype).astype(DTYPES[dtype]) for shape in shapes
    )


# Tolerance


def bound(case: ConvCase, grad_output, input, weight, which: str, eps: float = EPS_FLOAT32):
    """How far each element of the gradient `which` (of GRADIENTS) may be from the exact one.

    4 sqrt(K) eps times the sum of the absolute products, K the number of products in that sum.
    """
    arrays = (np.asarray(array, np.float64) for array in (grad_output, input, weight))
    magnitudes = _gradient(case, which, *map(np.abs, arrays))
    # Where every product is 1, a sum is its own length.
    shapes = (case.output_shape, case.input_shape, case.weight_shape)
    lengths = _gradient(case, which, *map(np.ones, shapes))
    return 4 * np.sqrt(lengths) * eps * magnitudes


def _gradient(case, which, *arrays):
    mask = tuple(name == which for name in GRADIENTS)
    return case.backward(reference, *arrays, output_mask=mask)[GRADIENTS.index(which)]
