"""The reference against PyTorch, hand-made values and a forward; then the oracle itself."""

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch

from backops import reference
from tests.support.floats import DTYPES, round_by_exponent, round_to
from tests.support.pool_cases import (
    Case,
    both_ways,
    find_case,
    load_cases,
    make_grad,
    make_source,
    parse_case,
)
from tests.support.pool_compare import assert_close
from tests.support.pool_definitions import forward, torch_result

CASES = load_cases()


@pytest.mark.parametrize("case", both_ways(CASES), ids=lambda case: case.name)
def test_reference_agrees_with_pytorch_in_float64(case):
    source = make_source(case, "float64")
    expected = torch_result(case, source)
    if expected is None:
        pytest.skip("PyTorch cannot")
    assert_close(case.run(reference, source), case, source, expected=expected)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_forward_reference_agrees_with_an_independent_definition(case):
    x = make_source(case.forward, "float64")
    result = case.forward.run(reference, x)
    assert_close(result, case.forward, x, expected=forward(case, x))


def test_pytorch_computes_almost_every_case():
    unable = {case.name for case in CASES if _pytorch_refuses(case)}
    assert unable == {
        "kernel_longer_than_axis_3d",
        "ceil_mode_kernel_longer_than_padded_axis_3d",
        "divisor_1d",
    }


def _pytorch_refuses(case):
    return torch_result(case, np.zeros(case.output_shape)) is None


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_backward_is_the_adjoint_of_an_independent_forward(case):
    grad = make_grad(case, "float64")
    x = np.random.default_rng(1).standard_normal(case.input_shape)
    left = np.sum(forward(case, x) * grad)
    right = np.sum(x * case.backward(reference, grad))
    scale = np.sum(np.abs(x) * np.abs(case.backward(reference, np.abs(grad))))
    assert abs(left - right) <= 1e-13 * scale


def test_adjoint_property_catches_a_flipped_count_include_pad():
    case = find_case("exclude_pad_2d")
    grad = make_grad(case, "float64")
    x = np.random.default_rng(1).standard_normal(case.input_shape)
    wrong = reference.avg_pool2d_backward(grad, case.input_shape, *case.positional)
    scale = np.sum(np.abs(x) * np.abs(wrong))
    assert abs(np.sum(forward(case, x) * grad) - np.sum(x * wrong)) > 1e-6 * scale


def test_ceil_mode_drops_window_starting_in_padding():
    # Padded to 6: windows start at 0 and 3; one at 6 would hold nothing but overhang.
    grad = np.array([[[2.0, 4.0]]])
    result = reference.avg_pool1d_backward(grad, (1, 1, 4), 2, 3, 1, ceil_mode=True)
    assert result.tolist() == [[[1.0, 0.0, 2.0, 2.0]]]


def test_overhanging_window_divides_by_what_lies_in_the_padded_input():
    # The window at 3 holds input 3 and one element of padding; the third lies beyond.
    grad = np.array([[[6.0, 6.0]]])
    padded = reference.avg_pool1d_backward(grad, (1, 1, 4), 3, 3, 0, ceil_mode=True)
    assert padded.tolist() == [[[2.0, 2.0, 2.0, 6.0]]]
    grad = np.array([[[6.0, 6.0, 6.0]]])
    padded = reference.avg_pool1d_backward(grad, (1, 1, 6), 3, 3, 1, ceil_mode=True)
    assert padded.tolist() == [[[2.0, 2.0, 2.0, 2.0, 2.0, 3.0]]]


def test_count_include_pad_decides_the_divisor_at_the_edge():
    grad = np.array([[[6.0, 6.0]]])
    include = reference.avg_pool1d_backward(grad, (1, 1, 4), 3, 2, 1)
    exclude = reference.avg_pool1d_backward(grad, (1, 1, 4), 3, 2, 1, count_include_pad=False)
    assert include.tolist() == [[[2.0, 4.0, 2.0, 2.0]]]
    assert exclude.tolist() == [[[3.0, 5.0, 2.0, 2.0]]]


def test_divisor_override_replaces_the_window_size():
    grad = np.array([[[6.0]]])
    result = reference.avg_pool1d_backward(grad, (1, 1, 3), 3, divisor_override=-2)
    assert result.tolist() == [[[-3.0, -3.0, -3.0]]]


