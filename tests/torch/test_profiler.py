"""Profilers keep PyTorch's names of operators, and show which of them were computed here."""

import torch
from torch.nn import functional

import backops.torch
from backops.torch import kernels
from tests.support.pytorch import everything_here

OPERATORS = {
    "backops::conv": "aten::convolution",
    "backops::avg_pool2d": "aten::avg_pool2d",
    "backops::adaptive_avg_pool3d": "aten::_adaptive_avg_pool3d",
    "backops::conv_backward": "aten::convolution_backward",
    "backops::avg_pool2d_backward": "aten::avg_pool2d_backward",
    "backops::adaptive_avg_pool3d_backward": "aten::_adaptive_avg_pool3d_backward",
}


def take_step():
    x = torch.randn(2, 3, 9, 8, requires_grad=True)
    y = functional.avg_pool2d(functional.conv2d(x, torch.randn(4, 3, 3, 3)), 2)
    y.square().sum().backward()
    z = torch.randn(2, 3, 4, 6, 8, requires_grad=True)
    functional.adaptive_avg_pool3d(z, 3).square().sum().backward()


def profiled():
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        take_step()
    return profile.events()


def test_profiler_shows_what_was_computed_here():
    with everything_here(), backops.torch.enabled():
        ranges = [event for event in profiled() if event.name.startswith("backops::")]
    assert {event.name: event.cpu_parent.name for event in ranges} == OPERATORS
    assert len(ranges) == len(OPERATORS)


def test_profiler_shows_nothing_where_pytorch_computes(monkeypatch):
    monkeypatch.setattr(kernels.choice, "pool_is_faster", lambda *_: False)
    monkeypatch.setattr(kernels.choice, "conv_is_faster", lambda *_: False)
    with backops.torch.enabled():
        events = profiled()
    assert {*OPERATORS.values()} <= {event.name for event in events}
    assert not [event.name for event in events if event.name.startswith("backops::")]


def test_without_a_profiler_there_are_no_ranges(monkeypatch):
    ranges = []
    original = kernels.profiler.record_function
    monkeypatch.setattr(
        kernels.profiler, "record_function", lambda name: ranges.append(name) or original(name)
    )
    with everything_here(), backops.torch.enabled():
        take_step()
        assert ranges == []
        profiled()
    assert sorted(ranges) == sorted(OPERATORS)
