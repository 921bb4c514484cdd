"""The convolution reference against PyTorch, finite differences and hand-made values."""

import dataclasses
import itertools

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given

from backops import reference
from tests.support.cases import per_axis
from tests.support.conv_cases import (
    CASES,
    GRADIENTS,
    ConvCase,
    conv_cases,
    find_conv_case,
    make_arrays,
)
from tests.support.conv_compare import EPS_FLOAT64, bound
from tests.support.conv_definitions import torch_backward
from tests.support.processes import run_python

MASKS = list(itertools.product([True, False], repeat=3))


def assert_agree(results, expected, case, arrays):
    """Fails unless all three gradients are as close as float64 allows."""
    for which, got, wanted in zip(GRADIENTS, results, expected, strict=True):
        assert got.dtype == np.float64
        assert got.shape == wanted.shape, f"{which} is {got.shape}, not {wanted.shape}: {case}"
        error = np.abs(got - wanted)
        wrong = np.argwhere(~(error <= bound(case, *arrays, which, eps=EPS_FLOAT64)))
        assert not len(wrong), f"{which} differs, first at {wrong[0]}: {case}"


# Against PyTorch


def check_against_torch(case):
    arrays = make_arrays(case, "float64")
    results = case.backward(reference, *arrays)
    assert_agree(results, torch_backward(case, *arrays), case, arrays)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_reference_agrees_with_pytorch_in_float64(case):
    check_against_torch(case)


@given(case=conv_cases())
def test_generated_problems_agree_with_pytorch_in_float64(case):
    check_against_torch(case)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_output_shape_of_a_case_is_that_of_pytorch(case):
    convolve = getattr(torch.nn.functional, f"conv{case.rank}d")
    # PyTorch's meta tensors have shapes only.
    input, weight = (torch.empty(s, device="meta") for s in (case.input_shape, case.weight_shape))
    assert tuple(convolve(input, weight, **case.keywords).shape) == case.output_shape


# Against finite differences


def forward(case, input, weight, bias):
    """Convolution by its definition: each output is a sum over its window, plus the bias."""
    rank = case.rank
    strides, dilations = per_axis(case.stride, rank), per_axis(case.dilation, rank)
    pads = [(p, p) for p in per_axis(case.padding, rank)]
    padded = np.pad(input, [(0, 0)] * (input.ndim - rank) + pads)
    channels, outputs_per_group = case.weight_shape[1], case.weight_shape[0] // case.groups
    result = np.empty(case.output_shape)
    for o, *position in itertools.product(*map(range, case.output_shape[-rank - 1 :])):
        first = o // outputs_per_group * channels
        window = [slice(first, first + channels)]
        for p, s, d, k in zip(position, strides, dilations, case.weight_shape[2:], strict=True):
            window.append(slice(p * s, p * s + d * (k - 1) + 1, d))
        products = padded[(..., *window)] * weight[o]
        result[(..., o, *position)] = products.sum(axis=tuple(range(-rank - 1, 0))) + bias[o]
    return result


def central_differences(function, at):
    """The gradient of a scalar function; any step is exact where it is linear."""
    result = np.empty_like(at)
    for index in np.ndindex(at.shape):
        step = np.zeros_like(at)
        step[index] = 0.5
        result[index] = function(at + step) - function(at - step)
    return result


def gradients_by_differences(case, grad_output, input, weight):
    bias = np.zeros(case.weight_shape[0])

    def weighted_sum(input=input, weight=weight, bias=bias):
        return np.sum(grad_output * forward(case, input, weight, bias))

    return (
        central_differences(lambda values: weighted_sum(input=values), input),
        central_differences(lambda values: weighted_sum(weight=values), weight),
        central_differences(lambda values: weighted_sum(bias=values), bias),
    )


def assert_nearly_equal(results, expected):
    for which, got, wanted in zip(GRADIENTS, results, expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-10, err_msg=which)


SMALL_CASES = [
    "toy",
    "unbatched_1d",
    "unbatched_3d",
    "groups_1d",
    "depthwise_1d",
    "dilation_1d",
    "stride_beyond_kernel_1d",
    "asymmetric_3d",
    "padding_beyond_kernel_2d",
    "kernel_beyond_input",
]


@pytest.mark.parametrize("name", SMALL_CASES)
def test_reference_agrees_with_central_differences_of_a_forward(name):
    case = find_conv_case(name)
    arrays = make_arrays(case, "float64")
    assert_nearly_equal(case.backward(reference, *arrays), gradients_by_differences(case, *arrays))


