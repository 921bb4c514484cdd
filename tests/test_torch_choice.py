"""Which calls stay with PyTorch because it is faster at them."""

import pytest
import torch
from torch_support import watched

import backops.torch
from backops.torch import choice

FASTER_HERE = {
    "basic": dict(x=(8, 64, 28, 28), weight=(64, 64, 3, 3)),
    "deep": dict(x=(8, 256, 7, 7), weight=(256, 256, 3, 3)),
    "many_weights": dict(x=(8, 512, 4, 4), weight=(512, 512, 3, 3)),
    "pointwise": dict(x=(8, 96, 32, 32), weight=(96, 96, 1, 1)),
    "narrowing": dict(x=(8, 2048, 7, 7), weight=(512, 2048, 1, 1)),
    "widening": dict(x=(8, 512, 7, 7), weight=(2048, 512, 1, 1)),
    "depthwise": dict(x=(8, 96, 28, 28), weight=(96, 1, 7, 7), groups=96),
    "depthwise_channels_last": dict(x=(8, 96, 28, 28), weight=(96, 1, 7, 7), groups=96, last=True),
    "small_depthwise_channels_last": dict(
        x=(8, 96, 28, 28), weight=(96, 1, 3, 3), groups=96, last=True
    ),
    "image": dict(x=(8, 3, 64, 64), weight=(64, 3, 7, 7), wants_input=False),
    "differentiable_image": dict(x=(8, 3, 64, 64), weight=(64, 3, 7, 7), wants_input=True),
    "differentiable_volume": dict(x=(2, 1, 8, 8, 8), weight=(16, 1, 3, 3, 3), wants_input=True),
    "double_image": dict(x=(8, 3, 64, 64), weight=(64, 3, 7, 7), dtype=torch.float64),
    "sequence_of_one": dict(x=(8, 1, 4000), weight=(64, 1, 80), wants_input=False),
    "double": dict(x=(8, 64, 28, 28), weight=(64, 64, 3, 3), dtype=torch.float64),
    "bfloat16_pointwise": dict(
        x=(8, 64, 56, 56), weight=(256, 64, 1, 1), last=True, dtype=torch.bfloat16
    ),
    "half": dict(x=(8, 512, 4, 4), weight=(512, 512, 3, 3), dtype=torch.float16),
}
FASTER_THERE = {
    "gray_image": dict(x=(64, 1, 28, 28), weight=(32, 1, 3, 3), wants_input=False),
    "volume": dict(x=(2, 1, 8, 8, 8), weight=(16, 1, 3, 3, 3), wants_input=False),
    "depthwise_channels_last": dict(x=(8, 24, 28, 28), weight=(24, 1, 3, 3), groups=24, last=True),
}


def is_faster(x, weight, groups=1, last=False, wants_input=True, dtype=torch.float32):
    tensor = torch.empty(x, dtype=dtype)
    if last:
        tensor = tensor.contiguous(memory_format=torch.channels_last)
    weights = torch.empty(weight, dtype=dtype)
    return choice.conv_is_faster(tensor, weights, groups, wants_input)


@pytest.mark.parametrize("name", FASTER_HERE)
def test_layers_for_us(name):
    assert is_faster(**FASTER_HERE[name])


@pytest.mark.parametrize("name", FASTER_THERE)
def test_layers_for_pytorch(name):
    assert not is_faster(**FASTER_THERE[name])


def test_every_rule_holds_for_a_layer_of_these():
    rules = dict.fromkeys(choice.PYTORCH_IS_FASTER, 0)
    for case in FASTER_THERE.values():
        choice._is_faster.cache_clear()
        assert not is_faster(**case)
    layers = []
    with pytest.MonkeyPatch.context() as patch:
        holds = choice.Rule.holds
        patch.setattr(choice.Rule, "holds", lambda _rule, layer: layers.append(layer))
        for case in FASTER_THERE.values():
            choice._is_faster.cache_clear()
            is_faster(**case)
    choice._is_faster.cache_clear()
    for rule in rules:
        assert any(holds(rule, layer) for layer in layers), rule


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
