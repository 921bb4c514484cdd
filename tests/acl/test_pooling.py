"""The pooling operators of CANN on device memory, against the reference and PyTorch."""

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
    launch,
    run_pool,
)
from tests.support.hf32 import TIES, half, hf32_10, hf32_11, keep
from tests.support.layouts import LAYOUTS, in_layout, place
from tests.support.pool_cases import find_case, load_cases, make_grad, parse_case
from tests.support.pool_compare import assert_close
from tests.support.pool_definitions import torch_result

POOL_CASES = [case for case in load_cases() if case.rank in (2, 3) and 0 not in case.input_shape]
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


@every_dtype
@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "offset_by_byte"])
@pytest.mark.parametrize("name", ["toy", "overlap_3d"])
def test_strides_and_offsets(name, layout, dtype):
    case = find_case(name)
    values = make_grad(case, dtype)
    _, target = place(case.input_shape, case.rank, dtype, layout)
    placed = run_pool(case, in_layout(values, case, layout), target)
    assert_close(placed.read(), case, values)
    placed.assert_nothing_else_was_written()


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
    grad = np.resize(TIES, case.output_shape)
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
    tensors[2].assert_nothing_else_was_written()


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
