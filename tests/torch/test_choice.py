"""Which calls come here without benchmark=True, and which stay with PyTorch."""

import dataclasses
from itertools import product

import pytest
import torch
import torch.nn.functional as F

import backops.torch
from backops import _native
from backops._capabilities import BEST_FIRST
from backops.torch import choice, rules
from backops.torch.rules import Layer, Rule
from tests.support.pytorch import watched

FLOAT32 = (torch.float32,)
# A layer for which every condition of a rule can hold.
LAYER = Layer(
    torch.float32,
    rank=2,
    inputs=1,
    outputs=1,
    groups=24,
    kernel_elements=9,
    strided=True,
    dilated=True,
    channels_last=True,
    wants_input=False,
)


@pytest.fixture
def table(monkeypatch):
    """Puts rules in the place of what was measured, for the capability of this CPU."""

    def put(*new, capability=None, operator="conv_backward"):
        tables = "PYTORCH_IS_FASTER", "BACKOPS_IS_FASTER"
        for name in tables if operator.endswith("backward") else tables[::-1]:
            monkeypatch.setattr(rules, name, {(operator, capability or rules.capability()): new})
            new = ()
        choice._is_faster.cache_clear()

    yield put
    choice._is_faster.cache_clear()


def comes_here(x=(2, 8, 8, 8), weight=(16, 8, 3, 3), dtype=torch.float32, **arguments):
    """Whether a backward pass of the layer is computed here."""
    tensor = torch.randn(x, dtype=dtype)
    weights = torch.randn(weight, dtype=dtype, requires_grad=True)
    with watched() as calls:
        F.conv2d(tensor, weights, **arguments).sum().backward()
    assert weights.grad is not None
    return calls.operators == ["conv_backward"]


def test_what_a_rule_names_stays_with_pytorch(table):
    table(Rule("", FLOAT32, inputs=(1, 4)))
    assert not comes_here(x=(2, 4, 8, 8), weight=(16, 4, 3, 3))
    assert comes_here(x=(2, 5, 8, 8), weight=(16, 5, 3, 3))
    assert comes_here(x=(2, 4, 8, 8), weight=(16, 4, 3, 3), dtype=torch.float64)


def test_what_no_rule_names_comes_here(table):
    table()
    assert comes_here()


def test_rules_are_for_the_capability_they_were_measured_on(table):
    table(Rule("", FLOAT32), capability="a CPU that is not this one")
    assert comes_here()
    table(Rule("", FLOAT32))
    assert not comes_here()


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("avx2", "avx2"),
        ("avx2 avx512 wide_512", "avx512"),
        ("avx2 avx512 avx512_bf16", "avx512_bf16"),
        ("avx2 avx512 wide_512 avx512_bf16", "avx512_bf16 wide_512"),
        ("avx2 avx512 avx512_bf16 amx wide_512", "amx"),
        ("neon", "neon"),
        ("", "generic"),
    ],
)
def test_the_best_capability_of_the_cpu_counts(monkeypatch, names, expected):
    monkeypatch.setattr(_native, "capabilities", lambda: names)
    rules.capability.cache_clear()
    found = rules.capability()
    rules.capability.cache_clear()
    assert found == expected


@pytest.mark.parametrize(
    ("conditions", "change"),
    [
        ({}, dict(dtype=torch.bfloat16)),
        (dict(rank=(2, 3)), dict(rank=1)),
        (dict(inputs=(1, 4)), dict(inputs=5)),
        (dict(outputs=(1, 4)), dict(outputs=5)),
        (dict(kernel_elements=(4, 9)), dict(kernel_elements=3)),
        (dict(kernel_elements=(4, 9)), dict(kernel_elements=10)),
        (dict(groups=(2, 24)), dict(groups=1)),
        (dict(strided=True), dict(strided=False)),
        (dict(dilated=True), dict(dilated=False)),
        (dict(depthwise=True), dict(inputs=2)),
        (dict(depthwise=True), dict(groups=1)),
        (dict(whole_vectors=False), dict(groups=32)),
        (dict(channels_last=True), dict(channels_last=False)),
        (dict(wants_input=False), dict(wants_input=True)),
        (dict(whole_vectors=False), dict(groups=1, inputs=16, outputs=32)),
    ],
)
def test_every_condition_of_a_rule_counts(conditions, change):
    rule = Rule("", FLOAT32, **conditions)
    assert rule.holds(LAYER)
    assert not rule.holds(Layer(**{**vars(LAYER), **change}))


def test_a_rule_reads_well():
    rule = Rule("0.5 to 0.9", (torch.float32, torch.bfloat16), rank=(2, 3), channels_last=False)
    assert str(rule) == (
        "torch.float32 or torch.bfloat16, rank=(2, 3), channels_last=False, measured 0.5 to 0.9"
    )


def test_what_only_plain_loops_take_stays_with_pytorch(table):
    table()
    # A stride of more positions than any engine takes; a few products are done before PyTorch
    # has begun.
    assert comes_here(x=(1, 1, 2, 2), weight=(2, 1, 2, 2), stride=5000)
    assert comes_here(x=(2, 4, 10, 10), weight=(64, 4, 8, 8), stride=5)
    assert not comes_here(x=(2, 4, 10, 10), weight=(64, 4, 8, 8), stride=5000)


