"""Every layout gives the contiguous result, and writes nothing beside its elements.

Bit by bit, but for channels-last tensors and sums of many columns: those are taken in another order
along the last axis, and the tolerance of all other tests holds.
"""

import numpy as np
import pytest

import backops
from tests.support.cases import per_axis
from tests.support.floats import DTYPES, same_bits
from tests.support.layouts import FILL_BYTE, GUARD_BYTES, LAYOUTS, READ_LAYOUTS, in_layout, place
from tests.support.pool_cases import both_ways, find_case, make_grad, make_source
from tests.support.pool_compare import assert_close

# One per way through the core: fixed and adaptive, each rank, small and large planes.
CASES = both_ways(
    [
        find_case(name)
        for name in (
            "overlap_1d",
            "overlap_2d",
            "overlap_3d",
            "kernel_equals_stride_2d_with_rest",
            "kernel_equals_stride_3d",
            "gaps_2d",
            "asymmetric_3d",
            "kernel_15_stride_one",
            "global_2d",
            "channel_tail_17",
            "width_33",
            "exclude_pad_2d",
            "divisor_negative",
            "unbatched_1d",
            "unbatched_2d",
            "unbatched_3d",
            "planes_larger_than_a_tile",
            "adaptive_uneven_1d",
            "adaptive_uneven_2d",
            "adaptive_uneven_3d",
            "adaptive_one_3d",
            "adaptive_upsampling_2d",
            "unbatched_adaptive_2d",
        )
    ]
)
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
every_dtype = pytest.mark.parametrize("dtype", DTYPES)


def is_long_along_columns(case):
    """Whether some target is the sum of more than six columns, or may be."""
    if not case.is_forward:
        return case.name == "kernel_15_stride_one"
    if case.adaptive:
        return case.input_shape[-1] / case.output_shape[-1] > 5
    return per_axis(case.kernel_size, case.rank)[-1] > 6


def assert_same(result, expected, case, source, layout):
    if layout == "channels_last" and is_long_along_columns(case):
        assert_close(result, case, source)
    else:
        assert same_bits(result, expected), f"{case.problem}, {result.dtype}, {layout}"


def assert_nothing_else_changed(memory, out, case, dtype, layout):
    untouched, copy = place(case.target_shape, case.rank, dtype, layout)
    copy[...] = out
    assert np.array_equal(memory, untouched), f"{case.problem}, {dtype}, {layout}"


@every_dtype
@every_case
def test_source_of_any_layout_gives_the_contiguous_result(case, dtype):
    for layout in READ_LAYOUTS:
        source = in_layout(make_source(case, dtype), case, layout)
        expected = case.run(backops, np.array(source, order="C"))
        assert_same(case.run(backops, source), expected, case, source, layout)


@every_dtype
@every_case
def test_out_of_any_layout_gets_the_contiguous_result_and_no_other_byte_changes(case, dtype):
    for layout in LAYOUTS:
        source = make_source(case, dtype)
        expected = case.run(backops, source)
        memory, out = place(case.target_shape, case.rank, dtype, layout)
        assert case.run(backops, source, out=out) is out
        assert_same(out, expected, case, source, layout)
        assert_nothing_else_changed(memory, out, case, dtype, layout)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@every_case
def test_source_and_out_of_the_same_layout(case, dtype):
    for layout in LAYOUTS:
        values = make_source(case, dtype)
        memory, out = place(case.target_shape, case.rank, dtype, layout)
        case.run(backops, in_layout(values, case, layout), out=out)
        assert_same(out, case.run(backops, values), case, values, layout)
        assert_nothing_else_changed(memory, out, case, dtype, layout)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_every_vector_alignment_of_grad_output_and_out(dtype):
    case = find_case("width_33")
    grad = make_grad(case, dtype)
    expected = case.backward(backops, grad)
    itemsize = DTYPES[dtype].itemsize
    for shift in range(0, 64 + itemsize, itemsize):
        memory = np.full(expected.nbytes + grad.nbytes + 512, FILL_BYTE, np.uint8)
        moved = np.ndarray(grad.shape, grad.dtype, memory, 64 + shift)
        moved[...] = grad
        start = 192 + shift + grad.nbytes
        out = np.ndarray(expected.shape, expected.dtype, memory, start)
        before = memory.copy()
        case.backward(backops, moved, out=out)
        assert same_bits(out, expected), shift
        before[start : start + out.nbytes] = memory[start : start + out.nbytes]
        assert np.array_equal(memory, before), shift


