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
    int_array,
    launch,
    run_pool,
)
from tests.support.hf32 import TIES, half, hf32_10, hf32_11, keep
from tests.support.layouts import LAYOUTS, in_layout, place
from tests.support.pool_cases import both_ways, find_case, load_cases, make_source, parse_case
from tests.support.pool_compare import assert_close
from tests.support.pool_definitions import torch_result

CASES = both_ways(
    [case for case in load_cases() if case.rank in (2, 3) and 0 not in case.input_shape]
)
every_dtype = pytest.mark.parametrize("dtype", ACL_DTYPES)
both_directions = pytest.mark.parametrize(
    "direction", ["", "forward "], ids=["backward", "forward"]
)


@pytest.fixture(autouse=True)
def device():
    with initialised():
        yield


def run(case, source, **more):
    return run_pool(case, source, np.full(case.target_shape, 7, source.dtype), **more).read()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_pool(case):
    for dtype in ACL_DTYPES:
        source = make_source(case, dtype)
        assert_close(run(case, source), case, source)


def test_pool_cases_are_of_every_operator():
    operators = {"avg2d", "avg3d", "adaptive2d", "adaptive3d"}
    found = {(case.operator, case.is_forward) for case in CASES}
    assert found == {(name, forward) for name in operators for forward in (False, True)}
    assert {len(case.input_shape) - case.rank for case in CASES} == {1, 2}


@pytest.mark.parametrize("name", ["toy", "overlap_3d", "forward_toy", "forward_overlap_3d"])
def test_pool_equals_pytorch(name):
    case = find_case(name)
    source = make_source(case, kind="integer")
    assert np.allclose(run(case, source), torch_result(case, source), rtol=1e-6, atol=1e-6)


@every_dtype
@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "offset_by_byte"])
@pytest.mark.parametrize("name", ["toy", "overlap_3d", "forward_toy", "forward_overlap_3d"])
def test_strides_and_offsets(name, layout, dtype):
    case = find_case(name)
    values = make_source(case, dtype)
    _, target = place(case.target_shape, case.rank, dtype, layout)
    placed = run_pool(case, in_layout(values, case, layout), target)
    assert_close(placed.read(), case, values)
    placed.assert_nothing_else_was_written()


@both_directions
def test_three_axes_in_format_ncl(direction):
    case = parse_case(f"{direction}avg2d in=3x6x8 k=2")
    source = make_source(case)
    assert_close(run(case, source, format=Format.NCL), case, source)


@both_directions
def test_check_of_values_sees_padding_that_counts(direction):
    case = parse_case(f"{direction}avg2d in=3x2x5x5 k=3 s=2 p=1 exclude_pad")
    other = parse_case(f"{direction}avg2d in=3x2x5x5 k=3 s=2 p=1")
    source = make_source(case)
    with pytest.raises(AssertionError):
        assert_close(run(other, source), case, source)


# Precision

SLIDING = "avg2d in=1x2x6x6 k=2"
GLOBAL = "avg2d in=1x2x4x4 k=4 s=1"


# Product, problem, cubeMathType and how float32 operands are rounded, as SPEC's table says.
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


@both_directions
@pytest.mark.parametrize(("product", "problem", "mode", "rounded"), PRECISIONS)
def test_operands_are_rounded_as_the_product_says(product, problem, mode, rounded, direction):
    case = parse_case(direction + problem)
    values = np.resize(TIES, case.output_shape)
    source = np.zeros(case.source_shape, np.float32)
    step = source.shape[-1] // values.shape[-1]
    source[..., ::step, ::step] = values  # one to a window
    acl.aclFinalize()
    with initialised(PRODUCTS[product]):
        result = run(case, source, cube_math_type=mode)
    # One number over a power of two per element: exact but for the rounding of operands.
    assert (result == case.run(reference, rounded(source)).astype(np.float32)).all()
    if rounded is not keep:
        assert (result != case.run(reference, keep(source)).astype(np.float32)).any()
    check(acl.aclInit())


@both_directions
def test_infinity_and_nan_stay(direction):
    case = parse_case(direction + GLOBAL)
    source = np.zeros(case.source_shape, np.float32)
    source[0, :, 0, 0] = np.inf, np.nan
    result = run(case, source, cube_math_type=3)
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
    small, first, second = (each.tensor for each in tensors)
    assert launch("AdaptiveAvgPool2dBackward", small, first, second) == 0
    assert launch("AdaptiveAvgPool2d", first, int_array(shape[-2:]), small) == 0


@pytest.mark.parametrize("shape", [(2, 3, 0, 4), (2, 3, 5, 0), (2, 3, 0, 0), (3, 0, 2)])
def test_adaptive_pool_to_no_outputs_does_nothing(shape):
    tensors = [Placed(np.ones((*shape[:-2], 6, 7), np.float32)), Placed(np.empty(shape, "f4"))]
    large, small = (each.tensor for each in tensors)
    assert launch("AdaptiveAvgPool2d", large, int_array(shape[-2:]), small) == 0


@pytest.mark.parametrize("format", [Format.NHWC, Format.NCL])
@both_directions
def test_formats_of_adaptive_pool_are_labels(format, direction):
    case = parse_case(f"{direction}adaptive2d in=2x3x8x7 out=3x4")
    source = make_source(case)
    assert_close(run(case, source, format=format), case, source)
