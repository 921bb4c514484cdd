"""Every layout and array type gives the same results, and nothing beside them is written.

Whole numbers are added without rounding in any order, so every layout must give the same values.
"""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import backops
from tests.support.arrays import TORCH_DTYPES, jax_x64, to_numpy, to_torch
from tests.support.conv_cases import (
    DEPTHWISE_VECTORS,
    GRADIENTS,
    OPERATORS,
    ConvCase,
    empty_results,
    find_conv_case,
    make_arrays,
    reading_id,
    readings,
    readings_in_turn,
)
from tests.support.conv_compare import (
    assert_close,
    assert_exact,
    assert_nothing_else_changed,
    place_results,
)
from tests.support.dlpack import DLPackOnly
from tests.support.floats import DTYPES, same_bits
from tests.support.layouts import GUARD_BYTES, LAYOUTS, READ_LAYOUTS, in_layout

# One per way through the core: each rank, dense, grouped and depthwise, with and without a batch.
CASES = [
    find_conv_case(name)
    for name in (
        "plain_1d",
        "plain_2d",
        "plain_3d",
        "pointwise_2d",
        "pointwise_strided",
        "wide_kernel_strided",
        "groups_2d",
        "depthwise_2d",
        "depthwise_3d",
        "depthwise_multiplier",
        "dilation_2d",
        "stride_beyond_kernel_2d",
        "kernel_equals_input",
        "up_4x4",
        "channels_15_to_17",
        "channels_32_to_32",
        "unbatched_1d",
        "unbatched_2d",
        "unbatched_3d",
    )
]
CASE = find_conv_case("plain_2d")
every_case = pytest.mark.parametrize("case", readings_in_turn(CASES), ids=reading_id)
every_operator = pytest.mark.parametrize("operator", OPERATORS)
every_dtype = pytest.mark.parametrize("dtype", DTYPES)
every_layout = pytest.mark.parametrize("layout", LAYOUTS)


# Inputs


@every_dtype
@every_case
def test_all_inputs_of_any_layout(case, dtype):
    for layout in READ_LAYOUTS:
        arrays = [in_layout(a, case, layout) for a in make_arrays(case, dtype, kind="integer")]
        assert_exact(case.call(backops, *arrays), case, arrays)


@pytest.mark.parametrize("moved", range(3))
@pytest.mark.parametrize("case", readings(CASES[1:12:2]), ids=reading_id)
def test_one_input_of_another_layout_than_the_others(case, moved):
    for layout in READ_LAYOUTS:
        for dtype in ("float32", "bfloat16"):
            arrays = list(make_arrays(case, dtype, kind="integer"))
            arrays[moved] = in_layout(arrays[moved], case, layout)
            assert_exact(case.call(backops, *arrays), case, arrays)


@every_operator
def test_strides_that_are_no_multiple_of_the_item_size(operator):
    case = CASE.read_as(operator)
    arrays = []
    for values in make_arrays(case, kind="integer"):
        packed = np.zeros(values.shape, np.dtype([("tag", "u1"), ("values", "f4")]))
        packed["values"] = values
        arrays.append(packed["values"])
    assert arrays[0].strides[-1] == 5
    assert_exact(case.call(backops, *arrays), case, arrays)


def test_one_array_as_two_inputs():
    case = ConvCase("", (3, 3, 5, 5), (3, 3, 5, 5), padding=2)
    grad_output, both, _ = make_arrays(case, kind="integer")
    assert_exact(case.backward(backops, grad_output, both, both), case, (grad_output, both, both))
    assert_exact(case.backward(backops, both, both, both), case, (both, both, both))


@every_dtype
@every_operator
@pytest.mark.parametrize("name", ["unbatched_1d", "unbatched_2d", "unbatched_3d"])
def test_unbatched_is_a_batch_of_one(name, operator, dtype):
    case = find_conv_case(name).read_as(operator)
    arrays = make_arrays(case, dtype)
    results = case.call(backops, *arrays)
    batched = dataclasses.replace(case, input_shape=(1, *case.input_shape))
    operands = [a.reshape(s) for a, s in zip(arrays, batched.operand_shapes.values(), strict=True)]
    batched_results = batched.call(backops, *operands)
    assert same_bits(results[0], batched_results[0][0])
    assert all(map(same_bits, results[1:], batched_results[1:]))


