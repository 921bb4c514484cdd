"""Threads and processes: PyTorch's number of threads, its OpenMP workers, forks, spawning."""

import functools
import subprocess
import sys
import threading

import pytest
import torch
from torch.nn import functional

import backops
import backops.torch
from backops import _native, _openmp
from tests.support.processes import run_python, run_python_with_torch
from tests.support.pytorch import assert_same, everything_here, watched


@pytest.fixture(autouse=True)
def _restore_threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def gradients():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4, 16, 24, 24, generator=generator).requires_grad_()
    weight = torch.randn(16, 16, 3, 3, generator=generator).requires_grad_()
    y = functional.avg_pool2d(functional.conv2d(x, weight, padding=1), 3, 2)
    y.square().sum().backward()
    return x.grad, weight.grad


def test_threads_are_as_many_as_pytorch_has():
    with everything_here(), watched() as calls:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            gradients()
    assert calls.threads == [1] * 4 + [2] * 4 + [3] * 4
    assert backops.get_num_threads() not in (0, None)


def test_own_number_of_threads_is_another_matter():
    torch.set_num_threads(1)
    before = backops.get_num_threads()
    with backops.torch.enabled():
        gradients()
    assert backops.get_num_threads() == before


def test_openmp_threads_of_pytorch_are_found():
    assert len(set(_openmp.functions_of_pytorch())) == 2


@pytest.mark.parametrize("count", [1, 2, 5])
def test_results_on_the_threads_of_pytorch_and_on_ours_are_the_same(count):
    x, weight = torch.randn(4, 16, 24, 24), torch.randn(16, 16, 3, 3)
    grad = torch.randn(4, 16, 22, 22)
    arguments = [1, 1], [0, 0], [1, 1], 1, [True] * 3, "keep", None, count
    on_pytorch = _native.conv_backward(grad, x, weight, *arguments)
    on_ours = _native.conv_backward(grad.numpy(), x.numpy(), weight.numpy(), *arguments)
    for a, b in zip(on_pytorch, on_ours, strict=True):
        assert a.numpy().tobytes() == b.tobytes()


def test_pytorch_without_openmp_is_served_by_our_own_threads(monkeypatch):
    monkeypatch.setattr(torch, "__file__", "/nowhere/torch/__init__.py")
    assert _openmp.functions_of_pytorch() is None
    code = """
import torch
torch.__file__ = "/nowhere/torch/__init__.py"
import os, backops
torch.set_num_threads(3)
grad = torch.ones(16, 16, 56, 56)
before = len(os.listdir("/proc/self/task"))
backops.avg_pool2d_backward(grad, (16, 16, 112, 112), 2)
assert len(os.listdir("/proc/self/task")) == before + 2
"""
    run_python_with_torch(code, BACKOPS_NUM_THREADS=None)


# Plain calls on PyTorch's tensors

LARGE = """
import torch, backops

grad, x, weight = torch.ones(8, 16, 30, 30), torch.ones(8, 16, 30, 30), torch.ones(16, 16, 3, 3)
large = 8, 16, 60, 60
conv_plan = backops.plan.conv_backward(x.shape, weight.shape, padding=1)
pool_plan = backops.plan.avg_pool2d_backward(large, 2)
calls = {
    "conv": lambda: backops.conv_backward(grad, x, weight, padding=1),
    "avg": lambda: backops.avg_pool2d_backward(grad, large, 2),
    "adaptive": lambda: backops.adaptive_avg_pool2d_backward(grad, large),
    "conv_plan": lambda: conv_plan(grad, x, weight),
    "pool_plan": lambda: pool_plan(grad),
}
"""