# Values known by hand


def test_kernel_is_not_flipped():
    grad_output, input = np.array([[[1.0]]]), np.array([[[10.0, 20.0, 30.0]]])
    weight = np.array([[[1.0, 2.0, 3.0]]])
    grad_input, grad_weight, _ = reference.conv_backward(grad_output, input, weight)
    assert grad_input.tolist() == [[[1.0, 2.0, 3.0]]]
    assert grad_weight.tolist() == [[[10.0, 20.0, 30.0]]]


def test_inputs_in_no_window_get_zero():
    grad_output = np.array([[[1.0, 2.0]]])
    grad_input, _, _ = reference.conv_backward(
        grad_output, np.ones((1, 1, 6)), np.ones((1, 1, 1)), stride=3
    )
    assert grad_input.tolist() == [[[1.0, 0.0, 0.0, 2.0, 0.0, 0.0]]]


def test_bias_sums_over_batch_and_space():
    grad_output = np.arange(12.0).reshape(2, 2, 3)
    _, _, grad_bias = reference.conv_backward(
        grad_output, (2, 1, 3), (2, 1, 1), output_mask=(False, False, True)
    )
    assert grad_bias.tolist() == [0 + 1 + 2 + 6 + 7 + 8, 3 + 4 + 5 + 9 + 10 + 11]


def test_nan_reaches_exactly_its_window_and_what_it_is_multiplied_with():
    case = ConvCase("", (1, 4, 6), (2, 2, 3), stride=2, padding=1, groups=2)
    grad_output, input, weight = make_arrays(case, "float64")
    grad_output[0, 1, 0] = np.nan
    grad_input, grad_weight, grad_bias = case.backward(reference, grad_output, input, weight)
    # The window of output 0 begins in the padding, where there is nothing to multiply.
    assert np.argwhere(np.isnan(grad_input)).tolist() == [
        [0, 2, 0],
        [0, 2, 1],
        [0, 3, 0],
        [0, 3, 1],
    ]
    assert np.argwhere(np.isnan(grad_weight)).tolist() == [
        [1, 0, 1],
        [1, 0, 2],
        [1, 1, 1],
        [1, 1, 2],
    ]
    assert np.isnan(grad_bias).tolist() == [False, True]


# Arguments


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", ["toy", "unbatched_2d", "groups_3d"])
def test_masked_gradients_are_none_and_the_others_the_same(name, mask):
    case = find_conv_case(name)
    arrays = make_arrays(case, "float64")
    results = case.backward(reference, *arrays, output_mask=mask)
    for wanted, got, expected in zip(mask, results, case.backward(reference, *arrays), strict=True):
        assert np.array_equal(got, expected) if wanted else got is None


@pytest.mark.parametrize("mask", [mask for mask in MASKS if not all(mask[:2])])
@pytest.mark.parametrize("name", ["toy", "unbatched_2d", "groups_3d"])
def test_shapes_do_where_values_are_not_needed(name, mask):
    case = find_conv_case(name)
    grad_output, input, weight = make_arrays(case, "float64")
    expected = case.backward(reference, grad_output, input, weight)
    results = case.backward(
        reference,
        grad_output,
        input if mask[1] else input.shape,
        weight if mask[0] else list(weight.shape),
        output_mask=mask,
    )
    for wanted, got, value in zip(mask, results, expected, strict=True):
        assert np.array_equal(got, value) if wanted else got is None


@pytest.mark.parametrize("case", [case for case in CASES if not case.batched], ids=lambda c: c.name)
def test_unbatched_is_a_batch_of_one(case):
    grad_output, input, weight = make_arrays(case, "float64")
    grad_input, *others = case.backward(reference, grad_output, input, weight)
    batched_input, *batched_others = case.backward(
        reference, grad_output[np.newaxis], input[np.newaxis], weight
    )
    assert np.array_equal(grad_input[np.newaxis], batched_input)
    assert all(map(np.array_equal, others, batched_others))


def test_sequences_of_one_stand_for_every_axis():
    case = find_conv_case("stride_and_dilation")
    arrays = make_arrays(case, "float64")
    same = dataclasses.replace(case, stride=(2,), padding=[3], dilation=(3,))
    results = same.backward(reference, *arrays)
    assert all(map(np.array_equal, results, case.backward(reference, *arrays)))


