"""The operators of CANN on device memory, against the reference and PyTorch."""

from dataclasses import replace

import numpy as np
import pytest

from backops import acl, reference
from tests.support.acl import (
    ACL_DTYPES,
    PRODUCTS,
    Format,
    Placed,
    check,
    initialised,
    int_array,
    launch,
    run_pool,
)
from tests.support.cases import per_axis
from tests.support.conv_cases import CASES, ConvCase, empty_gradients, find_conv_case, make_arrays
from tests.support.conv_compare import assert_exact
from tests.support.floats import round_to, same_bits
from tests.support.layouts import LAYOUTS, in_layout, place
from tests.support.pool_cases import find_case, load_cases, make_grad, parse_case
from tests.support.pool_compare import assert_close
from tests.support.pool_definitions import torch_result
from tests.support.processes import run_python

POOL_CASES = [case for case in load_cases() if case.rank in (2, 3) and 0 not in case.input_shape]
CONV_CASES = CASES
every_dtype = pytest.mark.parametrize("dtype", ACL_DTYPES)


@pytest.fixture(autouse=True)
def device():
    with initialised():
        yield


@every_dtype
@pytest.mark.parametrize("case", POOL_CASES, ids=lambda case: case.name)
def test_pool(case, dtype):
    grad = make_grad(case, dtype)
    result = run_pool(case, grad, np.full(case.input_shape, 7, grad.dtype)).read()
    assert_close(result, case, grad)


def test_pool_cases_are_of_every_operator():
    assert {case.operator for case in POOL_CASES} == {"avg2d", "avg3d", "adaptive2d", "adaptive3d"}
    assert {len(case.input_shape) - case.rank for case in POOL_CASES} == {1, 2}


@pytest.mark.parametrize("name", ["toy", "overlap_3d"])
def test_pool_equals_pytorch(name):
    case = find_case(name)
    grad = make_grad(case, kind="integer")
    result = run_pool(case, grad, np.empty(case.input_shape, np.float32)).read()
    assert np.allclose(result, torch_result(case, grad), rtol=1e-6, atol=1e-6)


def check_nothing_else_was_written(placed):
    written, target = placed.memory.read(), placed.array
    view = np.ndarray(target.shape, target.dtype, written, placed.start, target.strides)
    view.view(f"i{target.itemsize}")[...] = target.view(f"i{target.itemsize}")
    assert same_bits(written, placed.before)


@every_dtype
@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "offset_by_byte"])
@pytest.mark.parametrize("name", ["toy", "overlap_3d"])
def test_strides_and_offsets(name, layout, dtype):
    case = find_case(name)
    values = make_grad(case, dtype)
    _, target = place(case.input_shape, case.rank, dtype, layout)
    placed = run_pool(case, in_layout(values, case, layout), target)
    assert_close(placed.read(), case, values)
    check_nothing_else_was_written(placed)


def test_three_axes_in_format_ncl():
    case = parse_case("avg2d in=3x6x8 k=2")
    grad = make_grad(case)
    result = run_pool(case, grad, np.empty(case.input_shape, np.float32), format=Format.NCL).read()
    assert_close(result, case, grad)


def test_check_of_values_sees_padding_that_counts():
    case = parse_case("avg2d in=3x2x5x5 k=3 s=2 p=1 exclude_pad")
    other = parse_case("avg2d in=3x2x5x5 k=3 s=2 p=1")
    grad = make_grad(case)
    result = run_pool(other, grad, np.empty(case.input_shape, np.float32)).read()
    with pytest.raises(AssertionError):
        assert_close(result, case, grad)


# Precision

SLIDING = "avg2d in=1x2x6x6 k=2"
GLOBAL = "avg2d in=1x2x4x4 k=4 s=1"


def round_hf32(values, bits):
    """By the definition, in other words than the core's: half away from zero on a grid of 2**n."""
    values = np.asarray(values, np.float64)
    mantissa, exponent = np.frexp(values)
    scale = 2.0 ** (bits + 1)
    rounded = np.sign(mantissa) * np.floor(np.abs(mantissa) * scale + 0.5) / scale
    return np.ldexp(rounded, exponent)


def keep(values):
    return values.astype(np.float64)


def half(values):
    return values.astype(np.float16).astype(np.float64)


def hf32_11(values):
    return round_hf32(values, 11)


def hf32_10(values):
    return round_hf32(values, 10)


