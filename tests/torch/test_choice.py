"""Which calls stay with PyTorch because it is faster at them."""

import pytest
import torch
import torch.nn.functional as F

import backops.torch
from backops.torch import choice
from tests.support.pytorch import watched

# A layer that PyTorch keeps, and changes of which each alone makes it one of ours.
KEPT = {
    "gray_image": (
        dict(x=(2, 1, 8, 8), weight=(32, 1, 3, 3)),
        dict(
            colours=dict(x=(2, 3, 8, 8), weight=(32, 3, 3, 3)),
            sequence=dict(x=(2, 1, 8), weight=(32, 1, 3)),
            differentiable=dict(wants_input=True),
            depthwise=dict(x=(2, 32, 8, 8), groups=32),
            double=dict(dtype=torch.float64),
        ),
    ),
    "depthwise_channels_last": (
        dict(x=(2, 24, 8, 8), weight=(24, 1, 3, 3), groups=24, last=True, wants_input=True),
        dict(
            full_vectors=dict(x=(2, 32, 8, 8), weight=(32, 1, 3, 3), groups=32),
            wider_kernel=dict(weight=(24, 1, 5, 5)),
            channels_first=dict(last=False),
            dense=dict(weight=(24, 24, 3, 3), groups=1),
            double=dict(dtype=torch.float64),
        ),
    ),
}
CHANGES = [(name, change) for name, (_, changes) in KEPT.items() for change in changes]


def comes_here(x, weight, groups=1, last=False, wants_input=False, dtype=torch.float32):
    """Whether a backward pass of the layer is computed here."""
    rank = len(weight) - 2
    convolution = (F.conv1d, F.conv2d)[rank - 1]
    tensor = torch.randn(x, dtype=dtype)
    if last:
        tensor = tensor.contiguous(memory_format=torch.channels_last)
    tensor.requires_grad_(wants_input)
    weights = torch.randn(weight, dtype=dtype, requires_grad=True)
    with watched() as calls:
        convolution(tensor, weights, groups=groups).sum().backward()
    return calls.operators == ["conv_backward"]


@pytest.mark.parametrize("name", KEPT)
def test_pytorch_keeps_what_it_is_faster_at(name):
    layer, _ = KEPT[name]
    assert not comes_here(**layer)


@pytest.mark.parametrize(("name", "change"), CHANGES)
def test_every_condition_counts(name, change):
    layer, changes = KEPT[name]
    assert comes_here(**{**layer, **changes[change]})


@pytest.mark.parametrize("rule", choice.PYTORCH_IS_FASTER)
def test_every_rule_keeps_a_layer_of_these(monkeypatch, rule):
    monkeypatch.setattr(choice, "PYTORCH_IS_FASTER", (rule,))
    choice._is_faster.cache_clear()
    kept = [name for name, (layer, _) in KEPT.items() if not comes_here(**layer)]
    choice._is_faster.cache_clear()
    assert len(kept) == 1


def test_calls_go_where_they_are_faster():
    image = torch.randn(2, 1, 16, 16)
    first, second = torch.nn.Conv2d(1, 16, 3), torch.nn.Conv2d(16, 16, 3)
    with watched() as calls:
        second(first(image)).sum().backward()
    assert calls.operators == ["conv_backward"]
    assert first.weight.grad is not None


def test_tiny_pools_stay_with_pytorch():
    with watched() as calls:
        for size, expected in ((4, 0), (32, 1)):
            x = torch.randn(1, 1, size, size, requires_grad=True)
            torch.nn.functional.avg_pool2d(x, 2).sum().backward()
            assert len(calls.operators) == expected
            assert torch.equal(x.grad, torch.full_like(x, 0.25))
    assert not backops.torch.is_enabled()
