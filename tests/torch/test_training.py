"""Models train with enable() as without: precision modes, layouts, hooks, compilers, transforms."""

import copy
import threading
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn import functional

import backops.torch
from tests.support.processes import run_python
from tests.support.pytorch import assert_same, everything_here, watched


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


class SmallNet(nn.Module):
    """Every operator of ours: dense, depthwise and pointwise convolution, both poolings."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 16, 3, padding=1, groups=16, bias=False),
            nn.AvgPool2d(2),
            nn.Conv2d(16, 32, 1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d((3, 5)),
            nn.Flatten(),
            nn.Linear(480, 10),
        )

    def forward(self, x):
        return self.body(x)


def training_losses(steps, model, **autocast):
    """Losses on one batch, again and again, so that they follow the gradients closely."""
    model = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(16, 3, 16, 20, generator=generator)
    target = torch.randint(0, 10, (16,), generator=generator)
    losses = []
    for _ in range(steps):
        with torch.autocast("cpu", **autocast) if autocast else nullcontext():
            loss = functional.cross_entropy(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses)


def test_fifty_steps_have_the_same_losses():
    model = SmallNet()
    expected = training_losses(50, model)
    with everything_here(), watched() as calls:
        actual = training_losses(50, model)
    assert len(calls.operators) == 50 * 5
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


def test_losses_show_a_gradient_that_is_one_percent_wrong():
    model = SmallNet()
    expected = training_losses(50, model)
    with everything_here(), watched() as calls:
        right = calls.avg_pool_backward
        calls.avg_pool_backward = lambda *arguments: right(*arguments).mul_(1.01)
        actual = training_losses(50, model)
    assert (actual - expected).abs().max() > 1e-3


def test_autocast():
    # In a process of its own, because PyTorch's bfloat16 dies on machines that announce AMX and
    # refuse it; the setting is read once.
    code = """
import torch
from tests.torch.test_training import SmallNet, training_losses
from tests.support.pytorch import everything_here, watched

torch.manual_seed(0)
model = SmallNet()
expected = training_losses(20, model)
for dtype in (torch.bfloat16, torch.float16):
    with everything_here(), watched() as calls:
        losses = training_losses(20, model, dtype=dtype)
    assert len(calls.operators) == 20 * 5
    torch.testing.assert_close(losses, expected, rtol=0.05, atol=0.05)
