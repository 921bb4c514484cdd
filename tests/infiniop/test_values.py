"""The operators through ctypes, as clients call them, against the reference."""

import itertools

import numpy as np
import pytest
import torch

from tests.support import layouts
from tests.support.arrays import to_numpy, to_torch
from tests.support.cases import per_axis
from tests.support.conv_cases import (
    CASES,
    ConvCase,
    empty_results,
    find_conv_case,
    make_arrays,
    reading_id,
    readings,
)
from tests.support.conv_compare import assert_exact, assert_nothing_else_changed, place_results
from tests.support.floats import same_bits
from tests.support.infini import (
    INFINI_DTYPES,
    AvgPoolBackward,
    Conv,
    ConvBackward,
    Status,
    Tensor,
    check,
    create_stream,
    infinirt,
    is_untouched,
)
from tests.support.layouts import LAYOUTS, in_layout
from tests.support.pool_cases import find_case, load_cases, make_grad, parse_case
from tests.support.pool_compare import assert_close
from tests.support.processes import run_python
from tests.support.threads import run_in_threads

# What AvgPoolBackward can be asked for: a batch, fixed windows, padding that counts.
POOL_CASES = [
    case
    for case in load_cases()
    if not case.adaptive
    and case.count_include_pad
    and case.divisor_override is None
    and len(case.input_shape) == case.rank + 2
    and 0 not in case.input_shape
]
CONV_OPERATORS = {"conv": Conv, "conv_backward": ConvBackward}
CONV_CASES = [
    case for case in readings(CASES, CONV_OPERATORS) if case.batched and 0 not in case.input_shape
]
every_dtype = pytest.mark.parametrize("dtype", INFINI_DTYPES)
every_pool = pytest.mark.parametrize("case", POOL_CASES, ids=lambda case: case.name)
every_conv = pytest.mark.parametrize("case", CONV_CASES, ids=reading_id)
every_conv_operator = pytest.mark.parametrize("operator", CONV_OPERATORS)


def pool_of(case, grad_input, grad_output):
    """The operator of a case for two tensors (`Tensor`)."""
    kernel = per_axis(case.kernel_size, case.rank)
    # Usual values are left out, as clients do.
    strides = None if case.stride is None else per_axis(case.stride, case.rank)
    pads = None if case.padding == 0 else per_axis(case.padding, case.rank)
    x = Tensor(case.input_shape, None, grad_input.dtype)
    return AvgPoolBackward(grad_input, grad_output, x, kernel, strides, pads, case.ceil_mode)


def run_pool(case, grad_input, grad_output):
    """Runs it once; `grad_output` may stand for the forward input, which is not read."""
    operator = pool_of(case, grad_input, grad_output)
    operator.run(grad_input.address, grad_output.address, grad_output.address)
    operator.destroy()


def conv_of(case, *tensors, n=None):
    """The operator of a case for four tensors; the last, for the bias, may be None."""
    parameters = ((case.padding, 0), (case.stride, 1), (case.dilation, 1))
    # Usual values are left out, as clients do.
    axes = [None if value == usual else per_axis(value, case.rank) for value, usual in parameters]
    return CONV_OPERATORS[case.operator](*tensors, *axes, case.groups if n is None else n)


def conv_tensors(case, operands, results, with_bias=True):
    """What is described, and the addresses of a run. Without a bias, each ends or has a None."""
    reads, writes = ([Tensor.of(array) for array in arrays] for arrays in (operands, results))
    tensors = [*reads, writes[2]] if case.is_backward else [writes[0], *reads]
    addresses = [tensor.address for tensor in (*writes, *reads)]
    if not with_bias:
        tensors[3] = None
        addresses[2 if case.is_backward else 3] = None
    return tensors, addresses


# Pooling


@every_dtype
@every_pool
def test_pool_of_torch_tensors(case, dtype):
    grad = make_grad(case, dtype)
    grad_output = to_torch(grad)
    grad_input = torch.full(case.input_shape, 7.0, dtype=grad_output.dtype)
    run_pool(case, Tensor.of(grad_input), Tensor.of(grad_output))
    assert_close(to_numpy(grad_input), case, grad)


def test_pool_cases_have_every_rank_and_ceil_mode():
    assert {case.rank for case in POOL_CASES} == {1, 2, 3}
    assert {case.ceil_mode for case in POOL_CASES} == {False, True}
    assert None in {case.stride for case in POOL_CASES}


@every_dtype
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["overlap_1d", "toy", "overlap_3d"])
def test_pool_of_strided_tensors(name, layout, dtype):
    case = find_case(name)
    values = make_grad(case, dtype)
    grad = in_layout(values, case, layout)
    memory, result = layouts.place(case.input_shape, case.rank, dtype, layout)
    untouched, before = memory.copy(), result.copy()
    run_pool(case, Tensor.of(result), Tensor.of(grad))
    assert_close(result.copy(), case, values)
    # Nothing was written but the elements of the result.
    result.view(f"i{result.itemsize}")[...] = before.view(f"i{result.itemsize}")
    assert same_bits(memory, untouched)


