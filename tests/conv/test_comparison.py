"""Controls: the comparisons must see what is wrong."""

import numpy as np
import pytest

import backops
from backops import reference
from tests.support.conv_cases import GRADIENTS, LARGE_CASES, find_conv_case, make_arrays
from tests.support.conv_compare import EPS_FLOAT64, assert_close, assert_exact, bounds
from tests.support.floats import DTYPES, round_to, with_special_values

every_dtype = pytest.mark.parametrize("dtype", DTYPES)


def with_kernel_flipped(case, grad_output, input, weight):
    grad_input, grad_weight, grad_bias = case.backward(
        backops, grad_output, input, weight[..., ::-1]
    )
    return grad_input, grad_weight[..., ::-1].copy(), grad_bias


def with_last_window_forgotten(case, grad_output, input, weight):
    grad_output = grad_output.copy()
    grad_output[..., -1] = 0
    return case.backward(backops, grad_output, input, weight)


def with_groups_exchanged(case, grad_output, input, weight):
    return case.backward(backops, grad_output, np.roll(input, 4, axis=1), weight)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("compute", "caught"),
    [
        (with_kernel_flipped, "grad_input"),
        (with_last_window_forgotten, "grad_input"),
        (with_groups_exchanged, "grad_weight"),
    ],
)
def test_comparison_catches_a_wrong_computation(compute, caught, dtype):
    case = find_conv_case("groups_2d")
    arrays = make_arrays(case, dtype)
    with pytest.raises(AssertionError, match=f"{caught} of .*elements differ"):
        assert_close(compute(case, *arrays), case, arrays)


def rounded_reference(case, arrays):
    dtype = arrays[0].dtype.name
    exact = case.backward(reference, *arrays)
    return [round_to(gradient, dtype).astype(DTYPES[dtype]) for gradient in exact]


@pytest.mark.parametrize("which", GRADIENTS)
@every_dtype
def test_comparison_catches_one_element_beyond_its_bound(dtype, which):
    case = find_conv_case("groups_2d")
    arrays = make_arrays(case, dtype)
    results = rounded_reference(case, arrays)
    assert_close(results, case, arrays)
    wrong = results[GRADIENTS.index(which)]
    eps = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float64": EPS_FLOAT64}.get(dtype, 2.0**-23)
    allowed = bounds(case, arrays, eps)[GRADIENTS.index(which)]
    away = 2 * allowed.flat[3] + 3 * eps * abs(float(wrong.flat[3]))
    wrong.flat[3] = float(wrong.flat[3]) + away
    with pytest.raises(AssertionError, match=f"{which} of .*: 1 of"):
        assert_close(results, case, arrays)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_comparison_catches_a_special_value_too_many_and_one_missing(value):
    case = find_conv_case("toy")
    arrays = make_arrays(case)
    results = rounded_reference(case, arrays)
    results[1].flat[2] = value
    with pytest.raises(AssertionError, match=r"grad_weight of .*: 1 of"):
        assert_close(results, case, arrays)
    special = (with_special_values(arrays[0]), *arrays[1:])
    with pytest.raises(AssertionError, match=r"grad_input of"):
        assert_close(rounded_reference(case, arrays), case, special)


def test_exact_comparison_catches_sums_that_were_rounded_twice():
    case = LARGE_CASES[0]
    arrays = make_arrays(case, "bfloat16", kind="integer")
    halves = [
        case.backward(reference, arrays[0][part], arrays[1][part], arrays[2])[1]
        for part in (slice(0, 2), slice(2, 4))
    ]
    twice = round_to(sum(round_to(half, "bfloat16") for half in halves), "bfloat16")
    results = rounded_reference(case, arrays)
    assert_exact(results, case, arrays)
    results[1] = twice.astype(DTYPES["bfloat16"])
    with pytest.raises(AssertionError, match="grad_weight of"):
        assert_exact(results, case, arrays)


def test_comparison_catches_another_dtype_and_a_gradient_that_is_not_there():
    case = find_conv_case("toy")
    arrays = make_arrays(case)
    grad_input, grad_weight, grad_bias = rounded_reference(case, arrays)
    with pytest.raises(AssertionError, match=r"grad_weight of .* dtype float64"):
        assert_close((grad_input, grad_weight.astype(np.float64), grad_bias), case, arrays)
    with pytest.raises(AssertionError, match="grad_bias is None"):
        assert_close((grad_input, grad_weight, None), case, arrays)
