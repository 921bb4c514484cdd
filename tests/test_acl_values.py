"""The operators of CANN on device memory, against the reference and PyTorch."""

import conv_support
import numpy as np
import pytest
import support
from acl_support import (
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

from backops import acl

POOL_CASES = [
    case for case in support.load_cases() if case.rank in (2, 3) and 0 not in case.input_shape
]
CONV_CASES = [case for case in conv_support.CASES if 0 not in case.input_shape]
every_dtype = pytest.mark.parametrize("dtype", ACL_DTYPES)


@pytest.fixture(autouse=True)
def device():
    with initialised():
        yield


@every_dtype
@pytest.mark.parametrize("case", POOL_CASES, ids=lambda case: case.name)
def test_pool(case, dtype):
    grad = support.make_grad(case, dtype)
    result = run_pool(case, grad, np.full(case.input_shape, 7, grad.dtype)).read()
    support.assert_close(result, case, grad)


def test_pool_cases_are_of_every_operator():
    assert {case.operator for case in POOL_CASES} == {"avg2d", "avg3d", "adaptive2d", "adaptive3d"}
    assert {len(case.input_shape) - case.rank for case in POOL_CASES} == {1, 2}


@pytest.mark.parametrize("name", ["toy", "overlap_3d"])
def test_pool_equals_pytorch(name):
    case = support.find_case(name)
    grad = support.make_grad(case, kind="integer")
    result = run_pool(case, grad, np.empty(case.input_shape, np.float32)).read()
    assert np.allclose(result, support.torch_backward(case, grad), rtol=1e-6, atol=1e-6)


@every_dtype
@pytest.mark.parametrize("layout", [name for name in support.LAYOUTS if name != "offset_by_byte"])
@pytest.mark.parametrize("name", ["toy", "overlap_3d"])
def test_strides_and_offsets(name, layout, dtype):
    case = support.find_case(name)
    values = support.make_grad(case, dtype)
    _, target = support.place(case.input_shape, case.rank, dtype, layout)
    placed = run_pool(case, support.in_layout(values, case, layout), target)
    support.assert_close(placed.read(), case, values)
    # Nothing was written but the elements of the result.
    written = placed.memory.read()
    view = np.ndarray(target.shape, target.dtype, written, placed.start, target.strides)
    view.view(f"i{target.itemsize}")[...] = target.view(f"i{target.itemsize}")
    assert support.same_bits(written, placed.before)


def test_three_axes_in_format_ncl():
    case = support.parse_case("avg2d in=3x6x8 k=2")
    grad = support.make_grad(case)
    result = run_pool(case, grad, np.empty(case.input_shape, np.float32), format=Format.NCL).read()
    support.assert_close(result, case, grad)


def test_check_of_values_sees_padding_that_counts():
    case = support.parse_case("avg2d in=3x2x5x5 k=3 s=2 p=1 exclude_pad")
    other = support.parse_case("avg2d in=3x2x5x5 k=3 s=2 p=1")
    grad = support.make_grad(case)
    result = run_pool(other, grad, np.empty(case.input_shape, np.float32)).read()
    with pytest.raises(AssertionError):
        support.assert_close(result, case, grad)


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
    case = support.parse_case(problem)
    # Ties and neighbours of every rounding, and what must stay as it is.
    ties = [1 + 2.0**-11 + 2.0**-12, 1 + 2.0**-12, -1 - 2.0**-12, 1 + 2.0**-11, -1 - 3 * 2.0**-11]
    values = np.resize(np.array([*ties, 3.14159265, -1e-3, 0.1, 7e3]), case.output_shape)
    grad = values.astype(np.float32)
    acl.aclFinalize()
    with initialised(PRODUCTS[product]):
        target = np.empty(case.input_shape, np.float32)
        result = run_pool(case, grad, target, cube_math_type=mode).read()
    # One gradient over a power of two per element: exact but for the rounding of operands.
    spread = case.backward(support.reference, rounded(grad))
    assert (result == spread.astype(np.float32)).all()
    if rounded is not keep:
        assert (result != case.backward(support.reference, keep(grad)).astype(np.float32)).any()
    check(acl.aclInit())


def test_infinity_and_nan_stay():
    case = support.parse_case(GLOBAL)
    grad = np.array([np.inf, np.nan], np.float32).reshape(case.output_shape)
    target = np.empty(case.input_shape, np.float32)
    result = run_pool(case, grad, target, cube_math_type=3).read()
    assert np.isposinf(result[0, 0]).all()
    assert np.isnan(result[0, 1]).all()


# Convolution


def run_conv(case, arrays, *, mask=(True, True, True), cube_math_type=0, dtype="float32"):
    inputs = [Placed(array, Format.ND) for array in arrays]
    gradients = [Placed(array, Format.ND) for array in conv_support.empty_gradients(case, dtype)]
    axes = [
        int_array(support.per_axis(value, case.rank))
        for value in (case.stride, case.padding, case.dilation)
    ]
    bias_sizes = int_array([case.weight_shape[0]])
    wanted = acl.aclCreateBoolArray(list(mask), 3)
    launch(
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
    return [each.read() if use else None for each, use in zip(gradients, mask, strict=True)]


@every_dtype
@pytest.mark.parametrize("case", CONV_CASES, ids=lambda case: case.name)
def test_convolution(case, dtype):
    arrays = conv_support.make_arrays(case, dtype, kind="integer")
    conv_support.assert_exact(run_conv(case, arrays, dtype=dtype), case, arrays)


@pytest.mark.parametrize("mask", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (0, 1, 1)])
def test_convolution_computes_what_is_wanted(mask):
    case = next(case for case in CONV_CASES if case.rank == 2 and case.batched)
    wanted = tuple(map(bool, mask))
    arrays = conv_support.make_arrays(case, "float32", kind="integer")
    results = run_conv(case, arrays, mask=wanted)
    conv_support.assert_exact(results, case, arrays, output_mask=wanted)


def test_deterministic_convolution_has_the_same_bits_for_any_number_of_threads():
    program = """
from test_acl_values import *
with initialised():
    check(acl.aclrtCtxSetSysParamOpt(acl.ACL_OPT_DETERMINISTIC, 1))
    assert acl.aclrtCtxGetSysParamOpt(0) == (1, 0)
    assert acl.aclrtGetSysParamOpt(0) == (0, 0)
    case = conv_support.ConvCase("dense", (8, 16, 12, 12), (16, 16, 3, 3), padding=1)
    results = run_conv(case, conv_support.make_arrays(case, "float32"))
    import hashlib
    print(hashlib.sha256(b"".join(result.tobytes() for result in results)).hexdigest())
"""
    shown = {
        support.run_python(program, BACKOPS_NUM_THREADS=threads).stdout for threads in (1, 2, 5)
    }
    assert len(shown) == 1
