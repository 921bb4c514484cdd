"""enable() and disable(): what they change in PyTorch, and that nothing of it stays."""

import threading
import warnings

import pytest
import torch

import backops.torch
from tests.support.processes import run_python
from tests.support.pytorch import watched


def dispatch_tables():
    names = [f"aten::{name}" for name in backops.torch.OPERATORS]
    return [(torch._C._dispatch_dump(name), torch._C._dispatch_dump_table(name)) for name in names]


def gradient_of_pooling():
    x = torch.linspace(-1, 1, 3 * 7 * 7).reshape(1, 3, 7, 7).requires_grad_()
    weight = torch.linspace(-1, 1, 3 * 3 * 9).reshape(3, 3, 3, 3).requires_grad_()
    y = torch.nn.functional.conv2d(x, weight, padding=1)
    torch.nn.functional.avg_pool2d(y, 3, 2).square().sum().backward()
    return x.grad, weight.grad


@pytest.fixture(autouse=True)
def _starts_disabled():
    assert not backops.torch.is_enabled()
    yield
    backops.torch.disable()


def test_disable_restores_pytorch():
    tables, bits = dispatch_tables(), gradient_of_pooling()
    for _ in range(3):
        backops.torch.enable()
        enabled = dispatch_tables()
        assert all("CPU: registered at" in dump for dump, _ in enabled)
        assert all(a != b for a, b in zip(tables, enabled, strict=True))
        gradient_of_pooling()
        backops.torch.disable()
        assert dispatch_tables() == tables
    after = gradient_of_pooling()
    assert all(torch.equal(a, b) for a, b in zip(bits, after, strict=True))


def test_enabling_twice_is_enabling_once():
    tables = dispatch_tables()
    backops.torch.enable()
    backops.torch.enable()
    assert backops.torch.is_enabled()
    backops.torch.disable()
    assert not backops.torch.is_enabled()
    assert dispatch_tables() == tables
    backops.torch.disable()


def test_context_restores_what_was_before():
    with backops.torch.enabled():
        with backops.torch.enabled():
            assert backops.torch.is_enabled()
        assert backops.torch.is_enabled()
    assert not backops.torch.is_enabled()
    backops.torch.enable()
    with backops.torch.enabled():
        pass
    assert backops.torch.is_enabled()


def test_context_ends_with_an_error_inside():
    with pytest.raises(ZeroDivisionError), backops.torch.enabled():
        raise ZeroDivisionError
    assert not backops.torch.is_enabled()


def test_many_threads_enable_and_disable():
    tables = dispatch_tables()

    def body():
        for _ in range(20):
            backops.torch.enable()
            backops.torch.disable()

    # None of them computes: PyTorch's dispatcher allows no call while a kernel is taken away.
    threads = [threading.Thread(target=body) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert dispatch_tables() == tables


def test_importing_changes_nothing_and_enabling_warns_of_nothing():
    code = """
import warnings
warnings.simplefilter("error")
import torch
before = torch._C._dispatch_dump("aten::convolution_backward")
import backops.torch
assert torch._C._dispatch_dump("aten::convolution_backward") == before
filters = list(warnings.filters)
backops.torch.enable()
assert torch._C._dispatch_dump("aten::convolution_backward") != before
assert warnings.filters == filters
"""
    run_python(code)


def test_other_warnings_come_through():
    backops.torch.enable()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.warn("another", UserWarning, stacklevel=1)
    assert [str(warning.message) for warning in caught] == ["another"]


def test_one_dimensional_operators_come_here():
    x = torch.randn(2, 8, 400, requires_grad=True)
    with watched() as calls:
        torch.nn.functional.avg_pool1d(x, 2).sum().backward()
        torch.nn.functional.adaptive_avg_pool1d(x, 7).sum().backward()
        torch.nn.functional.conv1d(x, torch.randn(8, 8, 3), padding=1).sum().backward()
    assert calls.operators == [
        "avg_pool_backward",
        "adaptive_avg_pool_backward",
        "conv_backward",
    ]


def test_process_ends_while_enabled():
    code = """
import torch, backops.torch
backops.torch.enable()
x = torch.randn(2, 3, 8, 8, requires_grad=True)
torch.nn.functional.avg_pool2d(x, 2).sum().backward()
print(x.grad.sum().item())
"""
    assert float(run_python(code).stdout) == pytest.approx(2 * 3 * 16)
