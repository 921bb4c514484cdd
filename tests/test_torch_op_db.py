"""PyTorch's own operator test data, which nobody here wrote, with everything computed here."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch_support import assert_same, everything_here, watched

OPERATORS = {
    f"nn.functional.{name}{rank}d": operator
    for rank in (1, 2, 3)
    for name, operator in (
        ("avg_pool", "avg_pool_backward"),
        ("adaptive_avg_pool", "adaptive_avg_pool_backward"),
        ("conv", "conv_backward"),
    )
}


def samples(dtype):
    """(operator of ours, function, its leaves) for every sample with something in it.

    PyTorch's data takes seconds to import; so it is used in few tests.
    """
    from torch.testing._internal.common_methods_invocations import op_db

    for info in op_db:
        if info.name not in OPERATORS:
            continue
        for sample in info.sample_inputs("cpu", dtype, requires_grad=True):
            leaves = [
                value
                for value in (sample.input, *sample.args, *sample.kwargs.values())
                if isinstance(value, torch.Tensor) and value.requires_grad
            ]
            if sample.input.numel():
                yield OPERATORS[info.name], bind(info.op, sample), leaves


def bind(operator, sample):
    """A function of the leaves: the operator on them and on the sample's other arguments."""
    given = [sample.input, *sample.args, *sample.kwargs.values()]
    is_leaf = [isinstance(value, torch.Tensor) and value.requires_grad for value in given]

    def call(*leaves):
        rest = iter(leaves)
        values = [next(rest) if leaf else value for value, leaf in zip(given, is_leaf, strict=True)]
        named = dict(zip(sample.kwargs, values[1 + len(sample.args) :], strict=True))
        return operator(*values[: 1 + len(sample.args)], **named)

    return call


def gradients(call, leaves):
    result = call(*leaves)
    torch.manual_seed(0)
    return torch.autograd.grad(result, leaves, torch.randn_like(result))


def check(dtype, second_order):
    counts = dict.fromkeys(OPERATORS.values(), 0)
    for operator, call, leaves in samples(dtype):
        expected = gradients(call, leaves)
        with everything_here(), watched() as calls:
            actual = gradients(call, leaves)
            came_here = operator in calls.operators
            counts[operator] += came_here
            if second_order and came_here:
                assert gradcheck(call, leaves, fast_mode=True)
                assert gradgradcheck(call, leaves, fast_mode=True)
        for a, e in zip(actual, expected, strict=True):
            assert_same(a, e, terms=500, strides=False)
    return counts


def test_samples_give_the_gradients_of_pytorch():
    counts = check(torch.float64, second_order=True)
    # Adaptive pooling to one element is a mean in PyTorch, and has no operator of its own.
    assert counts == {
        "avg_pool_backward": 22,
        "adaptive_avg_pool_backward": 22,
        "conv_backward": 60,
    }


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_samples_in_other_dtypes(dtype):
    assert sum(check(dtype, second_order=False).values()) > 60
