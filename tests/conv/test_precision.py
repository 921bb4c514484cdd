"""Precision modes: float32 operands rounded to HF32 or float16 first, sums still in float32."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import backops
from tests.support.conv_cases import (
    CASES,
    MASKS,
    OPERATORS,
    ConvCase,
    conv_readings,
    find_conv_case,
    make_arrays,
    reading_id,
    readings_in_turn,
)
from tests.support.conv_compare import assert_close, check
from tests.support.floats import DTYPES, same_bits

MODES = ("keep", "allow_fp32_down", "fp16", "hf32")
HF32_MODES = ("allow_fp32_down", "hf32")
TENSORS = ("grad_output", "input", "weight")
CASE = find_conv_case("plain_2d")


# Against the reference, which rounds the same way


@pytest.mark.parametrize("case", readings_in_turn(CASES), ids=reading_id)
def test_case_agrees_with_reference(case):
    for precision in MODES[1:]:
        check(case, precision=precision)


@given(
    conv_readings(),
    st.sampled_from(MODES[1:]),
    st.integers(0, 2**32 - 1),
    st.sampled_from(["contiguous", "channels_last", "reversed", "every_second"]),
)
def test_generated_case_agrees_with_reference(case, precision, seed, layout):
    check(case, seed=seed, layout=layout, precision=precision)


@pytest.mark.parametrize("layout", ["channels_last", "transposed", "offset_by_byte", "reversed"])
@pytest.mark.parametrize("precision", MODES[1:])
@pytest.mark.parametrize("operator", OPERATORS)
def test_precision_applies_in_every_layout(operator, precision, layout):
    for name in ("plain_2d", "depthwise_2d", "groups_2d", "pointwise_2d", "channels_16_to_16"):
        check(find_conv_case(name), operator=operator, layout=layout, precision=precision)


@pytest.mark.parametrize("name", ["plain_2d", "depthwise_2d", "blocks_2d", "windows_stem", "toy"])
@pytest.mark.parametrize("precision", MODES[1:])
@pytest.mark.parametrize("operator", ["conv", "conv_transpose"])
def test_bias_is_not_rounded(operator, precision, name):
    case = find_conv_case(name).read_as(operator)
    input, weight, bias = make_arrays(case)
    bias[...] = 1 + 2.0**-22
    (result,) = case.call(backops, np.zeros_like(input), weight, bias, precision=precision)
    assert (result == bias[0]).all()


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("precision", MODES[1:])
def test_precision_applies_to_each_gradient_alone(precision, mask):
    for name in ("plain_1d", "depthwise_2d", "pointwise_2d"):
        check(find_conv_case(name), precision=precision, output_mask=mask)


@pytest.mark.parametrize("case", CASES[5::4], ids=lambda case: case.name)
def test_both_names_of_hf32_give_the_same_bits(case):
    arrays = make_arrays(case)
    first, second = (case.backward(backops, *arrays, precision=mode) for mode in HF32_MODES)
    assert all(map(same_bits, first, second))


# Rounding bit by bit: convolutions that multiply one operand by 1 and add nothing


def copy_grad_output(values, precision, groups=1):
    weight = np.ones((groups, 1, 1), np.float32)
    grad_output = values.reshape(1, groups, -1)
    results = backops.conv_backward(
        grad_output, grad_output.shape, weight,
        groups=groups, output_mask=(True, False, False), precision=precision,
    )  # fmt: skip
    return results[0].reshape(-1)


def copy_grad_output_to_bias(values, precision):
    grad_output = values.reshape(1, -1, 1)
    results = backops.conv_backward(
        grad_output, (1, 1, 1), (values.size, 1, 1),
        output_mask=(False, False, True), precision=precision,
    )  # fmt: skip
    return results[2]


def copy_input(values, precision, groups=1):
    input = values.reshape(1, -1, 1)
    weight_shape = (groups, values.size // groups, 1)
    results = backops.conv_backward(
        np.ones((1, groups, 1), np.float32), input, weight_shape,
        groups=groups, output_mask=(False, True, False), precision=precision,
    )  # fmt: skip
    return results[1].reshape(-1)


def copy_weight(values, precision, groups=1):
    weight = values.reshape(groups, -1, 1)
    results = backops.conv_backward(
        np.ones((1, groups, 1), np.float32), (1, values.size, 1), weight,
        groups=groups, output_mask=(True, False, False), precision=precision,
    )  # fmt: skip
    return results[0].reshape(-1)


def depthwise(copy):
    def copy_channel_by_channel(values, precision):
        return copy(values, precision, groups=values.size)

    copy_channel_by_channel.__name__ = f"{copy.__name__}_depthwise"
    return copy_channel_by_channel


every_copy = pytest.mark.parametrize(
    "copy",
    [
        copy_grad_output,
        copy_grad_output_to_bias,
        copy_input,
        copy_weight,
        depthwise(copy_grad_output),
        depthwise(copy_input),
        depthwise(copy_weight),
    ],
    ids=lambda copy: copy.__name__,
)


def float32_of(bits):
    return np.asarray(bits, np.uint32).view(np.float32)


def rounded_to_hf32(values):
    """11 mantissa bits, ties away from zero: by arithmetic, not by bits."""
    mantissa, exponent = np.frexp(values.astype(np.float64))
    cut = np.trunc(mantissa * 2**12 + np.copysign(0.5, mantissa)) / 2**12
    return np.ldexp(cut, exponent).astype(np.float32)


def normal_values_around_ties():
    """Both signs, exponents from end to end, and the 12 lowest bits at ties and next to them."""
    exponents = np.array([1, 2, 60, 126, 127, 128, 190, 253, 254]) << 23
    upper = np.array([0, 0x1000, 0x2AB000, 0x7FE000])
    tails = np.array([0, 1, 0x7FF, 0x800, 0x801, 0xFFF])
    signs = np.array([0, 1 << 31])
    pieces = itertools.product(signs, exponents, upper, tails)
    return float32_of([int(sum(parts)) for parts in pieces])


@every_copy
@pytest.mark.parametrize("precision", HF32_MODES)
def test_hf32_rounds_to_nearest_with_ties_away_from_zero(copy, precision):
    values = normal_values_around_ties()
    assert same_bits(copy(values, precision), rounded_to_hf32(values))


@every_copy
def test_hf32_rounds_every_tail(copy):
    values = float32_of(0x3F800000 + np.arange(4096 + 64))
    got = copy(values, "hf32")
    # 1 up to the middle of the first step, then 1 + 2**-11.
    assert (got[:2048] == 1).all()
    assert (got[2048 : 4096 + 64] == 1 + 2.0**-11).all()
    assert (copy(-values, "hf32") == -got).all()


@every_copy
def test_hf32_carries_into_the_exponent_and_beyond_the_largest_number(copy):
    values = float32_of([0x3FFFF7FF, 0x3FFFF800, 0x7F7FF7FF, 0x7F7FF800, 0xFF7FFFFF])
    largest = 2.0**128 - 2.0**116
    expected = [2 - 2.0**-11, 2, largest, np.inf, -np.inf]
    assert copy(values, "hf32").astype(np.float64).tolist() == expected


@every_copy
def test_hf32_rounds_subnormal_numbers_at_the_same_bit(copy):
    values = float32_of([0x1000, 0x17FF, 0x1800, 0x7FF, 0x800, 0x807FF800, 0x80000001])
    expected = float32_of([0x1000, 0x1000, 0x2000, 0, 0x1000, 0x80800000, 0x80000000])
    assert np.array_equal(copy(values, "hf32"), expected)


@every_copy
@pytest.mark.parametrize("precision", ["hf32", "fp16"])
def test_nan_and_infinity_stay_what_they_are(copy, precision):
    # NaNs whose only mantissa bits are among those that are cut must not become infinities.
    values = float32_of([0x7F800001, 0xFF800FFF, 0x7FC00000, 0x7F800000, 0xFF800000, 0x3F800000])
    expected = [np.nan, np.nan, np.nan, np.inf, -np.inf, 1]
    assert np.array_equal(copy(values, precision), expected, equal_nan=True)


@every_copy
def test_fp16_rounds_to_nearest_even_and_overflows_to_infinity(copy):
    unit = 2.0**-10
    table = {
        1 + unit / 2: 1,
        1 + unit / 2 + 2.0**-23: 1 + unit,
        1 + 3 * unit / 2: 1 + 2 * unit,
        -1 - unit / 2: -1,
        65504: 65504,
        65519.99: 65504,
        65520: np.inf,
        -1e30: -np.inf,
        2.0**-24: 2.0**-24,
        2.0**-25: 0,
        3 * 2.0**-25: 2.0**-23,
        1.5 * 2.0**-25: 2.0**-24,
    }
    values = np.array(list(table), np.float32)
    assert copy(values, "fp16").tolist() == list(table.values())


@every_copy
def test_fp16_rounds_any_value_as_numpy_does(copy):
    values = normal_values_around_ties()
    values = np.concatenate([values, make_arrays(CASE)[1].reshape(-1)])
    with np.errstate(over="ignore"):
        expected = values.astype(np.float16).astype(np.float32)
    assert np.array_equal(copy(values, "fp16"), expected)


@every_copy
def test_keep_keeps_every_bit(copy):
    values = normal_values_around_ties()
    assert same_bits(copy(values, "keep"), values)


# Sums and results are not rounded


@pytest.mark.parametrize("precision", MODES[1:])
def test_products_and_sums_stay_in_float32(precision):
    # Operands that every format holds, sums that only float32 does.
    case = ConvCase("", (2, 3, 40), (5, 3, 3), padding=1)
    arrays = [
        (1 + (np.arange(a.size).reshape(a.shape) % 61) / 64).astype(np.float32)
        for a in make_arrays(case)
    ]
    rounded = case.backward(backops, *arrays, precision=precision)
    assert_close(rounded, case, arrays)
    for result in rounded[:2]:
        assert not np.array_equal(result, rounded_to_hf32(result))


# Modes and dtypes


@pytest.mark.parametrize(
    ("dtype", "precision"),
    [
        ("float16", "allow_fp32_down"),
        ("float16", "fp16"),
        ("bfloat16", "allow_fp32_down"),
        ("float64", "allow_fp32_down"),
    ],
)
def test_precision_leaves_other_dtypes_as_they_are(dtype, precision):
    for name in ("plain_2d", "depthwise_2d"):
        case = find_conv_case(name)
        arrays = make_arrays(case, dtype)
        results = case.backward(backops, *arrays, precision=precision)
        assert all(map(same_bits, results, case.backward(backops, *arrays)))


@pytest.mark.parametrize(
    ("dtype", "precision"),
    [
        ("float16", "hf32"),
        ("bfloat16", "hf32"),
        ("bfloat16", "fp16"),
        ("float64", "hf32"),
        ("float64", "fp16"),
    ],
)
@pytest.mark.parametrize("mask", [(True, True, True), (False, False, True)])
def test_precision_that_does_not_go_with_the_dtype_is_refused(dtype, precision, mask):
    arrays = make_arrays(CASE, dtype)
    pattern = rf"^conv_backward: precision is '{precision}', expected .*{dtype}"
    with pytest.raises(backops.ParamError, match=pattern):
        CASE.backward(backops, *arrays, precision=precision, output_mask=mask)
    with pytest.raises(backops.ParamError, match=f"conv_backward: precision is '{precision}'"):
        CASE.plan(backops.plan, dtype=dtype, precision=precision, output_mask=mask)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", ["exact", "", "KEEP", "HF32", None, 0], ids=repr)
def test_unknown_precision_is_refused(value, dtype):
    with pytest.raises(backops.ParamError, match=r"^conv_backward: precision is .*expected"):
        CASE.backward(backops, *make_arrays(CASE, dtype), precision=value)


# Controls: the comparisons must tell the modes apart.


@pytest.mark.parametrize(
    ("used", "asked"), list(itertools.permutations(["keep", "hf32", "fp16"], 2))
)
@pytest.mark.parametrize("which", range(3))
def test_comparison_tells_the_modes_apart(used, asked, which):
    mask = tuple(index == which for index in range(3))
    arrays = make_arrays(CASE, seed=3)
    results = CASE.backward(backops, *arrays, precision=used, output_mask=mask)
    with pytest.raises(AssertionError, match="elements differ"):
        assert_close(results, CASE, arrays, precision=asked, output_mask=mask)


@pytest.mark.parametrize("forgotten", TENSORS)
def test_comparison_catches_one_operand_that_was_not_rounded(forgotten):
    arrays = make_arrays(CASE)
    kept = TENSORS.index(forgotten)
    mixed = [a if i == kept else rounded_to_hf32(a) for i, a in enumerate(arrays)]
    results = CASE.backward(backops, *mixed)
    with pytest.raises(AssertionError, match="elements differ"):
        assert_close(results, CASE, arrays, precision="hf32")


def test_exact_bits_tell_ties_away_from_zero_from_ties_to_even():
    values = normal_values_around_ties()
    mantissa, exponent = np.frexp(values.astype(np.float64))
    to_even = np.ldexp(np.rint(mantissa * 2**12) / 2**12, exponent).astype(np.float32)
    assert not same_bits(to_even, rounded_to_hf32(values))