"""
    run_python(code, ONEDNN_MAX_CPU_ISA="AVX512_CORE_FP16")


def test_results_repeat_bitwise_and_under_deterministic_algorithms():
    model = SmallNet()
    with everything_here(), backops.torch.enabled():
        first = training_losses(5, model)
        torch.use_deterministic_algorithms(True)
        try:
            second = training_losses(5, model)
        finally:
            torch.use_deterministic_algorithms(False)
    assert torch.equal(first, second)


def test_channels_last_model():
    model = SmallNet().to(memory_format=torch.channels_last)
    x = torch.randn(4, 3, 16, 20).contiguous(memory_format=torch.channels_last).requires_grad_()

    def gradients():
        model.zero_grad()
        return torch.autograd.grad(model(x).square().sum(), [x, *model.parameters()])

    expected = gradients()
    with everything_here(), watched() as calls:
        actual = gradients()
    assert len(calls.operators) == 5
    for a, e in zip(actual, expected, strict=True):
        assert_same(a, e, terms=5000)
    assert actual[0].is_contiguous(memory_format=torch.channels_last)


def test_no_grad_and_frozen_layers():
    model = SmallNet()
    x = torch.randn(2, 3, 16, 20)
    with everything_here(), watched() as calls:
        with torch.no_grad():
            model(x)
        with torch.inference_mode():
            model(x)
        assert calls.operators == []
        assert calls.forward == 2 * ["conv", "conv", "avg_pool", "conv", "adaptive_avg_pool"]
        for layer in model.body[:5]:
            layer.requires_grad_(False)
        model(x).sum().backward()
    # Nothing before the last adaptive pooling asks for a gradient.
    assert calls.operators == []
    assert model.body[8].weight.grad is not None


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_inference(mode, layout):
    model = SmallNet().to(memory_format=layout)
    x = torch.randn(2, 3, 16, 20).contiguous(memory_format=layout)
    up = nn.ConvTranspose2d(32, 8, 2, stride=2)
    with mode():
        expected = [model(x), model.body[:6](x), up(model.body[:6](x))]
        with everything_here(), watched() as calls:
            actual = [model(x), model.body[:6](x), up(model.body[:6](x))]
    assert calls.forward[-1] == "conv_transpose"
    for a, e in zip(actual, expected, strict=True):
        assert_same(a, e, terms=500)
        assert not a.requires_grad
        assert a.is_inference() == (mode is torch.inference_mode)


def test_hooks_see_and_change_gradients():
    layer = nn.Conv2d(3, 4, 3)
    x = torch.randn(2, 3, 8, 8, requires_grad=True)
    seen = []
    layer.register_full_backward_hook(lambda _layer, given, _got: seen.append(given[0].clone()))
    layer.weight.register_hook(lambda grad: 2 * grad)
    x.register_hook(lambda grad: grad + 1)

    def gradients():
        x.grad = None
        layer.zero_grad()
        layer(x).square().sum().backward()
        return x.grad, layer.weight.grad, seen.pop()

    expected = gradients()
    with everything_here(), watched() as calls:
        actual = gradients()
    assert calls.operators == ["conv_backward"]
    for a, e in zip(actual, expected, strict=True):
        assert_same(a, e, terms=500)


def test_gradient_penalty_differentiates_twice():
    model = SmallNet().double()
    x = torch.randn(2, 3, 16, 20, dtype=torch.float64, requires_grad=True)

    def gradients():
        (grad,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        return torch.autograd.grad(grad.square().sum(), list(model.parameters()), allow_unused=True)

    expected = gradients()
    with everything_here(), watched() as calls:
        actual = gradients()
    assert len(calls.operators) > 5
    for a, e in zip(actual, expected, strict=True):
        assert (a is None) == (e is None)
        if e is not None:
            torch.testing.assert_close(a, e)


def test_compiled_model():
    torch._dynamo.reset()
    model = SmallNet()
    x = torch.randn(2, 3, 16, 20, requires_grad=True)
    expected = torch.autograd.grad(model(x).square().sum(), [x, *model.parameters()])
    with everything_here(), watched() as calls:
        compiled = torch.compile(model, backend="aot_eager")
        actual = torch.autograd.grad(compiled(x).square().sum(), [x, *model.parameters()])
    assert calls.operators.count("conv_backward") == 3
    for a, e in zip(actual, expected, strict=True):
        assert_same(a, e, terms=5000)


def test_function_transforms():
    weight = torch.randn(4, 3, 3, 3)
    x = torch.randn(5, 2, 3, 8, 8)

    def loss(weight, x):
        return functional.avg_pool2d(functional.conv2d(x, weight), 2).square().sum()

    per_sample = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))
    expected = per_sample(weight, x)
    with everything_here(), watched() as calls:
        actual = per_sample(weight, x)
        jacobian = torch.func.jacrev(lambda w: functional.conv2d(x[0], w).mean((0, 2, 3)))(weight)
    assert calls.operators
    assert_same(actual, expected, terms=5000, strides=False)
    assert jacobian.shape == (4, 4, 3, 3, 3)


def test_forward_transforms():
    weight, x = torch.randn(3, 4, 3, 3), torch.randn(5, 2, 3, 8, 8)

    def up_and_down(x):
        return functional.avg_pool2d(functional.conv_transpose2d(x, weight, stride=2), 2)

    def both():
        batched = torch.func.vmap(up_and_down)(x)
        _, tangent = torch.func.jvp(up_and_down, (x[0],), (x[1],))
        return batched, tangent, torch.func.jacfwd(up_and_down)(x[:1, 0, :, :3, :3])

    expected = both()
    with everything_here(), watched() as calls:
        actual = both()
    assert {"conv_transpose", "avg_pool"} == {*calls.forward}
    for a, e in zip(actual, expected, strict=True):
        assert_same(a, e, terms=500, strides=False)


def test_fake_tensors_and_exported_programs():
    from torch._subclasses.fake_tensor import FakeTensorMode

    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AvgPool2d(2), nn.ConvTranspose2d(4, 2, 2))
    x = torch.randn(2, 3, 9, 8)
    with everything_here(), watched() as calls:
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            assert model(mode.from_tensor(x)).shape == (2, 2, 4, 4)
        assert calls.forward == []
        program = torch.export.export(model, (x,)).module()
        calls.forward.clear()
        actual = program(x)
        assert calls.forward == ["conv", "avg_pool", "conv_transpose"]
    assert_same(actual, model(x), terms=500)


def test_checkpointing_and_retained_graphs():
    from torch.utils.checkpoint import checkpoint

    layer = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AvgPool2d(2))
    x = torch.randn(2, 3, 9, 9, requires_grad=True)
    (expected,) = torch.autograd.grad(layer(x).square().sum(), x)
    with everything_here(), backops.torch.enabled():
        checkpoint(layer, x, use_reentrant=True).square().sum().backward()
        loss = layer(x).square().sum()
        (first,) = torch.autograd.grad(loss, x, retain_graph=True)
        (second,) = torch.autograd.grad(loss, x)
    assert_same(x.grad, expected, terms=500)
    assert torch.equal(first, second)


def test_backward_in_many_threads():
    model = SmallNet()
    xs = [torch.randn(2, 3, 16, 20) for _ in range(8)]

    def gradients(x):
        return torch.autograd.grad(model(x).square().sum(), list(model.parameters()))

    expected = [gradients(x) for x in xs]
    failures = []

    def body(i):
        try:
            for _ in range(5):
                for a, e in zip(gradients(xs[i]), expected[i], strict=True):
                    assert_same(a, e, terms=5000)
        except BaseException as error:
            failures.append(error)

    with everything_here(), watched() as calls:
        threads = [threading.Thread(target=body, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures, failures[0]
    assert len(calls.operators) == 8 * 5 * 5
