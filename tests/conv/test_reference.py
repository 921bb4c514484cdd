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
    OPERATORS,
    TRANSPOSED_CASES,
    ConvCase,
    conv_readings,
    find_conv_case,
    make_arrays,
    reading_id,
    readings,
)
from tests.support.conv_compare import EPS_FLOAT64, bounds
from tests.support.conv_definitions import torch_results
from tests.support.processes import run_python

MASKS = list(itertools.product([True, False], repeat=3))


every_operator = pytest.mark.parametrize("operator", OPERATORS)


def assert_agree(results, expected, case, arrays):
    """Fails unless all results are as close as float64 allows."""
    allowed = bounds(case, arrays, EPS_FLOAT64)
    names = case.result_names
    for which, got, wanted, most in zip(names, results, expected, allowed, strict=True):
        assert got.dtype == np.float64
        assert got.shape == wanted.shape, f"{which} is {got.shape}, not {wanted.shape}: {case}"
        wrong = np.argwhere(~(np.abs(got - wanted) <= most))
        assert not len(wrong), f"{which} differs, first at {wrong[0]}: {case}"


# Against PyTorch


def check_against_torch(case):
    arrays = make_arrays(case, "float64")
    results = case.call(reference, *arrays)
    assert_agree(results, torch_results(case, *arrays), case, arrays)


@pytest.mark.parametrize("case", readings([*CASES, *TRANSPOSED_CASES]), ids=reading_id)
def test_reference_agrees_with_pytorch_in_float64(case):
    check_against_torch(case)


@given(case=conv_readings())
def test_generated_problems_agree_with_pytorch_in_float64(case):
    check_against_torch(case)


@pytest.mark.parametrize(
    "case", readings([*CASES, *TRANSPOSED_CASES], ("conv", "conv_transpose")), ids=reading_id
)
def test_result_shape_of_a_case_is_that_of_pytorch(case):
    convolve = getattr(torch.nn.functional, f"{case.operator}{case.rank}d")
    # PyTorch's meta tensors have shapes only.
    operands = [torch.empty(shape, device="meta") for shape in case.operand_shapes.values()]
    assert (tuple(convolve(*operands, **case.keywords).shape),) == case.result_shapes


@pytest.mark.parametrize("case", readings(CASES[::4], ("conv", "conv_transpose")), ids=reading_id)
def test_no_bias_is_one_of_zeros(case):
    input, weight, bias = make_arrays(case, "float64")
    (without,) = case.call(reference, input, weight)
    assert np.array_equal(without, case.call(reference, input, weight, None)[0])
    assert np.array_equal(without, case.call(reference, input, weight, np.zeros_like(bias))[0])


# Against finite differences


def convolved(case, input, weight, bias):
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


def transposed(case, input, weight, bias):
    """Each input adds its kernel to a canvas, from which the padding is then cut."""
    rank = case.rank
    strides, dilations = per_axis(case.stride, rank), per_axis(case.dilation, rank)
    paddings = per_axis(case.padding, rank)
    lengths = [n + 2 * p for n, p in zip(case.input_shape[-rank:], paddings, strict=True)]
    canvas = np.zeros((*case.input_shape[:-rank], *lengths))
    channels, inputs_per_group = case.weight_shape[1], case.weight_shape[0] // case.groups
    for i, *position in itertools.product(*map(range, input.shape[-rank - 1 :])):
        first = i // inputs_per_group * channels
        window = [slice(first, first + channels)]
        for p, s, d, k in zip(position, strides, dilations, case.weight_shape[2:], strict=True):
            window.append(slice(p * s, p * s + d * (k - 1) + 1, d))
        spread = input[(..., i, *position)]
        canvas[(..., *window)] += np.multiply.outer(spread, weight[i])
    space = tuple(slice(p, p + n) for p, n in zip(paddings, case.input_shape[-rank:], strict=True))
    return canvas[(..., *space)] + bias.reshape(-1, *[1] * rank)


def by_definition(case, *operands):
    return (transposed if case.is_transposed else convolved)(case, *operands)


def central_differences(function, at):
    """The gradient of a scalar function; any step is exact where it is linear."""
    result = np.empty_like(at)
    for index in np.ndindex(at.shape):
        step = np.zeros_like(at)
        step[index] = 0.5
        result[index] = function(at + step) - function(at - step)
    return result