def test_pool_reads_broadcast_gradients():
    case = find_case("toy")
    grad = np.broadcast_to(np.float32(1.5), case.output_shape)
    result = np.empty(case.input_shape, np.float32)
    run_pool(case, Tensor.of(result), Tensor.of(grad))
    assert_close(result, case, grad)


def test_check_of_values_sees_padding_that_does_not_count():
    case = parse_case("avg2d in=3x2x5x5 k=3 s=2 p=1 exclude_pad")
    grad = make_grad(case)
    result = np.empty(case.input_shape, np.float32)
    run_pool(case, Tensor.of(result), Tensor.of(grad))
    with pytest.raises(AssertionError):
        assert_close(result, case, grad)


# Convolution


def run_conv(case, operands, results, with_bias=True, n=None):
    tensors, addresses = conv_tensors(case, operands, results, with_bias)
    operator = conv_of(case, *tensors, n=n)
    operator.run(*addresses)
    operator.destroy()


def assert_conv(case, arrays, results, with_bias=True):
    """Fails unless results of integer data are exact; 7 where there is no bias to write to."""
    if with_bias:
        assert_exact(results, case, arrays)
    elif case.is_backward:
        assert (results[2] == 7).all()
        assert_exact((*results[:2], None), case, arrays, output_mask=(True, True, False))
    else:
        assert_exact(results, case, arrays[:2])


def check_conv(case, dtype, with_bias=True):
    """On tensors of PyTorch."""
    arrays = make_arrays(case, dtype, kind="integer")
    operands, results = (
        [to_torch(array) for array in some] for some in (arrays, empty_results(case, dtype))
    )
    run_conv(case, operands, results, with_bias)
    assert_conv(case, arrays, [to_numpy(result) for result in results], with_bias)


def check_strided_conv(case, dtype, layout):
    """On arrays of a layout, the results between bytes that nothing may change."""
    arrays = make_arrays(case, dtype, kind="integer")
    operands = [
        in_layout(array, case, layout if array.ndim > 1 else "contiguous") for array in arrays
    ]
    placed = place_results(case, dtype, layout)
    results = [result for _, result in placed]
    run_conv(case, operands, results)
    assert_conv(case, arrays, results)
    assert_nothing_else_changed(placed, case, dtype, layout)


@every_dtype
@every_conv
def test_conv_of_torch_tensors(case, dtype):
    check_conv(case, dtype)


@every_conv
def test_conv_without_bias(case):
    check_conv(case, "float32", with_bias=False)


@every_dtype
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["plain_1d", "groups_2d", "plain_3d"])
@every_conv_operator
def test_conv_of_strided_tensors(operator, name, layout, dtype):
    # offset_by_byte: InfiniOp's strides count elements, but data may begin anywhere.
    check_strided_conv(find_conv_case(name).read_as(operator), dtype, layout)


def test_conv_reads_broadcast_tensors():
    case = find_conv_case("plain_2d").read_as("conv")
    operands = [
        np.broadcast_to(np.float32(value), shape)
        for value, shape in zip((2, -1, 3), case.operand_shapes.values(), strict=True)
    ]
    results = empty_results(case, "float32")
    run_conv(case, operands, results)
    assert_conv(case, operands, results)


def test_check_of_values_sees_a_bias_that_is_not_added():
    case = find_conv_case("plain_2d").read_as("conv")
    arrays, results = make_arrays(case, kind="integer"), empty_results(case, "float32")
    run_conv(case, arrays, results, with_bias=False)
    with pytest.raises(AssertionError):
        assert_conv(case, arrays, results)


# What `n` counts


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("channels", [1, 2, 3, 6])
def test_n_of_conv_may_be_the_number_of_axes(rank, channels):
    """As InfiniCore's clients have it; their convolutions have no groups."""
    case = ConvCase(
        "axes", (2, channels, *(7, 6, 5)[:rank]), (6, channels, *[3] * rank), operator="conv"
    )
    arrays = make_arrays(case, kind="integer")
    for n in {1, rank}:
        results = empty_results(case, "float32")
        run_conv(case, arrays, results, n=n)
        assert_conv(case, arrays, results)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 6, 12])
