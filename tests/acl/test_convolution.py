"""The convolutions of CANN on device memory, forward and backward, against the reference."""

from dataclasses import replace

import numpy as np
import pytest

from backops import acl, reference
from tests.support.acl import ACL_DTYPES, PRODUCTS, check, initialised, run_conv
from tests.support.conv_cases import (
    CASES,
    TRANSPOSED_CASES,
    ConvCase,
    empty_results,
    find_conv_case,
    make_arrays,
    reading_id,
    readings,
    readings_in_turn,
)
from tests.support.conv_compare import assert_close, assert_exact, place_results
from tests.support.floats import round_to, same_bits
from tests.support.hf32 import TIES, half, hf32_10, hf32_11, keep
from tests.support.layouts import LAYOUTS, in_layout
from tests.support.processes import run_python

every_dtype = pytest.mark.parametrize("dtype", ACL_DTYPES)
BOTH = ("conv", "conv_transpose")


@pytest.fixture(autouse=True)
def device():
    with initialised():
        yield


def run(case, arrays, **more):
    """The results, None where masked."""
    mask = more.get("mask", (True, True, True))
    written = run_conv(case, arrays, empty_results(case, arrays[0].dtype.name), **more)
    if not case.is_backward:
        return [written[0].read()]
    return [each.read() if use else None for each, use in zip(written, mask, strict=True)]


@pytest.mark.parametrize("case", readings_in_turn((*CASES, *TRANSPOSED_CASES)), ids=reading_id)
def test_case(case):
    for dtype in ACL_DTYPES:
        arrays = make_arrays(case, dtype, kind="integer")
        assert_exact(run(case, arrays), case, arrays)


@pytest.mark.parametrize("operator", BOTH)
@pytest.mark.parametrize("name", ["toy", "empty_batch", "unbatched_2d", "groups_2d", "plain_1d"])
def test_without_a_bias(name, operator):
    case = find_conv_case(name).read_as(operator)
    arrays = make_arrays(case, "float32", kind="integer")[:2]
    assert_exact(run(case, arrays), case, arrays)


@pytest.mark.parametrize("name", ["plain_2d", "groups_2d", "plain_3d"])
@pytest.mark.parametrize("operator", BOTH)
def test_forward_equals_pytorch(name, operator):
    import torch

    case = find_conv_case(name).read_as(operator)
    arrays = make_arrays(case, "float32", kind="integer")
    function = getattr(torch.nn.functional, f"{operator}{case.rank}d")
    expected = function(*map(torch.from_numpy, arrays), **case.keywords)
    assert (run(case, arrays)[0] == expected.numpy()).all()


@every_dtype
@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "offset_by_byte"])
@pytest.mark.parametrize("operator", BOTH)
@pytest.mark.parametrize("name", ["plain_2d", "depthwise_3d", "unbatched_1d"])
def test_strides_and_offsets(name, operator, layout, dtype):
    case = find_conv_case(name).read_as(operator)
    values = make_arrays(case, dtype, kind="integer")
    placed = [in_layout(array, case, layout) for array in values[:2]]
    results = [array for _, array in place_results(case, dtype, layout)]
    written = run_conv(case, (*placed, values[2]), results)
    assert_exact([each.read() for each in written], case, values)
    for each in written:
        each.assert_nothing_else_was_written()


@pytest.mark.parametrize("mask", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (0, 1, 1), (0, 0, 0)])
@pytest.mark.parametrize("name", ["toy", "empty_batch"])
@pytest.mark.parametrize("operator", ["conv_backward", "conv_transpose_backward"])
def test_backward_computes_what_is_wanted(operator, name, mask):
    case = find_conv_case(name).read_as(operator)
    wanted = tuple(map(bool, mask))
    arrays = make_arrays(case, "float32", kind="integer")
    assert_exact(run(case, arrays, mask=wanted), case, arrays, output_mask=wanted)


