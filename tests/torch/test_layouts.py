"""Strides of results are those of PyTorch's own, whatever the strides of what they come from.

torch.compile relies on that, and DistributedDataParallel warns where it is not so.
"""

import hypothesis
import pytest
import torch
from hypothesis import strategies as st

import backops.torch
from backops.torch import choice, layouts
from tests.support.processes import run_python
from tests.support.pytorch import assert_same, everything_here, watched

aten = torch.ops.aten
EXAMPLES = hypothesis.settings.default.max_examples


@st.composite
def tensors(draw, shape, dtype):
    """A tensor of any axis order, dense or not, expanded, with any strides where sizes are one."""
    axes = len(shape)
    channels_last = [0, *range(2, axes), 1]
    order = draw(
        st.one_of(st.just(list(range(axes))), st.just(channels_last), st.permutations(range(axes)))
    )
    step = draw(st.sampled_from([1, 1, 1, 2]))
    strides = [0] * axes
    for axis in reversed(order):
        strides[axis] = step
        step *= shape[axis]
    if draw(st.integers(0, 4)) == 0:
        strides[draw(st.integers(0, axes - 1))] = 0
    for axis in range(axes):
        if shape[axis] == 1 and draw(st.booleans()):
            strides[axis] = draw(st.sampled_from([0, 1, 7, 3 * strides[axis]]))
    size = 1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    return torch.randn(size).to(dtype).as_strided(shape, strides)


