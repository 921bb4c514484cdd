"""PyTorch's own operator test data, which nobody here wrote, with everything computed here."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from tests.support.pytorch import assert_same, everything_here, watched

OPERATORS = {
    f"nn.functional.{name}{rank}d": operator
    for rank in (1, 2, 3)
    for name, operator in (
        ("avg_pool", "avg_pool_backward"),
        ("adaptive_avg_pool", "adaptive_avg_pool_backward"),
        ("conv", "conv_backward"),
        ("conv_transpose", "conv_transpose_backward"),
    )
}


def samples(operator, dtype):
    """(function, its leaves) of every sample with something in it whose gradient is `operator`.

    PyTorch's data takes seconds to import; so it is used in few tests.
    """
    from torch.testing._internal.common_methods_invocations import op_db

    for info in op_db:
        # PyTorch's forward avg_pool3d has no float16.
        if OPERATORS.get(info.name) != operator or dtype not in info.supported_dtypes("cpu"):
            continue
        for sample in info.sample_inputs("cpu", dtype, requires_grad=True):
            leaves = [
                value
                for value in (sample.input, *sample.args, *sample.kwargs.values())
                if isinstance(value, torch.Tensor) and value.requires_grad
            ]
            if sample.input.numel():
                yield bind(info.op, sample), leaves


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


def step(call, leaves):
    """The result and its gradients."""
    result = call(*leaves)
    torch.manual_seed(0)
    return result, *torch.autograd.grad(result, leaves, torch.randn_like(result))


def check(operator, dtype, second_order):
    """How many samples came here, all of them right."""
    count = 0
    for call, leaves in samples(operator, dtype):
        expected = step(call, leaves)
        with everything_here(), watched() as calls:
            actual = step(call, leaves)
            came_here = operator in calls.operators
            assert came_here == (operator.removesuffix("_backward") in calls.forward)
            count += came_here
            if second_order and came_here:
                assert gradcheck(call, leaves, fast_mode=True)
                assert gradgradcheck(call, leaves, fast_mode=True)
        for a, e in zip(actual, expected, strict=True):
            assert_same(a, e, terms=500)
    return count


# Adaptive pooling to one element is a mean in PyTorch, and has no operator of its own.
@pytest.mark.parametrize(
    ("operator", "count"),
    [
        ("avg_pool_backward", 22),
        ("adaptive_avg_pool_backward", 22),
        ("conv_backward", 60),
        ("conv_transpose_backward", 32),
    ],
)
def test_samples_give_the_results_of_pytorch(operator, count):
    assert check(operator, torch.float64, second_order=True) == count


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_samples_in_other_dtypes(dtype):
    counts = [check(each, dtype, second_order=False) for each in set(OPERATORS.values())]
    assert sum(counts) > 60
