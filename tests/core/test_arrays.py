"""Arrays of every framework go in without a copy; the result has the caller's array type."""

import gc
import os
import sys
import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import backops
from tests.support.arrays import TORCH_DTYPES, jax_x64, to_numpy, to_torch
from tests.support.dlpack import DLPackOnly, OldDLPackOnly
from tests.support.floats import DTYPES, same_bits
from tests.support.layouts import in_layout
from tests.support.pool_cases import find_case, make_grad, parse_case
from tests.support.pool_compare import assert_close

CASE = find_case("overlap_2d")


# NumPy


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_result_is_numpy_of_the_same_dtype(dtype):
    result = CASE.backward(backops, make_grad(CASE, dtype))
    assert type(result) is np.ndarray
    assert result.dtype == DTYPES[dtype]
    assert result.flags.writeable
    assert result.flags.aligned


def test_numpy_result_belongs_to_the_caller():
    first = CASE.backward(backops, make_grad(CASE))
    kept = first.copy()
    second = CASE.backward(backops, make_grad(CASE, seed=1))
    assert not np.shares_memory(first, second)
    assert np.array_equal(first, kept)


def test_numpy_out_is_returned_itself():
    out = np.empty(CASE.input_shape, np.float32)
    assert CASE.backward(backops, make_grad(CASE), out=out) is out
    assert_close(out, CASE, make_grad(CASE))


@pytest.mark.parametrize("dtype", DTYPES)
def test_read_only_grad_output_is_accepted(dtype):
    grad = make_grad(CASE, dtype)
    expected = CASE.backward(backops, grad)
    grad.flags.writeable = False
    assert same_bits(CASE.backward(backops, grad), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_misaligned_grad_output_is_accepted(dtype):
    grad = make_grad(CASE, dtype)
    moved = in_layout(grad, CASE, "offset_by_byte")
    assert not moved.flags.aligned
    assert same_bits(CASE.backward(backops, moved), CASE.backward(backops, grad))


def test_strides_that_are_no_multiple_of_the_item_size_are_accepted():
    packed = np.zeros(CASE.output_shape, np.dtype([("tag", "u1"), ("grad", "f4")]))
    packed["grad"] = make_grad(CASE)
    grad = packed["grad"]
    assert grad.strides[-1] == 5
    assert same_bits(CASE.backward(backops, grad), CASE.backward(backops, make_grad(CASE)))


@pytest.mark.parametrize("dtype", [">f2", ">f4", ">f8"])
def test_byte_swapped_grad_output_is_refused(dtype):
    grad = make_grad(CASE, "float32").astype(dtype)
    with pytest.raises(backops.DTypeError, match=r"^avg_pool2d_backward: grad_output is "):
        CASE.backward(backops, grad)


def test_subclass_of_ndarray_is_accepted():
    class Named(np.ndarray):
        pass

    grad = make_grad(CASE)
    result = CASE.backward(backops, grad.view(Named))
    assert isinstance(result, np.ndarray)
    assert same_bits(np.asarray(result), CASE.backward(backops, grad))


def test_input_array_is_not_read_and_may_have_any_layout():
    grad = make_grad(CASE)
    given = np.broadcast_to(np.float32(np.nan), CASE.input_shape)
    result = backops.avg_pool2d_backward(grad, given, *CASE.positional)
    assert same_bits(result, CASE.backward(backops, grad))


# PyTorch


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["overlap_1d", "overlap_2d", "overlap_3d", "adaptive_uneven_3d"])
def test_torch_result_is_a_tensor_of_the_same_dtype_and_values(name, dtype):
    case = find_case(name)
    grad = make_grad(case, dtype)
    result = case.backward(backops, to_torch(grad))
    assert type(result) is torch.Tensor
    assert result.dtype == TORCH_DTYPES[dtype]
    assert result.device.type == "cpu"
    assert not result.requires_grad
    assert same_bits(to_numpy(result), case.backward(backops, grad))


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_tensor_that_requires_grad_is_accepted(dtype):
    grad = make_grad(CASE, dtype)
    expected = CASE.backward(backops, grad)
    for tensor in (to_torch(grad).requires_grad_(), torch.nn.Parameter(to_torch(grad))):
        result = CASE.backward(backops, tensor)
        assert type(result) is torch.Tensor
        assert same_bits(to_numpy(result), expected)
        assert tensor.requires_grad