def test_divisor_override_of_zero_means_none():
    grad = np.array([[[6.0]]])
    result = reference.avg_pool1d_backward(grad, (1, 1, 3), 3, divisor_override=0)
    assert result.tolist() == [[[2.0, 2.0, 2.0]]]


def test_inputs_in_no_window_get_zero():
    result = reference.avg_pool1d_backward(np.ones((1, 1, 2)), (1, 1, 5), 1, 3)
    assert result.tolist() == [[[1.0, 0.0, 0.0, 1.0, 0.0]]]


def test_adaptive_windows_overlap_where_sizes_do_not_divide():
    # Windows [0, 2), [1, 4), [3, 5).
    grad = np.array([[[2.0, 3.0, 4.0]]])
    result = reference.adaptive_avg_pool1d_backward(grad, (1, 1, 5))
    assert result.tolist() == [[[1.0, 2.0, 1.0, 3.0, 2.0]]]


def test_adaptive_upsampling_adds_all_outputs_of_an_input():
    # Windows [0, 1), [0, 2), [1, 2).
    grad = np.array([[[1.0, 2.0, 4.0]]])
    result = reference.adaptive_avg_pool1d_backward(grad, (1, 1, 2))
    assert result.tolist() == [[[2.0, 5.0]]]


@pytest.mark.parametrize("stride", [None, ()])
def test_stride_defaults_to_kernel_size(stride):
    grad = make_grad(Case("", "avg2d", (1, 2, 6, 6), 3), "float64")
    result = reference.avg_pool2d_backward(grad, (1, 2, 6, 6), 3, stride)
    assert np.array_equal(result, reference.avg_pool2d_backward(grad, (1, 2, 6, 6), 3, 3))


def test_sequences_of_one_stand_for_every_axis():
    grad = make_grad(Case("", "avg2d", (1, 2, 6, 6), 3, 2, 1), "float64")
    result = reference.avg_pool2d_backward(grad, (1, 2, 6, 6), [3], (2,), [1])
    assert np.array_equal(result, reference.avg_pool2d_backward(grad, (1, 2, 6, 6), 3, 2, 1))


def test_input_may_be_an_array():
    grad, x = np.ones((1, 2, 3, 3)), np.zeros((1, 2, 6, 6))
    expected = reference.avg_pool2d_backward(grad, x.shape, 2)
    assert np.array_equal(reference.avg_pool2d_backward(grad, x, 2), expected)
    assert np.array_equal(reference.avg_pool2d_backward(grad, torch.from_numpy(x), 2), expected)


VALUES = [[[[1.5, -2.0], [0.25, 3.0]]]]


@pytest.mark.parametrize(
    "grad",
    [
        np.array(VALUES, np.float16),
        np.array(VALUES, ml_dtypes.bfloat16),
        np.array(VALUES, np.float32),
        np.array(VALUES, ">f4"),
        torch.tensor(VALUES, dtype=torch.bfloat16),
        torch.tensor(VALUES, dtype=torch.float16, requires_grad=True),
        torch.nn.Parameter(torch.tensor(VALUES)),
        jnp.array(VALUES, jnp.bfloat16),
        jnp.array(VALUES, jnp.float32),
    ],
    ids=lambda grad: f"{type(grad).__module__.partition('.')[0]}-{grad.dtype}",
)
def test_reference_reads_arrays_of_every_framework(grad):
    result = reference.avg_pool2d_backward(grad, (1, 1, 4, 4), 2)
    assert type(result) is np.ndarray
    assert result.dtype == np.float64
    expected = reference.avg_pool2d_backward(np.array(VALUES), (1, 1, 4, 4), 2)
    assert np.array_equal(result, expected)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1 + 2**-11, 1 + 2**-11),
        (1 + 2**-12, 1 + 2**-11),
        (-1 - 2**-12, -1 - 2**-11),
        (1 + 2**-12 - 2**-23, 1.0),
        (1 + 3 * 2**-12, 1 + 2**-10),
        (2 - 2**-23, 2.0),
        (3.4028234663852886e38, np.inf),
        (2.0**-149, 0.0),
        (np.inf, np.inf),
        (-0.0, -0.0),
    ],
)
def test_hf32_keeps_11_mantissa_bits_with_ties_away_from_zero(value, expected):
    grad = np.full((1, 1, 1), value, np.float32)
    for precision in ("hf32", "allow_fp32_down"):
        result = reference.avg_pool1d_backward(grad, (1, 1, 1), 1, precision=precision)
        assert result.item() == expected


