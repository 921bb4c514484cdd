"""Results through PyTorch's operators: values, strides, masks and errors are those of PyTorch."""

import itertools

import pytest
import torch

import backops.torch
from backops.torch import choice
from tests.support.pytorch import assert_same, everything_here, in_format, watched

aten = torch.ops.aten
HALVES = [torch.float16, torch.bfloat16]
DTYPES = [torch.float32, torch.float64, *HALVES]
LAYOUTS = ["contiguous", "channels_last", "sliced"]


@pytest.fixture(autouse=True)
def _everything_here():
    torch.manual_seed(0)
    with everything_here():
        yield


def here_and_there(operator, *arguments):
    """The operator's results here, and PyTorch's own."""
    expected = operator(*arguments)
    with watched() as calls:
        actual = operator(*arguments)
    assert len(calls.operators + calls.forward) == 1
    return actual, expected


def random(*shape, dtype=torch.float32, layout="contiguous"):
    return in_format(torch.randn(shape).to(dtype), layout)


# Pooling


@pytest.mark.parametrize("layouts", list(itertools.product(LAYOUTS, LAYOUTS)), ids="-".join)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_pooling_in_two_dimensions(dtype, layouts):
    grad = random(2, 5, 4, 5, dtype=dtype, layout=layouts[0])
    x = random(2, 5, 8, 9, dtype=dtype, layout=layouts[1])
    windows = [3, 3], [2, 2], [1, 1], False, False, None
    assert_same(*here_and_there(aten.avg_pool2d_backward, grad, x, *windows))
    assert_same(*here_and_there(aten._adaptive_avg_pool2d_backward, grad, x))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_pooling_in_three_dimensions(dtype, layout):
    grad = random(2, 5, 3, 4, 5, dtype=dtype, layout=layout)
    x = random(2, 5, 6, 8, 10, dtype=dtype, layout=layout)
    windows = [2, 2, 2], [], [0, 0, 0], True, True, 5
    assert_same(*here_and_there(aten.avg_pool3d_backward, grad, x, *windows))
    assert_same(*here_and_there(aten._adaptive_avg_pool3d_backward, grad, x))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_three_dimensional_pooling_in_halves(dtype):
    grad, x = random(2, 5, 3, 4, 5, dtype=dtype), random(2, 5, 6, 8, 10, dtype=dtype)
    assert_same(*here_and_there(aten._adaptive_avg_pool3d_backward, grad, x))
    windows = [2, 2, 2], [2, 2, 2], [0, 0, 0], False, True, None
    for operator, tensors in (
        (aten.avg_pool3d_backward, (grad, x)),
        (aten.avg_pool3d, (x,)),
    ):
        with pytest.raises(RuntimeError, match="not implemented"):
            operator(*tensors, *windows)
        with backops.torch.enabled():
            actual = operator(*tensors, *windows)
        expected = operator(*(tensor.float() for tensor in tensors), *windows)
        assert_same(actual, expected.to(dtype))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_what_pytorch_refuses_is_not_left_to_it(dtype, monkeypatch):
    # Neither when tiny, nor in the turns of a benchmark.
    monkeypatch.setattr(choice, "pool_is_faster", lambda *_: False)
    x = random(1, 1, 2, 2, 2, dtype=dtype).requires_grad_()
    with backops.torch.enabled(benchmark=True):
        for _ in range(3):
            y = torch.nn.functional.avg_pool3d(x, 2)
            (grad,) = torch.autograd.grad(y.sum(), x)
    backops.torch.disable()
    assert_same(y, x.detach().float().mean((2, 3, 4), keepdim=True).to(dtype))
    assert torch.equal(grad, torch.full_like(x, 0.125))


@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 1, 8, 8), (2, 1, 8, 8), (1, 6, 8, 8)], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides_where_sizes_are_one(shape, layout):
    x = random(*shape, layout=layout)
    grad = random(*shape[:-2], 4, 4)
    windows = [2, 2], [2, 2], [0, 0], False, True, None
    assert_same(*here_and_there(aten.avg_pool2d_backward, grad, x, *windows))
    assert_same(*here_and_there(aten._adaptive_avg_pool2d_backward, grad, x))