# Forward, and transposed


def side_of(call, *tensors, **arguments):
    """The operators that were computed here, forward and backward."""
    leaves = [tensor.detach().requires_grad_() for tensor in tensors]
    with watched() as calls:
        call(*leaves, **arguments).sum().backward()
    return calls.forward + calls.operators


X, WEIGHT = torch.randn(2, 8, 8, 8), torch.randn(8, 8, 3, 3)


@pytest.mark.parametrize("operator", ["conv", "conv_transpose"])
def test_forward_only_what_a_rule_names_comes_here(table, operator):
    call = getattr(F, f"{operator}2d")
    table(Rule("", FLOAT32, strided=True), operator=operator)
    assert side_of(call, X, WEIGHT) == [f"{operator}_backward"]
    assert side_of(call, X, WEIGHT, stride=2) == [operator, f"{operator}_backward"]
    assert side_of(call, X.double(), WEIGHT.double(), stride=2) == [f"{operator}_backward"]


def test_transposed_layers_have_rules_of_their_own(table):
    table(Rule("", FLOAT32, inputs=(8, 8), outputs=(2, 2)), operator="conv_transpose_backward")
    assert side_of(F.conv_transpose2d, X, WEIGHT[:, :2]) == []
    assert side_of(F.conv_transpose2d, X[:, :2], WEIGHT[:2]) == ["conv_transpose_backward"]
    assert side_of(F.conv2d, X[:, :2], WEIGHT[:, :2]) == ["conv_backward"]


@pytest.mark.parametrize("operator", ["conv", "conv_transpose"])
def test_float16_comes_here_where_pytorch_has_only_loops_for_it(table, monkeypatch, operator):
    table()
    call, tensors = getattr(F, f"{operator}2d"), (X.half(), WEIGHT.half())
    monkeypatch.setattr(rules, "pytorch_has_float16", lambda: False)
    assert side_of(call, *tensors) == [operator, f"{operator}_backward"]
    choice._is_faster.cache_clear()
    monkeypatch.setattr(rules, "pytorch_has_float16", lambda: True)
    assert side_of(call, *tensors) == [f"{operator}_backward"]


def test_forward_plain_loops_stay_with_pytorch(table):
    table(Rule("", FLOAT32), operator="conv")
    x, weight = torch.randn(2, 4, 10, 10), torch.randn(64, 4, 8, 8)
    assert side_of(F.conv2d, x, weight, stride=5) == ["conv", "conv_backward"]
    assert side_of(F.conv2d, x, weight, stride=5000) == []


def test_wrong_calls_are_refused_in_our_words(table):
    table()
    rest = [8], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True] * 3
    grad, x = torch.randn(2, 8, 9, 9), torch.randn(2, 8, 12, 12)
    with backops.torch.enabled(), pytest.raises(RuntimeError, match="grad_output is"):
        torch.ops.aten.convolution_backward(grad, x, torch.randn(8, 8, 3, 3), *rest)


def test_table_names_capabilities_there_are():
    capabilities = {*BEST_FIRST, "generic"}
    forward = {*product(("conv", "conv_transpose"), capabilities)}
    backward = {*product(("conv_backward", "conv_transpose_backward"), capabilities)}
    assert {*rules.PYTORCH_IS_FASTER} <= forward | backward
    assert {*rules.BACKOPS_IS_FASTER} <= forward


def test_forward_rules_have_exceptions(monkeypatch):
    key = "conv", rules.capability()
    monkeypatch.setattr(rules, "BACKOPS_IS_FASTER", {key: (Rule("", FLOAT32),)})
    monkeypatch.setattr(rules, "PYTORCH_IS_FASTER", {key: (Rule("", FLOAT32, inputs=(1, 4)),)})
    few, many = dataclasses.replace(LAYER, inputs=4), dataclasses.replace(LAYER, inputs=5)
    assert [rules.are_for_us("conv", layer) for layer in (few, many)] == [False, True]
    assert rules.are_for_us("conv_backward", few)


def test_tiny_pools_stay_with_pytorch():
    with watched() as calls:
        for size, expected in ((4, 0), (32, 1)):
            x = torch.randn(1, 1, size, size, requires_grad=True)
            torch.nn.functional.avg_pool2d(x, 2).sum().backward()
            assert len(calls.operators) == expected
            assert torch.equal(x.grad, torch.full_like(x, 0.25))
    assert not backops.torch.is_enabled()


def test_small_planes_of_one_window_stay_with_pytorch_forward():
    x = torch.randn(4, 8, 7, 7)
    with watched() as calls:
        functional = torch.nn.functional.avg_pool2d
        functional(x, 7)
        assert calls.forward == []
        for tensor, kernel in ((x.bfloat16(), 7), (x, 6), (torch.randn(4, 8, 9, 9), 9)):
            functional(tensor, kernel)
    assert calls.forward == 3 * ["avg_pool"]
