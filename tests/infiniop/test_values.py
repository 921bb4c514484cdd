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
    AdaptiveAvgPool1d,
    AdaptiveAvgPool3D,
    AvgPool,
    AvgPool1d,
    AvgPool3d,
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
from tests.support.pool_cases import both_ways, load_cases, make_source, parse_case
from tests.support.pool_compare import assert_close
from tests.support.processes import run_python
from tests.support.threads import run_in_threads


def pool_operators(case):
    """Those that a case can be asked of. All have a batch, and padding that counts."""
    if len(case.input_shape) != case.rank + 2 or 0 in case.input_shape:
        return []
    if case.adaptive:
        of_rank = {1: [AdaptiveAvgPool1d], 3: [AdaptiveAvgPool3D]}
        return of_rank.get(case.rank, []) if case.is_forward else []
    if not case.count_include_pad or case.divisor_override is not None:
        return []
    if not case.is_forward:
        return [AvgPoolBackward]
    of_rank = {} if case.ceil_mode else {1: [AvgPool1d], 3: [AvgPool3d]}
    return [AvgPool, *of_rank.get(case.rank, [])]


POOLS = [
    pytest.param(operator, case, id=f"{operator.__name__}-{case.name}")
    for case in both_ways(load_cases())
    for operator in pool_operators(case)
]
CONV_OPERATORS = {"conv": Conv, "conv_backward": ConvBackward}
CONV_CASES = [
    case for case in readings(CASES, CONV_OPERATORS) if case.batched and 0 not in case.input_shape
]
every_dtype = pytest.mark.parametrize("dtype", INFINI_DTYPES)
every_pool = pytest.mark.parametrize(("operator", "case"), POOLS)
# One case of each rank that an operator has.
pools_of_every_rank = pytest.mark.parametrize(
    ("operator", "case"),
    [
        given
        for given in POOLS
        if given.values[1].name.removeprefix("forward_")
        in ("overlap_1d", "toy", "overlap_3d", "adaptive_uneven_1d", "adaptive_uneven_3d")
    ],
)
every_conv = pytest.mark.parametrize("case", CONV_CASES, ids=reading_id)
every_conv_operator = pytest.mark.parametrize("operator", CONV_OPERATORS)


def pool_parameters(operator, case):
    kernel, stride, padding = case.kernel_size, case.stride, case.padding
    if operator is AdaptiveAvgPool1d:
        return ()
    if operator is AdaptiveAvgPool3D:
        return (per_axis(case.output_size, case.rank),)
    if operator is AvgPool1d:
        (kernel,) = per_axis(kernel, 1)
        (stride,) = (kernel,) if stride is None else per_axis(stride, 1)
        return kernel, stride, *per_axis(padding, 1)
    # Usual values are left out, as clients do.
    windows = (
        per_axis(kernel, case.rank),
        None if stride is None else per_axis(stride, case.rank),
        None if padding == 0 else per_axis(padding, case.rank),
    )
    return windows if operator is AvgPool3d else (*windows, case.ceil_mode)


def pool_of(operator, case, target, source):
    """The operator of a case for two tensors (`Tensor`)."""
    tensors = [target, source]
    if not case.is_forward:
        tensors.append(Tensor(case.input_shape, None, target.dtype))
    return operator(*tensors, *pool_parameters(operator, case))


def pool_addresses(case, target, source):
    """`source` may stand for the forward input of a gradient, which is not read."""
    return [target, source] if case.is_forward else [target, source, source]


def run_pool(operator, case, target, source):
    made = pool_of(operator, case, target, source)
    made.run(*pool_addresses(case, target.address, source.address))
    made.destroy()


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


@every_pool
def test_pool_of_torch_tensors(operator, case):
    for dtype in INFINI_DTYPES:
        values = make_source(case, dtype)
        source = to_torch(values)
        target = torch.full(case.target_shape, 7.0, dtype=source.dtype)
        run_pool(operator, case, Tensor.of(target), Tensor.of(source))
        assert_close(to_numpy(target), case, values)


def test_pool_cases_have_every_rank_and_ceil_mode():
    for operator in (AvgPool, AvgPoolBackward):
        cases = [case for asked, case in (given.values for given in POOLS) if asked is operator]
        assert {case.rank for case in cases} == {1, 2, 3}
        assert {case.ceil_mode for case in cases} == {False, True}
        assert None in {case.stride for case in cases}
    for operator in (AvgPool1d, AvgPool3d, AdaptiveAvgPool1d, AdaptiveAvgPool3D):
        cases = [case for asked, case in (given.values for given in POOLS) if asked is operator]
        assert len(cases) >= 5, operator


def test_pools_of_every_rank_have_every_operator():
    (given,) = pools_of_every_rank.args[1:]
    assert len(given) == 3 + 3 + 1 + 1 + 1 + 1


