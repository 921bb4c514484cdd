"""Masks compute what is asked for and nothing else; plans are decided once and run many times."""

import time

import numpy as np
import pytest
import torch

import backops
from tests.support import allocations
from tests.support.conv_cases import (
    CASES,
    GRADIENTS,
    MASKS,
    OPERATORS,
    TRANSPOSED_CASES,
    ConvCase,
    empty_results,
    find_conv_case,
    make_arrays,
    reading_id,
    readings_in_turn,
)
from tests.support.conv_compare import assert_close, assert_exact
from tests.support.floats import DTYPES, same_bits
from tests.support.layouts import FILL_BYTE, LAYOUTS, READ_LAYOUTS, in_layout
from tests.support.threads import run_in_threads

CASE = find_conv_case("plain_2d")
# Each rank, dense, grouped and depthwise, with and without a batch.
NAMES = [
    "plain_1d",
    "plain_2d",
    "plain_3d",
    "pointwise_2d",
    "groups_2d",
    "depthwise_2d",
    "unbatched_2d",
    "stride_and_dilation",
    "channels_16_to_16",
]
every_name = pytest.mark.parametrize("name", NAMES)
every_mask = pytest.mark.parametrize(
    "mask", MASKS, ids=lambda mask: "".join("iwb"[i] for i in range(3) if mask[i]) or "nothing"
)
every_dtype = pytest.mark.parametrize("dtype", DTYPES)
every_operator = pytest.mark.parametrize("operator", OPERATORS)
both_backward = pytest.mark.parametrize("operator", ["conv_backward", "conv_transpose_backward"])


def where(mask, values):
    """Those values that are asked for, None for the others."""
    return tuple(value if wanted else None for value, wanted in zip(values, mask, strict=True))


def needed_only(arrays, mask):
    """The arrays, with a shape in place of each whose values no gradient needs."""
    grad_output, input, weight = arrays
    return grad_output, input if mask[1] else input.shape, weight if mask[0] else weight.shape


# Masks


@every_mask
@every_name
@both_backward
def test_masked_gradients_are_none_and_the_others_right(operator, name, mask):
    for dtype in DTYPES:
        case = find_conv_case(name).read_as(operator)
        arrays = make_arrays(case, dtype)
        results = case.call(backops, *arrays, output_mask=mask)
        assert_close(results, case, arrays, output_mask=mask)


@every_mask
@every_name
@both_backward
def test_shapes_do_where_values_are_not_needed(operator, name, mask):
    case = find_conv_case(name).read_as(operator)
    for dtype in ("float32", "bfloat16"):
        arrays = make_arrays(case, dtype)
        results = case.call(backops, *needed_only(arrays, mask), output_mask=mask)
        assert_close(results, case, arrays, output_mask=mask)


@pytest.mark.parametrize("as_shape", [tuple, list, torch.Size], ids=lambda f: f.__name__)
def test_shape_may_be_any_sequence_of_sizes(as_shape):
    arrays = make_arrays(CASE)
    mask = (False, False, True)
    shapes = [as_shape(array.shape) for array in arrays[1:]]
    results = CASE.backward(backops, arrays[0], *shapes, output_mask=mask)
    assert_close(results, CASE, arrays, output_mask=mask)


@pytest.mark.parametrize("sequence", [tuple, list, np.array], ids=lambda f: f.__name__)
@both_backward
def test_mask_that_asks_for_nothing_gives_three_nones(operator, sequence):
    case = find_conv_case("toy").read_as(operator)
    arrays, mask = make_arrays(case), sequence([False] * 3)
    assert case.call(backops, *arrays, output_mask=mask) == (None, None, None)
    plan = case.plan(backops.plan, output_mask=mask)
    assert plan(arrays[0], out=(None, None, None)) == (None, None, None)
    assert plan.workspace_size == 0
    with pytest.raises(backops.ShapeError, match="grad_output"):
        plan(arrays[1])


