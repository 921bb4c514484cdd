"""Threads: their number never changes a bit, calls may overlap, and the GIL is free meanwhile."""

import ctypes
import os
import threading
import time

import numpy as np
import pytest

import backops
from tests.support.floats import same_bits
from tests.support.layouts import in_layout
from tests.support.pool_cases import find_case, load_cases, make_grad, parse_case
from tests.support.pool_definitions import torch_result
from tests.support.processes import run_python
from tests.support.threads import run_in_threads

# Large enough to be worth splitting, by batch, by channel, by rows and along one row.
LARGE_PROBLEMS = [
    "avg2d in=16x32x56x56 k=3 s=2 p=1",
    "avg2d in=16x32x56x56 k=2",
    "avg2d in=3x512x14x14 k=14",
    "avg2d in=7x700x7x7 k=3 s=1 p=1 exclude_pad",
    "avg2d in=1x1x1500x1100 k=5 s=2 p=2",
    "avg2d in=1x3x400x900 k=15 s=1 p=7",
    "avg1d in=1x1x1500000 k=5 s=2",
    "avg1d in=64x128x256 k=4 s=2 p=1",
    "avg3d in=2x16x16x56x56 k=3 s=2 p=1",
    "avg3d in=1x1x64x128x128 k=2",
    "adaptive1d in=1x2x700000 out=33333",
    "adaptive2d in=4x32x64x65 out=7x9",
    "adaptive3d in=2x32x17x29x31 out=5x7x9",
]


@pytest.fixture(autouse=True)
def _restore_settings():
    before = backops.get_num_threads()
    yield
    backops.set_num_threads(before)
    backops.set_deterministic(False)


# The setting


@pytest.mark.parametrize("count", [1, 2, 7, np.int64(3)])
def test_number_of_threads_is_what_was_set(count):
    backops.set_num_threads(count)
    assert backops.get_num_threads() == count


@pytest.mark.parametrize("count", [0, -1, 2.0, "2", None, 2**70], ids=repr)
def test_bad_number_of_threads_is_refused_and_changes_nothing(count):
    backops.set_num_threads(2)
    with pytest.raises(backops.ParamError, match=r"^set_num_threads: n is "):
        backops.set_num_threads(count)
    assert backops.get_num_threads() == 2


@pytest.mark.parametrize("value", [1, 3])
def test_environment_sets_the_number_of_threads(value):
    code = "import backops; print(backops.get_num_threads())"
    done = run_python(code, BACKOPS_NUM_THREADS=value)
    assert int(done.stdout) == value


def test_default_is_the_cpus_this_process_may_use():
    code = "import backops; print(backops.get_num_threads())"
    done = run_python(code, BACKOPS_NUM_THREADS=None)
    assert int(done.stdout) == len(os.sched_getaffinity(0))
    one = f"import os; os.sched_setaffinity(0, {{{min(os.sched_getaffinity(0))}}}); "
    assert int(run_python(one + code, BACKOPS_NUM_THREADS=None).stdout) == 1


# Results


@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("problem", LARGE_PROBLEMS)
def test_any_number_of_threads_gives_the_same_bits(problem, dtype, layout):
    case = parse_case(problem)
    grad = in_layout(make_grad(case, dtype), case, layout)
    results = []
    for count in (1, 2, 7):
        backops.set_num_threads(count)
        results.append(case.backward(backops, grad))
    assert np.count_nonzero(results[0]) > 0
    assert same_bits(results[0], results[1])
    assert same_bits(results[0], results[2])


@pytest.mark.parametrize("name", ["toy", "one_element", "many_channels", "long_row_global"])
def test_more_threads_than_work_is_fine(name):
    case = find_case(name)
    grad = make_grad(case)
    backops.set_num_threads(1)
    expected = case.backward(backops, grad)
    backops.set_num_threads(64)
    assert same_bits(case.backward(backops, grad), expected)


def test_large_results_agree_with_pytorch():
    # The cases for the reference are small; these are the ones that are split.
    backops.set_num_threads(3)
    for problem in LARGE_PROBLEMS:
        case = parse_case(problem)
        grad = make_grad(case, "float64")
        expected = torch_result(case, grad)
        largest = np.abs(expected).max()
        result = case.backward(backops, grad)
        assert np.abs(result - expected).max() <= 1e-12 * largest, problem


@pytest.mark.parametrize("flag", [True, False])
def test_deterministic_setting_gives_the_same_bits(flag):
    case = parse_case(LARGE_PROBLEMS[0])
    grad = make_grad(case)
    expected = case.backward(backops, grad)
    backops.set_deterministic(flag)
    for count in (1, 5):
        backops.set_num_threads(count)
        assert same_bits(case.backward(backops, grad), expected)


# Many Python threads at once


