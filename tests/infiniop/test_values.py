"""AvgPoolBackward and ConvBackward through ctypes, as clients call them, against the reference."""

import itertools

import numpy as np
import pytest
import torch

from tests.support import layouts
from tests.support.arrays import to_numpy, to_torch
from tests.support.cases import per_axis
from tests.support.conv_cases import CASES, empty_gradients, find_conv_case, make_arrays
from tests.support.conv_compare import assert_exact
from tests.support.floats import same_bits
from tests.support.infini import INFINI_DTYPES, Conv, Pool, Tensor, check, create_stream, infinirt
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
CONV_CASES = [case for case in CASES if case.batched and 0 not in case.input_shape]
every_dtype = pytest.mark.parametrize("dtype", INFINI_DTYPES)
every_pool = pytest.mark.parametrize("case", POOL_CASES, ids=lambda case: case.name)
every_conv = pytest.mark.parametrize("case", CONV_CASES, ids=lambda case: case.name)


def pool_of(case, grad_input, grad_output):
    """The operator of a case for two tensors (`Tensor`)."""
    kernel = per_axis(case.kernel_size, case.rank)
    # Usual values are left out, as clients do.
    strides = None if case.stride is None else per_axis(case.stride, case.rank)
    pads = None if case.padding == 0 else per_axis(case.padding, case.rank)
    x = Tensor(case.input_shape, None, grad_input.dtype)
    return Pool(grad_input, grad_output, x, kernel, strides, pads, case.ceil_mode)


def run_pool(case, grad_input, grad_output):
    """Runs it once; `grad_output` may stand for the forward input, which is not read."""
    operator = pool_of(case, grad_input, grad_output)
    operator.run(grad_input.address, grad_output.address, grad_output.address)
    operator.destroy()


def conv_of(case, grad_output, input, weight, bias):
    parameters = ((case.padding, 0), (case.stride, 1), (case.dilation, 1))
    # Usual values are left out, as clients do.
    axes = [None if value == usual else per_axis(value, case.rank) for value, usual in parameters]
    return Conv(grad_output, input, weight, bias, *axes, case.groups)


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


def check_conv(case, dtype, with_bias=True, layout="contiguous", place=to_torch):
    arrays = make_arrays(case, dtype, kind="integer")
    inputs = [in_layout(array, case, layout) for array in arrays]
    grads = [
        in_layout(array, case, layout if array.ndim > 1 else "contiguous")
        for array in empty_gradients(case, dtype)
    ]
    placed = [place(array) for array in (*inputs, *grads)]
    tensors = [Tensor.of(array) for array in placed]
    bias = tensors[5] if with_bias else None
    operator = conv_of(case, *tensors[:3], bias)
    addresses = [tensor.address for tensor in tensors]
    if not with_bias:
        addresses[5] = None
    operator.run(*addresses[3:], *addresses[:3])
    operator.destroy()
    results = [array if isinstance(array, np.ndarray) else to_numpy(array) for array in placed[3:]]
    mask = (True, True, with_bias)
    if not with_bias:
        assert (results[2] == 7).all()
        results[2] = None
    assert_exact(results, case, arrays, output_mask=mask)


@every_dtype
@every_conv
def test_conv_of_torch_tensors(case, dtype):
    check_conv(case, dtype, with_bias=True)


@every_conv
def test_conv_without_bias(case):
    check_conv(case, "float32", with_bias=False)


@every_dtype
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["plain_1d", "groups_2d", "plain_3d"])
def test_conv_of_strided_tensors(name, layout, dtype):
    # offset_by_byte: InfiniOp's strides count elements, but data may begin anywhere.
    case = find_conv_case(name)
    check_conv(case, dtype, layout=layout, place=lambda array: array)


def test_conv_cases_have_every_rank_and_groups():
    assert {case.rank for case in CONV_CASES} == {1, 2, 3}
    assert any(case.groups > 1 for case in CONV_CASES)
    assert any(case.dilation != 1 for case in CONV_CASES)


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
        check_conv(conv, "float32", place=lambda array: array)
        check(infinirt.infinirtStreamDestroy(stream))

    run_in_threads(16, body)
    operator.destroy()


def test_sixteen_threads_share_one_convolution():
    case = find_conv_case("groups_2d")
    arrays = make_arrays(case, "float32", kind="integer")
    tensors = [Tensor.of(array) for array in arrays]
    operator = conv_of(case, *tensors, Tensor(case.weight_shape[:1]))

    def body(_):
        for _ in range(20):
            results = empty_gradients(case, "float32")
            addresses = [array.ctypes.data for array in (*results, *arrays)]
            operator.run(*addresses)
            assert_exact(results, case, arrays)

    run_in_threads(16, body)
    operator.destroy()


def test_number_of_threads_comes_from_the_environment():
    # A wide row of tiles: the workspace has a part for each thread.
    sizes = {}
    for threads in (1, 2, 5):
        done = run_python(
            """
from tests.support.infini import *
print(Pool(Tensor((8, 64, 56, 56)), Tensor((8, 64, 28, 28)), Tensor((8, 64, 56, 56)), [2, 2],
           None, None).workspace_size)
""",
            BACKOPS_NUM_THREADS=threads,
        )
        sizes[threads] = int(done.stdout)
    assert sizes[1] < sizes[2] < sizes[5]


def test_wrong_number_of_threads_in_the_environment_is_a_status():
    run_python(
        """
from tests.support.infini import *
status, desc = create_pool(Tensor((1, 1, 4)), Tensor((1, 1, 2)), Tensor((1, 1, 4)), [2], None, None)
assert status == Status.SUCCESS
import os
os.environ["BACKOPS_NUM_THREADS"] = "many"
status, desc = create_pool(Tensor((1, 1, 4)), Tensor((1, 1, 2)), Tensor((1, 1, 4)), [2], None, None)
assert status == Status.BAD_PARAM and is_untouched(desc)
"""
    )


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