@pytest.mark.parametrize("sequence", [tuple, list, np.array], ids=lambda f: f.__name__)
def test_mask_may_be_any_sequence_of_bools(sequence):
    arrays = make_arrays(CASE)
    for mask in MASKS:
        results = CASE.backward(backops, *arrays, output_mask=sequence(mask))
        assert [result is not None for result in results] == list(mask)


@every_mask
@both_backward
@every_dtype
def test_out_of_masked_gradients(dtype, operator, mask):
    case = CASE.read_as(operator)
    arrays = make_arrays(case, dtype, kind="integer")
    out = where(mask, empty_results(case, dtype))
    results = case.call(backops, *arrays, output_mask=mask, out=out)
    assert all(result is given for result, given in zip(results, out, strict=True))
    assert_exact(results, case, arrays, output_mask=mask)


@every_mask
def test_none_in_out_makes_a_new_array(mask):
    # Here `mask` says which outs are given: all gradients are computed.
    arrays = make_arrays(CASE, kind="integer")
    out = where(mask, empty_results(CASE, "float32"))
    results = CASE.backward(backops, *arrays, out=out)
    for result, given in zip(results, out, strict=True):
        assert given is None or result is given
    assert_exact(results, CASE, arrays)


def test_out_of_none_and_of_three_nones_and_a_list():
    arrays = make_arrays(CASE, kind="integer")
    for out in (
        None,
        (None, None, None),
        [None, None, None],
        list(empty_results(CASE, "float32")),
    ):
        assert_exact(CASE.backward(backops, *arrays, out=out), CASE, arrays)


@every_mask
def test_masked_torch_results(mask):
    arrays = make_arrays(CASE)
    tensors = [torch.from_numpy(array) for array in arrays]
    results = CASE.backward(backops, *needed_only(tensors, mask), output_mask=mask)
    assert all(result is None or type(result) is torch.Tensor for result in results)
    values = [None if result is None else result.numpy() for result in results]
    assert_close(values, CASE, arrays, output_mask=mask)


@pytest.mark.parametrize("bad", ["shape", "dtype", "no array"])
def test_grad_output_is_checked_where_nothing_is_asked_for(bad):
    mask = (False, False, False)
    arrays = make_arrays(CASE)
    grad = {"shape": arrays[0][:1], "dtype": arrays[0].astype(np.int32), "no array": None}[bad]
    operands = grad, CASE.input_shape, CASE.weight_shape
    error = backops.ShapeError if bad == "shape" else backops.DTypeError
    with pytest.raises(error, match="grad_output"):
        CASE.backward(backops, *operands, output_mask=mask)
    with pytest.raises(error, match="grad_output"):
        CASE.plan(backops.plan, output_mask=mask)(*operands)
    with pytest.raises((TypeError, ValueError), match="grad_output"):
        CASE.backward(backops.reference, *operands, output_mask=mask)


@pytest.mark.parametrize("index", [0, 1, 2])
def test_out_is_refused_where_nothing_is_asked_for(index):
    mask = (False, False, False)
    out = [None, None, None]
    out[index] = empty_results(CASE, "float32")[index]
    arrays = make_arrays(CASE)
    for call in (
        lambda: CASE.backward(backops, *arrays, output_mask=mask, out=out),
        lambda: CASE.plan(backops.plan, output_mask=mask)(*arrays, out=out),
    ):
        with pytest.raises(backops.ParamError, match=rf"out\[{index}\] is .*expected None"):
            call()
    assert (out[index] == 7).all()


def test_comparison_of_masks_catches_a_gradient_too_many():
    arrays = make_arrays(CASE)
    with pytest.raises(AssertionError, match="grad_weight is"):
        assert_close(CASE.backward(backops, *arrays), CASE, arrays, output_mask=(True, False, True))


# Plans


@pytest.mark.parametrize("case", readings_in_turn([*CASES, *TRANSPOSED_CASES]), ids=reading_id)
def test_plan_gives_the_bits_of_the_function(case):
    for dtype in DTYPES:
        arrays = make_arrays(case, dtype)
        plan = case.plan(backops.plan, dtype=dtype)
        expected = case.call(backops, *arrays)
        assert all(map(same_bits, case.run(plan, *arrays), expected))
        out = empty_results(case, dtype)
        # What is left in a workspace does not matter.
        full_of_nan = np.full(plan.workspace_size, 255, np.uint8)
        results = case.run(plan, *arrays, out=out, workspace=full_of_nan)
        assert all(result is given for result, given in zip(results, out, strict=True))
        assert all(map(same_bits, out, expected))