def test_guard_bytes_catch_a_write_past_the_end():
    case = find_case("overlap_2d")
    memory, out = place(case.input_shape, case.rank, "float32", "padded_rows")
    wanted = memory.copy()
    np.ndarray((1,), np.float32, memory, GUARD_BYTES + out.strides[-2] - 4)[0] = 1
    assert not np.array_equal(memory, wanted)


def test_layouts_of_these_tests_are_what_they_are_called():
    shape = (2, 3, 4, 5)
    arrays = {layout: place(shape, 2, "float32", layout)[1] for layout in READ_LAYOUTS}
    strides = {layout: tuple(s // 4 for s in array.strides) for layout, array in arrays.items()}
    assert strides["contiguous"] == (60, 20, 5, 1)
    assert strides["channels_last"] == (60, 1, 15, 3)
    assert strides["transposed"] == (60, 20, 1, 4)
    assert strides["every_second"] == (960, 160, 20, 2)
    assert strides["reversed"] == (-60, -20, -5, -1)
    assert strides["padded_rows"] == (96, 32, 8, 1)
    assert strides["broadcast_channels"] == (60, 0, 5, 1)
    assert strides["broadcast_last_axis"] == (60, 20, 5, 0)
    assert strides["broadcast_everything"] == (0, 0, 0, 0)
    assert arrays["offset_by_byte"].flags.aligned is False


# The layout of a new result

MEMORY_ORDER_CASES = [
    case for case in CASES if len(case.input_shape) == case.rank + 2 and case.input_shape[1] > 1
]


@every_dtype
@pytest.mark.parametrize("case", MEMORY_ORDER_CASES, ids=lambda case: case.name)
def test_result_is_channels_last_when_a_dense_source_is(case, dtype):
    source = in_layout(make_source(case, dtype), case, "channels_last")
    result = case.run(backops, source)
    if source.flags.c_contiguous:
        # With one output per plane the two orders are the same memory.
        assert result.flags.c_contiguous
    else:
        assert np.moveaxis(result, 1, -1).flags.c_contiguous


@pytest.mark.parametrize("layout", [layout for layout in READ_LAYOUTS if layout != "channels_last"])
@pytest.mark.parametrize("case", MEMORY_ORDER_CASES, ids=lambda case: case.name)
def test_result_is_c_contiguous_otherwise(case, layout):
    source = in_layout(make_source(case), case, layout)
    assert case.run(backops, source).flags.c_contiguous


def test_result_is_c_contiguous_when_channels_last_grad_output_has_gaps():
    case = find_case("overlap_2d")
    n, c, h, w = case.output_shape
    grad = np.moveaxis(np.ones((n, h, w, 2 * c), np.float32)[..., :c], -1, 1)
    assert case.backward(backops, grad).flags.c_contiguous


def test_one_channel_is_c_contiguous():
    case = find_case("channel_tail_1")
    grad = in_layout(make_grad(case), case, "channels_last")
    assert case.backward(backops, grad).flags.c_contiguous


def test_result_of_unbatched_channels_last_is_channels_last():
    grad = np.ones((4, 5, 3), np.float32).transpose(2, 0, 1)
    assert backops.avg_pool2d_backward(grad, (3, 8, 10), 2).strides == (4, 120, 12)


def test_result_of_unbatched_transposed_planes_is_contiguous():
    grad = np.ones((3, 5, 4), np.float32).transpose(0, 2, 1)
    assert backops.avg_pool2d_backward(grad, (3, 8, 10), 2).flags.c_contiguous