def gradients_by_differences(case, grad_output, input, weight):
    bias = np.zeros(case.result_shapes[2])

    def weighted_sum(input=input, weight=weight, bias=bias):
        return np.sum(grad_output * by_definition(case, input, weight, bias))

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


SMALL = [*map(find_conv_case, SMALL_CASES), *TRANSPOSED_CASES[:1]]


@pytest.mark.parametrize(
    "case", readings(SMALL, ("conv_backward", "conv_transpose_backward")), ids=reading_id
)
def test_reference_agrees_with_central_differences_of_a_forward(case):
    arrays = make_arrays(case, "float64")
    assert_nearly_equal(case.call(reference, *arrays), gradients_by_differences(case, *arrays))


@pytest.mark.parametrize(
    "case",
    readings([*CASES, *TRANSPOSED_CASES], ("conv", "conv_transpose")),
    ids=reading_id,
)
def test_reference_agrees_with_the_definition_element_by_element(case):
    arrays = make_arrays(case, "float64", kind="integer")
    assert np.array_equal(case.call(reference, *arrays)[0], by_definition(case, *arrays))


# Adjoint identities, exact on whole numbers


def check_adjoint(case):
    """<conv(x), y> is <x, conv_transpose(y)>, and what the backward operators say."""
    y, x, weight = make_arrays(case.read_as("conv_transpose_backward"), "float64", kind="integer")
    # Named for the transposed operator: it makes y's shape from x's.
    (made,) = case.read_as("conv_transpose").call(reference, x, weight)
    back, of_weight, of_bias = case.read_as("conv_transpose_backward").call(reference, y, x, weight)
    assert np.vdot(made, y) == np.vdot(x, back) == np.vdot(weight, of_weight)
    assert np.array_equal(
        of_bias, y.sum(axis=(*range(y.ndim - case.rank - 1), *range(-case.rank, 0)))
    )
    if case.fewer == 0:
        (convolved,) = case.read_as("conv").call(reference, y, weight)
        assert np.array_equal(convolved, back)
        same_made, same_weight, _ = case.backward(reference, x, y, weight)
        assert np.array_equal(same_made, made)
        assert np.array_equal(same_weight, of_weight)


@pytest.mark.parametrize("case", [*CASES, *TRANSPOSED_CASES], ids=lambda case: case.name)
def test_transposed_convolution_is_the_adjoint_of_convolution(case):
    check_adjoint(case)


@given(case=conv_readings(("conv_transpose",)))
def test_generated_transposed_convolution_is_the_adjoint(case):
    check_adjoint(case)


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


def test_infinite_weights_and_inputs_do_not_meet_padding():
    # The window of output 0 begins in the padding: zero times infinity would be NaN.
    input, weight = np.array([[[1.0, 2.0]]]), np.array([[[np.inf, 1.0, 1.0]]])
    got = reference.conv(input, weight, padding=1)
    assert got.tolist() == [[[3.0, np.inf]]]
    assert reference.conv(np.array([[[np.inf]]]), np.ones((1, 1, 1)), padding=1).tolist() == [
        [[0.0, np.inf, 0.0]]
    ]
    got = reference.conv_transpose(np.array([[[np.inf, 1.0]]]), np.ones((1, 1, 1)), stride=2)
    assert got.tolist() == [[[np.inf, 0.0, 1.0]]]


def test_bias_is_not_rounded():
    bias = np.array([1 + 2.0**-20], np.float32)
    ones = np.ones((1, 1, 1), np.float32)
    for operator in (reference.conv, reference.conv_transpose):
        for precision in ("hf32", "allow_fp32_down", "fp16"):
            got = operator(ones * bias, ones * bias, bias, precision=precision)
            assert got.item() == 1 + float(bias[0])


# Arguments


both_backward = pytest.mark.parametrize("operator", ["conv_backward", "conv_transpose_backward"])


@both_backward
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", ["toy", "unbatched_2d", "groups_3d"])
def test_masked_gradients_are_none_and_the_others_the_same(name, mask, operator):
    case = find_conv_case(name).read_as(operator)
    arrays = make_arrays(case, "float64")
    results = case.call(reference, *arrays, output_mask=mask)
    for wanted, got, expected in zip(mask, results, case.call(reference, *arrays), strict=True):
        assert np.array_equal(got, expected) if wanted else got is None


