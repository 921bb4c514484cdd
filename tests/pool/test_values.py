"""What the pooling operators compute, against the reference, PyTorch and values known exactly."""

import dataclasses
import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import backops
from backops import reference
from tests.support.floats import DTYPES, same_bits
from tests.support.layouts import READ_LAYOUTS, in_layout
from tests.support.pool_cases import (
    Case,
    both_ways,
    find_case,
    load_cases,
    make_grad,
    make_source,
    parse_case,
)
from tests.support.pool_compare import assert_close, check, term_counts
from tests.support.pool_definitions import forward, torch_result

CASES = both_ways(load_cases())
FIXED = [case for case in CASES if not case.adaptive]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case_agrees_with_reference(case):
    for dtype in DTYPES:
        check(case, dtype)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_values_of_very_different_size_agree_with_reference(case):
    check(case, "float32", kind="wide", seed=1)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case_agrees_with_pytorch(case):
    source = make_source(case, "float32")
    expected = torch_result(case, source)
    if expected is None:
        pytest.skip("PyTorch cannot")
    assert_close(case.run(backops, source), case, source, expected=expected)


# Generated cases


@st.composite
def fixed_cases(draw):
    rank = draw(st.integers(1, 3))
    longest = {1: 150, 2: 40, 3: 14}[rank]
    ceil_mode, has_stride = draw(st.booleans()), draw(st.booleans())
    kernels, strides, paddings, sizes = [], [], [], []
    for _ in range(rank):
        kernel = draw(st.integers(1, min(longest, 33)))
        padding = draw(st.integers(0, kernel // 2))
        stride = draw(st.integers(1, 2 * kernel)) if has_stride else kernel
        kernels.append(kernel)
        paddings.append(padding)
        strides.append(stride)
        # Kernels may be longer than the axis, and with ceil_mode than the padded axis.
        shortest = kernel - 2 * padding - (stride - 1 if ceil_mode else 0)
        sizes.append(draw(st.integers(max(1, shortest), longest)))
    return Case(
        "generated",
        f"avg{rank}d",
        (*draw(batch_and_channels()), *sizes),
        tuple(kernels),
        tuple(strides) if has_stride else None,
        tuple(paddings),
        ceil_mode,
        draw(st.booleans()),
        draw(st.sampled_from([None, None, 1, -1, 3, -7, 1000])),
    )


@st.composite
def adaptive_cases(draw):
    rank = draw(st.integers(1, 3))
    longest = {1: 150, 2: 40, 3: 14}[rank]
    sizes = draw(st.lists(st.integers(1, longest), min_size=rank, max_size=rank))
    outputs = draw(st.lists(st.integers(1, longest), min_size=rank, max_size=rank))
    shape = (*draw(batch_and_channels()), *sizes)
    return Case("generated", f"adaptive{rank}d", shape, output_size=tuple(outputs))


def generated_cases():
    gradients = st.one_of(fixed_cases(), adaptive_cases())
    return st.one_of(gradients, gradients.map(lambda case: case.forward))


def batch_and_channels():
    return st.one_of(
        st.tuples(st.integers(0, 3), st.integers(1, 5)),
        st.tuples(st.integers(1, 5)),
        st.tuples(st.just(1), st.sampled_from([7, 8, 9, 16, 17, 33])),
    )


@given(
    generated_cases(),
    st.sampled_from(list(DTYPES)),
    st.integers(0, 2**32 - 1),
    st.sampled_from(["normal", "wide"]),
    st.sampled_from(READ_LAYOUTS),
)
def test_generated_case_agrees_with_reference(case, dtype, seed, kind, layout):
    check(case, dtype, seed=seed, kind=kind, layout=layout)


@given(generated_cases(), st.integers(0, 2**32 - 1))
def test_generated_case_agrees_with_pytorch(case, seed):
    source = make_source(case, "float32", seed)
    expected = torch_result(case, source)
    if expected is None:
        return
    repeat = f"make_source(parse_case({case.problem!r}), 'float32', {seed})"
    assert_close(case.run(backops, source), case, source, expected=expected, repeat=repeat)


@given(st.one_of(fixed_cases(), adaptive_cases()), st.integers(0, 2**32 - 1))
def test_backward_is_the_adjoint_of_pooling(case, seed):
    grad = make_grad(case, "float64", seed)
    x = np.random.default_rng(seed).standard_normal(case.input_shape)
    right = np.sum(x * case.backward(backops, grad))
    scale = np.sum(np.abs(x) * np.abs(case.backward(backops, np.abs(grad))))
    for y in (forward(case, x), case.forward.run(backops, x)):
        assert abs(np.sum(y * grad) - right) <= 1e-13 * scale, case.problem


# Values known exactly

EXACT_PROBLEMS = [
    "avg1d in=2x3x37 k=4 s=1",
    "avg1d in=2x3x37 k=8 s=2 p=4",
    "avg2d in=2x3x16x18 k=2",
    "avg2d in=2x9x17x19 k=4x2 s=1x2 p=2x1",
    "avg2d in=2x3x17x19 k=3 s=2 p=1 div=-4",
    "avg3d in=1x3x6x7x8 k=2 s=1 p=1",
    "avg3d in=1x3x8x8x8 k=4x2x1 s=2",
    "adaptive2d in=2x3x16x8 out=4x4",
    "adaptive3d in=1x3x4x8x16 out=1x2x16",
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("problem", EXACT_PROBLEMS)
def test_whole_numbers_over_power_of_two_windows_are_exact(problem, dtype):
    # Every product and sum is a multiple of 1/64 and small, so no dtype has to round.
    for case in both_ways([parse_case(problem)]):
        source = make_source(case, dtype, kind="integer")
        expected = case.run(reference, source)
        assert np.array_equal(case.run(backops, source).astype(np.float64), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("problem", EXACT_PROBLEMS)
def test_forward_and_backward_are_exactly_adjoint_on_whole_numbers(problem, dtype):
    case = parse_case(problem)
    grad, x = (make_source(way, dtype, kind="integer") for way in (case, case.forward))
    y, grad_x = case.forward.run(backops, x), case.run(backops, grad)
    left, right = (
        np.sum(a.astype(np.float64) * b.astype(np.float64)) for a, b in ((y, grad), (x, grad_x))
    )
    assert left == right
    assert left != 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_inputs_in_no_window_are_positive_zero(dtype):
    case = find_case("gaps_2d")
    grad = -np.abs(make_grad(case, dtype))
    result = case.backward(backops, grad)
    outside = term_counts(case) == 0
    assert outside.any()
    assert not result[outside].astype(np.float64).any()
    assert not np.signbit(result[outside].astype(np.float64)).any()


def test_hand_computed_overlap_with_excluded_padding():
    grad = np.array([[[6.0, 6.0]]], np.float32)
    result = backops.avg_pool1d_backward(grad, (1, 1, 4), 3, 2, 1, count_include_pad=False)
    assert result.tolist() == [[[3.0, 5.0, 2.0, 2.0]]]


@pytest.mark.parametrize("include_pad", [True, False])
@pytest.mark.parametrize("module", [backops, reference])
def test_ceil_mode_has_one_window_of_a_kernel_longer_than_the_padded_axis(module, include_pad):
    grad = np.array([[[15.0]]])
    windows = {"ceil_mode": True, "count_include_pad": include_pad}
    result = module.avg_pool1d_backward(grad, (1, 1, 3), 7, 7, 1, **windows)
    assert result.tolist() == [[[15 / (5 if include_pad else 3)] * 3]]


def pooled_by_pytorch(*window, ceil_mode):
    """How many outputs one axis has, 0 where PyTorch refuses. In 1-D, as 3-D refuses more."""
    import torch

    length, *rest = window
    try:
        return torch.nn.functional.avg_pool1d(torch.ones(1, 1, length), *rest, ceil_mode).shape[-1]
    except RuntimeError:
        return 0


@pytest.mark.parametrize("module", [backops, reference])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_long_kernels_pool_to_what_pytorch_says(module, rank):
    function = getattr(module, f"avg_pool{rank}d_backward")
    for length, kernel, stride, ceil_mode in itertools.product(
        range(1, 4), range(1, 9), (1, 2, 3, 7, 8), (False, True)
    ):
        for padding in range(kernel // 2 + 1):
            outputs = pooled_by_pytorch(length, kernel, stride, padding, ceil_mode=ceil_mode)
            grad = np.ones((1, 1, *[max(outputs, 1)] * rank))
            arguments = grad, (1, 1, *[length] * rank), kernel, stride, padding
            if outputs:
                function(*arguments, ceil_mode=ceil_mode)
                continue
            with pytest.raises(ValueError, match=r"kernel_size\[0\]"):
                function(*arguments, ceil_mode=ceil_mode)


def test_ceil_mode_drops_window_starting_in_padding():
    grad = np.array([[[2.0, 4.0]]], np.float32)
    result = backops.avg_pool1d_backward(grad, (1, 1, 4), 2, 3, 1, ceil_mode=True)
    assert result.tolist() == [[[1.0, 0.0, 2.0, 2.0]]]


@pytest.mark.parametrize("name", ["unbatched_2d", "forward_unbatched_2d"])
def test_unbatched_result_is_the_batched_one(name):
    case = find_case(name)
    source = make_source(case)
    batched = dataclasses.replace(case, input_shape=(1, *case.input_shape))
    result = batched.run(backops, source[np.newaxis])[0]
    assert same_bits(result, case.run(backops, source))


@pytest.mark.parametrize(
    ("kernel_size", "stride", "padding"),
    [(3, 2, 1), ([3], [2], [1]), ((3, 3), (2, 2), (1, 1)), (np.int64(3), np.int32(2), np.int8(1))],
)
def test_parameters_may_be_an_int_or_a_sequence(kernel_size, stride, padding):
    case = find_case("overlap_2d")
    grad = make_grad(case)
    result = backops.avg_pool2d_backward(grad, case.input_shape, kernel_size, stride, padding)
    assert same_bits(result, case.backward(backops, grad))


@pytest.mark.parametrize("stride", [None, (), []])
def test_stride_defaults_to_kernel_size(stride):
    grad = make_grad(find_case("kernel_equals_stride_2d"))
    result = backops.avg_pool2d_backward(grad, (2, 3, 16, 16), 2, stride)
    expected = backops.avg_pool2d_backward(grad, (2, 3, 16, 16), 2, 2)
    assert same_bits(result, expected)


def test_divisor_override_of_zero_means_none():
    case = find_case("overlap_2d")
    grad = make_grad(case)
    zero = dataclasses.replace(case, divisor_override=0)
    assert same_bits(zero.backward(backops, grad), case.backward(backops, grad))


def test_input_may_be_an_array_or_any_sequence_of_sizes():
    case = find_case("overlap_2d")
    grad = make_grad(case)
    expected = case.backward(backops, grad)
    for given_input in (np.zeros(case.input_shape, np.float32), list(case.input_shape)):
        result = backops.avg_pool2d_backward(grad, given_input, *case.positional)
        assert same_bits(result, expected)


def test_parameters_may_be_given_by_name():
    case = find_case("exclude_pad_2d")
    grad = make_grad(case)
    result = backops.avg_pool2d_backward(
        grad_output=grad,
        input=case.input_shape,
        kernel_size=3,
        stride=2,
        padding=1,
        ceil_mode=False,
        count_include_pad=False,
        divisor_override=None,
        precision="keep",
        out=None,
    )
    assert same_bits(result, case.backward(backops, grad))


def test_hand_computed_averages():
    x = np.array([[[1.0, 2.0, 3.0, 6.0]]], np.float32)
    assert backops.avg_pool1d(x, 2, 2, 1).tolist() == [[[0.5, 2.5, 3.0]]]
    exclude = backops.avg_pool1d(x, 2, 2, 1, count_include_pad=False)
    assert exclude.tolist() == [[[1.0, 2.5, 6.0]]]
    assert backops.avg_pool1d(x, 2, divisor_override=-1).tolist() == [[[-3.0, -9.0]]]
    assert backops.adaptive_avg_pool1d(x, 3).tolist() == [[[1.5, 2.5, 4.5]]]
    # Upsampling repeats: windows [0, 1), [0, 1), [1, 2), ...
    assert backops.adaptive_avg_pool1d(x, 8).tolist() == [[[1, 1, 2, 2, 3, 3, 6, 6]]]


def test_windows_on_the_same_inputs_may_divide_by_different_numbers():
    # Both hold the one input; the second reaches beyond the padding.
    result = backops.avg_pool1d(np.full((1, 1, 1), 12.0), 6, 3, 3, ceil_mode=True)
    assert result.tolist() == [[[2.0, 3.0]]]
    planes = np.full((1, 1, 1, 1, 1), 12.0)
    for axis in range(3):
        windows = [[6 if i == axis else 1, 3 if i == axis else 1] for i in range(3)]
        kernel, stride = zip(*windows, strict=True)
        padding = [3 if i == axis else 0 for i in range(3)]
        result = backops.avg_pool3d(planes, kernel, stride, padding, ceil_mode=True)
        assert result.reshape(-1).tolist() == [2.0, 3.0]


@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
@pytest.mark.parametrize("channels", [3, 40])
def test_long_windows_at_borders_divide_by_their_own_sizes(channels, layout):
    for kernel in (7, 9, 20):
        window = f"k={kernel} s=1 p={kernel // 2} exclude_pad"
        check(f"forward avg2d in=2x{channels}x30x31 {window}", layout=layout)
        check(f"forward avg3d in=1x{channels}x12x11x22 {window}", layout=layout)


@pytest.mark.parametrize(
    ("output_size", "shape"),
    [
        (3, (3, 3)),
        ([3], (3, 3)),
        ((3, 5), (3, 5)),
        (None, (7, 8)),
        ((None, 5), (7, 5)),
        ([None], (7, 8)),
    ],
)
def test_output_size_may_be_an_int_or_a_sequence_and_none_keeps_a_size(output_size, shape):
    x = make_source(parse_case("forward avg2d in=2x3x7x8 k=1"))
    result = backops.adaptive_avg_pool2d(x, output_size)
    assert result.shape == (2, 3, *shape)
    assert same_bits(result, backops.adaptive_avg_pool2d(x, shape))
    assert np.array_equal(
        reference.adaptive_avg_pool2d(x, output_size), reference.adaptive_avg_pool2d(x, shape)
    )
    assert same_bits(backops.plan.adaptive_avg_pool2d(x.shape, output_size)(x), result)


def test_forward_parameters_may_be_given_by_name():
    case = find_case("forward_exclude_pad_2d")
    x = make_source(case)
    result = backops.avg_pool2d(
        input=x,
        kernel_size=3,
        stride=2,
        padding=1,
        ceil_mode=False,
        count_include_pad=False,
        divisor_override=None,
        precision="keep",
        out=None,
    )
    assert same_bits(result, case.run(backops, x))
    adaptive = find_case("forward_adaptive_uneven_2d")
    x = make_source(adaptive)
    result = backops.adaptive_avg_pool2d(input=x, output_size=adaptive.output_size, out=None)
    assert same_bits(result, adaptive.run(backops, x))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_averages_round_once_to_even(dtype):
    unit = {"float16": 2.0**-10, "bfloat16": 2.0**-7}[dtype]
    # Means of four in units above 1: 1/2, 3/2, a little more and less than 1/2.
    means = {(0, 0, 1, 1): 0, (1, 1, 2, 2): 2, (0, 1, 1, 1): 1, (0, 0, 0, 1): 0, (1, 2, 2, 2): 2}
    for units, expected in means.items():
        for order in set(itertools.permutations(units)):
            x = (1 + np.array([[order]]) * unit).astype(DTYPES[dtype])
            assert float(backops.avg_pool1d(x, 4)[0, 0, 0]) == 1 + expected * unit, order


# NaN and infinity

SPECIAL_CASES = [
    "overlap_1d",
    "overlap_2d",
    "overlap_2d_stride_one",
    "overlap_3d",
    "kernel_equals_stride_2d",
    "gaps_2d",
    "global_2d",
    "exclude_pad_2d",
    "kernel_15_stride_one",
    "channel_tail_9",
    "width_17",
    "adaptive_uneven_2d",
    "adaptive_uneven_3d",
    "adaptive_upsampling_2d",
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*SPECIAL_CASES, *(f"forward_{name}" for name in SPECIAL_CASES)])
def test_nan_and_infinity_reach_exactly_their_windows(name, dtype):
    for layout in ["contiguous", "channels_last", "reversed"]:
        case = find_case(name)
        source = make_source(case, dtype)
        flat = source.reshape(-1)
        # Far apart and close together, so that opposite infinities meet in some cases.
        for place, value in zip(
            np.linspace(0, flat.size - 1, 5).astype(int),
            [np.nan, np.inf, -np.inf, np.nan, np.inf],
            strict=True,
        ):
            flat[place] = value
        flat[flat.size // 3 : flat.size // 3 + 2] = [np.inf, -np.inf]
        result = case.run(backops, in_layout(source, case, layout))
        assert_close(result, case, source)
        assert np.isnan(result.astype(np.float64)).any()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    "problem",
    [
        "avg2d in=1x1x6x19 k=3 s=2 p=1",
        "forward avg2d in=1x1x6x19 k=3 s=2 p=1",
        "forward avg2d in=1x1x12x40 k=9 s=1 p=4",
        "forward avg2d in=1x1x9x50 k=3x10 s=3x10",
        "forward adaptive2d in=1x1x7x70 out=3x3",
    ],
)
def test_every_position_of_one_special_value_reaches_its_window_only(problem, value):
    case = parse_case(problem)
    for place in range(np.prod(case.source_shape)):
        source = np.zeros(case.source_shape, np.float32)
        source.reshape(-1)[place] = value
        marked = np.zeros(case.source_shape)
        marked.reshape(-1)[place] = 1
        window = case.run(reference, marked) != 0
        expected = np.where(window, value, 0).astype(np.float32)
        assert np.array_equal(case.run(backops, source), expected, equal_nan=True), place


# Rounding


@pytest.mark.parametrize(
    ("dtype", "unit"), [("float16", 2.0**-10), ("bfloat16", 2.0**-7)], ids=["float16", "bfloat16"]
)
def test_halfway_sums_round_to_even_once(dtype, unit):
    # Three windows over one element; sums in units above 1. Rounding after each addition, or
    # through another format, would give another answer.
    terms = {
        (1, unit / 2, 0): 1,
        (1, 3 * unit / 2, 0): 1 + 2 * unit,
        (1, unit / 2, unit / 64): 1 + unit,
        (1, unit / 2, -unit / 64): 1,
        (1, unit / 4, unit / 4): 1,
        (1, unit / 4, 3 * unit / 8): 1 + unit,
        (-1, -unit / 2, 0): -1,
        (-1, -3 * unit / 2, 0): -1 - 2 * unit,
    }
    for three, expected in terms.items():
        for order in itertools.permutations(three):
            grad = np.array([[order]]).astype(DTYPES[dtype])
            result = backops.avg_pool1d_backward(grad, (1, 1, 5), 3, 1, divisor_override=1)
            assert float(result[0, 0, 2]) == expected, order


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_subnormal_gradients_are_kept_and_rounded_to_even(dtype):
    least = {"float16": 2.0**-24, "bfloat16": 2.0**-133}[dtype]
    # Half of 1, 2, 3, 5 and 7 smallest numbers; 0.5, 1.5, 2.5 and 3.5 are ties.
    grad = (np.array([[[1, 2, 3, 5, 7, -1, -3]]]) * least).astype(DTYPES[dtype])
    result = backops.avg_pool1d_backward(grad, (1, 1, 14), 2).astype(np.float64)
    assert (result[0, 0, ::2] / least).tolist() == [0, 1, 2, 2, 4, 0, -2]
    assert np.array_equal(result[..., ::2], result[..., 1::2])


@pytest.mark.parametrize("dtype", DTYPES)
def test_smallest_numbers_pass_through_an_identity_kernel(dtype):
    if dtype == "bfloat16":
        least = 2.0**-133
    else:
        least = float(np.finfo(DTYPES[dtype]).smallest_subnormal)
    values = np.arange(-20, 20).reshape(1, 2, 20) * least
    grad = values.astype(DTYPES[dtype])
    assert np.array_equal(backops.avg_pool1d_backward(grad, (1, 2, 20), 1), grad)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sum_beyond_the_largest_number_becomes_infinity(dtype):
    largest = float(ml_dtypes.finfo(DTYPES[dtype]).max)
    grad = np.array([[[largest, largest, -largest, -largest]]]).astype(DTYPES[dtype])
    result = backops.avg_pool1d_backward(grad, (1, 1, 5), 2, 1, divisor_override=1)
    expected = [largest, np.inf, 0, -np.inf, -largest]
    assert result.astype(np.float64)[0, 0].tolist() == expected


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize(
    "problem",
    [
        "avg2d in=1x2x9x20 k=2 s=1",
        "avg2d in=1x2x9x20 k=4 s=1 div=16",
        "forward avg2d in=1x2x9x20 k=4 s=1",
        "forward avg3d in=1x2x8x9x20 k=5 s=2 p=2 exclude_pad",
        "forward adaptive2d in=1x2x31x50 out=3x4",
    ],
)
def test_large_numbers_do_not_overflow_before_they_are_divided(problem, dtype):
    # Each element's contributions add up to at most the largest number.
    case = parse_case(problem)
    largest = {"float16": 65504.0, "bfloat16": 3e38, "float32": 3.4e38}[dtype]
    source = np.full(case.source_shape, largest).astype(DTYPES[dtype])
    result = case.run(backops, source)
    assert np.isfinite(result.astype(np.float64)).all()
    assert_close(result, case, source)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_value_of_a_half_type_survives_an_identity_kernel(dtype):
    bits = np.arange(2**16, dtype=np.uint16).reshape(1, 64, 32, 32)
    grad = bits.view(DTYPES[dtype])
    result = backops.avg_pool2d_backward(grad, grad.shape, 1)
    nan = np.isnan(grad.astype(np.float32))
    assert np.isnan(result.astype(np.float32)[nan]).all()
    assert np.array_equal(result.astype(np.float32)[~nan], grad.astype(np.float32)[~nan])


# Precision


def rounded_to_hf32(grad):
    """float32 rounded to 11 mantissa bits, ties away from zero: by arithmetic, not by bits."""
    mantissa, exponent = np.frexp(grad.astype(np.float64))
    cut = np.trunc(mantissa * 2**12 + np.copysign(0.5, mantissa)) / 2**12
    return np.ldexp(cut, exponent).astype(np.float32)


def halfway_numbers(case):
    """Random numbers, half of them with the 12 lowest mantissa bits at a tie or next to one."""
    source = make_source(case)
    bits = source.view(np.uint32).reshape(-1)
    for offset, tail in enumerate((0x800, 0x7FF, 0x801, 0x000)):
        bits[offset::8] = (bits[offset::8] & 0xFFFFF000) | tail
    return source


@pytest.mark.parametrize("precision", ["hf32", "allow_fp32_down"])
@pytest.mark.parametrize("case", FIXED[::3], ids=lambda case: case.name)
def test_hf32_equals_keep_of_numbers_rounded_before(case, precision):
    source = halfway_numbers(case)
    result = case.run(backops, source, precision=precision)
    assert same_bits(result, case.run(backops, rounded_to_hf32(source)))


@pytest.mark.parametrize("case", FIXED[1::3], ids=lambda case: case.name)
def test_fp16_equals_keep_of_numbers_rounded_before(case):
    source = make_source(case, kind="wide") * np.float32(64)
    with np.errstate(over="ignore"):
        rounded = source.astype(np.float16).astype(np.float32)
    result = case.run(backops, source, precision="fp16")
    assert same_bits(result, case.run(backops, rounded))


def test_precision_changes_float32_results():
    case = find_case("overlap_2d")
    grad = make_grad(case)
    keep, hf32, fp16 = (
        case.backward(backops, grad, precision=precision) for precision in ("keep", "hf32", "fp16")
    )
    assert not np.array_equal(keep, hf32)
    assert not np.array_equal(keep, fp16)
    assert not np.array_equal(hf32, fp16)


@pytest.mark.parametrize("layout", ["channels_last", "reversed", "every_second", "offset_by_byte"])
@pytest.mark.parametrize("precision", ["hf32", "fp16", "allow_fp32_down"])
def test_precision_applies_in_every_layout(precision, layout):
    for name in ("overlap_2d", "global_2d", "kernel_equals_stride_2d", "kernel_15_stride_one"):
        for case in both_ways([find_case(name)]):
            check(case, "float32", layout=layout, precision=precision)


@pytest.mark.parametrize("precision", ["hf32", "fp16"])
def test_precision_keeps_nan_and_infinity(precision):
    grad = np.array([[[np.nan, np.inf, -np.inf, 1.0]]], np.float32)
    # A NaN whose only mantissa bits are among those that are cut must not become an infinity.
    grad.view(np.uint32)[0, 0, 0] = 0x7F800001
    result = backops.avg_pool1d_backward(grad, (1, 1, 4), 1, precision=precision)
    assert np.array_equal(result, [[[np.nan, np.inf, -np.inf, 1.0]]], equal_nan=True)


@pytest.mark.parametrize(
    ("dtype", "precision"),
    [
        ("float16", "keep"),
        ("float16", "allow_fp32_down"),
        ("float16", "fp16"),
        ("bfloat16", "keep"),
        ("bfloat16", "allow_fp32_down"),
        ("float64", "keep"),
        ("float64", "allow_fp32_down"),
    ],
)
def test_precision_leaves_other_dtypes_as_they_are(dtype, precision):
    for case in both_ways([find_case("overlap_2d")]):
        source = make_source(case, dtype)
        result = case.run(backops, source, precision=precision)
        assert same_bits(result, case.run(backops, source))


# Sizes

TWO_TO_31 = 2**31


@pytest.mark.slow
@pytest.mark.parametrize("rank", [1, 2])
def test_fixed_pooling_of_more_than_two_to_31_elements(rank):
    # 4.3 GB of float16: nothing but the first and the last windows of each row is not 0.
    shape = (1, TWO_TO_31 + 8) if rank == 1 else (1, 2, 2**15 + 1, 2**15)
    outputs = (*shape[:-rank], *(size // 2 for size in shape[-rank:]))
    grad = np.broadcast_to(np.float16(0), outputs).copy()
    grad[..., -1] = 4
    grad[(0,) * len(outputs)] = 8
    function = getattr(backops, f"avg_pool{rank}d_backward")
    result = function(grad, shape, 2)
    share = 2**rank
    assert result[(0,) * len(shape)] == 8 / share
    covered = result[..., : 2 * outputs[-2], :] if rank == 2 else result
    assert (covered[..., -2:] == 4 / share).all()
    assert np.count_nonzero(result) == share + 2 * covered[..., 0].size


@pytest.mark.slow
def test_adaptive_pooling_of_more_than_two_to_31_elements():
    size = TWO_TO_31 + 8
    for outputs in (1, 8):
        grad = np.arange(1, outputs + 1, dtype=np.float16).reshape(1, 1, outputs)
        result = backops.adaptive_avg_pool1d_backward(grad * np.float16(2.0**12), (1, 1, size))
        ends = np.arange(outputs) * (size // outputs)
        expected = (np.arange(1, outputs + 1) * 2.0**12 / (size // outputs)).astype(np.float16)
        assert np.array_equal(result[0, 0, ends], expected)
        assert np.array_equal(result[0, 0, ends + size // outputs - 1], expected)
        del result