# A team that notes what it is asked for, and does the work on the caller's thread alone.
NOTED = """
import ctypes
from backops import _native, _openmp

noted = []
FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

@ctypes.CFUNCTYPE(None, FUNCTION, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
def run(function, data, threads, flags):
    noted.append(threads)
    function(data)

@ctypes.CFUNCTYPE(ctypes.c_int)
def thread_number():
    return 0

_openmp.functions_of_pytorch = lambda: tuple(
    ctypes.cast(f, ctypes.c_void_p).value for f in (run, thread_number)
)

# The sizes of a call's regions.
def asked_for(call):
    noted.clear()
    call()
    return set(noted)
"""


def test_plain_calls_ask_for_as_many_threads_as_pytorch_has():
    code = """
for count in (3, 2):
    torch.set_num_threads(count)
    for name, call in calls.items():
        alone = name.endswith("plan") and backops.get_num_threads() == 1
        assert asked_for(call) == (set() if alone else {count}), (name, noted)
assert asked_for(lambda: backops.avg_pool2d_backward(grad.numpy(), large, 2)) == set()
backops.set_num_threads(4)
for name in ("conv", "avg", "adaptive"):
    assert 4 in asked_for(calls[name]), (name, noted)
backops.set_num_threads(1)
for name, call in calls.items():
    assert asked_for(call) == set(), (name, noted)
"""
    run_python_with_torch(NOTED + LARGE + code, BACKOPS_NUM_THREADS=None)


def test_environment_goes_before_pytorch():
    code = """
torch.set_num_threads(2)
assert asked_for(calls["avg"]) == {3}
"""
    run_python_with_torch(NOTED + LARGE + code, BACKOPS_NUM_THREADS=3)


def test_regions_have_all_threads_of_pytorch():
    # Where one has fewer, GNU's runtime ends the others, and the next region starts them anew.
    code = """
torch.set_num_threads(5)
for name, call in calls.items():
    assert asked_for(call) == {5}, (name, noted)
"""
    begin = "import backops; backops.set_num_threads(2)\n"
    run_python(begin + NOTED + LARGE + code)


def test_plain_calls_run_on_the_workers_of_pytorch():
    # Workers that wait asleep, as they do there, are woken for nothing but work.
    code = """
import os, pathlib, time
torch.set_num_threads(3)
torch.exp(torch.ones(1_000_000))

def wakings():
    time.sleep(0.1)
    return {
        task.name: next(line for line in (task / "status").read_text().splitlines()
                        if line.startswith("voluntary"))
        for task in pathlib.Path("/proc/self/task").iterdir() if task.name != str(os.getpid())
    }

for name in ("conv", "avg", "adaptive"):
    before = wakings()
    calls[name]()
    after = wakings()
    assert after.keys() == before.keys(), name  # no threads beside
    assert sum(after[task] != before[task] for task in after) == 2, name
"""
    run_python_with_torch(LARGE + code, BACKOPS_NUM_THREADS=None)


def test_pytorch_imported_after_the_first_call():
    code = """
import sys, numpy, backops
grad = numpy.ones((8, 16, 30, 30), numpy.float32)
for _ in range(2):
    backops.avg_pool2d_backward(grad, (8, 16, 60, 60), 2)
assert "torch" not in sys.modules and "backops._openmp" not in sys.modules
"""
    checks = """
torch.set_num_threads(3)
assert asked_for(calls["avg"]) == {3}
"""
    run_python(code + NOTED + LARGE + checks, BACKOPS_NUM_THREADS=None)


def test_plain_calls_in_the_child_of_a_fork():
    # Its parent's workers are not there.
    code = """
import os, signal
torch.set_num_threads(3)
expected = calls["conv"]()[1]
pid = os.fork()
if pid == 0:
    signal.alarm(60)
    os._exit(0 if torch.equal(calls["conv"]()[1], expected) else 1)
assert os.waitpid(pid, 0)[1] == 0
"""
    run_python_with_torch(LARGE + code, BACKOPS_NUM_THREADS=None)