@pytest.mark.parametrize(
    "convert",
    [
        lambda values: values.astype(np.float16),
        lambda values: values.astype(ml_dtypes.bfloat16),
        lambda values: values.astype(">f4"),
        lambda values: torch.from_numpy(values).bfloat16(),
        lambda values: torch.from_numpy(values).float().requires_grad_(),
        lambda values: jnp.array(values, jnp.bfloat16),
    ],
    ids=["float16", "bfloat16", "big_endian", "torch_bfloat16", "torch_parameter", "jax_bfloat16"],
)
def test_reference_reads_arrays_of_every_framework(convert):
    case = find_conv_case("toy")
    # Few bits, so that every dtype holds these values.
    arrays = [np.round(4 * array) / 4 for array in make_arrays(case, "float64")]
    results = case.backward(reference, *map(convert, arrays))
    for got, expected in zip(results, case.backward(reference, *arrays), strict=True):
        assert type(got) is np.ndarray
        assert np.array_equal(got, expected)


def test_arguments_are_not_written_to():
    case = find_conv_case("plain_2d")
    arrays = make_arrays(case, "float64")
    for array in arrays:
        array.flags.writeable = False
    results = case.backward(reference, *arrays)
    assert not any(np.shares_memory(r, a) for r, a in itertools.product(results, arrays))


GOOD = {
    "grad_output": np.ones((2, 6, 3, 4)),
    "input": np.ones((2, 4, 5, 6)),
    "weight": np.ones((6, 2, 3, 3)),
    "groups": 2,
}