@pytest.mark.parametrize("layout", ["contiguous", "channels_last", "every_second"])
@every_operator
@every_dtype
def test_inputs_are_left_unchanged_and_may_be_read_only(dtype, operator, layout):
    case = CASE.read_as(operator)
    arrays = [in_layout(a, case, layout) for a in make_arrays(case, dtype)]
    kept = [array.copy() for array in arrays]
    for array in arrays:
        array.flags.writeable = False
    case.call(backops, *arrays)
    assert all(map(same_bits, arrays, kept))


# Results


@every_dtype
@every_case
def test_out_of_any_layout_and_no_other_byte_changes(case, dtype):
    for layout in LAYOUTS:
        arrays = make_arrays(case, dtype, kind="integer")
        placed = place_results(case, dtype, layout)
        out = tuple(array for _, array in placed)
        results = case.call(backops, *arrays, out=out)
        assert all(result is given for result, given in zip(results, out, strict=True))
        assert_exact(out, case, arrays)
        assert_nothing_else_changed(placed, case, dtype, layout)


@every_layout
@pytest.mark.parametrize("case", readings_in_turn(CASES[::3]), ids=reading_id)
def test_inputs_and_out_of_the_same_layout(case, layout):
    for dtype in ("float32", "bfloat16", "float16"):
        arrays = [in_layout(a, case, layout) for a in make_arrays(case, dtype, kind="integer")]
        placed = place_results(case, dtype, layout)
        case.call(backops, *arrays, out=tuple(array for _, array in placed))
        assert_exact([array for _, array in placed], case, arrays)
        assert_nothing_else_changed(placed, case, dtype, layout)


# Depthwise convolutions on channels-last tensors are computed in place: without copies of rows,
# and with borders of their own.


@pytest.mark.parametrize("case", readings(DEPTHWISE_VECTORS), ids=reading_id)
def test_depthwise_channels_last_inputs_and_out(case):
    for dtype in DTYPES:
        arrays = [
            in_layout(a, case, "channels_last") for a in make_arrays(case, dtype, kind="integer")
        ]
        placed = place_results(case, dtype, "channels_last")
        case.call(backops, *arrays, out=tuple(array for _, array in placed))
        assert_exact([array for _, array in placed], case, arrays)
        assert_nothing_else_changed(placed, case, dtype, "channels_last")


@pytest.mark.parametrize("which", GRADIENTS)
@pytest.mark.parametrize("case", DEPTHWISE_VECTORS, ids=lambda case: case.name)
def test_depthwise_channels_last_gradients_one_by_one(case, which):
    arrays = [
        in_layout(a, case, "channels_last") for a in make_arrays(case, "float32", kind="integer")
    ]
    placed = place_results(case, "float32", "channels_last")
    mask = tuple(name == which for name in GRADIENTS)
    out = tuple(array if own else None for own, (_, array) in zip(mask, placed, strict=True))
    case.backward(backops, *arrays, output_mask=mask, out=out)
    assert_exact(out, case, arrays, output_mask=mask)


@pytest.mark.parametrize("special", range(3))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", readings(DEPTHWISE_VECTORS), ids=reading_id)
def test_depthwise_channels_last_special_values_reach_what_they_are_multiplied_with(
    case, dtype, special
):
    arrays = [in_layout(a, case, "channels_last") for a in make_arrays(case, dtype, kind="integer")]
    own = arrays[special]
    own[..., 0] = np.nan
    own[(0, ..., -1) if own.ndim > 1 else -1] = np.inf
    placed = place_results(case, dtype, "channels_last")
    results = [array for _, array in placed]
    case.call(backops, *arrays, out=tuple(results))
    assert_exact(results, case, arrays)