# Product, problem, cubeMathType and how float32 gradients are rounded, as SPEC's table says.
PRECISIONS = [
    *[(product, SLIDING, 0, keep) for product in ("A2", "A3", "950")],
    *[
        (product, problem, mode, hf32_11)
        for product in ("A2", "A3")
        for problem in (SLIDING, GLOBAL)
        for mode in (1, 3)
    ],
    *[("950", GLOBAL, mode, hf32_10) for mode in (1, 3)],
    *[("950", SLIDING, mode, keep) for mode in (1, 3)],
    *[
        (product, problem, 1, half)
        for product in ("training", "training_pro", "inference")
        for problem in (SLIDING, GLOBAL)
    ],
    *[(product, SLIDING, 2, half) for product in PRODUCTS if product != "200I"],
]


@pytest.mark.parametrize(("product", "problem", "mode", "rounded"), PRECISIONS)
def test_operands_are_rounded_as_the_product_says(product, problem, mode, rounded):
    case = parse_case(problem)
    # Ties and neighbours of every rounding, and what must stay as it is.
    ties = [1 + 2.0**-11 + 2.0**-12, 1 + 2.0**-12, -1 - 2.0**-12, 1 + 2.0**-11, -1 - 3 * 2.0**-11]
    values = np.resize(np.array([*ties, 3.14159265, -1e-3, 0.1, 7e3]), case.output_shape)
    grad = values.astype(np.float32)
    acl.aclFinalize()
    with initialised(PRODUCTS[product]):
        target = np.empty(case.input_shape, np.float32)
        result = run_pool(case, grad, target, cube_math_type=mode).read()
    # One gradient over a power of two per element: exact but for the rounding of operands.
    spread = case.backward(reference, rounded(grad))
    assert (result == spread.astype(np.float32)).all()
    if rounded is not keep:
        assert (result != case.backward(reference, keep(grad)).astype(np.float32)).any()
    check(acl.aclInit())


def test_infinity_and_nan_stay():
    case = parse_case(GLOBAL)
    grad = np.array([np.inf, np.nan], np.float32).reshape(case.output_shape)
    target = np.empty(case.input_shape, np.float32)
    result = run_pool(case, grad, target, cube_math_type=3).read()
    assert np.isposinf(result[0, 0]).all()
    assert np.isnan(result[0, 1]).all()


# Convolution


def run_conv(
    case, arrays, *, mask=(True, True, True), cube_math_type=0, dtype="float32", padding=None
):
    inputs = [Placed(array, Format.ND) for array in arrays]
    gradients = [Placed(array, Format.ND) for array in empty_gradients(case, dtype)]
    stride, both_ends, dilation = (
        per_axis(value, case.rank) for value in (case.stride, case.padding, case.dilation)
    )
    axes = [int_array(stride), int_array(padding or both_ends), int_array(dilation)]
    bias_sizes = int_array([case.weight_shape[0]])
    wanted = acl.aclCreateBoolArray(list(mask), 3)
    workspace = launch(
        "ConvolutionBackward",
        *[tensor.tensor for tensor in inputs],
        bias_sizes,
        *axes,
        False,
        None,
        case.groups,
        wanted,
        cube_math_type,
        *[each.tensor if use else None for each, use in zip(gradients, mask, strict=True)],
    )
    assert (workspace == 0) == (0 in case.input_shape or not any(mask))
    return [each.read() if use else None for each, use in zip(gradients, mask, strict=True)]


@every_dtype
@pytest.mark.parametrize("case", CONV_CASES, ids=lambda case: case.name)
def test_convolution(case, dtype):
    arrays = make_arrays(case, dtype, kind="integer")
    assert_exact(run_conv(case, arrays, dtype=dtype), case, arrays)


@pytest.mark.parametrize("mask", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (0, 1, 1), (0, 0, 0)])
@pytest.mark.parametrize("name", ["toy", "empty_batch"])
def test_convolution_computes_what_is_wanted(name, mask):
    case = find_conv_case(name)
    wanted = tuple(map(bool, mask))
    arrays = make_arrays(case, "float32", kind="integer")
    results = run_conv(case, arrays, mask=wanted)
    assert_exact(results, case, arrays, output_mask=wanted)