def test_results_given_by_the_caller():
    grad, x = random(2, 3, 4, 4), random(2, 3, 8, 8)
    windows = [2, 2], [2, 2], [0, 0], False, True, None
    expected = aten.avg_pool2d_backward(grad, x, *windows)
    out = torch.full((2, 8, 8, 3), 7.0).permute(0, 3, 1, 2)
    with watched() as calls:
        result = aten.avg_pool2d_backward.grad_input(grad, x, *windows, grad_input=out)
        assert result is out
        assert torch.equal(out, expected)
        assert out.stride() == (192, 1, 24, 3)
        # PyTorch's own kernel makes it fit.
        empty = torch.empty(0)
        aten.avg_pool2d_backward.grad_input(grad, x, *windows, grad_input=empty)
        assert torch.equal(empty, expected)
        grad, x = random(2, 3, 2, 2, 2), random(2, 3, 4, 4, 4)
        out = torch.empty_like(x)
        aten.adaptive_avg_pool3d_backward.grad_input(grad, x, grad_input=out)
        windows = [2] * 3, [2] * 3, [0] * 3, False, True, None
        other = torch.empty_like(x)
        aten.avg_pool3d_backward.grad_input(grad, x, *windows, grad_input=other)
    assert len(calls.operators) == 3
    torch.testing.assert_close(out, aten._adaptive_avg_pool3d_backward(grad, x))
    torch.testing.assert_close(other, out)


def test_expanded_gradient():
    x = random(2, 3, 8, 8).requires_grad_()
    with watched() as calls:
        torch.nn.functional.avg_pool2d(x, 2).sum().backward()
    assert calls.operators == ["avg_pool_backward"]
    assert torch.equal(x.grad, torch.full_like(x, 0.25))


# Forward pooling


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_forward_pooling(dtype, layout):
    x = random(2, 5, 8, 9, dtype=dtype, layout=layout)
    windows = [3, 3], [2, 2], [1, 1], True, False, None
    assert_same(*here_and_there(aten.avg_pool2d, x, *windows))
    assert_same(*here_and_there(aten.avg_pool2d, x, [2, 3]))
    assert_same(*here_and_there(aten.avg_pool2d, x[0], [2], [1], [1], False, True, 7))
    assert_same(*here_and_there(aten._adaptive_avg_pool2d, x, [3, 4]))
    volume = random(2, 5, 6, 8, 10, dtype=dtype, layout=layout)
    assert_same(*here_and_there(aten._adaptive_avg_pool3d, volume, [3, 5, 4]))
    if dtype not in HALVES:
        windows = [2, 3, 2], [], [1, 0, 1], True, True, 5
        assert_same(*here_and_there(aten.avg_pool3d, volume, *windows))
        assert_same(*here_and_there(aten.avg_pool3d, volume[0], [2]))


def test_forward_pools_that_pytorch_has_to_itself():
    x = random(2, 3, 8, 8)
    with watched() as calls:
        assert aten._adaptive_avg_pool2d(x, [0, 2]).shape == (2, 3, 0, 2)
        assert aten.avg_pool2d(x[:0], [2, 2]).shape == (0, 3, 4, 4)
        assert aten.avg_pool2d(x.long(), [2, 2]).dtype == torch.int64
        with pytest.raises(RuntimeError, match="divisor"):
            aten.avg_pool2d(x, [2, 2], [2, 2], [0, 0], False, True, 0)
    assert calls.forward == []


@pytest.mark.parametrize(
    "windows", [([9, 9],), ([2, 2], [0, 0]), ([2, 2], [2, 2], [2, 2]), ([2, 2, 2],)], ids=str
)
def test_wrong_forward_pooling_is_a_runtime_error(windows):
    x = random(2, 3, 8, 8)
    with pytest.raises(RuntimeError):
        aten.avg_pool2d(x, *windows)
    with watched() as calls, pytest.raises(RuntimeError, match="avg_pool2d: "):
        aten.avg_pool2d(x, *windows)
    assert calls.forward == ["avg_pool"]