@every_operator
@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_depthwise_channels_last_of_many_channels_and_rows(threads, operator):
    case = ConvCase("", (2, 160, 31, 33), (160, 1, 3, 3), padding=1, groups=160)
    case = case.read_as(operator)
    arrays = [
        in_layout(a, case, "channels_last") for a in make_arrays(case, "float32", kind="integer")
    ]
    placed = place_results(case, "float32", "channels_last")
    before = backops.get_num_threads()
    backops.set_num_threads(threads)
    try:
        case.call(backops, *arrays, out=tuple(array for _, array in placed))
    finally:
        backops.set_num_threads(before)
    assert_exact([array for _, array in placed], case, arrays)
    assert_nothing_else_changed(placed, case, "float32", "channels_last")


@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
@every_operator
@every_dtype
def test_new_results_are_dense_writable_and_the_callers_own(dtype, operator, layout):
    case = CASE.read_as(operator)
    arrays = [in_layout(a, case, layout) for a in make_arrays(case, dtype)]
    first, second = case.call(backops, *arrays), case.call(backops, *arrays)
    for result, array in itertools.product(first, (*second, *arrays)):
        assert not np.shares_memory(result, array)
    for result in first:
        assert type(result) is np.ndarray
        assert result.dtype == DTYPES[dtype]
        assert result.flags.writeable
        assert result.flags.aligned
        assert sorted(result.strides)[0] == result.itemsize
    # Activations are channels-last where what they are made from is.
    assert (first[0].strides[1] == first[0].itemsize) == (layout == "channels_last")


def test_out_next_to_inputs_in_the_same_memory():
    arrays = make_arrays(CASE, kind="integer")
    sizes = [a.size for a in arrays] + [int(np.prod(s)) for s in CASE.result_shapes]
    pieces = np.split(np.zeros(sum(sizes), np.float32), np.cumsum(sizes)[:-1])
    placed = [piece.reshape(like.shape) for piece, like in zip(pieces[:3], arrays, strict=True)]
    for piece, values in zip(placed, arrays, strict=True):
        piece[...] = values
    shapes = zip(pieces[3:], CASE.result_shapes, strict=True)
    out = tuple(piece.reshape(shape) for piece, shape in shapes)
    CASE.backward(backops, *placed, out=out)
    assert_exact(out, CASE, arrays)


def test_outs_that_interleave_without_common_elements():
    case = ConvCase("", (4, 3, 6, 6), (4, 3, 6, 6), padding=3)
    arrays = make_arrays(case, kind="integer")
    memory = np.zeros((4, 3, 6, 6, 2), np.float32)
    out = (memory[..., 0], memory[..., 1], None)
    assert_exact(case.backward(backops, *arrays, out=out), case, arrays)
    assert_exact((memory[..., 0], memory[..., 1], arrays[0].sum((0, 2, 3))), case, arrays)


@every_operator
@every_dtype
def test_vector_alignment_of_inputs_and_out_does_not_matter(dtype, operator):
    case = find_conv_case("channels_15_to_17").read_as(operator)
    arrays = make_arrays(case, dtype, kind="integer")
    itemsize = DTYPES[dtype].itemsize
    for shift in (itemsize, 16, 32 - itemsize, 32 + itemsize):
        inputs = [at_offset(values, shift) for values in arrays]
        out = tuple(at_offset(values, shift) for values in empty_results(case, dtype))
        case.call(backops, *inputs, out=out)
        assert_exact(out, case, arrays)


def at_offset(values, shift):
    """A copy that begins `shift` bytes after a multiple of 64."""
    memory = np.empty(values.nbytes + 192, np.uint8)
    start = -memory.ctypes.data % 64 + shift
    copy = np.ndarray(values.shape, values.dtype, memory, start)
    copy[...] = values
    return copy


# PyTorch


@every_dtype
@every_operator
@pytest.mark.parametrize("name", ["plain_1d", "plain_2d", "plain_3d", "unbatched_2d"])
def test_torch_results_are_tensors_of_the_same_dtype_and_values(name, operator, dtype):
    case = find_conv_case(name).read_as(operator)
    arrays = make_arrays(case, dtype)
    results = case.call(backops, *map(to_torch, arrays))
    for result in results:
        assert type(result) is torch.Tensor
        assert result.dtype == TORCH_DTYPES[dtype]
        assert not result.requires_grad
    assert_close([to_numpy(result) for result in results], case, arrays)


