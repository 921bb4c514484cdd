"""Exceptions that are not ours pass: Ctrl-C, and whatever a signal handler raises."""

import signal
import time

import numpy as np
import pytest
import torch

import backops


class Late(Exception):
    """What the handler raises: nothing that an array or a number would refuse with."""


@pytest.fixture
def _alarm_raises_late():
    def handle(number, frame):
        raise Late

    before = signal.signal(signal.SIGALRM, handle)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def seconds_of(call):
    times = []
    for _ in range(3):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def count_seen(call, tries):
    """How often a timer that ends half-way through `call` is seen, at the latest right after it."""
    delay = seconds_of(call) / 2
    seen = 0
    for _ in range(tries):
        try:
            signal.setitimer(signal.ITIMER_REAL, delay)
            call()
            while signal.getitimer(signal.ITIMER_REAL)[0] > 0:
                time.sleep(0.001)
            time.sleep(0.001)  # handlers run after calls
        except Late:
            seen += 1
    return seen


@pytest.mark.usefixtures("_alarm_raises_late")
def test_timer_during_a_backward_pass_of_pytorch_is_seen():
    import backops.torch

    layer = torch.nn.Conv2d(64, 64, 3, padding=1)
    x = torch.ones(8, 64, 64, 64, requires_grad=True)
    with backops.torch.enabled():
        y = torch.nn.functional.avg_pool2d(layer(x), 2).sum()
        assert count_seen(lambda: y.backward(retain_graph=True), 20) == 20


@pytest.mark.usefixtures("_alarm_raises_late")
def test_timer_during_a_call_with_tensors_to_write_is_seen():
    x, weight = torch.ones(8, 64, 64, 64), torch.ones(64, 64, 3, 3)
    out = torch.empty_like(x), torch.empty_like(weight), torch.empty(64)
    plan = backops.plan.conv_backward(x.shape, weight.shape, padding=1)
    for function in (lambda *a, **k: backops.conv_backward(*a, **k, padding=1), plan):
        assert count_seen(lambda f=function: f(x, x, weight, out=out), 10) == 10
    grad, out = torch.ones(64, 64, 32, 32), torch.empty(64, 64, 64, 64)
    assert count_seen(lambda: backops.avg_pool2d_backward(grad, out.shape, 2, out=out), 10) == 10


def test_kernel_of_pytorch_counts_one_version_per_result():
    # PyTorch counts itself what its kernels write.
    import backops.torch

    grad, x = torch.ones(2, 64, 32, 32), torch.ones(2, 64, 64, 64)
    out = torch.zeros_like(x)
    with backops.torch.enabled():
        torch.ops.aten.avg_pool2d_backward.grad_input(
            grad, x, [2, 2], [2, 2], [0, 0], False, True, None, grad_input=out
        )
    assert out.min() == 0.25
    assert out._version == 1


def raises_late(*arguments, **keywords):
    raise Late


class Ones:
    """Stands for an array, and works but for what is replaced below."""

    def __init__(self, *shape):
        self._array = np.ones(shape)

    def __dlpack__(self, **keywords):
        return self._array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


def failing(name):
    """A type of array where looking for that attribute raises Late."""
    return type("Failing", (Ones,), {name: property(raises_late)})


POOL = {"grad_output": np.ones((1, 1, 2, 2)), "input": (1, 1, 4, 4), "kernel_size": 2}


def raising(method, **more):
    """An object whose method of that name raises Late."""
    return type("Raising", (), {method: raises_late, **more})()


@pytest.mark.parametrize(
    ("argument", "make"),
    [
        ("grad_output", lambda: failing("__dlpack__")(1, 1, 2, 2)),
        ("grad_output", lambda: failing("__dlpack_device__")(1, 1, 2, 2)),
        ("grad_output", lambda: failing("__array_namespace__")(1, 1, 2, 2)),
        ("input", lambda: failing("shape")(1, 1, 4, 4)),
        ("input", lambda: failing("dtype")(1, 1, 4, 4)),
        ("input", lambda: failing("__dlpack__")(1, 1, 4, 4)),
        ("out", lambda: failing("__dlpack__")(1, 1, 4, 4)),
        ("kernel_size", lambda: raising("__index__")),
        ("kernel_size", lambda: raising("__getitem__", __len__=lambda self: 2)),
        ("ceil_mode", lambda: raising("__bool__")),
        ("precision", lambda: raising("__repr__")),
        ("out", lambda: raising("__repr__")),
    ],
)
def test_exception_of_a_handler_inside_an_argument_passes(argument, make):
    with pytest.raises(Late):
        backops.avg_pool2d_backward(**{**POOL, argument: make()})


def test_exception_of_a_handler_inside_a_type_passes():
    class Meta(type):
        @property
        def __dlpack_c_exchange_api__(cls):
            raise Late

    class Array(Ones, metaclass=Meta):
        pass

    with pytest.raises(Late):
        backops.avg_pool2d_backward(Array(1, 1, 2, 2), (1, 1, 4, 4), 2)


@pytest.mark.parametrize("argument", ["output_mask", "out"])
def test_exception_of_a_handler_inside_a_sequence_of_three_passes(argument):
    class Three:
        def __len__(self):
            return 3

        def __getitem__(self, i):
            raise Late

    ones = np.ones((1, 1, 3)), np.ones((1, 1, 3)), np.ones((1, 1, 1))
    with pytest.raises(Late):
        backops.conv_backward(*ones, **{argument: Three()})


def test_exception_of_a_handler_while_a_tensor_is_looked_at_passes():
    class Tensor(torch.Tensor):
        def is_neg(self):
            raise Late

        def is_inference(self):
            raise Late

    tensor = torch.ones(1, 1, 2, 2).as_subclass(Tensor)
    with pytest.raises(Late):
        backops.avg_pool2d_backward(tensor, (1, 1, 4, 4), 2)


def test_exception_before_an_array_is_written_leaves_it_alone():
    class Tensor(torch.Tensor):
        def is_inference(self):
            raise Late

    out = torch.zeros(1, 1, 4, 4).as_subclass(Tensor)
    with pytest.raises(Late):
        backops.avg_pool2d_backward(torch.ones(1, 1, 2, 2), (1, 1, 4, 4), 2, out=out)
    assert not out.any()