@pytest.mark.parametrize("groups", [1, 2, 3, 6])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_n_of_conv_is_the_groups_otherwise(rank, groups, n):
    case = ConvCase(
        "groups", (2, 6, *[5] * rank), (6, 6 // groups, *[3] * rank), groups=groups, operator="conv"
    )
    shapes = case.output_shape, case.input_shape, case.weight_shape, (6,)
    status, desc = Conv.create(*map(Tensor, shapes), None, None, None, n)
    if n == groups or (n, groups) == (rank, 1):
        check(status)
        Conv.of(desc).destroy()
    else:
        assert status == (Status.BAD_PARAM if n == 0 else Status.BAD_TENSOR_SHAPE)
        assert is_untouched(desc)


def test_conv_cases_have_every_rank_and_groups():
    assert {case.rank for case in CONV_CASES} == {1, 2, 3}
    assert any(case.groups > 1 for case in CONV_CASES)
    assert any(case.dilation != 1 for case in CONV_CASES)
    assert {case.operator for case in CONV_CASES} == set(CONV_OPERATORS)


# Many runs of one descriptor


def test_sixteen_threads_share_one_handle_and_one_descriptor():
    case = parse_case("avg2d in=4x16x56x56 k=3 s=2 p=1")
    grads = [make_grad(case, seed=i) for i in range(16)]
    shape = Tensor(case.input_shape)
    operator = pool_of(case, shape, Tensor(case.output_shape))
    expected = []
    for grad in grads:
        expected.append(np.empty(case.input_shape, np.float32))
        operator.run(expected[-1].ctypes.data, grad.ctypes.data, grad.ctypes.data)
    assert_close(expected[3], case, grads[3])
    conv = find_conv_case("plain_2d")

    def body(i):
        stream = create_stream() if i % 2 else None
        out, workspace = np.empty(case.input_shape, np.float32), operator.new_workspace()
        for _ in range(15):
            out.fill(7)
            data = (out.ctypes.data, grads[i].ctypes.data, grads[i].ctypes.data)
            operator.run(*data, workspace=workspace, stream=stream)
            check(infinirt.infinirtStreamSynchronize(stream))
            assert same_bits(out, expected[i])
        # Descriptors are made with the shared handle at the same time.
        check_strided_conv(conv, "float32", "contiguous")
        check(infinirt.infinirtStreamDestroy(stream))

    run_in_threads(16, body)
    operator.destroy()


@every_conv_operator
def test_sixteen_threads_share_one_convolution(operator):
    case = find_conv_case("groups_2d").read_as(operator)
    arrays = make_arrays(case, "float32", kind="integer")
    tensors, _ = conv_tensors(case, arrays, empty_results(case, "float32"))
    shared = conv_of(case, *tensors)

    def body(_):
        for _ in range(20):
            results = empty_results(case, "float32")
            shared.run(*conv_tensors(case, arrays, results)[1])
            assert_exact(results, case, arrays)

    run_in_threads(16, body)
    shared.destroy()


def test_number_of_threads_comes_from_the_environment():
    # A wide row of tiles: the workspace has a part for each thread.
    sizes = {}
    for threads in (1, 2, 5):
        done = run_python(
            """
from tests.support.infini import *
large, small = Tensor((8, 64, 56, 56)), Tensor((8, 64, 28, 28))
print(AvgPoolBackward(large, small, large, [2, 2], None, None).workspace_size)
""",
            BACKOPS_NUM_THREADS=threads,
        )
        sizes[threads] = int(done.stdout)
    assert sizes[1] < sizes[2] < sizes[5]


def test_wrong_number_of_threads_in_the_environment_is_a_status():
    run_python(
        """
from tests.support.infini import *
large, small = Tensor((1, 1, 4)), Tensor((1, 1, 2))
status, desc = AvgPoolBackward.create(large, small, large, [2], None, None)
assert status == Status.SUCCESS
import os
os.environ["BACKOPS_NUM_THREADS"] = "many"
status, desc = AvgPoolBackward.create(large, small, large, [2], None, None)
assert status == Status.BAD_PARAM and is_untouched(desc)
"""
    )


@every_conv_operator
def test_convolutions_of_a_stream_run_in_order(operator):
    """Each of them after the copy that brings its data, its descriptor gone by then."""
    case = find_conv_case("groups_2d").read_as(operator)
    stream = create_stream()
    places = [np.zeros_like(array) for array in make_arrays(case)]
    done, workspaces = [], []
    for seed in range(5):
        arrays = make_arrays(case, seed=seed, kind="integer")
        results = empty_results(case, "float32")
        tensors, addresses = conv_tensors(case, places, results)
        for place, array in zip(places, arrays, strict=True):
            copy = infinirt.infinirtMemcpyAsync
            check(copy(place.ctypes.data, array.ctypes.data, array.nbytes, 0, stream))
        made = conv_of(case, *tensors)
        workspaces.append(made.new_workspace())
        made.run(*addresses, stream=stream, workspace=workspaces[-1])
        made.destroy()
        done.append((arrays, results))
    check(infinirt.infinirtStreamSynchronize(stream))
    for arrays, results in done:
        assert_exact(results, case, arrays)
    check(infinirt.infinirtStreamDestroy(stream))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_results_do_not_depend_on_the_stream(dtype):
    cases = list(itertools.islice(POOL_CASES, 0, None, 7))
    stream = create_stream()
    for case in cases:
        grad = make_grad(case, dtype)
        now, later = (np.empty(case.input_shape, grad.dtype) for _ in range(2))
        operator = pool_of(case, Tensor.of(now), Tensor.of(grad))
        workspace = operator.new_workspace()
        operator.run(now.ctypes.data, grad.ctypes.data, grad.ctypes.data)
        operator.run(
            later.ctypes.data,
            grad.ctypes.data,
            grad.ctypes.data,
            stream=stream,
            workspace=workspace,
        )
        operator.destroy()
        check(infinirt.infinirtStreamSynchronize(stream))
        assert same_bits(now, later)
    check(infinirt.infinirtStreamDestroy(stream))