def test_hf32_keeps_nan():
    grad = np.full((1, 1, 1), np.nan, np.float32)
    assert np.isnan(reference.avg_pool1d_backward(grad, (1, 1, 1), 1, precision="hf32")).all()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1 + 2**-11, 1.0),
        (1 + 3 * 2**-11, 1 + 2**-9),
        (1 + 2**-11 + 2**-23, 1 + 2**-10),
        (65519.0, 65504.0),
        (65520.0, np.inf),
        (2.0**-25, 0.0),
        (3 * 2.0**-25, 2.0**-23),
    ],
)
def test_fp16_rounds_to_nearest_even(value, expected):
    grad = np.full((1, 1, 1), value, np.float32)
    result = reference.avg_pool1d_backward(grad, (1, 1, 1), 1, precision="fp16")
    assert result.item() == expected


@pytest.mark.parametrize(
    ("dtype", "precision"),
    [
        ("float16", "hf32"),
        ("bfloat16", "hf32"),
        ("bfloat16", "fp16"),
        ("float64", "hf32"),
        ("float64", "fp16"),
        ("float32", "fastest"),
    ],
)
def test_precision_that_does_not_fit_the_dtype_is_refused(dtype, precision):
    grad = np.ones((1, 1, 1), DTYPES[dtype])
    with pytest.raises(ValueError, match="precision is"):
        reference.avg_pool1d_backward(grad, (1, 1, 1), 1, precision=precision)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((np.ones((1, 1, 2, 2), np.int32), (1, 1, 4, 4), 2), TypeError, "grad_output is int32"),
        (([[[[1.0]]]], (1, 1, 4, 4), 2), TypeError, "grad_output is a list"),
        ((np.ones((1, 1, 3, 2)), (1, 1, 4, 4), 2), ValueError, "grad_output is .* pools to"),
        ((np.ones((1, 1, 2, 2)), (4, 4), 2), ValueError, "input is .4, 4., expected 3 or 4"),
        ((np.ones((1, 1, 2, 2)), "NCHW", 2), TypeError, "input is 'NCHW'"),
        ((np.ones((1, 1, 2, 2)), (1, 1, 0, 4), 2), ValueError, "input is"),
        ((np.ones((1, 1, 2, 2)), (1, 1, 4, 4), 0), ValueError, "kernel_size.0. is 0"),
        ((np.ones((1, 1, 2, 2)), (1, 1, 4, 4), "2"), TypeError, "kernel_size is '2'"),
        ((np.ones((1, 1, 2, 2)), (1, 1, 4, 4), (2, 2, 2)), ValueError, "kernel_size is"),
        ((np.ones((1, 1, 2, 2)), (1, 1, 4, 4), 2, -1), ValueError, "stride.0. is -1"),
        ((np.ones((1, 1, 2, 2)), (1, 1, 4, 4), 3, 2, 2), ValueError, "padding.0. is 2"),
        ((np.ones((1, 1, 1, 1)), (1, 1, 4, 4), 7, 1, 1), ValueError, "kernel_size.0. is 7"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_reference_says_what_is_wrong(arguments, error, text):
    with pytest.raises(error, match=text):
        reference.avg_pool2d_backward(*arguments)


@pytest.mark.parametrize(
    ("function", "arguments", "error", "text"),
    [
        ("avg_pool2d", (np.ones((1, 4, 4), np.int32), 2), TypeError, "input is int32"),
        ("avg_pool2d", ((1, 1, 4, 4), 2), TypeError, "input is a tuple"),
        ("avg_pool2d", (np.ones((4, 4)), 2), ValueError, "input is .4, 4., expected 3 or 4"),
        ("avg_pool2d", (np.ones((1, 4, 4)), 3, 2, 2), ValueError, "padding.0. is 2"),
        ("avg_pool2d", (np.ones((1, 4, 4)), 5), ValueError, "kernel_size.0. is 5"),
        ("adaptive_avg_pool2d", (np.ones((1, 4, 4)), 0), ValueError, "output_size.0. is 0"),
        ("adaptive_avg_pool2d", (np.ones((1, 4, 4)), (1, 2, 3)), ValueError, "output_size is"),
        ("adaptive_avg_pool2d", (np.ones((1, 4, 4)), 2.0), TypeError, "output_size.0. is 2.0"),
    ],
)
def test_forward_reference_says_what_is_wrong(function, arguments, error, text):
    with pytest.raises(error, match=text):
        getattr(reference, function)(*arguments)


# Controls: assert_close must see what is wrong, and only that.


def exact(case, dtype, grad=None):
    """The reference's result, rounded once to `dtype`."""
    grad = make_grad(case, dtype) if grad is None else grad
    values = round_to(case.backward(reference, grad), dtype)
    return grad, values.astype(DTYPES[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["overlap_2d", "adaptive_uneven_3d", "kernel_15_stride_one"])
def test_assert_close_accepts_the_exactly_rounded_result(name, dtype):
    case = find_case(name)
    grad, result = exact(case, dtype)
    assert_close(result, case, grad)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("exclude_pad_2d", {"count_include_pad": True}),
        ("ceil_mode_overhang", {"divisor_override": 9}),
        ("divisor_negative", {"divisor_override": 3}),
        ("overlap_2d", {"count_include_pad": False}),
    ],
)
def test_assert_close_catches_a_wrong_parameter(name, change, dtype):
    case = find_case(name)
    grad = make_grad(case, dtype)
    keywords = {**case.keywords, **change}
    function = getattr(reference, case.function)
    wrong = function(grad, case.input_shape, *case.positional, **keywords)
    with pytest.raises(AssertionError, match="elements differ"):
        assert_close(wrong.astype(grad.dtype), case, grad)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_assert_close_catches_one_element_two_units_off(dtype):
    case = find_case("kernel_equals_stride_2d")
    grad, result = exact(case, dtype)
    assert_close(_moved(result, 1), case, grad)
    with pytest.raises(AssertionError, match=r"1 of 1536 elements differ, first at \(1, 2, 3, 4\)"):
        assert_close(_moved(result, 2), case, grad)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_assert_close_catches_one_element_nine_units_off(dtype):
    # One window holds each element, so the bound is 4 eps: 4 to 8 units in the last place.
    case = find_case("kernel_equals_stride_2d")
    grad, result = exact(case, dtype)
    assert_close(_moved(result, 3), case, grad)
    with pytest.raises(AssertionError, match="1 of 1536 elements differ"):
        assert_close(_moved(result, 9), case, grad)