@pytest.mark.parametrize("operator", BOTH)
def test_check_of_values_sees_a_turned_kernel(operator):
    case = find_conv_case("plain_2d").read_as(operator)
    values, weight, bias = make_arrays(case, "float32", kind="integer")
    results = run(case, (values, weight[..., ::-1, ::-1], bias))
    with pytest.raises(AssertionError, match="elements differ"):
        assert_exact(results, case, (values, weight, bias))


# A padding for each side: as the same convolution of an input that was padded before

SIDES = pytest.mark.parametrize(
    "padding", [(2, 0, 1, 3), (0, 1, 0, 0), (1, 1, 2, 2), (0, 5, 4, 0)], ids=str
)
BATCHES = pytest.mark.parametrize("batch", [(), (0,), (3,)], ids=str)
CHANNELS = pytest.mark.parametrize("channels", [(3, 4), (16, 32)], ids=str)


def padded_cases(operator, channels, padding, batch):
    """The convolution of a (6, 7) input, its like of one that was padded, and the inside."""
    top, bottom, left, right = padding
    inputs, outputs = channels
    padded = ConvCase(
        "padded before",
        (*batch, inputs, 6 + top + bottom, 7 + left + right),
        (outputs, inputs, 3, 2),
        stride=(2, 1),
        dilation=(1, 2),
        operator=operator,
    )
    own = replace(padded, name="padded here", input_shape=(*batch, inputs, 6, 7))
    return own, padded, (..., slice(top, top + 6), slice(left, left + 7))


def assert_equal(got, exact, dtype):
    assert (got.astype(np.float64) == round_to(exact, dtype)).all()


def with_zeros_outside(array, inside):
    result = np.zeros_like(array)
    result[inside] = array[inside]
    return result


@every_dtype
@BATCHES
@SIDES
@CHANNELS
def test_backward_with_a_padding_for_each_side(channels, padding, batch, dtype):
    own, case, inside = padded_cases("conv_backward", channels, padding, batch)
    grad, whole, weight = make_arrays(case, dtype, kind="integer")
    whole = with_zeros_outside(whole, inside)
    written = run_conv(
        own, (grad, whole[inside], weight), empty_results(own, dtype), padding=padding
    )
    expected = case.call(reference, grad, whole, weight)
    for got, exact in zip(written, (expected[0][inside], *expected[1:]), strict=True):
        assert_equal(got.read(), exact, dtype)


@every_dtype
@BATCHES
@SIDES
@CHANNELS
def test_convolution_with_a_padding_for_each_side(channels, padding, batch, dtype):
    own, case, inside = padded_cases("conv", channels, padding, batch)
    whole, weight, bias = make_arrays(case, dtype, kind="integer")
    whole = with_zeros_outside(whole, inside)
    result = empty_results(case, dtype)
    (written,) = run_conv(own, (whole[inside], weight, bias), result, padding=padding)
    assert_equal(written.read(), case.call(reference, whole, weight, bias)[0], dtype)


@every_dtype
@BATCHES
@SIDES
@CHANNELS
def test_transposed_convolution_with_a_padding_for_each_side(channels, padding, batch, dtype):
    """Whose borders are cut off."""
    own, case, inside = padded_cases("conv_transpose", channels, padding, batch)
    # The same outputs behind the last window: those of the case that was padded before.
    arrays = make_arrays(case, dtype, kind="integer")
    own = OutputPadding(own, case.output_padding)
    result = [np.full(own.case.input_shape, 7, arrays[0].dtype)]
    (written,) = run_conv(own, arrays, result, padding=padding)
    assert_equal(written.read(), case.call(reference, *arrays)[0][inside], dtype)


class OutputPadding:
    """A case with another output_padding than its shapes have."""

    def __init__(self, case, output_padding):
        self.case, self.output_padding = case, output_padding

    def __getattr__(self, name):
        return getattr(self.case, name)


# Precision