@both_backward
@pytest.mark.parametrize("mask", [mask for mask in MASKS if not all(mask[:2])])
@pytest.mark.parametrize("name", ["toy", "unbatched_2d", "groups_3d"])
def test_shapes_do_where_values_are_not_needed(name, mask, operator):
    case = find_conv_case(name).read_as(operator)
    grad_output, input, weight = make_arrays(case, "float64")
    expected = case.call(reference, grad_output, input, weight)
    results = case.call(
        reference,
        grad_output,
        input if mask[1] else input.shape,
        weight if mask[0] else list(weight.shape),
        output_mask=mask,
    )
    for wanted, got, value in zip(mask, results, expected, strict=True):
        assert np.array_equal(got, value) if wanted else got is None


@pytest.mark.parametrize(
    "case", readings([case for case in CASES if not case.batched]), ids=reading_id
)
def test_unbatched_is_a_batch_of_one(case):
    arrays = make_arrays(case, "float64")
    result, *others = case.call(reference, *arrays)
    batched = dataclasses.replace(case, input_shape=(1, *case.input_shape))
    operands = [a.reshape(s) for a, s in zip(arrays, batched.operand_shapes.values(), strict=True)]
    batched_result, *batched_others = batched.call(reference, *operands)
    assert np.array_equal(result[np.newaxis], batched_result)
    assert all(map(np.array_equal, others, batched_others))


@every_operator
def test_sequences_of_one_stand_for_every_axis(operator):
    case = find_conv_case("stride_and_dilation").read_as(operator)
    arrays = make_arrays(case, "float64")
    changes = {"stride": (2,), "padding": [3], "dilation": (3,)}
    results = case.run(getattr(reference, operator), *arrays, **{**case.keywords, **changes})
    assert all(map(np.array_equal, results, case.call(reference, *arrays)))


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
@every_operator
def test_reference_reads_arrays_of_every_framework(convert, operator):
    case = find_conv_case("toy").read_as(operator)
    # Few bits, so that every dtype holds these values.
    arrays = [np.round(4 * array) / 4 for array in make_arrays(case, "float64")]
    results = case.call(reference, *map(convert, arrays))
    for got, expected in zip(results, case.call(reference, *arrays), strict=True):
        assert type(got) is np.ndarray
        assert np.array_equal(got, expected)


@every_operator
def test_arguments_are_not_written_to(operator):
    case = find_conv_case("plain_2d").read_as(operator)
    arrays = make_arrays(case, "float64")
    for array in arrays:
        array.flags.writeable = False
    results = case.call(reference, *arrays)
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


GOOD_FORWARD = {
    "input": np.ones((2, 4, 5, 6)),
    "weight": np.ones((6, 2, 3, 3)),
    "bias": np.ones(6),
    "groups": 2,
}
GOOD_TRANSPOSED = {**GOOD_FORWARD, "weight": np.ones((4, 3, 3, 3)), "stride": 2}
GOOD_TRANSPOSED_BACKWARD = {
    "grad_output": np.ones((2, 6, 11, 13)),
    "input": np.ones((2, 4, 5, 6)),
    "weight": np.ones((4, 3, 3, 3)),
    "stride": 2,
    "groups": 2,
}


