"""Convolution problems, their data and the tolerance that the tests share."""

from __future__ import annotations

import functools
import itertools
import os
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from support import DTYPES, in_layout, per_axis, round_to

from backops import reference

GRADIENTS = ("grad_input", "grad_weight", "grad_bias")
# Every output_mask; the last asks for nothing.
MASKS = tuple(itertools.product((True, False), repeat=3))
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

    @property
    def gradient_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the results, in the order of GRADIENTS."""
        return self.input_shape, self.weight_shape, self.weight_shape[:1]

    def backward(self, module, grad_output, input, weight, **more):
        """Calls `conv_backward` of `module` (`backops` or `backops.reference`)."""
        return module.conv_backward(grad_output, input, weight, **self.keywords, **more)

    def plan(self, module, **more):
        """Calls `conv_backward` of `module` (`backops.plan`)."""
        return module.conv_backward(self.input_shape, self.weight_shape, **self.keywords, **more)


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
    ConvCase("depthwise_long", (1, 9, 70, 5), (9, 1, 5, 3), padding=(2, 1), groups=9),
    ConvCase("depthwise_strided", (3, 33, 41, 18), (33, 1, 3, 5), (3, 2), (1, 2), groups=33),
    ConvCase("depthwise_slices", (1, 8, 40, 6, 7), (8, 1, 3, 2, 3), (2, 1, 1), 1, groups=8),
    ConvCase("groups_of_3_to_2", (2, 27, 33, 9), (18, 3, 3, 3), padding=1, groups=9),
    ConvCase("depthwise_dilated", (1, 8, 11, 11), (8, 1, 3, 3), dilation=2, padding=2, groups=8),
    ConvCase("many_groups", (1, 640, 3, 4), (640, 5, 3, 3), padding=1, groups=128),
    # Depthwise, channels in whole vectors
    ConvCase("vectors_1d", (2, 32, 41), (32, 1, 5), padding=2, groups=32),
    ConvCase("vectors_2d", (3, 48, 9, 13), (48, 1, 3, 3), padding=1, groups=48),
    ConvCase("vectors_unpadded", (1, 16, 8, 9), (16, 1, 2, 3), groups=16),
    ConvCase("vectors_strided", (2, 16, 14, 11), (16, 1, 5, 3), (2, 3), (2, 1), groups=16),
    ConvCase("vectors_dilated", (1, 16, 11, 12), (16, 1, 3, 4), 2, (3, 4), (2, 3), groups=16),
    ConvCase("vectors_kernel_beyond_input", (2, 16, 3, 4), (16, 1, 5, 7), 1, (2, 3), groups=16),
    ConvCase("vectors_padded_by_all", (1, 16, 2, 3), (16, 1, 3, 4), 1, (2, 3), groups=16),
    ConvCase("vectors_stride_beyond_kernel", (1, 32, 11, 13), (32, 1, 2, 2), (3, 4), 1, groups=32),
    ConvCase("vectors_rows_left_over", (1, 16, 12, 9), (16, 1, 3, 3), (5, 4), groups=16),
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
    # Channels that fill vectors, in one block, in two and in an odd number of them
    ConvCase("blocks_2d", (3, 48, 7, 7), (32, 48, 3, 3), padding=1),
    ConvCase("blocks_strided", (2, 32, 11, 13), (16, 32, 3, 3), stride=2, padding=1),
    ConvCase("blocks_grouped", (2, 32, 6, 7), (96, 16, 3, 3), padding=1, groups=2),
    ConvCase("blocks_3d", (1, 16, 5, 6, 7), (16, 16, 3, 2, 3), (2, 1, 3), 1),
    ConvCase("blocks_dilated", (1, 16, 9, 10), (32, 16, 3, 3), 1, 2, (2, 3)),
    ConvCase("blocks_stride_beyond_kernel", (2, 16, 11, 13), (16, 16, 2, 2), (3, 4), 1),
    ConvCase("blocks_padding_beyond_kernel", (1, 16, 3, 4), (16, 16, 2, 3), 2, (5, 4)),
    ConvCase("blocks_rows_left_over", (1, 16, 12, 9), (16, 16, 3, 3), (5, 3)),
    ConvCase("blocks_pointwise", (3, 32, 5, 6), (48, 32, 1, 1)),
    ConvCase("blocks_pointwise_3d", (2, 16, 3, 2, 4), (16, 16, 1, 1, 1)),
    ConvCase("blocks_deep", (1, 192, 3, 4), (160, 192, 3, 3), padding=1),
    ConvCase("blocks_spare_lanes", (2, 28, 6, 7), (46, 28, 3, 3), padding=1),
    # Few channels, whose windows fill vectors
    ConvCase("windows_1d", (3, 2, 40), (24, 2, 5), 3, 2),
    ConvCase("windows_2d", (2, 3, 9, 11), (16, 3, 3, 3), padding=1),
    ConvCase("windows_3d", (1, 1, 5, 6, 7), (16, 1, 3, 2, 3), (1, 2, 1), 1),
    ConvCase("windows_stem", (2, 3, 20, 21), (37, 3, 7, 7), stride=2, padding=3),
    ConvCase("windows_patches", (2, 3, 12, 12), (48, 3, 4, 4), stride=4),
    ConvCase("windows_dilated_rows", (1, 2, 9, 10), (16, 2, 3, 3), 1, 2, (2, 1)),
    ConvCase("windows_stride_beyond_kernel", (2, 2, 9, 17), (20, 2, 2, 2), (3, 5), 1),
    ConvCase("windows_padding_beyond_kernel", (1, 3, 4, 5), (16, 3, 2, 3), 2, (5, 7)),
    ConvCase("windows_kernel_beyond_input", (2, 3, 6, 4), (16, 3, 3, 7), 1, (1, 3)),
    ConvCase("windows_columns_left_over", (1, 3, 7, 14), (16, 3, 2, 2), (2, 5)),
    ConvCase("windows_of_two_pairs", (1, 3, 6, 40), (16, 3, 2, 20), padding=(0, 2)),
    # More weights than input
    ConvCase("deep", (2, 9, 4, 5), (192, 9, 3, 3), stride=(1, 2), padding=1),
    ConvCase("deep_pointwise", (2, 21, 3, 4), (192, 21, 1, 1)),
)
assert len({case.name for case in CASES}) == len(CASES), "case names repeat"


DEPTHWISE_VECTORS = [case for case in CASES if case.name.startswith("vectors_")]


def find_conv_case(name: str) -> ConvCase:
    return next(case for case in CASES if case.name == name)


@st.composite
def conv_cases(draw) -> ConvCase:
    rank = draw(st.integers(1, 3))
    batch = draw(st.sampled_from([(), (1,), (2,), (5,)]))
    groups = draw(st.sampled_from([1, 2, 3, 4, 9, 17]))
    most = 5 if groups < 5 else 2
    channels = st.integers(1, most)
    if groups <= 2:
        channels |= st.sampled_from([8, 15, 16, 24, 32, 40])  # around whole vectors
    input_channels, output_channels = draw(channels), draw(channels)
    if draw(st.booleans()) and groups in (1, 2):
        groups, input_channels, output_channels = 16 * groups, 1, 1
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


def make_arrays(case: ConvCase, dtype: str = "float32", seed: int = 0, kind: str = "normal"):
    """`grad_output, input, weight`: the same arguments give the same values everywhere.

    kind "normal" is normally distributed, "integer" whole numbers so small that float32 adds them
    without rounding, "wide" spreads over many powers of two.
    """
    random = np.random.default_rng([seed, *case.input_shape, *case.weight_shape])
    shapes = (case.output_shape, case.input_shape, case.weight_shape)
    return tuple(
        round_to(_draw(random, shape, kind), dtype).astype(DTYPES[dtype]) for shape in shapes
    )


def _draw(random, shape, kind):
    if kind == "integer":
        return random.integers(-4, 5, shape).astype(np.float64)
    values = random.standard_normal(shape)
    return values * 2.0 ** random.integers(-6, 7, shape) if kind == "wide" else values


def empty_gradients(case: ConvCase, dtype: str, fill: float = 7.0):
    """Arrays for `out`, filled with a number that shows whether they were written to."""
    return tuple(np.full(shape, fill, DTYPES[dtype]) for shape in case.gradient_shapes)


# Tolerance


def bound(case: ConvCase, grad_output, input, weight, which: str, eps: float = EPS_FLOAT32, **more):
    """How far each element of the gradient `which` (of GRADIENTS) may be from the exact one.

    4 sqrt(K) eps times the sum of the absolute products, K the number of products in that sum.
    """
    mask = tuple(name == which for name in GRADIENTS)
    magnitudes = case.backward(
        reference, *map(np.abs, (grad_output, input, weight)), output_mask=mask, **more
    )
    index = GRADIENTS.index(which)
    return 4 * np.sqrt(_sum_lengths(case)[index]) * eps * magnitudes[index]


@functools.lru_cache(maxsize=256)
def _sum_lengths(case: ConvCase):
    # Where every product is 1, a sum is its own length.
    shapes = (case.output_shape, case.input_shape, case.weight_shape)
    return case.backward(reference, *map(np.ones, shapes))


def assert_close(results, case: ConvCase, arrays, *, expected=None, repeat=None, **more):
    """Fails unless every gradient is as close to the exact one as rounding allows.

    That is: between the exact values minus and plus their `bound`, both rounded to the dtype. NaN
    and infinity must be where they belong. A result of None must be masked.

    `expected` replaces the exact results of `backops.reference`, `more` are arguments of both;
    `repeat` is the line to show.
    """
    dtype = np.asarray(arrays[0]).dtype.name
    if expected is None:
        expected = case.backward(reference, *arrays, **more)
    more.pop("output_mask", None)
    assert len(results) == len(GRADIENTS)
    for which, got, exact in zip(GRADIENTS, results, expected, strict=True):
        assert (got is None) == (exact is None), f"{which} is {got}: {case}"
        if exact is None:
            continue
        eps = EPS_FLOAT64 if dtype == "float64" else EPS_FLOAT32
        with np.errstate(all="ignore"):
            allowed = bound(case, *arrays, which, eps, **more)
        _assert_between(got, exact, allowed, f"{which} of {case}, {dtype}", dtype, repeat)


def _assert_between(result, exact, allowed, what, dtype, repeat):
    assert isinstance(result, np.ndarray), f"{what}: a {type(result).__name__}"
    assert result.shape == exact.shape, f"{what}: shape {result.shape}, expected {exact.shape}"
    assert result.dtype == DTYPES[dtype], f"{what}: dtype {result.dtype}"
    with np.errstate(all="ignore"):
        got = result.astype(np.float64)
        low, high = round_to(exact - allowed, dtype), round_to(exact + allowed, dtype)
        same = (got == exact) | (np.isnan(got) & np.isnan(exact))
        good = np.where(np.isfinite(exact), (low <= got) & (got <= high), same)
    if good.all():
        return
    where = tuple(int(i) for i in np.argwhere(~good)[0])
    raise AssertionError(
        f"{what}: {np.count_nonzero(~good)} of {good.size} elements differ, first at {where}: "
        f"got {got[where]}, expected {exact[where]} within {allowed[where]}\n"
        f"to repeat: {repeat or 'run this test'}"
    )


def check(
    case: ConvCase, dtype="float32", *, seed=0, kind="normal", layout="contiguous", **keywords
):
    """Runs one problem, all tensors in that layout, and compares it with the reference."""
    import backops

    arrays = make_arrays(case, dtype, seed, kind)
    if layout != "contiguous":
        arrays = tuple(in_layout(array, case, layout) for array in arrays)
    more = "".join(f", {name}={value!r}" for name, value in keywords.items())
    settings = "".join(
        f"{name}={os.environ[name]} "
        for name in ("BACKOPS_ISA", "BACKOPS_NUM_THREADS")
        if name in os.environ
    )
    repeat = (
        f'{settings}PYTHONPATH=tests python -c "from conv_support import *; check({case!r}, '
        f"'{dtype}', seed={seed}, kind='{kind}', layout='{layout}'{more})\""
    )
    results = case.backward(backops, *arrays, **keywords)
    assert_close(results, case, arrays, repeat=repeat, **keywords)
    return results


def assert_exact(results, case: ConvCase, arrays, **more):
    """Fails unless results of "integer" data are the exact ones, rounded once to their dtype."""
    expected = case.backward(reference, *arrays, **more)
    dtype = np.asarray(arrays[0]).dtype.name
    for which, got, exact in zip(GRADIENTS, results, expected, strict=True):
        assert (got is None) == (exact is None), f"{which}: {case}"
        if exact is not None:
            what = f"{which} of {case}, {dtype}"
            _assert_between(got, round_to(exact, dtype), np.zeros_like(exact), what, dtype, None)


# Subprocesses


def check_cases_and_print_kernels(dtypes=tuple(DTYPES)) -> None:
    """Compares every case with the reference and prints what ran, one line for each."""
    import backops.plan

    for case, dtype in itertools.product(CASES, dtypes):
        check(case, dtype)
        print(case.name, dtype, case.plan(backops.plan, dtype=dtype).kernel)
