"""Plans: decided once, immutable, and running one with `out` and `workspace` allocates nothing."""

import numpy as np
import pytest
import torch

import backops
from tests.support import allocations
from tests.support.floats import DTYPES, same_bits
from tests.support.layouts import FILL_BYTE, LAYOUTS, READ_LAYOUTS, in_layout, place
from tests.support.pool_cases import (
    both_ways,
    find_case,
    load_cases,
    make_grad,
    make_source,
    parse_case,
)
from tests.support.pool_compare import assert_close
from tests.support.processes import run_python

CASES = both_ways(load_cases())
CASE = find_case("overlap_2d")

# Where a workspace that grows with the tensor would show.
LARGE_PROBLEMS = [
    "avg2d in=128x64x112x112 k=3 s=2 p=1",
    "avg2d in=128x64x112x112 k=2",
    "avg2d in=32x2048x7x7 k=7",
    "avg2d in=8x64x56x56 k=31 s=1 p=15",
    "avg2d in=1x1x30000x30000 k=3 s=2 p=1",
    "avg2d in=1x1x2x1000000 k=2 s=1 p=1",
    "avg2d in=1x1x1000000x2 k=2 s=1 p=1",
    "avg2d in=1x100000x9x9 k=3 s=1 p=1",
    "avg1d in=1x1x10000000 k=5 s=2",
    "avg1d in=1x1x10000000 k=1000001 s=1 p=500000",
    "avg3d in=4x32x64x256x256 k=3 s=2 p=1",
    "avg3d in=1x1x1000x1000x1000 k=15 s=1 p=7",
    "adaptive1d in=1x1x10000000 out=777777",
    "adaptive2d in=1x3x10000x10000 out=777x888",
    "adaptive3d in=8x64x17x290x310 out=5x70x90",
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_plan_gives_the_bits_of_the_function(case):
    for dtype in DTYPES:
        source = make_source(case, dtype)
        plan = case.plan(backops.plan, dtype=dtype)
        expected = case.run(backops, source)
        assert same_bits(plan(source), expected)
        out = np.empty(case.target_shape, DTYPES[dtype])
        workspace = np.empty(plan.workspace_size, np.uint8)
        assert plan(source, out=out, workspace=workspace) is out
        assert same_bits(out, expected)


def test_plan_runs_many_times_with_different_gradients():
    plan = CASE.plan(backops.plan)
    for seed in range(5):
        grad = make_grad(CASE, seed=seed)
        assert_close(plan(grad), CASE, grad)


@pytest.mark.parametrize("layout", READ_LAYOUTS)
def test_one_plan_serves_every_layout(layout):
    plan = CASE.plan(backops.plan)
    grad = in_layout(make_grad(CASE), CASE, layout)
    expected = CASE.backward(backops, np.array(grad, order="C"))
    assert same_bits(plan(grad), expected)
    if layout in LAYOUTS:
        memory, out = place(CASE.input_shape, 2, "float32", layout)
        wanted, copy = place(CASE.input_shape, 2, "float32", layout)
        copy[...] = expected
        plan(make_grad(CASE), out=out, workspace=np.empty(plan.workspace_size, np.uint8))
        assert np.array_equal(memory, wanted)


def test_plan_takes_tensors_of_pytorch():
    plan = CASE.plan(backops.plan, dtype="bfloat16")
    grad = torch.ones(CASE.output_shape, dtype=torch.bfloat16)
    out = torch.zeros(CASE.input_shape, dtype=torch.bfloat16)
    workspace = torch.empty(plan.workspace_size, dtype=torch.uint8)
    assert plan(grad, out=out, workspace=workspace) is out
    assert torch.equal(out, CASE.backward(backops, grad))


@pytest.mark.parametrize("output_size", [3, [3], (3, 3)])
def test_adaptive_output_size_may_be_an_int_or_a_sequence(output_size):
    plan = backops.plan.adaptive_avg_pool2d_backward((2, 3, 7, 8), output_size)
    grad = np.ones((2, 3, 3, 3), np.float32)
    expected = backops.adaptive_avg_pool2d_backward(grad, (2, 3, 7, 8))
    assert same_bits(plan(grad), expected)


def test_plan_keeps_its_precision():
    case = find_case("overlap_1d")
    grad = make_grad(case)
    for precision in ("keep", "hf32", "fp16", "allow_fp32_down"):
        plan = case.plan(backops.plan, precision=precision)
        expected = case.backward(backops, grad, precision=precision)
        assert same_bits(plan(grad), expected)


def test_defaults_of_a_plan_are_those_of_the_function():
    grad = make_grad(parse_case("avg2d in=2x3x9x9 k=3"))
    plan = backops.plan.avg_pool2d_backward((2, 3, 9, 9), 3)
    assert same_bits(plan(grad), backops.avg_pool2d_backward(grad, (2, 3, 9, 9), 3))


# What a plan says about itself


@pytest.mark.parametrize("name", ["overlap_1d", "overlap_2d", "overlap_3d", "adaptive_uneven_2d"])
def test_plan_names_its_kernel_and_its_workspace(name):
    plan = find_case(name).plan(backops.plan)
    assert type(plan.kernel) is str
    assert plan.kernel
    assert type(plan.workspace_size) is int
    assert plan.workspace_size >= 0


@pytest.mark.parametrize("attribute", ["kernel", "workspace_size", "dtype", "something_new"])
def test_plan_cannot_be_changed(attribute):
    plan = CASE.plan(backops.plan)
    with pytest.raises(AttributeError):
        setattr(plan, attribute, 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("problem", LARGE_PROBLEMS)
def test_workspace_is_at_most_one_megabyte_per_thread(problem, dtype):
    for case in both_ways([parse_case(problem)]):
        plan = case.plan(backops.plan, dtype=dtype)
        assert plan.workspace_size <= 2**20 * backops.get_num_threads()


# Workspaces


def plan_with_workspace():
    """A plan that needs a workspace, with a gradient for it."""
    for problem in LARGE_PROBLEMS[:4]:
        case = parse_case(problem.replace("in=128x", "in=2x").replace("in=32x", "in=1x"))
        for dtype in ("bfloat16", "float32"):
            plan = case.plan(backops.plan, dtype=dtype)
            if plan.workspace_size > 0:
                return plan, make_grad(case, dtype)
    pytest.fail("no plan needs a workspace: this test has nothing to look at")


def test_workspace_that_is_too_small_is_refused():
    plan, grad = plan_with_workspace()
    expected = plan(grad)
    out = np.full_like(expected, 7)
    size = plan.workspace_size
    with pytest.raises(backops.ParamError, match=rf"workspace is {size - 1} .*{size}"):
        plan(grad, out=out, workspace=np.empty(size - 1, np.uint8))
    assert (out == 7).all()


def test_workspace_may_be_larger_misaligned_and_of_any_dtype():
    plan, grad = plan_with_workspace()
    expected = plan(grad)
    memory = np.empty(plan.workspace_size + 1, np.uint8)
    for workspace in (memory, memory[1:], np.empty(plan.workspace_size // 4 + 1, np.float32)):
        assert same_bits(plan(grad, workspace=workspace), expected)


def test_bytes_around_the_workspace_are_untouched():
    plan, grad = plan_with_workspace()
    memory = np.full(plan.workspace_size + 512, FILL_BYTE, np.uint8)
    plan(grad, workspace=memory[256:-256])
    assert (memory[:256] == FILL_BYTE).all()
    assert (memory[-256:] == FILL_BYTE).all()


def test_workspace_that_cannot_be_written_is_refused():
    plan, grad = plan_with_workspace()
    workspace = np.empty(plan.workspace_size, np.uint8)
    workspace.flags.writeable = False
    with pytest.raises(backops.LayoutError, match="workspace"):
        plan(grad, workspace=workspace)


def test_contents_of_the_workspace_do_not_matter():
    plan, grad = plan_with_workspace()
    expected = plan(grad)
    for byte in (0x00, 0x7F, 0xFF):
        workspace = np.full(plan.workspace_size, byte, np.uint8)
        assert same_bits(plan(grad, workspace=workspace), expected)


def test_plan_made_for_few_threads_runs_with_many():
    before = backops.get_num_threads()
    case = parse_case("avg2d in=4x32x56x56 k=3 s=2 p=1")
    grad = make_grad(case)
    try:
        backops.set_num_threads(1)
        plan = case.plan(backops.plan)
        workspace = np.empty(plan.workspace_size, np.uint8)
        expected = plan(grad)
        backops.set_num_threads(7)
        assert same_bits(plan(grad, workspace=workspace), expected)
    finally:
        backops.set_num_threads(before)


# Errors


@pytest.mark.parametrize(
    ("error", "arguments", "keywords"),
    [
        ("ShapeError", ((8, 8), 2), {}),
        ("ShapeError", ((1, 1, 0, 8), 2), {}),
        ("ShapeError", ((2**40, 2**40, 8, 8), 2), {}),
        ("ParamError", ((1, 1, 8, 8), 0), {}),
        ("ParamError", ((1, 1, 8, 8), "2"), {}),
        ("ParamError", ((1, 1, 8, 8), (2, 2, 2)), {}),
        ("ParamError", ((1, 1, 8, 8), 2, 0), {}),
        ("ParamError", ((1, 1, 8, 8), 2, 2, 2), {}),
        ("ParamError", ((1, 1, 8, 8), 2), {"precision": "exact"}),
        ("ParamError", ((1, 1, 8, 8), 2), {"precision": "hf32", "dtype": "bfloat16"}),
        ("DTypeError", ((1, 1, 8, 8), 2), {"dtype": "int32"}),
        ("DTypeError", ((1, 1, 8, 8), 2), {"dtype": "half"}),
        ("DTypeError", ((1, 1, 8, 8), 2), {"dtype": None}),
    ],
)
def test_plan_refuses_what_the_function_refuses(error, arguments, keywords):
    with pytest.raises(backops.Error, match="avg_pool2d_backward: ") as caught:
        backops.plan.avg_pool2d_backward(*arguments, **keywords)
    assert type(caught.value) is getattr(backops, error), caught.value


@pytest.mark.parametrize("output_size", [0, -1, "3", (3, 3, 3), (), 2.0, None], ids=repr)
def test_adaptive_plan_refuses_a_bad_output_size(output_size):
    with pytest.raises(backops.ParamError, match="adaptive_avg_pool2d_backward: output_size"):
        backops.plan.adaptive_avg_pool2d_backward((1, 1, 8, 8), output_size)


def test_gradient_of_another_dtype_than_the_plan():
    plan = CASE.plan(backops.plan, dtype="float32")
    with pytest.raises(backops.DTypeError, match=r"grad_output is float64.*float32"):
        plan(make_grad(CASE, "float64"))


def test_gradient_of_another_shape_than_the_plan():
    plan = CASE.plan(backops.plan)
    with pytest.raises(backops.ShapeError, match=r"avg_pool2d_backward: grad_output is"):
        plan(make_grad(CASE)[:1])


def test_adaptive_gradient_of_another_shape_than_the_plan():
    plan = find_case("adaptive_uneven_2d").plan(backops.plan)
    with pytest.raises(backops.ShapeError, match=r"adaptive_avg_pool2d_backward: grad_output is"):
        plan(np.ones((2, 3, 4, 6), np.float32))


def test_out_of_another_dtype_or_shape_or_overlapping():
    plan = CASE.plan(backops.plan)
    grad = make_grad(CASE)
    with pytest.raises(backops.DTypeError, match="out"):
        plan(grad, out=np.empty(CASE.input_shape))
    with pytest.raises(backops.ShapeError, match="out"):
        plan(grad, out=np.empty((1, *CASE.input_shape[1:]), np.float32))
    with pytest.raises(backops.LayoutError, match="out"):
        plan(grad, out=np.broadcast_to(np.float32(0), CASE.input_shape))
    square = backops.plan.avg_pool2d_backward(grad.shape, 1)
    with pytest.raises(backops.LayoutError, match="out"):
        square(grad, out=grad)


def test_functions_survive_more_problems_than_their_cache_holds():
    grad = np.ones((1, 1, 2000), np.float32)
    for size in range(1, 2001):
        result = backops.avg_pool1d_backward(grad[..., :size], (1, 1, size), 1)
        assert result[0, 0, -1] == 1


# Allocation

COUNT_RUNS = """
backops.set_num_threads(2)
for problem in (
    "avg2d in=4x32x56x56 k=3 s=2 p=1",
    "avg2d in=2x64x28x28 k=2",
    "avg2d in=2x512x7x7 k=7",
    "avg1d in=2x2x60000 k=9 s=1 p=4",
    "avg3d in=2x8x16x28x28 k=3 s=2 p=1",
    "adaptive3d in=2x8x17x29x31 out=5x7x9",
    "forward avg2d in=4x32x56x56 k=3 s=2 p=1 exclude_pad",
    "forward avg2d in=2x512x7x7 k=7",
    "forward adaptive3d in=2x8x17x29x31 out=5x7x9",
):
    case = pool_cases.parse_case(problem)
    for dtype in floats.DTYPES:
        plan = case.plan(backops.plan, dtype=dtype)
        workspace = np.empty(plan.workspace_size, np.uint8)
        for layout in ("contiguous", "channels_last", "every_second", "reversed"):
            source = layouts.in_layout(pool_cases.make_source(case, dtype), case, layout)
            out = layouts.place(case.target_shape, case.rank, dtype, layout)[1]
            run = lambda: plan(source, out=out, workspace=workspace)
            report[f"{problem} {dtype} {layout}"] = count(run)
report["control: without out"] = count(lambda: plan(source, workspace=workspace))
"""


def test_running_a_plan_with_out_and_workspace_allocates_nothing(tmp_path):
    # Python and the DLPack protocol make a few small objects per call; they are no memory of the
    # operator's. Threads other than the caller's run no Python, so they may allocate nothing.
    report = allocations.count_allocations(COUNT_RUNS, tmp_path, large=512)
    assert not {name: counts for name, counts in report.items() if counts["large"]}
    assert not {name: counts for name, counts in report.items() if counts["other_threads"]}


@pytest.mark.parametrize("name", ["grad_output", "out"])
def test_workspace_in_the_memory_of_a_tensor_is_refused(name):
    plan = backops.plan.avg_pool2d_backward((1, 4, 64, 64), 2)
    memory = np.zeros(plan.workspace_size, np.uint8)
    tensors = {
        "grad_output": np.ones((1, 4, 32, 32), np.float32),
        "out": np.ones((1, 4, 64, 64), np.float32),
    }
    shape = tensors[name].shape
    tensors[name] = memory[: tensors[name].nbytes].view(np.float32).reshape(shape)
    with pytest.raises(backops.LayoutError, match=f"workspace is memory .* that {name} does"):
        plan(**tensors, workspace=memory)
    assert not memory.any()


def test_forward_plan_names_its_argument_in_calls_and_errors():
    case = find_case("forward_overlap_2d")
    plan = case.plan(backops.plan)
    x = make_source(case)
    assert same_bits(plan(input=x), case.run(backops, x))
    with pytest.raises(backops.DTypeError, match=r"^plan.avg_pool2d: input is float64.*float32"):
        plan(make_source(case, "float64"))
    with pytest.raises(backops.ShapeError, match=r"^plan.avg_pool2d: input is .* as planned"):
        plan(x[:1])
    with pytest.raises(backops.ShapeError, match=r"^plan.avg_pool2d: out is .* pools to"):
        plan(x, out=np.empty(x.shape, np.float32))


# Axes longer than any memory


def test_plans_of_absurdly_long_axes_hold_little():
    done = run_python(
        """
import resource, time
import backops
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
for length in (2**31, 2**45, 2**59):
    for stride in (2, 3, 10007, 2**20 + 1):
        start = time.perf_counter()
        backops.plan.avg_pool1d_backward((1, 1, length), 3, stride)
        assert time.perf_counter() - start < 20, (length, stride)
print("done")
"""
    )
    assert done.stdout == "done\n"


def test_long_axis_whose_tiles_share_no_table():
    length, kernel, stride = 2**24 + 77, 3, 10007
    plan = backops.plan.avg_pool1d_backward((1, 1, length), kernel, stride)
    assert plan.kernel.endswith("plain")
    grad = np.arange(1, (length - kernel) // stride + 2, dtype=np.float32)[None, None] * 3
    result = plan(grad)[0, 0]
    expected = np.zeros(length, np.float32)
    for offset in range(kernel):
        expected[offset::stride][: grad.size] = grad[0, 0] / 3
    assert (result == expected).all()


def test_why_tells_how_pooling_runs():
    assert backops.plan.avg_pool2d_backward((2, 3, 8, 8), 2).why.startswith("tiles: chosen\n")
    long_windows = backops.plan.avg_pool1d_backward((1, 1, 2**25), 9000)
    assert long_windows.kernel.endswith(" plain")
    assert long_windows.why.endswith("plain: chosen")
    assert backops.plan.avg_pool2d_backward((0, 3, 8, 8), 2).why == "nothing is summed"
