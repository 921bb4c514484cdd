"""Threads and processes: PyTorch's number of threads, its OpenMP workers, forks, spawning."""

import functools
import subprocess
import sys
import threading

import pytest
import support
import torch
from torch.nn import functional
from torch_support import assert_same, everything_here, watched

import backops
import backops.torch
from backops import _native
from backops.torch import threads


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
    assert calls.threads == [1, 1, 2, 2, 3, 3]
    assert backops.get_num_threads() not in (0, None)


def test_own_number_of_threads_is_another_matter():
    torch.set_num_threads(1)
    before = backops.get_num_threads()
    with backops.torch.enabled():
        gradients()
    assert backops.get_num_threads() == before


def test_openmp_threads_of_pytorch_are_found():
    assert isinstance(threads.find_openmp(), _native.Team)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_results_on_the_threads_of_pytorch_and_on_ours_are_the_same(count, monkeypatch):
    torch.set_num_threads(count)
    with everything_here(), backops.torch.enabled():
        on_pytorch = gradients()
        monkeypatch.setattr(threads, "team", None)
        on_ours = gradients()
    assert all(torch.equal(a, b) for a, b in zip(on_pytorch, on_ours, strict=True))


def test_pytorch_without_openmp_is_served_by_our_own_threads(monkeypatch):
    monkeypatch.setattr(threads.torch, "__file__", "/nowhere/torch/__init__.py")
    assert threads.find_openmp() is None


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
    support.run_python(COMMON + code)


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
    assert support.run_python(COMMON + code, timeout=120).stdout.strip() == "done"


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