def _moved(result, units):
    changed = result.copy()
    changed.view(f"i{result.dtype.itemsize}")[1, 2, 3, 4] += units
    return changed


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_assert_close_catches_misplaced_nan_and_infinity(value):
    case = find_case("overlap_2d")
    grad, result = exact(case, "float32")
    result[0, 0, 0, 0] = value
    with pytest.raises(AssertionError, match="1 of 1568 elements differ"):
        assert_close(result, case, grad)
    grad[0, 0, 3, 3] = value
    _, result = exact(case, "float32", grad)
    assert_close(result, case, grad)
    result[0, 0, 6, 6] = 0
    with pytest.raises(AssertionError, match="1 of 1568 elements differ"):
        assert_close(result, case, grad)


def test_assert_close_catches_wrong_shape_and_dtype():
    case = find_case("overlap_2d")
    grad, result = exact(case, "float32")
    with pytest.raises(AssertionError, match="result is float64"):
        assert_close(result.astype(np.float64), case, grad)
    with pytest.raises(AssertionError, match="result is"):
        assert_close(result[:1], case, grad)


def test_rounding_of_the_tests_agrees_with_numpy():
    random = np.random.default_rng(5)
    values = random.standard_normal(20000) * 2.0 ** random.integers(-30, 17, 20000)
    with np.errstate(over="ignore"):
        for dtype in ("float16", "float32"):
            expected = values.astype(DTYPES[dtype]).astype(np.float64)
            assert np.array_equal(round_by_exponent(values, dtype), expected)
            assert np.array_equal(round_to(values, dtype), expected)


def test_case_lines_can_be_read_back():
    for case in both_ways(CASES):
        line = parse_case(f"{case.name} {case.problem}")
        assert line == case