@pytest.mark.parametrize("operator", ["conv", "conv_transpose"])
@every_name
def test_plan_runs_with_and_without_a_bias(name, operator):
    case = find_conv_case(name).read_as(operator)
    plan = case.plan(backops.plan)
    workspace = np.empty(plan.workspace_size, np.uint8)
    input, weight, bias = make_arrays(case)
    for more in ({}, {"workspace": workspace}):
        assert_close((plan(input, weight, bias, **more),), case, (input, weight, bias))
        assert_close((plan(input, weight, **more),), case, (input, weight))
        assert_close((plan(input, weight, None, **more),), case, (input, weight))
        named = plan(input=input, weight=weight, bias=bias, **more)
        assert_close((named,), case, (input, weight, bias))


@every_mask
@every_name
@both_backward
def test_plan_keeps_its_mask(operator, name, mask):
    case = find_conv_case(name).read_as(operator)
    arrays = make_arrays(case)
    plan = case.plan(backops.plan, output_mask=mask)
    workspace = np.empty(plan.workspace_size, np.uint8)
    out = where(mask, empty_results(case, "float32"))
    assert_close(plan(*arrays), case, arrays, output_mask=mask)
    results = plan(*needed_only(arrays, mask), out=out, workspace=workspace)
    assert all(result is given for result, given in zip(results, out, strict=True))
    assert_close(results, case, arrays, output_mask=mask)


@pytest.mark.parametrize("precision", ["keep", "allow_fp32_down", "fp16", "hf32"])
@every_operator
def test_plan_keeps_its_precision(operator, precision):
    case = CASE.read_as(operator)
    arrays = make_arrays(case)
    plan = case.plan(backops.plan, precision=precision)
    assert_close(case.run(plan, *arrays), case, arrays, precision=precision)


@every_operator
def test_plan_runs_many_times_with_different_values(operator):
    case = CASE.read_as(operator)
    plan = case.plan(backops.plan)
    for seed in range(5):
        arrays = make_arrays(case, seed=seed)
        assert_close(case.run(plan, *arrays), case, arrays)


@every_name
@every_operator
def test_one_plan_serves_every_layout(operator, name):
    for layout in READ_LAYOUTS:
        case = find_conv_case(name).read_as(operator)
        plan = case.plan(backops.plan, dtype="bfloat16")
        workspace = np.empty(plan.workspace_size, np.uint8)
        arrays = [in_layout(a, case, layout) for a in make_arrays(case, "bfloat16", kind="integer")]
        assert_exact(case.run(plan, *arrays, workspace=workspace), case, arrays)
        if layout in LAYOUTS:
            out = tuple(in_layout(o, case, layout) for o in empty_results(case, "bfloat16"))
            case.run(plan, *arrays, out=out, workspace=workspace)
            assert_exact(out, case, arrays)


@every_operator
def test_defaults_of_a_plan_are_those_of_the_function(operator):
    case = ConvCase("", (2, 3, 6, 7), (4, 3, 3, 2)).read_as(operator)
    arrays = make_arrays(case)
    shapes = case.operand_shapes
    plan = getattr(backops.plan, operator)(shapes["input"], shapes["weight"])
    expected = case.run(getattr(backops, operator), *arrays)
    assert all(map(same_bits, case.run(plan, *arrays), expected))


@pytest.mark.parametrize("dtype", ["float16", np.float16, np.dtype("float16"), torch.float16])
def test_dtype_of_a_plan_may_be_a_name_or_a_dtype(dtype):
    arrays = make_arrays(CASE, "float16")
    assert_close(CASE.plan(backops.plan, dtype=dtype)(*arrays), CASE, arrays)