# Convolution

CONVOLUTIONS = {
    "dense": dict(x=(2, 6, 9, 8), weight=(4, 6, 3, 3), padding=1),
    "one_channel": dict(x=(2, 1, 9, 8), weight=(4, 1, 3, 3), padding=1),
    "pointwise": dict(x=(2, 6, 9, 8), weight=(4, 6, 1, 1)),
    "strided": dict(x=(2, 6, 9, 8), weight=(4, 6, 3, 2), padding=1, stride=2),
    "dilated": dict(x=(2, 6, 9, 8), weight=(4, 6, 3, 3), padding=2, dilation=2),
    "depthwise": dict(x=(2, 6, 9, 8), weight=(6, 1, 3, 3), padding=1, groups=6),
    "grouped": dict(x=(2, 6, 9, 8), weight=(4, 3, 3, 3), groups=2),
    "unbatched_1d": dict(x=(6, 20), weight=(4, 6, 3), padding=1),
    "sequence": dict(x=(3, 6, 20), weight=(4, 6, 5), padding=2),
    "video": dict(x=(2, 4, 5, 6, 7), weight=(3, 4, 3, 3, 3), padding=1),
    "one_position": dict(x=(2, 6, 3, 3), weight=(4, 6, 3, 3)),
}


def conv_arguments(case, dtype=torch.float32, layouts=LAYOUTS[:1] * 3, mask=(True, True, True)):
    case = dict(case)
    x = random(*case.pop("x"), dtype=dtype, layout=layouts[1])
    weight = random(*case.pop("weight"), dtype=dtype, layout=layouts[2])
    rank = weight.dim() - 2
    if x.dim() == rank + 1:
        x = x.unsqueeze(0)  # as PyTorch's conv1d does
    convolution = getattr(torch.nn.functional, f"conv{rank}d")
    shape = convolution(x.double(), weight.double(), **case).shape
    grad = random(*shape, dtype=dtype, layout=layouts[0])
    lists = [[case.get(name, default)] * rank for name, default in
             (("stride", 1), ("padding", 0), ("dilation", 1))]  # fmt: skip
    groups = case.get("groups", 1)
    return grad, x, weight, [weight.shape[0]], *lists, False, [0] * rank, groups, list(mask)


def check_convolution(*arguments):
    all_actual, all_expected = here_and_there(aten.convolution_backward, *arguments)
    for actual, expected, asked in zip(all_actual, all_expected, arguments[-1], strict=True):
        if asked:
            assert_same(actual, expected, terms=500)
        else:
            assert actual is None  # PyTorch computes some that nobody asked for


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
def test_convolutions(name, dtype):
    for layouts in [*itertools.product(LAYOUTS[:2], repeat=3), ["sliced"] * 3]:
        check_convolution(*conv_arguments(CONVOLUTIONS[name], dtype, layouts))


TRANSPOSED = {
    "dense": dict(x=(2, 4, 5, 6), weight=(4, 6, 3, 3), padding=1),
    "doubling": dict(x=(2, 4, 5, 6), weight=(4, 6, 2, 2), stride=2),
    "output_padding": dict(x=(2, 4, 5, 6), weight=(4, 6, 3, 3), stride=2, output_padding=1),
    "depthwise": dict(x=(2, 6, 5, 6), weight=(6, 1, 4, 4), stride=2, padding=1, groups=6),
    "grouped": dict(x=(2, 6, 5, 6), weight=(6, 2, 3, 3), dilation=2, groups=2),
    "sequence": dict(x=(3, 6, 20), weight=(6, 4, 8), stride=4, padding=2),
    "volume": dict(x=(2, 4, 3, 4, 5), weight=(4, 3, 2, 2, 2), stride=2),
}