@st.composite
def convolutions(draw, dtype):
    """Arguments of aten.convolution_backward, with many sizes of one."""
    rank = draw(st.sampled_from([1, 2, 2, 3]))

    def small(*values):
        return [draw(st.sampled_from(values)) for _ in range(rank)]

    groups = draw(st.sampled_from([1, 1, 2, 4]))
    inputs = draw(st.sampled_from([1, 1, 2, 3, 8]))
    outputs = groups * draw(st.sampled_from([1, 1, 2, 4]))
    kernel, stride, dilation = small(1, 1, 2, 3, 5), small(1, 1, 2), small(1, 1, 2)
    padding, extra = small(0, 0, 1), small(0, 0, 1, 4)
    reach = [(k - 1) * d + 1 - 2 * p for k, d, p in zip(kernel, dilation, padding, strict=True)]
    sizes = [max(1, r) + e for r, e in zip(reach, extra, strict=True)]
    output = [(n - r) // s + 1 for n, r, s in zip(sizes, reach, stride, strict=True)]
    batch = draw(st.sampled_from([1, 1, 2, 17]))
    x = draw(tensors((batch, inputs * groups, *sizes), dtype))
    weight = draw(tensors((outputs, inputs, *kernel), dtype))
    grad = draw(tensors((batch, outputs, *output), dtype))
    lists = stride, padding, dilation, False, [0] * rank, groups, [True] * 3
    return grad, x, weight, [outputs], *lists


@st.composite
def transposed_convolutions(draw, dtype):
    """The same of transposed ones."""
    grad, x, weight, _, stride, padding, dilation, _, more, groups, mask = draw(convolutions(dtype))
    # The gradient of a convolution's input is a transposed convolution.
    steps = zip(x.shape[2:], grad.shape[2:], weight.shape[2:], stride, padding, dilation,
                strict=True)  # fmt: skip
    more = [n - ((m - 1) * s - 2 * p + d * (k - 1) + 1) for n, m, k, s, p, d in steps]
    lists = stride, padding, dilation, True, more, groups, mask
    # PyTorch crashes on some other strides of axes of one element.
    tensors = map(layouts.with_usual_strides, (x, grad, weight))
    return *tensors, [x.shape[1]], *lists


def compare(dtypes, strategy, *comparisons, onednn=True):
    """Generated convolutions, here and in PyTorch; `onednn=False`: in its other backends."""

    # As many for each dtype as a test has by default, within a factor of two.
    @hypothesis.settings(max_examples=(len(dtypes) + 1) // 2 * EXAMPLES)
    @hypothesis.given(st.sampled_from(dtypes).flatmap(strategy))
    def check(arguments):
        threads = torch.get_num_threads()
        # With one thread, PyTorch takes other backends for some.
        torch.set_num_threads(1 + arguments[1].numel() % 2)
        try:
            for compare_one in comparisons:
                compare_one(arguments)
        finally:
            torch.set_num_threads(threads)

    with everything_here(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.backends.mkldnn, "enabled", onednn)
        check()


def compare_one(arguments):
    try:
        expected = aten.convolution_backward(*arguments)
    except RuntimeError as error:
        if "contiguous" not in str(error):  # PyTorch fails at its own copy of some weights
            raise
        return
    with watched() as calls:
        actual = aten.convolution_backward(*arguments)
    assert len(calls.operators) == 1
    assert [a.stride() for a in actual] == [e.stride() for e in expected]
    if arguments[0].dtype == torch.float64:
        operands = (each.abs() for each in arguments[:3])
        magnitudes = aten.convolution_backward(*operands, *arguments[3:])
        for a, e, m in zip(actual, expected, magnitudes, strict=True):
            assert_same(a, e, terms=500, magnitudes=m)


def compare_forward(arguments):
    _, x, weight, bias_sizes, *windows, _ = arguments
    # PyTorch crashes on some other strides of axes of one element.
    x, weight = layouts.with_usual_strides(x), layouts.with_usual_strides(weight)
    given = x, weight, torch.randn(bias_sizes).to(x.dtype), *windows
    expected = aten.convolution(*given)
    with watched() as calls:
        actual = aten.convolution(*given)
    assert len(calls.forward) == 1
    assert actual.stride() == expected.stride()
    # Where axes of one element have other strides, oneDNN was seen to read the wrong weights.
    copies = (each.clone(memory_format=torch.contiguous_format) for each in given[:3])
    assert_same(actual, aten.convolution(*copies, *windows), terms=5000, strides=False)


@pytest.mark.parametrize("onednn", [True, False], ids=["onednn", "native"])
@pytest.mark.parametrize("strategy", [convolutions, transposed_convolutions])
def test_generated_convolutions_have_the_strides_of_pytorch(strategy, onednn):
    dtypes = [torch.float32, torch.float64, torch.float16]
    compare(dtypes, strategy, compare_one, compare_forward, onednn=onednn)


def test_generated_bfloat16_convolutions_have_the_strides_of_pytorch():
    # In a process of its own, because PyTorch's bfloat16 dies on machines that announce AMX and
    # refuse it.
    code = """
import torch
from tests.torch.test_layouts import compare, compare_one, convolutions
compare([torch.bfloat16], convolutions, compare_one)
"""
    run_python(code, ONEDNN_MAX_CPU_ISA="AVX512_CORE_FP16")


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_weights_that_suggest_channels_last_until_they_are_copied(rank):
    # oneDNN's backend, which PyTorch takes with two threads, asks the copy.
    weight = torch.randn(2, *[1] * rank, 2).movedim(-1, 1)[:, :1]
    x, grad = torch.randn(2, 2, *[1] * rank), torch.randn(2, 2, *[1] * rank)
    lists = [1] * rank, [0] * rank, [1] * rank, False, [0] * rank, 2, [True] * 3
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with everything_here():
            compare_one((grad, x, weight, [2], *lists))
    finally:
        torch.set_num_threads(threads)


@hypothesis.given(
    st.tuples(*[st.sampled_from([1, 2, 3, 8])] * 4).flatmap(lambda n: tensors(n, torch.float32))
)
def test_generated_pools_have_the_strides_of_pytorch(x):
    windows = [1, 1], [1, 1], [0, 0], False, True, None
    calls_of = (
        lambda: aten.avg_pool2d_backward(x, x, *windows),
        lambda: aten._adaptive_avg_pool2d_backward(x, x),
        lambda: aten.avg_pool2d(x, *windows),
        lambda: aten._adaptive_avg_pool2d(x, x.shape[2:]),
    )
    for call in calls_of:
        expected = call()
        with everything_here(), watched() as calls:
            actual = call()
        assert len(calls.operators + calls.forward) == 1
        assert_same(actual, expected)


@hypothesis.given(
    st.lists(st.sampled_from([1, 2, 3]), min_size=3, max_size=5).flatmap(
        lambda n: tensors(n, torch.float32)
    )
)
def test_generated_usual_strides_suggest_the_same_format(tensor):
    usual = layouts.with_usual_strides(tensor)
    assert torch.equal(usual, tensor)
    image, usual_image = layouts.image_of(tensor), layouts.image_of(usual)
    assert layouts.suggested_format(usual_image) is layouts.suggested_format(image)
    if tensor.dim() == 4:
        follows = layouts.FOLLOWS_SUGGESTIONS[4]
        assert layouts.suggested_format(image) is layouts.backend_format(image, image, follows)


@pytest.mark.parametrize("here", [True, False])
def test_transposed_convolutions_keep_the_strides_of_pytorch(here, monkeypatch):
    # PyTorch's own kernel has to be given weights that look channels-last.
    weight = torch.randn(16, 8, 1, 1).to(memory_format=torch.channels_last)
    x = torch.randn(2, 16, 5, 5)
    arguments = torch.randn(2, 8, 5, 5), x, weight, [8], [1, 1], [0, 0], [1, 1], True, [0, 0], 1
    expected = aten.convolution_backward(*arguments, [True] * 3)
    monkeypatch.setattr(choice, "conv_is_faster", lambda *_: here)
    with backops.torch.enabled():
        actual = aten.convolution_backward(*arguments, [True] * 3)
    assert [a.stride() for a in actual] == [e.stride() for e in expected]
    assert actual[0].is_contiguous(memory_format=torch.channels_last)


COMPILED = """
import sys, torch
from torch import nn
from tests.support.pytorch import everything_here, watched

def gradients(model, x, autocast):
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        y = model(x)
    parameters = [x, *model.parameters()]
    return torch.autograd.grad(y, parameters, torch.ones_like(y))

def check(make_model, channels_last, autocast):
    torch.manual_seed(0)
    x = torch.randn(2, 16, 12, 12, requires_grad=True)
    model = make_model()
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
    expected = gradients(model, x, autocast)
    torch._dynamo.reset()
    with everything_here(), watched() as calls:
        actual = gradients(torch.compile(model), x, autocast)
    transposed = isinstance(model, nn.ConvTranspose2d)
    name = "conv_transpose" if transposed else "conv"
    assert name in calls.forward
    assert f"{name}_backward" in calls.operators
    for a, e in zip(actual, expected, strict=True):
        tolerance = 0.05 * e.abs().max().item() if autocast else 1e-4 * e.abs().max().item()
        torch.testing.assert_close(a, e, rtol=0, atol=tolerance)

def depthwise():
    return nn.Conv2d(16, 16, 5, padding=2, groups=16)

def normalized():
    return nn.Sequential(nn.GroupNorm(4, 16), depthwise())

def mobile():
    return nn.Sequential(nn.Conv2d(16, 32, 1), nn.Conv2d(32, 32, 3, groups=32), nn.Conv2d(32, 8, 1))
"""


def test_compiled_networks():
    """Inductor's code checks the strides of what it did not compute itself."""
    code = """
for make in (depthwise, lambda: nn.Conv2d(16, 8, 3, groups=4), lambda: nn.Conv2d(16, 8, 3),
             lambda: nn.ConvTranspose2d(16, 8, 1)):
    check(make, channels_last=True, autocast=False)
check(normalized, channels_last=True, autocast=False)
check(depthwise, channels_last=False, autocast=True)
"""
    run_python(COMPILED + code, timeout=600, ONEDNN_MAX_CPU_ISA="AVX512_CORE_FP16")


@pytest.mark.slow
def test_compiled_networks_under_autocast():
    code = """
for make in (depthwise, lambda: nn.Conv2d(16, 8, 3, groups=4), lambda: nn.Conv2d(16, 8, 3), mobile,
             normalized):
    for channels_last in (True, False):
        check(make, channels_last, autocast=True)
"""
    run_python(COMPILED + code, timeout=600, ONEDNN_MAX_CPU_ISA="AVX512_CORE_FP16")


@pytest.mark.slow
def test_pools_that_inductor_computes_itself():
    # As docs/pytorch.md says.
    code = """
def comes_here(pool, *shape):
    torch._dynamo.reset()
    x = torch.randn(shape, requires_grad=True)
    with everything_here(), watched() as calls:
        torch.compile(pool)(x).sum().backward()
    return bool(calls.operators)

assert comes_here(nn.AvgPool2d(6, 1), 2, 4, 8, 8)
assert not comes_here(nn.AvgPool2d(6), 2, 4, 12, 12)
assert comes_here(nn.AvgPool1d(26, 1), 2, 4, 40)
assert comes_here(nn.AvgPool3d(6, 1), 2, 4, 8, 8, 8)
assert comes_here(nn.AdaptiveAvgPool2d(3), 2, 4, 8, 8)
torch._inductor.config.cpp_wrapper = True
assert not comes_here(nn.Conv2d(4, 4, 3), 2, 4, 8, 8)
"""
    run_python(COMPILED + code, timeout=600)