@pytest.mark.parametrize("name", ["plain_2d", "plain_3d"])
@every_operator
@every_dtype
def test_torch_channels_last_and_expanded_tensors(name, operator, dtype):
    case = find_conv_case(name).read_as(operator)
    arrays = make_arrays(case, dtype, kind="integer")
    order = torch.channels_last if case.rank == 2 else torch.channels_last_3d
    tensors = [to_torch(array) for array in arrays]
    tensors = [t.contiguous(memory_format=order) if t.dim() > 1 else t for t in tensors]
    results = case.call(backops, *tensors)
    assert results[0].is_contiguous(memory_format=order)
    assert_exact([to_numpy(r.contiguous()) for r in results], case, arrays)
    ones = torch.ones((), dtype=TORCH_DTYPES[dtype]).expand(arrays[0].shape)
    results = case.call(backops, ones, *tensors[1:])
    arrays = (np.ones(arrays[0].shape, DTYPES[dtype]), *arrays[1:])
    assert_exact([to_numpy(r.contiguous()) for r in results], case, arrays)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("operator", ["conv", "conv_transpose"])
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
def test_memory_format_of_a_result_is_that_of_pytorch(layout, rank, operator, dtype):
    case = find_conv_case(f"plain_{rank}d").read_as(operator)
    input, weight, bias = map(to_torch, make_arrays(case, dtype))
    if layout == "channels_last" and rank > 1:
        order = torch.channels_last if rank == 2 else torch.channels_last_3d
        input = input.contiguous(memory_format=order)
    (ours,) = case.call(backops, input, weight, bias)
    # Without oneDNN, PyTorch's volumes in bfloat16 are contiguous, whatever they are made of.
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        input, weight, bias = input.float(), weight.float(), bias.float()
    theirs = getattr(torch.nn.functional, f"{operator}{rank}d")(
        input, weight, bias, **case.keywords
    )
    assert ours.stride() == theirs.stride()


@every_operator
def test_torch_parameters_that_require_grad(operator):
    case = CASE.read_as(operator)
    arrays = make_arrays(case, kind="integer")
    tensors = [torch.nn.Parameter(to_torch(array)) for array in arrays]
    results = case.call(backops, *tensors)
    assert not any(result.requires_grad for result in results)
    assert all(tensor.requires_grad for tensor in tensors)
    assert_exact([to_numpy(result) for result in results], case, arrays)


@every_operator
@every_dtype
def test_torch_out_is_written_in_place_and_returned_itself(dtype, operator):
    case = CASE.read_as(operator)
    arrays = make_arrays(case, dtype, kind="integer")
    out = [torch.zeros(shape, dtype=TORCH_DTYPES[dtype]) for shape in case.result_shapes]
    out[0] = out[0].contiguous(memory_format=torch.channels_last)
    versions = [tensor._version for tensor in out]
    results = case.call(backops, *map(to_torch, arrays), out=tuple(out))
    assert all(result is given for result, given in zip(results, out, strict=True))
    assert all(t._version > before for t, before in zip(out, versions, strict=True))
    assert_exact([to_numpy(tensor.contiguous()) for tensor in out], case, arrays)


@every_dtype
def test_gradients_are_those_that_torch_autograd_asks_for(dtype):
    arrays = make_arrays(CASE, dtype)
    grad_output, input, weight = map(to_torch, arrays)
    bias = torch.zeros(CASE.weight_shape[0], dtype=TORCH_DTYPES[dtype])
    leaves = [tensor.double().requires_grad_() for tensor in (input, weight, bias)]
    output = torch.nn.functional.conv2d(*leaves, **CASE.keywords)
    output.backward(grad_output.double())
    expected = [leaf.grad.numpy() for leaf in leaves]
    results = CASE.backward(backops, grad_output, input, weight)
    assert_close([to_numpy(r) for r in results], CASE, arrays, expected=expected)


# JAX


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@every_operator
@pytest.mark.parametrize("name", ["plain_1d", "plain_2d", "plain_3d", "unbatched_2d"])
def test_jax_results_are_jax_arrays_of_the_same_dtype_and_values(name, operator, dtype):
    case = find_conv_case(name).read_as(operator)
    arrays = make_arrays(case, dtype)
    results = case.call(backops, *map(jnp.asarray, arrays))
    assert all(isinstance(result, jax.Array) for result in results)
    assert_close([np.asarray(result) for result in results], case, arrays)
    assert jnp.isfinite(results[0] + 1).all()