def forward_arguments(case, transposed, dtype=torch.float32, layouts=LAYOUTS[:1] * 2, bias=True):
    """Arguments of aten.convolution."""
    case = dict(case)
    x = random(*case.pop("x"), dtype=dtype, layout=layouts[0])
    weight = random(*case.pop("weight"), dtype=dtype, layout=layouts[1])
    rank, groups = weight.dim() - 2, case.get("groups", 1)
    x = x.unsqueeze(0) if x.dim() == rank + 1 else x
    names = (("stride", 1), ("padding", 0), ("dilation", 1), ("output_padding", 0))
    stride, padding, dilation, more = [[case.get(name, usual)] * rank for name, usual in names]
    outputs = weight.shape[1] * groups if transposed else weight.shape[0]
    offsets = random(outputs, dtype=dtype) if bias else None
    return x, weight, offsets, stride, padding, dilation, transposed, more, groups


FORWARD_CASES = [
    *((False, name, case) for name, case in CONVOLUTIONS.items()),
    *((True, name, case) for name, case in TRANSPOSED.items()),
]


@pytest.mark.parametrize(("transposed", "name", "case"), FORWARD_CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
def test_forward_convolutions(transposed, name, case, dtype):
    for layouts in [*itertools.product(LAYOUTS[:2], repeat=2), ["sliced"] * 2]:
        arguments = forward_arguments(case, transposed, dtype, layouts, bias=name != "dense")
        # PyTorch's transposed float16 rounds the sum of each channel.
        terms = 500 if dtype is torch.float16 else 64
        assert_same(*here_and_there(aten.convolution, *arguments), terms=terms)


@pytest.mark.parametrize("name", TRANSPOSED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
def test_gradients_of_transposed_convolutions(name, dtype):
    for layouts in [*itertools.product(LAYOUTS[:2], repeat=2), ["sliced"] * 2]:
        x, weight, bias, *rest = forward_arguments(TRANSPOSED[name], True, dtype, layouts)
        shape = aten.convolution(x.double(), weight.double(), None, *rest).shape
        grad = random(*shape, dtype=dtype, layout=layouts[0])
        check_convolution(grad, x, weight, [bias.shape[0]], *rest, [True] * 3)


def test_bfloat16_forward_is_that_of_float32():
    for transposed, _, case in FORWARD_CASES:
        arguments = forward_arguments(case, transposed, torch.bfloat16)
        with watched() as calls:
            actual = aten.convolution(*arguments)
        expected = aten.convolution(*(tensor.float() for tensor in arguments[:3]), *arguments[3:])
        assert calls.forward == ["conv_transpose" if transposed else "conv"]
        assert_same(actual, expected.bfloat16())


@pytest.mark.parametrize(
    ("transposed", "x", "weight", "more"),
    [
        (False, (2, 3, 5, 5), (4, 2, 3, 3), [0, 0]),
        (False, (2, 3, 5, 5), (4, 3, 7, 7), [0, 0]),
        (True, (2, 3, 5, 5), (4, 2, 3, 3), [0, 0]),
        (True, (2, 3, 5, 5), (3, 2, 3, 3), [1, 1]),
    ],
    ids=["inputs", "kernel", "transposed inputs", "output_padding"],
)
def test_wrong_forward_convolution_is_a_runtime_error(transposed, x, weight, more):
    tensors = random(*x), random(*weight), None
    windows = [1, 1], [0, 0], [1, 1], transposed, more, 1
    with pytest.raises(RuntimeError):
        aten.convolution(*tensors, *windows)
    name = "conv_transpose" if transposed else "conv"
    with watched() as calls, pytest.raises(RuntimeError, match=f"{name}: "):
        aten.convolution(*tensors, *windows)
    assert calls.forward == [name]


def test_forward_calls_that_are_not_for_us():
    x, weight = random(2, 3, 8, 8), random(4, 3, 3, 3)
    windows = [1, 1], [0, 0], [1, 1], False, [0, 0], 1
    with watched() as calls:
        assert aten.convolution(x[:0], weight, None, *windows).shape == (0, 4, 6, 6)
        assert aten.convolution(x.to("meta"), weight.to("meta"), None, *windows).is_meta
        for wrong in ((x[0], weight, None), (x, weight, random(4).double())):
            with pytest.raises(RuntimeError):
                aten.convolution(*wrong, *windows)
    assert calls.forward == []


@pytest.mark.parametrize("mask", list(itertools.product([True, False], repeat=3)), ids=str)
def test_masks(mask):
    check_convolution(*conv_arguments(CONVOLUTIONS["dense"], mask=mask))


def test_nothing_asked_for_is_checked_all_the_same():
    grad, x, weight, *rest = conv_arguments(CONVOLUTIONS["dense"], mask=(False, False, False))
    with backops.torch.enabled():
        assert aten.convolution_backward(grad, x, weight, *rest) == (None, None, None)
        with pytest.raises(RuntimeError, match="grad_output"):
            aten.convolution_backward(grad[:1], x, weight, *rest)


def test_bfloat16_convolution_is_that_of_float32():
    # PyTorch's own may die of an illegal instruction on machines that announce AMX and refuse it.
    for case in CONVOLUTIONS.values():
        arguments = conv_arguments(case, torch.bfloat16)
        with watched() as calls:
            actual = aten.convolution_backward(*arguments)
        wide = [tensor.float() for tensor in arguments[:3]]
        expected = aten.convolution_backward(*wide, *arguments[3:])
        assert calls.operators == ["conv_backward"]
        for a, e in zip(actual, expected, strict=True):
            assert_same(a, e.bfloat16())


# What is not for us


def test_what_is_not_supported_goes_to_pytorch():
    grad, x, weight, *rest = conv_arguments(CONVOLUTIONS["dense"])

    class Labelled(torch.Tensor):
        pass

    calls_of_pytorch = {
        "subclass": (grad, x.as_subclass(Labelled), weight, *rest),
        "empty": (grad[:0], x[:0], weight, *rest),
    }
    for arguments in calls_of_pytorch.values():
        expected = aten.convolution_backward(*arguments)
        with watched() as calls:
            actual = aten.convolution_backward(*arguments)
        assert calls.operators == []
        for a, e in zip(actual, expected, strict=True):
            assert torch.equal(a, e)
            assert type(a) is type(e)
            assert a.stride() == e.stride()


def test_other_devices_and_layouts_go_to_pytorch():
    grad, x = random(2, 3, 4, 4), random(2, 3, 8, 8)
    windows = [2, 2], [2, 2], [0, 0], False, True, None
    with watched() as calls:
        result = aten.avg_pool2d_backward(grad.to("meta"), x.to("meta"), *windows)
        assert result.device.type == "meta"
        mkldnn = torch.nn.functional.avg_pool2d(x.to_mkldnn(), 2)
        assert mkldnn.is_mkldnn
    assert calls.operators == []


def test_lazily_negated_tensors():
    grad, x = random(2, 3, 4, 4), random(2, 3, 8, 8)
    windows = [2, 2], [2, 2], [0, 0], False, True, None
    negated = torch._neg_view(grad)
    assert negated.is_neg()
    assert_same(*here_and_there(aten.avg_pool2d_backward, negated, x, *windows))
    case = conv_arguments(CONVOLUTIONS["dense"])
    check_convolution(torch._neg_view(case[0]), *case[1:])


def test_pytorch_gets_usual_strides():
    # Of such strides PyTorch's own kernel made a crash.
    weight = torch.as_strided(torch.randn(6), (2, 3, 1), (3, 1, 77))
    assert weight.is_contiguous()
    seen = []
    kernel = backops.torch.convolution.convolution_backward(
        type("Own", (), {"call_boxed": lambda self, *arguments: seen.extend(arguments)})()
    )
    odd_image = torch.as_strided(torch.randn(200), (1, 3, 2, 4), (77, 1, 12, 3))
    assert odd_image.is_contiguous(memory_format=torch.channels_last)
    transposed = torch.randn(2, 2, 6), odd_image, weight
    kernel(None, *transposed, None, [1], [0], [1], True, [0], 1, [True] * 3)
    given = seen[1:4]
    assert [tensor.stride() for tensor in given] == [(12, 6, 1), (24, 1, 12, 3), (3, 1, 1)]
    assert all(torch.equal(a, b) for a, b in zip(given, transposed, strict=True))
    assert given[0] is transposed[0]


def test_operands_with_odd_strides():
    weight = torch.randn(2, 1, 3).transpose(1, 2)
    arguments = random(2, 2, 6), random(2, 3, 6), weight, [2], [1], [0], [1], False, [0], 1
    check_convolution(*arguments, [True] * 3)


# Errors

WRONG_POOLS = {
    "batch": (random(1, 3, 4, 4), random(2, 3, 8, 8), [2, 2], [2, 2], [0, 0]),
    "channels": (random(2, 2, 4, 4), random(2, 3, 8, 8), [2, 2], [2, 2], [0, 0]),
    "size": (random(2, 3, 5, 4), random(2, 3, 8, 8), [2, 2], [2, 2], [0, 0]),
    "axes": (random(3, 4, 4), random(2, 3, 8, 8), [2, 2], [2, 2], [0, 0]),
    "padding": (random(2, 3, 4, 4), random(2, 3, 8, 8), [2, 2], [2, 2], [2, 2]),
    "stride": (random(2, 3, 4, 4), random(2, 3, 8, 8), [2, 2], [0, 0], [0, 0]),
    "dtype": (random(2, 3, 4, 4).int(), random(2, 3, 8, 8).int(), [2, 2], [2, 2], [0, 0]),
}


@pytest.mark.parametrize("here", [True, False])
@pytest.mark.parametrize("name", WRONG_POOLS)
def test_wrong_pooling_is_a_runtime_error(name, here, monkeypatch):
    monkeypatch.setattr(choice, "pool_is_faster", lambda *_: here)
    with backops.torch.enabled():
        with pytest.raises(RuntimeError):
            aten.avg_pool2d_backward(*WRONG_POOLS[name], False, True, None)
        if name in ("batch", "channels", "axes"):
            with pytest.raises(RuntimeError, match="grad_output is"):
                aten._adaptive_avg_pool2d_backward(*WRONG_POOLS[name][:2])


def test_divisor_of_zero_is_a_runtime_error():
    with backops.torch.enabled(), pytest.raises(RuntimeError, match="divisor"):
        aten.avg_pool2d_backward(*WRONG_POOLS["padding"][:4], [0, 0], False, True, 0)


@pytest.mark.parametrize(
    "shapes",
    [
        ((3, 4, 5, 3), (2, 3, 5, 5), (4, 3, 1, 3)),
        ((2, 5, 5, 3), (2, 3, 5, 5), (4, 3, 1, 3)),
        ((2, 4, 9, 9), (2, 3, 5, 5), (4, 3, 1, 3)),
        ((2, 4, 5, 3), (2, 2, 5, 5), (4, 3, 1, 3)),
    ],
    ids=["batch", "outputs", "size", "inputs"],
)
def test_wrong_convolution_is_a_runtime_error(shapes):
    lists = [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True] * 3
    tensors = [random(*shape) for shape in shapes]
    with pytest.raises(RuntimeError):
        aten.convolution_backward(*tensors, [4], *lists)
    with watched() as calls, pytest.raises(RuntimeError, match="conv_backward: "):
        aten.convolution_backward(*tensors, [4], *lists)
    assert calls.operators == ["conv_backward"]


@pytest.mark.parametrize("output_padding", [[1, 1], [0, 1], [1], [], [0, 0, 0]], ids=str)
def test_output_padding_is_for_transposed_convolutions(output_padding):
    arguments = list(conv_arguments(CONVOLUTIONS["dense"]))
    arguments[8] = output_padding
    with pytest.raises(RuntimeError) as expected:
        aten.convolution_backward(*arguments)
    with backops.torch.enabled(), pytest.raises(RuntimeError, match="output_padding") as actual:
        aten.convolution_backward(*arguments)
    assert str(actual.value) == str(expected.value)


def test_inputs_without_a_batch_are_refused_as_by_pytorch():
    grad, x, weight, *rest = conv_arguments(CONVOLUTIONS["dense"])
    with backops.torch.enabled(), pytest.raises(RuntimeError, match="4-dimensional input"):
        aten.convolution_backward(grad[0], x[0], weight, *rest)