@every_dtype
@pytest.mark.parametrize("layout", LAYOUTS)
@pools_of_every_rank
def test_pool_of_strided_tensors(operator, case, layout, dtype):
    values = make_source(case, dtype)
    source = in_layout(values, case, layout)
    memory, result = layouts.place(case.target_shape, case.rank, dtype, layout)
    untouched, before = memory.copy(), result.copy()
    run_pool(operator, case, Tensor.of(result), Tensor.of(source))
    assert_close(result.copy(), case, values)
    # Nothing was written but the elements of the result.
    result.view(f"i{result.itemsize}")[...] = before.view(f"i{result.itemsize}")
    assert same_bits(memory, untouched)


@pools_of_every_rank
def test_pool_reads_broadcast_tensors(operator, case):
    source = np.broadcast_to(np.float32(1.5), case.source_shape)
    result = np.empty(case.target_shape, np.float32)
    run_pool(operator, case, Tensor.of(result), Tensor.of(source))
    assert_close(result, case, source)


@pytest.mark.parametrize("operator", [AvgPool, AvgPoolBackward])
def test_check_of_values_sees_padding_that_does_not_count(operator):
    case = parse_case("avg2d in=3x2x5x5 k=3 s=2 p=1 exclude_pad")
    case = case if operator is AvgPoolBackward else case.forward
    values = make_source(case)
    result = np.empty(case.target_shape, np.float32)
    run_pool(operator, case, Tensor.of(result), Tensor.of(values))
    with pytest.raises(AssertionError):
        assert_close(result, case, values)


@pytest.mark.parametrize(("operator", "rank"), [(AvgPool, 2), (AvgPool1d, 1), (AvgPool3d, 3)])
def test_padding_counts(operator, rank):
    """A corner window of 3 x 3 has 4 elements of the input, and is divided by 9."""
    case = parse_case(f"forward avg{rank}d in={'x'.join('11' + '5' * rank)} k=3 s=2 p=1")
    ones = np.ones(case.source_shape, np.float32)
    result = np.empty(case.target_shape, np.float32)
    run_pool(operator, case, Tensor.of(result), Tensor.of(ones))
    corner, centre = result[(0, 0, *[0] * rank)], result[(0, 0, *[1] * rank)]
    np.testing.assert_allclose([corner, centre], [(2 / 3) ** rank, 1], rtol=1e-6)


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


@every_conv
def test_conv_of_torch_tensors(case):
    for dtype in INFINI_DTYPES:
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


@pytest.mark.parametrize("operator", [AvgPool, AvgPoolBackward])
def test_sixteen_threads_share_one_handle_and_one_descriptor(operator):
    case = parse_case("avg2d in=4x16x56x56 k=3 s=2 p=1")
    case = case if operator is AvgPoolBackward else case.forward
    sources = [make_source(case, seed=i) for i in range(16)]
    shared = pool_of(operator, case, Tensor(case.target_shape), Tensor(case.source_shape))
    expected = []
    for source in sources:
        expected.append(np.empty(case.target_shape, np.float32))
        shared.run(*pool_addresses(case, expected[-1].ctypes.data, source.ctypes.data))
    assert_close(expected[3], case, sources[3])
    conv = find_conv_case("plain_2d")

    def body(i):
        stream = create_stream() if i % 2 else None
        out, workspace = np.empty(case.target_shape, np.float32), shared.new_workspace()
        for _ in range(15):
            out.fill(7)
            data = pool_addresses(case, out.ctypes.data, sources[i].ctypes.data)
            shared.run(*data, workspace=workspace, stream=stream)
            check(infinirt.infinirtStreamSynchronize(stream))
            assert same_bits(out, expected[i])
        # Descriptors are made with the shared handle at the same time.
        check_strided_conv(conv, "float32", "contiguous")
        check(infinirt.infinirtStreamDestroy(stream))

    run_in_threads(16, body)
    shared.destroy()


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
    stream = create_stream()
    for operator, case in (given.values for given in itertools.islice(POOLS, 0, None, 7)):
        source = make_source(case, dtype)
        now, later = (np.empty(case.target_shape, source.dtype) for _ in range(2))
        made = pool_of(operator, case, Tensor.of(now), Tensor.of(source))
        workspace = made.new_workspace()
        made.run(*pool_addresses(case, now.ctypes.data, source.ctypes.data))
        made.run(
            *pool_addresses(case, later.ctypes.data, source.ctypes.data),
            stream=stream,
            workspace=workspace,
        )
        made.destroy()
        check(infinirt.infinirtStreamSynchronize(stream))
        assert same_bits(now, later)
    check(infinirt.infinirtStreamDestroy(stream))