@every_operator
def test_jax_float64_results_stay_float64(operator):
    case = CASE.read_as(operator)
    with jax_x64():
        arrays = make_arrays(case, "float64")
        results = case.call(backops, *map(jnp.asarray, arrays))
        assert_close([np.asarray(result) for result in results], case, arrays)


@pytest.mark.parametrize("which", GRADIENTS)
def test_jax_out_is_refused_because_jax_arrays_do_not_change(which):
    arrays = make_arrays(CASE)
    index = GRADIENTS.index(which)
    out = [None, None, None]
    out[index] = jnp.zeros(CASE.result_shapes[index], jnp.float32)
    with pytest.raises(backops.LayoutError, match=r"^conv_backward: out.* is .*read-only"):
        CASE.backward(backops, *arrays, out=tuple(out))
    assert not out[index].any()


# Anything else that speaks DLPack, and mixtures


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@every_operator
def test_foreign_dlpack_arrays_give_numpy_results(operator, dtype):
    case = CASE.read_as(operator)
    arrays = make_arrays(case, dtype, kind="integer")
    results = case.call(backops, *map(DLPackOnly, arrays))
    assert all(type(result) is np.ndarray for result in results)
    assert_exact(results, case, arrays)


@every_operator
def test_foreign_dlpack_out_is_written_in_place_and_returned_itself(operator):
    case = CASE.read_as(operator)
    arrays = make_arrays(case, kind="integer")
    targets = empty_results(case, "float32")
    out = tuple(map(DLPackOnly, targets))
    results = case.call(backops, *arrays, out=out)
    assert all(result is given for result, given in zip(results, out, strict=True))
    assert_exact(targets, case, arrays)


@pytest.mark.parametrize(
    "kinds", list(itertools.permutations(["numpy", "torch", "jax"])), ids="-".join
)
@every_operator
def test_array_type_of_the_results_is_that_of_the_first_operand(operator, kinds):
    case = CASE.read_as(operator)
    convert = {"numpy": np.asarray, "torch": to_torch, "jax": jnp.asarray}
    types = {"numpy": np.ndarray, "torch": torch.Tensor, "jax": jax.Array}
    arrays = make_arrays(case, kind="integer")
    mixed = [convert[kind](array) for kind, array in zip(kinds, arrays, strict=True)]
    results = case.call(backops, *mixed)
    assert all(isinstance(result, types[kinds[0]]) for result in results)
    assert_exact([np.asarray(result) for result in results], case, arrays)


def test_outs_of_numpy_torch_and_dlpack():
    arrays = make_arrays(CASE, kind="integer")
    target, _, bias = empty_results(CASE, "float32")
    out = (target, torch.zeros(CASE.weight_shape), DLPackOnly(bias))
    results = CASE.backward(backops, *arrays, out=out)
    assert all(result is given for result, given in zip(results, out, strict=True))
    assert_exact((target, out[1].numpy(), bias), CASE, arrays)


# Controls


def test_exact_comparison_catches_a_layout_that_was_ignored():
    arrays = make_arrays(CASE, kind="integer")
    moved = [in_layout(array, CASE, "channels_last") for array in arrays]
    as_if_contiguous = [
        np.ndarray(array.shape, array.dtype, np.moveaxis(array, 1, -1).tobytes()) for array in moved
    ]
    with pytest.raises(AssertionError, match="grad_input of"):
        assert_exact(CASE.backward(backops, *as_if_contiguous), CASE, arrays)


@pytest.mark.parametrize("which", GRADIENTS)
def test_guard_bytes_catch_a_write_beside_an_array(which):
    placed = place_results(CASE, "float32", "padded_rows")
    assert_nothing_else_changed(placed, CASE, "float32", "padded_rows")
    memory, out = placed[GRADIENTS.index(which)]
    memory[GUARD_BYTES + 4 * out.shape[-1]] ^= 1
    with pytest.raises(AssertionError):
        assert_nothing_else_changed(placed, CASE, "float32", "padded_rows")
