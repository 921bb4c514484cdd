"""PyTorch's own samples of its modules, which nobody here wrote: results, gradients, strides."""

import functools

import pytest
import torch

from tests.support.pytorch import assert_same, everything_here, in_format, watched

KINDS = ("nn.Conv", "nn.AvgPool", "nn.AdaptiveAvgPool")


@functools.cache
def modules():
    """PyTorch's data takes seconds to import."""
    from torch.testing._internal.common_modules import module_db

    return [info for info in module_db if info.name.startswith(KINDS)]


def cases(dtype):
    """A model and its input for every sample, described."""
    for info in modules():
        torch.manual_seed(0)
        samples = info.module_inputs_func(
            info, device="cpu", dtype=dtype, requires_grad=True, training=True
        )
        for sample in samples:
            given, options = sample.constructor_input.args, sample.constructor_input.kwargs
            factory = {"dtype": dtype} if "Conv" in info.name else {}
            model = info.module_cls(*given, **options, **factory)
            yield f"{info.name} {sample.desc} {given} {options}", model, sample.forward_input.args


def step(model, x):
    leaf = x.detach().requires_grad_()
    y = model(leaf)
    torch.manual_seed(1)
    return y, *torch.autograd.grad(y, [leaf, *model.parameters()], torch.randn_like(y))


def compare(dtype, layout):
    """How many samples came here, all of them right."""
    count = 0
    for name, model, (x,) in cases(dtype):
        x = in_format(x.detach(), layout)
        for parameter in model.parameters():
            parameter.data = in_format(parameter.data, layout)
        expected = step(model, x)
        with everything_here(), watched() as calls:
            actual = step(model, x)
        count += len(calls.operators)
        # Adaptive pooling to one element is a mean in PyTorch.
        is_mean = name.startswith("nn.Adaptive") and " (1,) " in name
        assert len(calls.operators) == len(calls.forward) == (not is_mean), name
        for a, e in zip(actual, expected, strict=True):
            assert_same(a, e, terms=5000)
    return count


@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_modules_have_the_results_of_pytorch(dtype, layout):
    assert compare(dtype, layout) == 55