def test_the_call_that_the_wrong_ones_start_from_is_right():
    shapes = [gradient.shape for gradient in reference.conv_backward(**GOOD)]
    assert shapes == [(2, 4, 5, 6), (6, 2, 3, 3), (6,)]


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"grad_output": np.ones((2, 6, 3, 4), int)}, TypeError, "grad_output is int64, expected"),
        ({"grad_output": (2, 6, 3, 4)}, TypeError, "grad_output is a tuple, expected an array"),
        ({"grad_output": np.ones((2, 6, 3, 3))}, ValueError, r"grad_output is .* is \(2, 6, 3, 4"),
        ({"grad_output": np.ones((6, 3, 4))}, ValueError, r"grad_output is \(6, 3, 4\), but"),
        ({"grad_output": np.ones((1, 6, 3, 4))}, ValueError, r"grad_output is \(1, 6, 3, 4\), but"),
        ({"input": (2, 4, 5, 6)}, TypeError, "input is a tuple, expected an array"),
        ({"input": np.ones((2, 4, 5, 6), np.float32)}, TypeError, "input is float32, expected fl"),
        ({"input": "NCHW"}, TypeError, "input is 'NCHW', expected an array or a shape"),
        ({"input": np.ones((5, 6))}, ValueError, r"input is \(5, 6\), expected 3 or 4 dimensions"),
        ({"input": np.ones((2, 4, 0, 6))}, ValueError, r"input is \(2, 4, 0, 6\), expected sizes"),
        ({"input": np.ones((2, 3, 5, 6))}, ValueError, "input has 3 channels, expected 4"),
        ({"weight": (6, 2, 3, 3)}, TypeError, "weight is a tuple, expected an array"),
        ({"weight": np.ones((6, 2, 3, 3), "f2")}, TypeError, "weight is float16, expected float64"),
        ({"weight": None}, TypeError, "weight is None, expected an array or a shape"),
        ({"weight": np.ones((6, 2))}, ValueError, r"weight is \(6, 2\), expected 3 to 5 dim"),
        ({"weight": np.ones((6, 2, 3, 0))}, ValueError, r"weight is .*, expected sizes of at"),
        ({"weight": np.ones((5, 2, 3, 3))}, ValueError, "weight is .* a multiple of groups = 2"),
        ({"weight": np.ones((6, 2, 6, 3))}, ValueError, "weight is .* spans 6 .* at most 5"),
        ({"dilation": (1, 3)}, ValueError, r"weight is .* dilation\[1\] = 3 spans 7 .* at most 6"),
        ({"dilation": 0}, ValueError, r"dilation\[0\] is 0, expected at least 1"),
        ({"stride": (1, 0)}, ValueError, r"stride\[1\] is 0, expected at least 1"),
        ({"stride": (1, 1, 1)}, ValueError, "stride is .*, expected an int or 1 or 2 ints"),
        ({"stride": 1.0}, TypeError, "stride is 1.0, expected an int"),
        ({"padding": -1}, ValueError, r"padding\[0\] is -1, expected at least 0"),
        ({"padding": "same"}, TypeError, "padding is 'same', expected an int"),
        ({"groups": 0}, ValueError, "groups is 0, expected at least 1"),
        ({"groups": 2.0}, TypeError, "groups is 2.0, expected an int"),
        ({"output_mask": (True, True)}, ValueError, "output_mask is .*, expected 3 bools"),
        ({"output_mask": True}, TypeError, "output_mask is True, expected 3 bools"),
        ({"output_mask": (1, 1, 1)}, TypeError, r"output_mask is \(1, 1, 1\), expected 3 bools"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_reference_says_what_is_wrong(change, error, text):
    with pytest.raises(error, match=text):
        reference.conv_backward(**{**GOOD, **change})


# Independence


def test_reference_works_without_the_rest_of_the_package():
    code = f"""
import importlib.util, sys
import numpy as np
spec = importlib.util.spec_from_file_location("alone", {reference.__file__!r})
alone = importlib.util.module_from_spec(spec)
spec.loader.exec_module(alone)
alone.conv_backward(np.ones((1, 1, 2)), np.ones((1, 1, 3)), np.ones((1, 1, 2)))
print(*(name for name in sys.modules if name.partition(".")[0] == "backops"))
"""
    assert run_python(code).stdout.split() == []


# Controls: the comparisons must see what is wrong.


def with_dilation_ignored(case, grad_output, input, weight):
    changed = dataclasses.replace(case, dilation=1, padding=1)
    return changed.backward(reference, grad_output, input, weight)


def with_kernel_flipped(case, grad_output, input, weight):
    grad_input, grad_weight, grad_bias = case.backward(
        reference, grad_output, input, weight[..., ::-1]
    )
    return grad_input, grad_weight[..., ::-1], grad_bias


def with_input_reversed(case, grad_output, input, weight):
    return case.backward(reference, grad_output, input[..., ::-1], weight)


def with_first_batch_only(case, grad_output, input, weight):
    grad_output = grad_output.copy()
    grad_output[1:] = 0
    return case.backward(reference, grad_output, input, weight)


@pytest.mark.parametrize(
    ("compute", "caught"),
    [
        (with_dilation_ignored, "grad_input"),
        (with_kernel_flipped, "grad_input"),
        (with_input_reversed, "grad_weight"),
        (with_first_batch_only, "grad_input"),
    ],
)
def test_comparison_with_pytorch_catches_a_wrong_computation(compute, caught):
    case = find_conv_case("dilation_2d")
    arrays = make_arrays(case, "float64")
    with pytest.raises(AssertionError, match=f"{caught} differs"):
        assert_agree(compute(case, *arrays), torch_backward(case, *arrays), case, arrays)


@pytest.mark.parametrize("which", GRADIENTS)
def test_comparison_catches_one_element_beyond_its_bound(which):
    case = find_conv_case("groups_2d")
    arrays = make_arrays(case, "float64")
    expected = case.backward(reference, *arrays)
    results = [array.copy() for array in expected]
    changed = results[GRADIENTS.index(which)]
    changed.flat[3] += 2 * bound(case, *arrays, which, eps=EPS_FLOAT64).flat[3]
    with pytest.raises(AssertionError, match=f"{which} differs"):
        assert_agree(results, expected, case, arrays)


def test_comparison_catches_a_nan():
    case = find_conv_case("toy")
    arrays = make_arrays(case, "float64")
    expected = case.backward(reference, *arrays)
    expected[2][0] = np.nan
    with pytest.raises(AssertionError, match="grad_bias differs"):
        assert_agree(case.backward(reference, *arrays), expected, case, arrays)


def test_central_differences_catch_an_ignored_dilation():
    case = ConvCase("", (1, 2, 7), (2, 2, 3), padding=2, dilation=2)
    arrays = make_arrays(case, "float64")
    with pytest.raises(AssertionError, match="grad_input"):
        assert_nearly_equal(
            with_dilation_ignored(case, *arrays), gradients_by_differences(case, *arrays)
        )


def test_bound_grows_with_the_length_of_each_sum():
    case = ConvCase("", (2, 1, 4), (3, 1, 3))
    arrays = [np.ones(s) for s in (case.output_shape, case.input_shape, case.weight_shape)]
    # Ones make the sum of absolute products equal to its length.
    lengths = {
        "grad_input": [3, 6, 6, 3],
        "grad_weight": [4, 4, 4],
        "grad_bias": [4, 4, 4],
    }
    for which, expected in lengths.items():
        first = bound(case, *arrays, which, eps=1.0).reshape(-1)[: len(expected)]
        np.testing.assert_allclose(first, [4 * length**1.5 for length in expected])