def test_sixteen_python_threads_share_one_plan():
    case = parse_case("avg2d in=4x16x56x56 k=3 s=2 p=1")
    plan = case.plan(backops.plan)
    grads = [make_grad(case, seed=i) for i in range(16)]
    expected = [plan(grad) for grad in grads]

    def body(i):
        out = np.empty(case.input_shape, np.float32)
        workspace = np.empty(plan.workspace_size, np.uint8)
        for _ in range(15):
            out.fill(7)
            plan(grads[i], out=out, workspace=workspace)
            assert same_bits(out, expected[i])
            assert same_bits(plan(grads[i]), expected[i])

    run_in_threads(16, body)


def test_sixteen_python_threads_call_the_functions():
    # More problems than threads, in another order in each: plans are made and evicted meanwhile.
    cases = [case for case in load_cases() if np.prod(case.input_shape) < 50_000]
    grads = [make_grad(case, "bfloat16") for case in cases]
    expected = [case.backward(backops, grad) for case, grad in zip(cases, grads, strict=True)]

    def body(i):
        for j in np.random.default_rng(i).permutation(len(cases)):
            assert same_bits(cases[j].backward(backops, grads[j]), expected[j])

    run_in_threads(16, body)


def test_number_of_threads_may_change_while_others_compute():
    case = parse_case("avg2d in=4x16x56x56 k=3 s=2 p=1")
    grad = make_grad(case)
    expected = case.backward(backops, grad)

    def body(i):
        for j in range(20):
            if i == 0:
                backops.set_num_threads(1 + j % 5)
            else:
                assert same_bits(case.backward(backops, grad), expected)

    run_in_threads(6, body)


# The GIL


def ticks_during(function):
    """How often another Python thread ran in the middle of a call, and how long the call took."""
    times, stop = [], threading.Event()

    def tick():
        while not stop.is_set():
            times.append(time.perf_counter())
            time.sleep(0.0005)

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        time.sleep(0.01)
        start = time.perf_counter()
        function()
        end = time.perf_counter()
    finally:
        stop.set()
        thread.join()
    margin = (end - start) / 5
    return sum(start + margin < t < end - margin for t in times), end - start


def test_another_python_thread_runs_during_a_call():
    # A wide kernel over 100 MB: tens of milliseconds at least, with one thread.
    case = parse_case("avg2d in=16x64x112x112 k=15 s=1 p=7")
    grad = np.ones(case.output_shape, np.float64)
    out = np.empty(case.input_shape, np.float64)
    backops.set_num_threads(1)
    for _ in range(5):
        ticks, seconds = ticks_during(lambda: case.backward(backops, grad, out=out))
        if ticks:
            break
    assert ticks > 0, f"no other thread ran during a call of {seconds:.3f} s"


def test_ticks_show_a_call_that_holds_the_gil():
    usleep = ctypes.PyDLL(None).usleep
    ticks, seconds = ticks_during(lambda: usleep(100_000))
    assert seconds > 0.09
    assert ticks == 0


# Processes


def test_child_of_fork_can_compute():
    code = """
import os, signal, time
import backops
from tests.support.floats import same_bits
from tests.support.pool_cases import make_grad, parse_case

case = parse_case("avg2d in=16x32x56x56 k=3 s=2 p=1")
grad = make_grad(case)
backops.set_num_threads(4)
expected = case.backward(backops, grad)
pid = os.fork()
if pid == 0:
    status = 3
    try:
        status = 0 if same_bits(case.backward(backops, grad), expected) else 1
        backops.set_num_threads(2)
        status += 0 if same_bits(case.backward(backops, grad), expected) else 1
    finally:
        os._exit(status)
for _ in range(300):
    done, status = os.waitpid(pid, os.WNOHANG)
    if done:
        break
    time.sleep(0.1)
else:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise SystemExit("the child hangs")
assert os.waitstatus_to_exitcode(status) == 0, status
assert same_bits(case.backward(backops, grad), expected)
"""
    run_python(code)


def test_interpreter_exits_while_idle_threads_wait():
    code = """
import backops
from tests.support.pool_cases import make_grad, parse_case
backops.set_num_threads(4)
case = parse_case("avg2d in=16x32x56x56 k=3 s=2 p=1")
case.backward(backops, make_grad(case))
print("done")
"""
    assert run_python(code, timeout=60).stdout.strip() == "done"


def test_daemon_threads_inside_an_operator_do_not_disturb_the_exit():
    run_python(
        """
import threading, time
import numpy as np
import backops

def forever():
    grad = np.ones((8, 16, 56, 56), np.float32)
    while True:
        backops.avg_pool2d_backward(grad, (8, 16, 112, 112), 2)

for _ in range(4):
    threading.Thread(target=forever, daemon=True).start()
time.sleep(0.2)
"""
    )


def test_operators_run_in_exit_handlers():
    done = run_python(
        """
import atexit
atexit.register(lambda: print(backops.avg_pool1d_backward(np.ones((1, 1, 2)), (1, 1, 4), 2).sum()))
import numpy as np
import backops
"""
    )
    assert done.stdout.strip() == "2.0"