def test_torch_tensor_inside_a_graph_is_accepted():
    tensor = to_torch(make_grad(CASE)).requires_grad_() * 2
    result = CASE.backward(backops, tensor)
    expected = CASE.backward(backops, make_grad(CASE) * np.float32(2))
    assert same_bits(to_numpy(result), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_non_contiguous_tensor_is_accepted(dtype):
    grad = make_grad(CASE, dtype)
    expected = CASE.backward(backops, grad)
    wide = to_torch(np.repeat(grad, 2, axis=-1))
    transposed = to_torch(np.ascontiguousarray(grad.swapaxes(-1, -2))).transpose(-1, -2)
    for tensor in (wide[..., ::2], transposed):
        assert not tensor.is_contiguous()
        assert same_bits(to_numpy(CASE.backward(backops, tensor)), expected)


def test_torch_expanded_tensor_is_accepted():
    tensor = torch.ones(1, 1, 1, 1).expand(CASE.output_shape)
    expected = CASE.backward(backops, np.ones(CASE.output_shape, np.float32))
    assert same_bits(to_numpy(CASE.backward(backops, tensor)), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["overlap_2d", "overlap_3d"])
def test_torch_channels_last_in_gives_channels_last_out(name, dtype):
    case = find_case(name)
    order = torch.channels_last if case.rank == 2 else torch.channels_last_3d
    grad = make_grad(case, dtype)
    result = case.backward(backops, to_torch(grad).contiguous(memory_format=order))
    assert result.is_contiguous(memory_format=order)
    assert not result.is_contiguous()
    assert same_bits(to_numpy(result.contiguous()), case.backward(backops, grad))


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_out_is_written_in_place_and_returned_itself(dtype):
    grad = make_grad(CASE, dtype)
    expected = CASE.backward(backops, grad)
    plain = torch.zeros(CASE.input_shape, dtype=TORCH_DTYPES[dtype])
    for out in (plain, plain.clone().contiguous(memory_format=torch.channels_last)):
        pointer = out.data_ptr()
        assert CASE.backward(backops, to_torch(grad), out=out) is out
        assert out.data_ptr() == pointer
        assert same_bits(to_numpy(out.contiguous()), expected)


def test_torch_input_may_be_a_tensor():
    grad = make_grad(CASE)
    given = torch.empty(CASE.input_shape, requires_grad=True)
    result = backops.avg_pool2d_backward(to_torch(grad), given, *CASE.positional)
    assert same_bits(to_numpy(result), CASE.backward(backops, grad))


def test_torch_size_may_be_the_input_shape():
    grad = make_grad(CASE)
    size = torch.empty(CASE.input_shape).size()
    result = backops.avg_pool2d_backward(grad, size, *CASE.positional)
    assert same_bits(result, CASE.backward(backops, grad))


def test_torch_result_can_be_used_in_torch():
    result = CASE.backward(backops, to_torch(make_grad(CASE, "bfloat16")))
    assert torch.isfinite(result.float().sum())
    result.add_(1)


# JAX


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("name", ["overlap_1d", "overlap_2d", "overlap_3d", "adaptive_uneven_3d"])
def test_jax_result_is_a_jax_array_of_the_same_dtype_and_values(name, dtype):
    case = find_case(name)
    grad = make_grad(case, dtype)
    result = case.backward(backops, jnp.asarray(grad))
    assert isinstance(result, jax.Array)
    assert result.dtype == DTYPES[dtype]
    assert same_bits(np.asarray(result), case.backward(backops, grad))
    assert jnp.isfinite(result + 1).all()


def test_jax_float64_result_stays_float64():
    with jax_x64():
        grad = make_grad(CASE, "float64")
        result = CASE.backward(backops, jnp.asarray(grad))
        assert isinstance(result, jax.Array)
        assert same_bits(np.asarray(result), CASE.backward(backops, grad))


def test_jax_array_that_is_still_being_computed_is_waited_for():
    x = jnp.asarray(make_grad(CASE))
    matrix = jnp.ones((1500, 1500))
    busy = (matrix @ matrix @ matrix).sum() * 0
    result = CASE.backward(backops, x + busy)
    assert same_bits(np.asarray(result), CASE.backward(backops, make_grad(CASE)))


def test_jax_input_may_be_an_array():
    grad = make_grad(CASE)
    given = jnp.zeros(CASE.input_shape, jnp.float32)
    result = backops.avg_pool2d_backward(jnp.asarray(grad), given, *CASE.positional)
    assert same_bits(np.asarray(result), CASE.backward(backops, grad))


def test_jax_out_is_refused_because_jax_arrays_do_not_change():
    out = jnp.zeros(CASE.input_shape, jnp.float32)
    with pytest.raises(backops.LayoutError, match=r"^avg_pool2d_backward: out is .*read-only"):
        CASE.backward(backops, jnp.asarray(make_grad(CASE)), out=out)
    assert not out.any()


# Anything else that speaks DLPack


@pytest.mark.parametrize("producer", [DLPackOnly, OldDLPackOnly])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_foreign_dlpack_array_gives_a_numpy_result(dtype, producer):
    grad = make_grad(CASE, dtype)
    result = CASE.backward(backops, producer(grad))
    assert type(result) is np.ndarray
    assert same_bits(result, CASE.backward(backops, grad))


def test_foreign_dlpack_bfloat16_gives_an_ml_dtypes_result():
    grad = make_grad(CASE, "bfloat16")
    result = CASE.backward(backops, DLPackOnly(to_torch(grad)))
    assert type(result) is np.ndarray
    assert same_bits(result, CASE.backward(backops, grad))


def test_foreign_dlpack_bfloat16_may_be_the_input():
    grad = make_grad(CASE, "bfloat16")
    given = DLPackOnly(torch.empty(CASE.input_shape, dtype=torch.bfloat16))
    result = backops.avg_pool2d_backward(grad, given, *CASE.positional)
    assert same_bits(result, CASE.backward(backops, grad))


def test_foreign_dlpack_out_is_written_in_place_and_returned_itself():
    grad = make_grad(CASE)
    array = np.zeros(CASE.input_shape, np.float32)
    out = DLPackOnly(array)
    assert CASE.backward(backops, grad, out=out) is out
    assert same_bits(array, CASE.backward(backops, grad))


def test_foreign_dlpack_array_is_released():
    array = np.ones(CASE.output_shape, np.float32)
    before = sys.getrefcount(array)
    for _ in range(50):
        CASE.backward(backops, DLPackOnly(array))
    gc.collect()
    assert sys.getrefcount(array) == before


# Frameworks mixed


def test_result_type_follows_grad_output_whatever_input_is():
    grad = make_grad(CASE)
    shape_source = np.empty(CASE.input_shape, np.float32)
    result = backops.avg_pool2d_backward(to_torch(grad), shape_source, *CASE.positional)
    assert type(result) is torch.Tensor
    result = backops.avg_pool2d_backward(grad, torch.from_numpy(shape_source), *CASE.positional)
    assert type(result) is np.ndarray


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_out_for_a_torch_gradient(dtype):
    grad = make_grad(CASE, dtype)
    out = np.empty(CASE.input_shape, DTYPES[dtype])
    assert CASE.backward(backops, to_torch(grad), out=out) is out
    assert same_bits(out, CASE.backward(backops, grad))


# No copies


def test_reading_a_large_array_of_any_layout_allocates_no_copy():
    # 32 MB of gradients; a copy of them, or of a large part, would show.
    case = parse_case("avg2d in=8x64x128x128 k=1")
    out = np.zeros(case.input_shape, np.float32)
    for layout in ("contiguous", "channels_last", "every_second", "offset_by_byte", "reversed"):
        grad = in_layout(np.ones(case.output_shape, np.float32), case, layout)
        assert _peak_bytes(lambda grad=grad: case.backward(backops, grad, out=out)) < 2**20, layout
    assert (out == 1).all()


def test_new_result_allocates_nothing_but_itself():
    case = parse_case("avg2d in=8x64x128x128 k=1")
    grad = np.ones(case.output_shape, np.float32)
    peak = _peak_bytes(lambda: case.backward(backops, grad))
    assert peak < grad.nbytes + 2**20


def test_peak_memory_of_these_tests_sees_a_copy():
    grad = np.ones((8, 64, 128, 128), np.float32)
    assert _peak_bytes(grad.copy) >= grad.nbytes


def _peak_bytes(function):
    """The most memory NumPy and Python held at once during a call, beyond what they held before."""
    function()
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_gradients_are_left_unchanged():
    for dtype in DTYPES:
        grad = make_grad(CASE, dtype)
        kept = grad.copy()
        CASE.backward(backops, grad)
        assert same_bits(grad, kept)


def test_results_are_released():
    # 300 results of 3 MB each: a leak would hold 900 MB.
    case = parse_case("avg2d in=4x48x64x64 k=2")
    grads = [make_grad(case), to_torch(make_grad(case)), jnp.asarray(make_grad(case))]
    for grad in grads:
        case.backward(backops, grad)
    before = _resident_bytes()
    for grad in grads:
        for _ in range(100):
            case.backward(backops, grad)
    gc.collect()
    assert _resident_bytes() - before < 100e6


def _resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.mark.parametrize("name", ["grad_output", "out"])
def test_tensor_without_memory_is_refused(name):
    arguments = {"grad_output": torch.ones(1, 1, 2, 2), "out": torch.ones(1, 1, 4, 4)}
    arguments[name].untyped_storage().resize_(0)
    with pytest.raises(backops.LayoutError, match=f"{name} is an array without memory"):
        backops.avg_pool2d_backward(input=(1, 1, 4, 4), kernel_size=2, **arguments)


def test_lazily_negated_view_is_refused():
    negated = torch.complex(torch.zeros(1, 1, 2, 2), torch.ones(1, 1, 2, 2)).conj().imag
    assert negated.is_neg()
    with pytest.raises(backops.LayoutError, match="grad_output is a lazily negated view"):
        backops.avg_pool2d_backward(negated, (1, 1, 4, 4), 2)


def test_autograd_notices_that_out_was_written():
    kept = torch.ones(1, 1, 4, 4)
    factor = torch.ones((), requires_grad=True)
    product = kept * factor
    backops.avg_pool2d_backward(torch.ones(1, 1, 2, 2), (1, 1, 4, 4), 2, out=kept)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_out_made_in_inference_mode_is_accepted():
    with torch.inference_mode():
        out = torch.empty(1, 1, 4, 4)
    assert (
        backops.avg_pool2d_backward(torch.ones(1, 1, 2, 2), (1, 1, 4, 4), 2, out=out)[0, 0, 0, 0]
        == 0.25
    )


def test_interrupt_inside_an_argument_is_not_swallowed():
    class Interrupting:
        def __index__(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        backops.avg_pool2d_backward(np.ones((1, 1, 2, 2)), (1, 1, 4, 4), Interrupting())
