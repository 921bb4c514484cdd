"""What convolutions compute, against the reference, PyTorch and values known exactly."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import backops
from backops import reference
from tests.support.conv_cases import (
    CASES,
    LARGE_CASES,
    MASKS,
    OPERATORS,
    TRANSPOSED_CASES,
    ConvCase,
    conv_readings,
    empty_results,
    find_conv_case,
    make_arrays,
    reading_id,
    readings,
    readings_in_turn,
)
from tests.support.conv_compare import assert_close, assert_exact, check, repeat_line
from tests.support.conv_definitions import torch_results
from tests.support.floats import DTYPES, same_bits, with_special_values
from tests.support.isa import LEVELS, call_on
from tests.support.layouts import READ_LAYOUTS, in_layout

READINGS = readings_in_turn([*CASES, *TRANSPOSED_CASES])
FORWARD, BACKWARD = ("conv", "conv_transpose"), ("conv_backward", "conv_transpose_backward")
every_case = pytest.mark.parametrize("case", READINGS, ids=reading_id)
every_operator = pytest.mark.parametrize("operator", OPERATORS)
both_forward = pytest.mark.parametrize("operator", FORWARD)
both_backward = pytest.mark.parametrize("operator", BACKWARD)
every_dtype = pytest.mark.parametrize("dtype", DTYPES)
seeds = st.integers(0, 2**32 - 1)


# Against the reference


@every_case
def test_case_agrees_with_reference(case):
    for dtype in DTYPES:
        check(case, dtype)


@pytest.mark.parametrize("case", READINGS[::3], ids=reading_id)
def test_values_of_very_different_size_agree_with_reference(case):
    for dtype in DTYPES:
        check(case, dtype, kind="wide", seed=1)


@given(
    conv_readings(),
    st.sampled_from(list(DTYPES)),
    seeds,
    st.sampled_from(["normal", "wide"]),
    st.sampled_from(READ_LAYOUTS),
)
def test_generated_case_agrees_with_reference(case, dtype, seed, kind, layout):
    check(case, dtype, seed=seed, kind=kind, layout=layout)


LARGE_NAMES = [case.name for case in LARGE_CASES]
every_large_case = pytest.mark.parametrize("case", readings(LARGE_CASES), ids=reading_id)


@every_large_case
def test_large_case_agrees_with_reference(case):
    # The half types in turn, two operators each. Both on whole numbers, whose reference they share.
    half = ("bfloat16", "float16")[
        (LARGE_NAMES.index(case.name) + OPERATORS.index(case.operator)) % 2
    ]
    for dtype in ["float32", half]:
        results = check(case, dtype)
        # And what is left in a workspace does not matter. (Of other cases, see the tests of plans.)
        plan = case.plan(backops.plan, dtype=dtype)
        full_of_nan = np.full(plan.workspace_size, 255, np.uint8)
        again = case.run(plan, *make_arrays(case, dtype), workspace=full_of_nan)
        assert all(map(same_bits, again, results))


# Against PyTorch, which computes in float64 on the same values


def check_against_torch(case, dtype, seed=0):
    arrays = make_arrays(case, dtype, seed)
    expected = torch_results(case, *(array.astype(np.float64) for array in arrays))
    assert_close(case.call(backops, *arrays), case, arrays, expected=expected)


@every_case
def test_case_agrees_with_pytorch(case):
    for dtype in ["float32", "float64"]:
        check_against_torch(case, dtype)


@given(conv_readings(), st.sampled_from(["float32", "float64"]), seeds)
def test_generated_case_agrees_with_pytorch(case, dtype, seed):
    check_against_torch(case, dtype, seed)


# Values known exactly


@every_case
def test_whole_numbers_are_added_exactly_and_rounded_once(case):
    for dtype in DTYPES:
        arrays = make_arrays(case, dtype, kind="integer")
        assert_exact(case.call(backops, *arrays), case, arrays)


@every_large_case
def test_many_whole_numbers_are_added_exactly_and_rounded_once(case):
    for dtype in ["float32", "bfloat16", "float16"]:
        arrays = make_arrays(case, dtype, kind="integer")
        assert_exact(case.call(backops, *arrays), case, arrays)


def test_hand_computed_gradients():
    grad_output = np.array([[[1, 10]]], np.float32)
    input = np.array([[[1, 2, 3]]], np.float32)
    weight = np.array([[[4, 5]]], np.float32)
    results = backops.conv_backward(grad_output, input, weight)
    assert type(results) is tuple
    assert [result.tolist() for result in results] == [[[[4, 45, 50]]], [[[21, 32]]], [11]]


def test_hand_computed_results():
    input = np.array([[[1, 2, 3]]], np.float32)
    weight, bias = np.array([[[4, 5]]], np.float32), np.array([100], np.float32)
    assert backops.conv(input, weight).tolist() == [[[14, 23]]]
    assert backops.conv(input, weight, bias, padding=1).tolist() == [[[105, 114, 123, 112]]]
    assert backops.conv_transpose(input, weight).tolist() == [[[4, 13, 22, 15]]]
    spread = backops.conv_transpose(input, weight, bias, stride=3, padding=1, output_padding=2)
    assert spread.tolist() == [[[105, 100, 108, 110, 100, 112, 115, 100]]]
    results = backops.conv_transpose_backward(np.array([[[1, 2, 3, 4]]], np.float32), input, weight)
    assert [result.tolist() for result in results] == [[[[14, 23, 32]]], [[[14, 20]]], [10]]


# One map: <conv(x), y> = <x, conv_backward(y)>, and its transpose is conv_transpose


def check_adjoint(case, dtype):
    """On whole numbers, whose sums are exact in float32 and float64."""
    y, x, weight = make_arrays(case.read_as("conv_transpose_backward"), dtype, kind="integer")

    def run(operator, *operands):
        return case.read_as(operator).call(backops, *operands)

    def dot(a, b):
        return np.vdot(a.astype(np.float64), b.astype(np.float64))

    (made,) = run("conv_transpose", x, weight)
    back, of_weight, of_bias = run("conv_transpose_backward", y, x, weight)
    assert dot(made, y) == dot(x, back) == dot(weight, of_weight)
    assert np.array_equal(of_bias, y.astype(np.float64).sum(channel_axes(case)))
    if case.fewer == 0:
        assert np.array_equal(run("conv", y, weight)[0], back)
        grad_input, grad_weight, _ = run("conv_backward", x, y, weight)
        assert np.array_equal(grad_input, made)
        assert np.array_equal(grad_weight, of_weight)


@pytest.mark.parametrize(
    "case", [*CASES, *TRANSPOSED_CASES, *LARGE_CASES], ids=lambda case: case.name
)
def test_operators_are_parts_of_one_map(case):
    for dtype in ["float32", "float64"]:
        check_adjoint(case, dtype)


@given(conv_readings(("conv_transpose",)), st.sampled_from(["float32", "float64"]))
def test_generated_operators_are_parts_of_one_map(case, dtype):
    check_adjoint(case, dtype)


# The bias


@pytest.mark.parametrize("case", readings(CASES[::5], FORWARD), ids=reading_id)
def test_no_bias_is_one_of_zeros(case):
    for dtype in DTYPES:
        input, weight, bias = make_arrays(case, dtype)
        (without,) = case.call(backops, input, weight)
        assert same_bits(case.call(backops, input, weight, None)[0], without)
        assert same_bits(case.call(backops, input, weight, bias=None)[0], without)
        (zeros,) = case.call(backops, input, weight, np.zeros_like(bias))
        assert np.array_equal(zeros, without)
        assert_close((without,), case, (input, weight))


@every_dtype
@pytest.mark.parametrize("name", ["plain_2d", "padded_by_4", "padded_by_4_depthwise", "up_by_8"])
@both_forward
def test_bias_fills_what_nothing_else_reaches(operator, name, dtype):
    case = find_conv_case(name).read_as(operator)
    input, weight, bias = make_arrays(case, dtype)
    (result,) = case.call(backops, np.zeros_like(input), weight, bias)
    expected = np.broadcast_to(bias.reshape(-1, *[1] * case.rank), result.shape)
    assert np.array_equal(result, expected)


@every_dtype
@both_forward
def test_bias_of_any_strides(operator, dtype):
    case = find_conv_case("plain_2d").read_as(operator)
    input, weight, bias = make_arrays(case, dtype, kind="integer")
    for strided in (
        np.repeat(bias, 3)[::3],
        bias[::-1].copy()[::-1],
        np.broadcast_to(bias[0], bias.shape),
    ):
        assert_exact(case.call(backops, input, weight, strided), case, (input, weight, strided))


def sums_with_bias(operator, channels, terms, bias, dtype):
    """Results that all are the sum of both terms and the bias."""
    inputs, outputs, groups = channels
    # Two terms by turns under a kernel of two ones; of each group, the first input channel counts.
    values = np.resize(terms, (2, inputs, 5, 9))
    if operator == "conv":
        weight = np.zeros((outputs, inputs // groups, 1, 2))
        weight[:, 0] = 1
        padding = 0
    else:
        weight = np.zeros((inputs, outputs // groups, 1, 2))
        weight[:: inputs // groups] = 1
        padding = (0, 1)
    arrays = (a.astype(DTYPES[dtype]) for a in (values, weight, np.full(outputs, bias)))
    result = getattr(backops, operator)(*arrays, padding=padding, groups=groups)
    return result.astype(np.float64)


@pytest.mark.parametrize(
    ("dtype", "unit"), [("float16", 2.0**-10), ("bfloat16", 2.0**-7)], ids=["float16", "bfloat16"]
)
@pytest.mark.parametrize(
    "channels", [(1, 1, 1), (16, 16, 1), (16, 16, 16), (64, 32, 1), (3, 40, 1), (8, 16, 4)], ids=str
)
@both_forward
def test_bias_is_added_before_the_one_rounding(operator, channels, dtype, unit):
    # Rounded before the bias is added, the sums would be 1, 1 + 2 units and 2.
    for terms, bias, expected in (
        ((1, unit / 2), unit / 64, 1 + unit),
        ((1 + unit, unit / 2), -unit / 64, 1 + unit),
        ((2, unit / 2), -2, unit / 2),
    ):
        result = sums_with_bias(operator, channels, terms, bias, dtype)
        assert (result == expected).all(), (terms, bias)


def test_bias_is_added_to_sums_beyond_the_largest_half_number():
    ones = np.full((1, 1, 1), 65504, np.float16)
    twice = np.full((1, 1, 1), 2, np.float16)
    for operator in (backops.conv, backops.conv_transpose):
        assert operator(ones, twice, np.array([-65504], np.float16)).item() == 65504
        assert operator(ones, twice).item() == np.inf


@every_dtype
@both_forward
def test_special_values_of_the_bias_reach_their_channel(operator, dtype):
    for name in ("plain_2d", "depthwise_2d", "blocks_2d", "windows_stem", "padded_by_4"):
        case = find_conv_case(name).read_as(operator)
        input, weight, bias = make_arrays(case, dtype)
        for value in (np.nan, np.inf, -np.inf):
            bias[len(bias) // 2] = value
            assert_close(case.call(backops, input, weight, bias), case, (input, weight, bias))


# What is in no window


@every_dtype
def test_inputs_in_no_window_get_zero(dtype):
    case = find_conv_case("stride_beyond_kernel_2d")
    outside = case.backward(reference, *map(np.ones_like, make_arrays(case, "float64")))[0] == 0
    assert outside.any()
    grad_input, _, _ = case.backward(backops, *make_arrays(case, dtype))
    assert not grad_input[outside].astype(np.float64).any()


@pytest.mark.parametrize(
    "changes",
    [
        {"stride": (2,), "padding": [3], "dilation": (3, 3)},
        {"stride": np.int64(2), "padding": np.int8(3), "dilation": [np.int32(3)]},
        {"stride": [2, 2], "padding": (3, 3), "groups": np.int64(1)},
    ],
)
@every_operator
def test_parameters_may_be_an_int_or_a_sequence(changes, operator):
    case = find_conv_case("stride_and_dilation").read_as(operator)
    arrays = make_arrays(case)
    results = case.run(getattr(backops, operator), *arrays, **{**case.keywords, **changes})
    assert all(map(same_bits, results, case.call(backops, *arrays)))


@pytest.mark.parametrize("value", [1, (1,), [1, 1], np.int64(1)], ids=repr)
@pytest.mark.parametrize("operator", ["conv_transpose", "conv_transpose_backward"])
def test_output_padding_may_be_an_int_or_a_sequence(operator, value):
    case = ConvCase("", (2, 3, 8, 10), (4, 3, 3, 3), stride=2, padding=1).read_as(operator)
    assert case.output_padding == (1, 1)
    arrays = make_arrays(case)
    keywords = {**case.keywords, "output_padding": value}
    results = case.run(getattr(backops, operator), *arrays, **keywords)
    assert all(map(same_bits, results, case.call(backops, *arrays)))


@every_operator
def test_every_argument_may_be_given_by_name(operator):
    case = find_conv_case("groups_2d").read_as(operator)
    arrays = make_arrays(case)
    given = {
        **dict(zip(case.operand_shapes, arrays, strict=True)),
        "stride": 1,
        "padding": 1,
        "dilation": 1,
        "groups": 2,
        "precision": "keep",
        "out": None,
    }
    if case.is_transposed:
        given["output_padding"] = 0
    if case.is_backward:
        given["output_mask"] = (True, True, True)
    results = case.run(getattr(backops, operator), **given)
    assert all(map(same_bits, results, case.call(backops, *arrays)))


# Rounding


def sums_of(terms, dtype):
    """The same sum as each of the three gradients: over channels, over windows, over the batch."""
    terms = np.array(terms).astype(DTYPES[dtype])
    ones = np.ones_like(terms)
    count = len(terms)
    over_channels, _, _ = backops.conv_backward(
        terms.reshape(1, count, 1), (1, 1, 1), ones.reshape(count, 1, 1),
        output_mask=(True, False, False),
    )  # fmt: skip
    _, over_windows, _ = backops.conv_backward(
        terms.reshape(1, 1, count), ones.reshape(1, 1, count), (1, 1, 1),
        output_mask=(False, True, False),
    )  # fmt: skip
    _, _, over_batch = backops.conv_backward(
        terms.reshape(count, 1, 1), (count, 1, 1), (1, 1, 1),
        output_mask=(False, False, True),
    )  # fmt: skip
    return [float(result.reshape(())) for result in (over_channels, over_windows, over_batch)]


@pytest.mark.parametrize(
    ("dtype", "unit"), [("float16", 2.0**-10), ("bfloat16", 2.0**-7)], ids=["float16", "bfloat16"]
)
def test_halfway_sums_round_to_even_once(dtype, unit):
    # Rounding after each addition, or through another format, would give another answer.
    sums = {
        (1, unit / 2, 0): 1,
        (1, 3 * unit / 2, 0): 1 + 2 * unit,
        (1, unit / 2, unit / 64): 1 + unit,
        (1, unit / 2, -unit / 64): 1,
        (1, unit / 4, 3 * unit / 8): 1 + unit,
        (-1, -unit / 2, 0): -1,
        (-1, -3 * unit / 2, 0): -1 - 2 * unit,
    }
    for terms, expected in sums.items():
        for order in itertools.permutations(terms):
            assert sums_of(order, dtype) == [expected] * 3, order


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sum_beyond_the_largest_number_becomes_infinity(dtype):
    largest = {"float16": 65504.0, "bfloat16": 255 * 2.0**120}[dtype]
    assert sums_of([largest, largest], dtype) == [np.inf] * 3
    assert sums_of([-largest, -largest], dtype) == [-np.inf] * 3


def test_float16_sum_may_pass_beyond_the_largest_number_and_return():
    assert sums_of([65504, 65504, -65504, -60000], "float16") == [5504] * 3


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_finite_value_of_a_half_type_survives_a_kernel_of_one(dtype):
    grad_output = np.arange(2**16, dtype=np.uint16).view(DTYPES[dtype]).reshape(1, 1, 256, 256)
    grad_output[~np.isfinite(grad_output.astype(np.float32))] = 0
    weight = np.ones((1, 1, 1, 1), DTYPES[dtype])
    mask = (True, False, False)
    results = backops.conv_backward(grad_output, grad_output.shape, weight, output_mask=mask)
    assert np.array_equal(results[0].astype(np.float64), grad_output.astype(np.float64))


# NaN and infinity

SPECIAL_CASES = [
    "plain_1d",
    "plain_2d",
    "plain_3d",
    "pointwise_2d",
    "pointwise_strided",
    "wide_kernel_strided",
    "groups_2d",
    "depthwise_2d",
    "depthwise_dilated",
    "dilation_2d",
    "stride_beyond_kernel_2d",
    "rows_left_over",
    "asymmetric_groups",
    "channels_15_to_17",
    "channels_33_to_1",
    "blocks_2d",
    "blocks_strided",
    "blocks_grouped",
    "blocks_3d",
    "blocks_stride_beyond_kernel",
    "blocks_deep",
    "blocks_spare_lanes",
    "windows_stem",
    "windows_3d",
    "windows_padding_beyond_kernel",
]


def is_nan(array):
    return np.isnan(array.astype(np.float64))


@pytest.mark.parametrize("name", SPECIAL_CASES)
@both_backward
def test_special_values_of_grad_output_reach_exactly_their_windows(operator, name):
    for dtype, layout in itertools.product(DTYPES, ["contiguous", "channels_last"]):
        case = find_conv_case(name).read_as(operator)
        grad_output, input, weight = make_arrays(case, dtype)
        arrays = (with_special_values(grad_output), input, weight)
        placed = [in_layout(array, case, layout) for array in arrays]
        mask = (True, False, True)
        results = case.call(backops, *placed, output_mask=mask)
        assert_close(results, case, arrays, output_mask=mask)
        assert is_nan(results[0]).any()
        assert (
            not is_nan(results[0]).all()
            or operator != "conv_backward"
            or name.startswith("channels")
        )


@pytest.mark.parametrize("which", ["input", "weight"])
@pytest.mark.parametrize("name", SPECIAL_CASES)
@both_forward
def test_special_values_reach_what_they_are_multiplied_with(operator, name, which):
    for dtype, layout in itertools.product(DTYPES, ["contiguous", "channels_last"]):
        # An infinity meets no zeros of padding, nor those between inputs that a stride sets apart.
        case = find_conv_case(name).read_as(operator)
        arrays = list(make_arrays(case, dtype))
        index = list(case.operand_shapes).index(which)
        arrays[index] = with_special_values(arrays[index])
        placed = [in_layout(array, case, layout) for array in arrays]
        assert_close(case.call(backops, *placed), case, arrays)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize(
    "name",
    [
        "plain_2d",
        "padded_by_4",
        "padded_by_4_strided",
        "padded_by_4_depthwise",
        "pointwise_padded",
        "up_4x4",
        "blocks_2d",
        "blocks_stride_beyond_kernel",
        "vectors_2d",
        "windows_stem",
    ],
)
@both_forward
def test_one_special_weight_makes_no_nan_from_padding(operator, name, value):
    for dtype in DTYPES:
        case = find_conv_case(name).read_as(operator)
        input, weight, bias = make_arrays(case, dtype)
        input, weight = np.ones_like(input), np.ones_like(weight)
        # The corner of a kernel, which the padding is furthest from.
        weight.reshape(-1)[0] = value
        (result,) = case.call(backops, input, weight, bias)
        (expected,) = case.call(reference, input, weight, bias)
        assert_close((result,), case, (input, weight, bias), expected=(expected,))
        assert np.isfinite(expected).any()


@pytest.mark.parametrize("name", SPECIAL_CASES)
def test_nan_of_grad_output_reaches_the_kernels_of_its_channel_only(name):
    for dtype in DTYPES:
        case = find_conv_case(name)
        grad_output, input, weight = make_arrays(case, dtype)
        channel = case.weight_shape[0] // 2
        grad_output.reshape(-1, *case.output_shape[-case.rank - 1 :])[0, channel].flat[0] = np.nan
        mask = (False, True, False)
        arrays = (grad_output, input, weight)
        _, got, _ = case.backward(backops, *arrays, output_mask=mask)
        _, expected, _ = case.backward(reference, *arrays, output_mask=mask)
        assert np.array_equal(is_nan(got[channel]), is_nan(expected[channel]))
        assert not is_nan(np.delete(got, channel, axis=0)).any()


@pytest.mark.parametrize("which", ["input", "weight"])
@pytest.mark.parametrize("name", SPECIAL_CASES)
@both_backward
def test_special_values_of_input_and_weight_reach_what_they_are_multiplied_with(
    operator, name, which
):
    for dtype in DTYPES:
        case = find_conv_case(name).read_as(operator)
        grad_output, input, weight = make_arrays(case, dtype)
        if which == "input":
            arrays = (grad_output, with_special_values(input), weight)
        else:
            arrays = (grad_output, input, with_special_values(weight))
        assert_close(case.call(backops, *arrays), case, arrays)


def channel_axes(case):
    """All axes of an activation but its channels."""
    return (*range(len(case.output_shape) - case.rank - 1), *range(-case.rank, 0))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_position_of_one_special_value_reaches_its_window_only(dtype, value):
    case = ConvCase("", (1, 1, 6, 19), (2, 1, 3, 3), stride=2, padding=1)
    weight = np.ones(case.weight_shape, DTYPES[dtype])
    mask = (True, False, False)
    for place in range(np.prod(case.output_shape)):
        grad_output = np.zeros(case.output_shape, DTYPES[dtype])
        grad_output.flat[place] = 1
        window = case.backward(reference, grad_output, case.input_shape, weight, output_mask=mask)
        expected = np.where(window[0] != 0, value, 0)
        grad_output.flat[place] = value
        got, _, _ = case.backward(backops, grad_output, case.input_shape, weight, output_mask=mask)
        assert np.array_equal(got.astype(np.float64), expected, equal_nan=True), place


@pytest.mark.parametrize("powers", [(-120, 0, 0), (0, -120, -120), (-70, -60, -60), (0, 0, -130)])
@pytest.mark.parametrize("name", ["blocks_2d", "blocks_strided", "blocks_deep"])
@every_operator
def test_numbers_and_products_near_the_smallest_ones_are_not_lost(operator, name, powers):
    case = find_conv_case(name).read_as(operator)
    arrays = make_arrays(case, "bfloat16")
    tiny = [
        (array.astype(np.float64) * 2.0**power).astype(DTYPES["bfloat16"])
        for array, power in zip(arrays, powers, strict=True)
    ]
    results = case.call(backops, *tiny)
    for got, expected in zip(results, case.call(reference, *tiny), strict=True):
        # What float32 and then bfloat16 can still tell apart.
        most = np.abs(expected).max()
        np.testing.assert_allclose(
            got.astype(np.float64), expected, rtol=2**-7, atol=2**-12 * most + 2.0**-133
        )


def test_values_of_unused_tensors_do_not_matter():
    case = find_conv_case("plain_2d")
    grad_output, input, weight = make_arrays(case)
    nan_input, nan_weight = np.full_like(input, np.nan), np.full_like(weight, np.nan)
    for mask in [mask for mask in MASKS if not all(mask[:2])]:
        unused = (grad_output, input if mask[1] else nan_input, weight if mask[0] else nan_weight)
        results = case.backward(backops, *unused, output_mask=mask)
        assert_close(results, case, (grad_output, input, weight), output_mask=mask)


# An empty batch


EMPTY = (
    find_conv_case("empty_batch"),
    ConvCase("", (0, 4, 9), (4, 1, 3), stride=2, groups=4),
    ConvCase("", (0, 2, 3, 4, 5), (3, 2, 1, 1, 1)),
)


@every_dtype
@pytest.mark.parametrize("mask", MASKS)
@both_backward
def test_empty_batch_gives_zeros(operator, mask, dtype):
    for case in readings(EMPTY, (operator,)):
        outs = empty_results(case, dtype)
        out = tuple(o if wanted else None for o, wanted in zip(outs, mask, strict=True))
        results = case.call(backops, *make_arrays(case, dtype), output_mask=mask, out=out)
        for result, shape, wanted in zip(results, case.result_shapes, mask, strict=True):
            assert not wanted or (result.shape == shape and not result.astype(np.float32).any())


@every_dtype
@both_forward
def test_empty_batch_gives_an_empty_result(operator, dtype):
    for case in readings(EMPTY, (operator,)):
        arrays = make_arrays(case, dtype)
        for operands in (arrays, arrays[:2]):
            (result,) = case.call(backops, *operands)
            assert (result.shape, result.dtype) == (case.result_shapes[0], DTYPES[dtype])


# Instruction sets


def kernels_and_results() -> dict:
    """What runs every case in every dtype, and what it gives."""
    return {
        (case, dtype): (
            case.plan(backops.plan, dtype=dtype).kernel,
            case.call(backops, *make_arrays(case, dtype)),
        )
        for case, dtype in itertools.product(readings(CASES), DTYPES)
    }


BEYOND = {
    "generic": ("avx", "amx", "neon"),
    "avx2": ("avx512", "amx"),
    "avx512": ("avx512_bf16", "amx"),
    "avx512_bf16": ("amx",),
}


def test_every_instruction_set_agrees_with_reference():
    levels = {
        level: call_on(level, "tests.conv.test_values", "kernels_and_results") for level in LEVELS
    }
    # One reference serves all of them.
    for case, dtype in itertools.product(readings(CASES), DTYPES):
        arrays = make_arrays(case, dtype)
        right = []
        for level, computed in levels.items():
            kernel, results = computed[case, dtype]
            assert not [name for name in BEYOND.get(level, ()) if name in kernel], kernel
            if any(all(map(same_bits, results, other)) for other in right):
                continue
            repeat = repeat_line(case, dtype, settings=f"BACKOPS_ISA={level} ")
            assert_close(results, case, arrays, repeat=repeat)
            right.append(results)