def test_plan_takes_tensors_of_pytorch():
    arrays = make_arrays(CASE, kind="integer")
    plan = CASE.plan(backops.plan)
    out = tuple(torch.zeros(shape) for shape in CASE.result_shapes)
    workspace = torch.empty(plan.workspace_size, dtype=torch.uint8)
    results = plan(*map(torch.from_numpy, arrays), out=out, workspace=workspace)
    assert all(result is given for result, given in zip(results, out, strict=True))
    assert_exact([tensor.numpy() for tensor in out], CASE, arrays)


@every_mask
@every_name
def test_plan_names_its_kernel_and_its_workspace(name, mask):
    for dtype in DTYPES:
        plan = find_conv_case(name).plan(backops.plan, dtype=dtype, output_mask=mask)
        assert type(plan.kernel) is str
        assert plan.kernel.isprintable()
        assert plan.kernel.strip()
        assert type(plan.workspace_size) is int
        assert plan.workspace_size >= 0


@pytest.mark.parametrize("attribute", ["kernel", "workspace_size", "dtype", "something_new"])
def test_plan_cannot_be_changed(attribute):
    plan = CASE.plan(backops.plan)
    with pytest.raises(AttributeError):
        setattr(plan, attribute, 1)


# Workspaces


def plan_with_workspace(operator="conv_backward"):
    """A plan that needs a workspace, with arrays for it."""
    for name, dtype in (("channels_17_to_31", "bfloat16"), ("channels_17_to_31", "float32")):
        case = find_conv_case(name).read_as(operator)
        plan = case.plan(backops.plan, dtype=dtype)
        if plan.workspace_size > 0:
            return plan, make_arrays(case, dtype), empty_results(case, dtype)
    pytest.fail("no plan needs a workspace: this test has nothing to look at")


def test_workspace_that_is_too_small_is_refused():
    plan, arrays, out = plan_with_workspace()
    size = plan.workspace_size
    for bytes_given in (0, size - 1):
        with pytest.raises(backops.ParamError, match=rf"workspace is {bytes_given} .*{size}"):
            plan(*arrays, out=out, workspace=np.empty(bytes_given, np.uint8))
    assert all((array.astype(np.float32) == 7).all() for array in out)