def test_the_calls_that_the_wrong_ones_of_the_others_start_from_are_right():
    assert reference.conv(**GOOD_FORWARD).shape == (2, 6, 3, 4)
    assert reference.conv_transpose(**GOOD_TRANSPOSED).shape == (2, 6, 11, 13)
    results = reference.conv_transpose_backward(**GOOD_TRANSPOSED_BACKWARD)
    assert [gradient.shape for gradient in results] == [(2, 4, 5, 6), (4, 3, 3, 3), (6,)]


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"input": (2, 4, 5, 6)}, TypeError, "input is a tuple, expected an array"),
        ({"input": np.ones((2, 4, 5, 6), int)}, TypeError, "input is int64, expected"),
        ({"input": np.ones((5, 6))}, ValueError, r"input is \(5, 6\), expected 3 or 4 dimensions"),
        ({"input": np.ones((2, 0, 5, 6))}, ValueError, r"input is \(2, 0, 5, 6\), expected sizes"),
        ({"weight": np.ones((6, 2, 3, 3), "f4")}, TypeError, "weight is float32, .* as input"),
        ({"weight": np.ones((6, 2))}, ValueError, r"weight is \(6, 2\), expected 3 to 5 dim"),
        ({"bias": np.ones(6, "f4")}, TypeError, "bias is float32, expected float64 as input"),
        ({"bias": 1.0}, TypeError, "bias is a float, expected an array"),
        ({"bias": np.ones(5)}, ValueError, r"bias is \(5,\), expected \(6,\), one element"),
        ({"bias": np.ones((6, 1))}, ValueError, r"bias is \(6, 1\), expected \(6,\)"),
        ({"groups": 0}, ValueError, "groups is 0, expected at least 1"),
        ({"stride": 0}, ValueError, r"stride\[0\] is 0, expected at least 1"),
        ({"padding": (0, -1)}, ValueError, r"padding\[1\] is -1, expected at least 0"),
        ({"dilation": 0}, ValueError, r"dilation\[0\] is 0, expected at least 1"),
        ({"precision": "hf32"}, ValueError, "precision is 'hf32', expected one of keep"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
@pytest.mark.parametrize("operator", ["conv", "conv_transpose"])
def test_reference_of_a_forward_operator_says_what_is_wrong(operator, change, error, text):
    good = GOOD_FORWARD if operator == "conv" else GOOD_TRANSPOSED
    with pytest.raises(error, match=text):
        getattr(reference, operator)(**{**good, **change})


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"output_padding": 2}, r"output_padding\[0\] is 2, expected less than stride"),
        ({"output_padding": (1, -1)}, r"output_padding\[1\] is -1, expected at least 0"),
        ({"padding": (0, 7)}, r"padding\[1\] is 7, which leaves -1 outputs on spatial axis 1"),
        ({"input": np.ones((2, 6, 5, 6))}, "input has 6 channels, expected 4"),
        ({"groups": 3}, "input has 4 channels, expected a multiple of groups = 3"),
    ],
)
@pytest.mark.parametrize("operator", ["conv_transpose", "conv_transpose_backward"])
def test_reference_of_a_transposed_operator_says_what_is_wrong(operator, change, text):
    good = GOOD_TRANSPOSED_BACKWARD if operator.endswith("backward") else GOOD_TRANSPOSED
    with pytest.raises(ValueError, match=text):
        getattr(reference, operator)(**{**good, **change})


@pytest.mark.parametrize("shape", [(2, 6, 10, 13), (6, 11, 13), (2, 5, 11, 13)], ids=str)
def test_reference_of_transposed_backward_wants_what_forward_makes(shape):
    change = {"grad_output": np.ones(shape)}
    with pytest.raises(ValueError, match=r"but the transposed convolution of .*\(2, 6, 11, 13\)"):
        reference.conv_transpose_backward(**{**GOOD_TRANSPOSED_BACKWARD, **change})


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
        assert_agree(compute(case, *arrays), torch_results(case, *arrays), case, arrays)


@pytest.mark.parametrize("operator", ["conv", "conv_transpose"])
def test_comparison_with_pytorch_catches_a_wrong_forward(operator):
    case = find_conv_case("groups_2d").read_as(operator)
    input, weight, bias = arrays = make_arrays(case, "float64")
    expected = torch_results(case, *arrays)
    for wrong in (
        (input, weight[..., ::-1], bias),
        (np.roll(input, 1, axis=-1), weight, bias),
        (input, weight, bias[::-1]),
        (input, weight),
    ):
        with pytest.raises(AssertionError, match="result differs"):
            assert_agree(case.call(reference, *wrong), expected, case, arrays)


@pytest.mark.parametrize("which", GRADIENTS)
def test_comparison_catches_one_element_beyond_its_bound(which):
    case = find_conv_case("groups_2d")
    arrays = make_arrays(case, "float64")
    expected = case.backward(reference, *arrays)
    results = [array.copy() for array in expected]
    changed = results[GRADIENTS.index(which)]
    changed.flat[3] += 2 * bounds(case, arrays, EPS_FLOAT64)[GRADIENTS.index(which)].flat[3]
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
    for (which, expected), got in zip(lengths.items(), bounds(case, arrays, eps=1.0), strict=True):
        first = got.reshape(-1)[: len(expected)]
        wanted = [4 * length**1.5 for length in expected]
        np.testing.assert_allclose(first, wanted, err_msg=which)