@every_dtype
@pytest.mark.parametrize("batch", [(), (0,), (3,)])
@pytest.mark.parametrize("padding", [(2, 0, 1, 3), (0, 1, 0, 0), (1, 1, 2, 2), (0, 5, 4, 0)])
@pytest.mark.parametrize("channels", [(3, 4), (16, 32)])
def test_convolution_with_a_padding_for_each_side(channels, padding, batch, dtype):
    """As the same convolution of an input that was padded before, whose borders are cut off."""
    top, bottom, left, right = padding
    inputs, outputs = channels
    case = ConvCase(
        "padded before",
        (*batch, inputs, 6 + top + bottom, 7 + left + right),
        (outputs, inputs, 3, 2),
        stride=(2, 1),
        dilation=(1, 2),
    )
    grad, padded, weight = make_arrays(case, dtype, kind="integer")
    inside = (..., slice(top, top + 6), slice(left, left + 7))
    own = replace(case, name="padded here", input_shape=(*batch, inputs, 6, 7))
    borders = [(0, 0)] * (len(batch) + 1) + [(top, bottom), (left, right)]
    padded = np.pad(padded[inside], borders)
    results = run_conv(own, (grad, padded[inside], weight), dtype=dtype, padding=padding)
    expected = case.backward(reference, grad, padded, weight)
    for got, exact in zip(results, (expected[0][inside], *expected[1:]), strict=True):
        assert (got.astype(np.float64) == round_to(exact, dtype)).all()


@pytest.mark.parametrize(("dtype", "mode"), [("bfloat16", 2), ("bfloat16", 3), ("float16", 3)])
def test_convolution_ignores_a_precision_its_dtype_cannot_use(dtype, mode):
    case = find_conv_case("toy")
    arrays = make_arrays(case, dtype)
    for got, kept in zip(
        run_conv(case, arrays, dtype=dtype, cube_math_type=mode),
        run_conv(case, arrays, dtype=dtype),
        strict=True,
    ):
        assert same_bits(got, kept)


# Tensors without elements


@every_dtype
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "every_second", "padded_rows"])
@pytest.mark.parametrize("shape", [(2, 3, 0, 4), (2, 3, 5, 0), (2, 3, 0, 0), (3, 0, 2)])
def test_adaptive_pool_of_no_outputs_is_zero(shape, layout, dtype):
    input_shape = (*shape[:-2], 6, 7)
    _, result = place(input_shape, 2, dtype, layout)
    arrays = (np.empty(shape, result.dtype), np.zeros(input_shape, result.dtype), result)
    tensors = [Placed(array) for array in arrays]
    launch("AdaptiveAvgPool2dBackward", *(each.tensor for each in tensors))
    assert (tensors[2].read() == 0).all()
    check_nothing_else_was_written(tensors[2])


@pytest.mark.parametrize("shape", [(0, 3, 2, 4), (2, 0, 2, 4), (0, 2, 2)])
def test_adaptive_pool_of_no_planes_does_nothing(shape):
    large = np.empty((*shape[:-2], 6, 7), np.float32)
    tensors = [Placed(array) for array in (np.empty(shape, np.float32), large, large)]
    assert launch("AdaptiveAvgPool2dBackward", *(each.tensor for each in tensors)) == 0


@pytest.mark.parametrize("format", [Format.NHWC, Format.NCL])
def test_formats_of_adaptive_pool_are_labels(format):
    case = next(c for c in POOL_CASES if c.operator == "adaptive2d" and len(c.input_shape) == 4)
    grad = make_grad(case)
    result = run_pool(case, grad, np.empty(case.input_shape, np.float32), format=format).read()
    assert_close(result, case, grad)


def test_deterministic_convolution_has_the_same_bits_for_any_number_of_threads():
    program = """
from tests.acl.test_values import *
with initialised():
    check(acl.aclrtCtxSetSysParamOpt(acl.ACL_OPT_DETERMINISTIC, 1))
    assert acl.aclrtCtxGetSysParamOpt(0) == (1, 0)
    assert acl.aclrtGetSysParamOpt(0) == (0, 0)
    case = ConvCase("dense", (8, 16, 12, 12), (16, 16, 3, 3), padding=1)
    results = run_conv(case, make_arrays(case, "float32"))
    import hashlib
    print(hashlib.sha256(b"".join(result.tobytes() for result in results)).hexdigest())
"""
    shown = {run_python(program, BACKOPS_NUM_THREADS=threads).stdout for threads in (1, 2, 5)}
    assert len(shown) == 1