@pytest.mark.parametrize(("dtype", "mode"), [("bfloat16", 2), ("bfloat16", 3), ("float16", 3)])
@pytest.mark.parametrize("case", readings([find_conv_case("toy")]), ids=reading_id)
def test_precision_that_a_dtype_cannot_use_has_no_effect(case, dtype, mode):
    arrays = make_arrays(case, dtype)
    for got, kept in zip(run(case, arrays, cube_math_type=mode), run(case, arrays), strict=True):
        assert same_bits(got, kept)


# Product, cubeMathType and how float32 operands are rounded.
PRECISIONS = [
    *[(product, 0, keep) for product in ("A2", "A3", "950", "200I")],
    *[(product, mode, hf32_11) for product in ("A2", "A3", "200I") for mode in (1, 3)],
    *[("950", mode, hf32_10) for mode in (1, 3)],
    *[(product, 1, half) for product in ("training", "training_pro", "inference")],
    *[(product, 2, half) for product in PRODUCTS],
]


@pytest.mark.parametrize(("product", "mode", "rounded"), PRECISIONS)
@pytest.mark.parametrize("operator", BOTH)
def test_operands_are_rounded_as_the_product_says(operator, product, mode, rounded):
    """An input of ties times 1, then 1 times a kernel of ties; a bias is never rounded."""
    ties, one, bias = TIES.reshape(1, 1, 3, 3), np.ones((1, 1, 1, 1), np.float32), TIES[:1]
    scaled = ConvCase("scaled", (1, 1, 3, 3), (1, 1, 1, 1), operator=operator)
    if operator == "conv":
        kernel = ConvCase("kernel", (1, 1, 1, 1), (1, 1, 3, 3), padding=2, operator=operator)
    else:
        kernel = ConvCase("kernel", (1, 1, 3, 3), (1, 1, 3, 3), operator=operator)
    acl.aclFinalize()
    with initialised(PRODUCTS[product]):
        for case, arrays in ((scaled, (ties, one, bias)), (kernel, (one, ties, bias))):
            (result,) = run(case, arrays, cube_math_type=mode)
            turned = ties[..., ::-1, ::-1] if operator == "conv" and case is kernel else ties
            # Two numbers are added and rounded once.
            assert (result == (rounded(turned) + keep(bias)).astype(np.float32)).all()
            if rounded is not keep:
                assert (result != (keep(turned) + keep(bias)).astype(np.float32)).any()
    check(acl.aclInit())


@pytest.mark.parametrize("case", readings([find_conv_case("plain_2d")]), ids=reading_id)
def test_numbers_that_need_rounding(case):
    arrays = make_arrays(case, "float32")
    assert_close(run(case, arrays), case, arrays)


@pytest.mark.parametrize("operator", BOTH)
def test_infinity_and_nan_reach_what_they_are_multiplied_with(operator):
    case = find_conv_case("plain_2d").read_as(operator)
    arrays = make_arrays(case, "float32")
    arrays[0][0, 1, 2, 3], arrays[0][1, 0, 4, 4] = np.inf, np.nan
    assert_close(run(case, arrays), case, arrays)


def test_deterministic_convolution_has_the_same_bits_for_any_number_of_threads():
    program = """
from tests.acl.test_convolution import *
with initialised():
    check(acl.aclrtCtxSetSysParamOpt(acl.ACL_OPT_DETERMINISTIC, 1))
    assert acl.aclrtCtxGetSysParamOpt(0) == (1, 0)
    assert acl.aclrtGetSysParamOpt(0) == (0, 0)
    dense = ConvCase("dense", (8, 16, 12, 12), (16, 16, 3, 3), padding=1)
    results = [array for case in readings([dense]) for array in run(case, make_arrays(case))]
    import hashlib
    print(hashlib.sha256(b"".join(result.tobytes() for result in results)).hexdigest())
"""
    shown = {run_python(program, BACKOPS_NUM_THREADS=threads).stdout for threads in (1, 2, 5)}
    assert len(shown) == 1