def test_plain_calls_in_many_python_threads():
    x, weight, grad = (
        torch.randn(4, 16, 24, 24),
        torch.randn(16, 16, 3, 3),
        torch.randn(4, 16, 22, 22),
    )
    expected = backops.conv_backward(grad, x, weight)
    failures = []

    def body(count):
        try:
            torch.set_num_threads(count)
            for _ in range(10):
                for a, e in zip(backops.conv_backward(grad, x, weight), expected, strict=True):
                    assert_same(a, e, terms=5000)
        except BaseException as error:
            failures.append(error)

    callers = [threading.Thread(target=body, args=(1 + i % 3,)) for i in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not failures, failures[0]


# Passes of backward in PyTorch


@functools.cache
def own_gradients():
    return gradients()


def assert_right():
    for a, e in zip(gradients(), own_gradients(), strict=True):
        assert_same(a, e, terms=5000)


def test_many_python_threads_with_teams_of_their_own():
    own_gradients()
    failures = []

    def body(count):
        try:
            torch.set_num_threads(count)
            for _ in range(10):
                assert_right()
        except BaseException as error:
            failures.append(error)

    with everything_here(), backops.torch.enabled():
        callers = [threading.Thread(target=body, args=(1 + i % 3,)) for i in range(6)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
    assert not failures, failures[0]


COMMON = """
import torch, backops.torch

generator = torch.Generator().manual_seed(0)
grad = torch.randn(4, 16, 24, 24, generator=generator)
x = torch.randn(4, 16, 48, 48, generator=generator)
weight = torch.randn(16, 16, 3, 3, generator=generator)

def compute():
    aten = torch.ops.aten
    pooled = aten.avg_pool2d_backward(grad, x, [2, 2], [2, 2], [0, 0], False, True, None)
    lists = [2, 2], [1, 1], [1, 1], False, [0, 0], 1, [True] * 3
    results = pooled, *aten.convolution_backward(grad, x, weight, [16], *lists)
    return [result.numpy().tobytes() for result in results]
"""


def test_child_of_fork():
    # The parent's OpenMP workers are not there in the child: PyTorch's own kernels would wait for
    # them, unless the child has set one thread.
    code = """
import os, signal
torch.set_num_threads(3)
backops.torch.enable()
expected = compute()
for _ in range(2):
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        os._exit(0 if compute() == expected else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert compute() == expected
"""
    run_python_with_torch(COMMON + code)


def test_data_loader_workers():
    code = """
from torch.utils.data import DataLoader, Dataset

class Gradients(Dataset):
    def __len__(self):
        return 6
    def __getitem__(self, index):
        assert torch.get_num_threads() == 1
        x = torch.full((1, 8, 8), float(index)).requires_grad_()
        torch.nn.functional.avg_pool2d(x, 2).square().sum().backward()
        return x.grad

backops.torch.enable()
x = torch.randn(2, 3, 8, 8, requires_grad=True)
torch.nn.functional.conv2d(x, torch.randn(3, 3, 3, 3)).sum().backward()
for index, batch in enumerate(DataLoader(Gradients(), num_workers=2)):
    assert torch.equal(batch[0], torch.full((1, 8, 8), index / 2.0)), batch
print("done")
"""
    assert run_python_with_torch(COMMON + code).strip() == "done"


def test_spawned_processes(tmp_path):
    script = tmp_path / "spawned.py"
    script.write_text(
        COMMON
        + """
import torch.multiprocessing as multiprocessing

def work(rank, path):
    torch.set_num_threads(2)
    with backops.torch.enabled(), open(path, "wb") as file:
        file.writelines(compute())

if __name__ == "__main__":
    torch.set_num_threads(2)
    backops.torch.enable()
    expected = compute()
    path = __file__ + ".result"
    multiprocessing.spawn(work, args=(path,), nprocs=1)
    with open(path, "rb") as file:
        assert file.read() == b"".join(expected)
    print("done")
"""
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.strip() == "done", done.stderr