def test_workspace_may_be_larger_misaligned_and_of_any_dtype():
    plan, arrays, _ = plan_with_workspace()
    expected = plan(*arrays)
    memory = np.empty(plan.workspace_size + 1, np.uint8)
    for workspace in (memory, memory[1:], np.empty(plan.workspace_size // 4 + 1, np.float32)):
        assert all(map(same_bits, plan(*arrays, workspace=workspace), expected))


def test_bytes_around_the_workspace_are_untouched():
    plan, arrays, _ = plan_with_workspace()
    for shift in (0, 1, 31):
        memory = np.full(plan.workspace_size + 512, FILL_BYTE, np.uint8)
        start, end = 256 + shift, 256 + shift + plan.workspace_size
        plan(*arrays, workspace=memory[start:end])
        assert (memory[:start] == FILL_BYTE).all()
        assert (memory[end:] == FILL_BYTE).all()


def test_workspace_that_cannot_be_written_is_refused():
    plan, arrays, _ = plan_with_workspace()
    workspace = np.empty(plan.workspace_size, np.uint8)
    workspace.flags.writeable = False
    with pytest.raises(backops.LayoutError, match="workspace"):
        plan(*arrays, workspace=workspace)


def test_contents_of_the_workspace_do_not_matter():
    # 0xFF and 0x7F are NaNs or large numbers in every dtype.
    for name in NAMES:
        case = find_conv_case(name)
        for dtype in DTYPES:
            arrays = make_arrays(case, dtype)
            plan = case.plan(backops.plan, dtype=dtype)
            for byte in (0x7F, 0xFF):
                workspace = np.full(plan.workspace_size, byte, np.uint8)
                assert_close(plan(*arrays, workspace=workspace), case, arrays)


@pytest.mark.parametrize("index", range(4))
@pytest.mark.parametrize("operator", ["conv", "conv_transpose"])
def test_workspace_in_the_memory_of_a_tensor_of_a_forward_plan_is_refused(operator, index):
    plan, arrays, out = plan_with_workspace(operator)
    tensors = [*arrays, *out]
    memory = np.zeros(plan.workspace_size + tensors[index].nbytes, np.uint8)
    shape, dtype = tensors[index].shape, tensors[index].dtype
    # One element of the tensor lies in the workspace.
    start = plan.workspace_size - dtype.itemsize
    tensors[index] = np.ndarray(shape, dtype, memory, start)
    with pytest.raises(backops.LayoutError, match=f"plan.{operator}: workspace is memory"):
        plan(*tensors[:3], out=tensors[3], workspace=memory[: plan.workspace_size])
    assert not memory.any()


@pytest.mark.parametrize("name", ["grad_output", "input", "weight", *GRADIENTS])
def test_workspace_in_the_memory_of_a_tensor_is_refused(name):
    plan, arrays, out = plan_with_workspace()
    tensors = dict(
        zip(["grad_output", "input", "weight", *GRADIENTS], (*arrays, *out), strict=True)
    )
    memory = np.zeros(plan.workspace_size + tensors[name].nbytes, np.uint8)
    shape, dtype = tensors[name].shape, tensors[name].dtype
    # One element of the tensor lies in the workspace.
    start = plan.workspace_size - dtype.itemsize
    tensors[name] = np.ndarray(shape, dtype, memory, start)
    given = [tensors[key] for key in ("grad_output", "input", "weight")]
    out = tuple(tensors[key] for key in GRADIENTS)
    with pytest.raises(backops.LayoutError, match="workspace is memory"):
        plan(*given, out=out, workspace=memory[: plan.workspace_size])
    assert not memory.any()


# Threads


@pytest.fixture
def _restore_settings():
    before = backops.get_num_threads()
    yield
    backops.set_num_threads(before)
    backops.set_deterministic(False)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["channels_32_to_32", "depthwise_2d"])
@every_operator
def test_eight_python_threads_share_one_plan(operator, name, dtype):
    case = find_conv_case(name).read_as(operator)
    plan = case.plan(backops.plan, dtype=dtype)
    arrays = [make_arrays(case, dtype, seed=i) for i in range(8)]
    expected = [case.run(plan, *given) for given in arrays]

    def body(i):
        out = empty_results(case, dtype)
        workspace = np.empty(plan.workspace_size, np.uint8)
        for _ in range(20):
            for array in out:
                array.fill(7)
            case.run(plan, *arrays[i], out=out, workspace=workspace)
            assert all(map(same_bits, out, expected[i]))
            assert all(map(same_bits, case.run(plan, *arrays[i]), expected[i]))

    run_in_threads(8, body)


@pytest.mark.usefixtures("_restore_settings")
@pytest.mark.parametrize(("made", "run"), [(1, 7), (7, 1), (2, 5)])
@every_operator
def test_plan_made_for_some_threads_runs_with_others(operator, made, run):
    case = find_conv_case("channels_32_to_32").read_as(operator)
    for dtype in DTYPES:
        arrays = make_arrays(case, dtype)
        backops.set_num_threads(made)
        plan = case.plan(backops.plan, dtype=dtype)
        workspace = np.empty(plan.workspace_size, np.uint8)
        expected = case.run(plan, *arrays)
        backops.set_num_threads(run)
        assert plan.workspace_size == workspace.nbytes
        assert_close(case.run(plan, *arrays, workspace=workspace), case, arrays)
        backops.set_num_threads(made)
        assert all(map(same_bits, case.run(plan, *arrays, workspace=workspace), expected))


# The cache behind the function


def test_functions_survive_more_problems_than_their_cache_holds():
    for size in range(1, 401):
        ones = np.ones((1, 1, size))
        grad_input, grad_weight, grad_bias = backops.conv_backward(ones, ones, np.ones((1, 1, 1)))
        assert (grad_input == 1).all()
        assert grad_weight.item() == grad_bias.item() == size


@pytest.mark.parametrize(
    "changes",
    [
        {"stride": 2},
        {"padding": 1},
        {"dilation": 2},
        {"groups": 2},
        {"output_mask": (True, False, True)},
        {"output_mask": (False, False, True)},
        {"precision": "hf32"},
        {"precision": "fp16"},
    ],
    ids=str,
)
def test_calls_that_differ_in_one_parameter_do_not_share_a_plan(changes):
    one = ConvCase("", (2, 4, 7, 7), (4, 4, 3, 3))
    shape = (4, 2, 3, 3) if "groups" in changes else one.weight_shape
    fields = {
        key: changes[key] for key in ("stride", "padding", "dilation", "groups") if key in changes
    }
    other = ConvCase("", one.input_shape, shape, **fields)
    more = {key: value for key, value in changes.items() if key not in fields}
    for _ in range(2):
        arrays = make_arrays(one)
        assert_close(one.backward(backops, *arrays), one, arrays)
        arrays = make_arrays(other)
        assert_close(other.backward(backops, *arrays, **more), other, arrays, **more)


def test_operators_and_output_paddings_do_not_share_a_plan():
    # Input, output and weight have one shape for all of them.
    case = ConvCase("", (2, 4, 7, 7), (4, 4, 3, 3), padding=1)
    for _ in range(2):
        for operator in OPERATORS:
            reading = case.read_as(operator)
            arrays = make_arrays(reading)
            assert_close(reading.call(backops, *arrays), reading, arrays)
            if not reading.is_backward:
                assert_close(reading.call(backops, *arrays[:2]), reading, arrays[:2])
    for length in (14, 13, 14):
        other = ConvCase("", (2, 4, length), (4, 4, 3), stride=2, padding=1)
        for operator in ("conv_transpose", "conv_transpose_backward"):
            reading = other.read_as(operator)
            arrays = make_arrays(reading)
            assert_close(reading.call(backops, *arrays), reading, arrays)


def test_calls_that_differ_in_dtype_or_layout_do_not_share_a_plan():
    for _ in range(2):
        for dtype in DTYPES:
            for layout in ("contiguous", "channels_last", "reversed"):
                arrays = make_arrays(CASE, dtype, kind="integer")
                moved = [in_layout(array, CASE, layout) for array in arrays]
                assert_exact(CASE.backward(backops, *moved), CASE, arrays)


# Errors of plans


@pytest.mark.parametrize(
    ("error", "changes"),
    [
        ("ShapeError", {"input_shape": (8, 8)}),
        ("ShapeError", {"input_shape": (1, 4, 0, 8)}),
        ("ShapeError", {"input_shape": (2**40, 4, 2**30, 8)}),
        ("ShapeError", {"input_shape": (1, 5, 8, 8)}),
        ("ShapeError", {"weight_shape": (6, 4)}),
        ("ShapeError", {"weight_shape": (6, 0, 3, 3)}),
        ("ParamError", {"stride": 0}),
        ("ParamError", {"stride": "1"}),
        ("ParamError", {"padding": -1}),
        ("ParamError", {"dilation": (1, 1, 1)}),
        ("ParamError", {"groups": 0}),
        ("ParamError", {"output_mask": (True, True)}),
        ("ParamError", {"precision": "exact"}),
        ("ParamError", {"precision": "hf32", "dtype": "bfloat16"}),
        ("DTypeError", {"dtype": "int32"}),
        ("DTypeError", {"dtype": "half"}),
        ("DTypeError", {"dtype": None}),
    ],
    ids=str,
)
def test_plan_refuses_what_the_function_refuses(error, changes):
    good = {"input_shape": (1, 4, 8, 8), "weight_shape": (6, 4, 3, 3)}
    backops.plan.conv_backward(**good)
    with pytest.raises(backops.Error, match="conv_backward: ") as caught:
        backops.plan.conv_backward(**{**good, **changes})
    assert type(caught.value) is getattr(backops, error), caught.value


@pytest.mark.parametrize("index", [0, 1, 2])
def test_tensor_of_another_dtype_or_shape_than_the_plan(index):
    plan = CASE.plan(backops.plan)
    name = ("grad_output", "input", "weight")[index]
    out = empty_results(CASE, "float32")
    arrays = list(make_arrays(CASE))
    arrays[index] = arrays[index].astype(np.float64)
    with pytest.raises(backops.DTypeError, match=rf"{name} is float64.*float32"):
        plan(*arrays, out=out)
    arrays[index] = make_arrays(CASE)[index][:1]
    with pytest.raises(backops.ShapeError, match=rf"conv_backward: {name} is \(1, "):
        plan(*arrays, out=out)
    assert all((array == 7).all() for array in out)


@pytest.mark.parametrize("index", [0, 1, 2])
def test_out_of_a_plan_of_another_dtype_or_shape_or_overlapping(index):
    plan = CASE.plan(backops.plan)
    arrays = make_arrays(CASE)
    shape = CASE.result_shapes[index]
    bad = {
        "DTypeError": np.full(shape, 7.0),
        "ShapeError": np.full((1, *shape), 7, np.float32),
        "LayoutError": np.lib.stride_tricks.as_strided(
            np.full(1, 7, np.float32), shape, [0] * len(shape)
        ),
    }
    for error, array in bad.items():
        out = list(empty_results(CASE, "float32"))
        out[index] = array
        with pytest.raises(getattr(backops, error), match="out"):
            plan(*arrays, out=tuple(out))
        assert all((array == 7).all() for array in out)


# Allocation

COUNT_RUNS = """
backops.set_num_threads(2)
names = "plain_1d", "blocks_2d", "blocks_pointwise", "plain_3d", "depthwise_2d", "groups_2d"
cases = [conv_cases.find_conv_case(name) for name in (*names, "windows_stem")]
for case in conv_cases.readings(cases):
    for dtype in floats.DTYPES:
        plan = case.plan(backops.plan, dtype=dtype)
        workspace = np.empty(plan.workspace_size, np.uint8)
        out = conv_cases.empty_results(case, dtype)
        for layout in ("contiguous", "channels_last", "every_second"):
            arrays = [
                layouts.in_layout(array, case, layout)
                for array in conv_cases.make_arrays(case, dtype)
            ]
            target = out if case.is_backward else out[0]
            run = lambda: plan(*arrays, out=target, workspace=workspace)
            report[f"{plan.kernel}, {case.name} {case.operator} {layout}"] = count(run)
report["control: without out"] = count(lambda: plan(*arrays, workspace=workspace))
"""


def test_running_a_plan_with_out_and_workspace_allocates_nothing(tmp_path):
    # Python and the DLPack protocol make a few small objects per call.
    report = allocations.count_allocations(COUNT_RUNS, tmp_path, large=512)
    own = {name: counts for name, counts in report.items() if name.startswith("conv_")}
    assert len(own) == 7 * len(OPERATORS) * len(DTYPES) * 3
    assert not {name: counts for name, counts in own.items() if counts["large"]}
    assert not {name: counts for name, counts in own.items() if counts["other_threads"]}


def test_few_windows_far_apart_need_no_row_of_their_own():
    shapes = (1, 3, 10**9), (16, 3, 3)
    mask = (True, False, False)
    plan = backops.plan.conv_backward(*shapes, stride=10**8, output_mask=mask)
    assert "folded" not in plan.kernel


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("length", [10**6, 10**9, 2**40])
@pytest.mark.parametrize("axis", [0, 2])
def test_plans_of_the_longest_axes_are_made_at_once(axis, length, dtype):
    shape = [1, 32, 9]
    shape[axis] = length
    start = time.perf_counter()
    plan = backops.plan.conv_backward(shape, (32, 32, 3), padding=1, dtype=dtype)
    assert time.perf_counter() - start < 1
    assert plan.workspace_size < 100e6


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_few_positions_of_very_many_channels_need_no_more_memory_than_their_tensors(dtype):
    plan = backops.plan.conv_backward((100, 64, 1), (131072, 64, 1), dtype=dtype)
    assert plan.workspace_size < 300e6
