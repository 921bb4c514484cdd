"""enable(benchmark=True): both sides take turns, the faster stays, and choices() tells."""

import os
import signal
import threading

import pytest
import torch
import torch.nn.functional as F

import backops.torch
from backops.torch import choice, convolution, kernels, trials
from tests.support.pytorch import BACKWARD, FORWARD, Calls, assert_same

aten = torch.ops.aten

# Calls of a layer until its side is chosen.
UNTIL_CHOSEN = 2 * trials.CALLS


class Clock(Calls):
    """Time passes when it is read, and by `cost` more in each call that comes here.

    So PyTorch's calls take a second, and ours a second and `cost`.
    """

    def __init__(self):
        super().__init__()
        self.now = 0.0
        self.cost = 0.0
        self.first_cost = None

    def read(self):
        self.now += 1.0
        return self.now

    def __getattr__(self, name):
        if name in FORWARD + BACKWARD:
            self.now += self.cost if self.first_cost is None else self.first_cost
            self.first_cost = None
        return super().__getattr__(name)


@pytest.fixture(autouse=True)
def _nothing_timed():
    yield
    backops.torch.disable()


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(kernels, "_native", clock)
    monkeypatch.setattr(trials, "clock", clock.read)
    return clock


X, WEIGHT = torch.randn(2, 8, 12, 12), torch.randn(8, 8, 3, 3)


def conv(x=X, weight=WEIGHT, wants_input=True, stride=1, padding=0, dilation=1, groups=1):
    """Gradients; PyTorch's operator is called as autograd would."""
    windows = [stride] * 2, [padding] * 2, [dilation] * 2, False, [0, 0], groups
    y = aten.convolution(x.to("meta"), weight.to("meta"), None, *windows)
    grad, mask = torch.ones_like(y, device="cpu"), [wants_input, True, False]
    found = aten.convolution_backward(grad, x, weight, None, *windows, mask)
    return [tensor for tensor, asked in zip(found, mask, strict=True) if asked]


def pool(x=X):
    grad = torch.ones(*x.shape[:2], *(((size - 3) // 2 + 1) for size in x.shape[2:]))
    return [aten.avg_pool2d_backward(grad, x, [3, 3], [2, 2], [0, 0], False, True, None)]


def adaptive_pool(x=X):
    return [aten._adaptive_avg_pool2d_backward(torch.ones(2, 8, 5, 5), x)]


def transposed_conv():
    windows = [2, 2], [1, 1], [1, 1], True, [1, 1], 1
    return aten.convolution_backward(X, X[..., :6, :6], WEIGHT, None, *windows, [True] * 3)


FORWARD_LAYERS = [
    lambda: [F.conv2d(X, WEIGHT)],
    lambda: [F.conv2d(X, WEIGHT, X[0, :, 0, 0])],
    lambda: [F.conv_transpose2d(X, WEIGHT, stride=2, output_padding=1)],
    lambda: [F.avg_pool2d(X, 3, 2)],
    lambda: [F.adaptive_avg_pool2d(X, 5)],
]


@pytest.mark.parametrize("layer", [conv, transposed_conv, pool, adaptive_pool, *FORWARD_LAYERS])
@pytest.mark.parametrize(("cost", "chosen"), [(-0.5, "backops"), (0.5, "pytorch")])
def test_both_sides_take_turns_and_the_faster_stays(clock, layer, cost, chosen):
    expected = layer()
    clock.cost = cost
    backops.torch.enable(benchmark=True)
    for call in range(UNTIL_CHOSEN + 4):
        before = len(clock.operators + clock.forward)
        for actual, wanted in zip(layer(), expected, strict=True):
            assert_same(actual, wanted, terms=1000)
        here = len(clock.operators + clock.forward) - before
        assert here == (call % 2 == 0 if call < UNTIL_CHOSEN else chosen == "backops")
    (found,) = backops.torch.choices()
    assert found.chosen == chosen
    assert (found.backops_seconds, found.pytorch_seconds) == (1.0 + cost, 1.0)


def test_first_calls_do_not_count(clock):
    clock.cost, clock.first_cost = 0.5, -0.9
    backops.torch.enable(benchmark=True)
    for _ in range(UNTIL_CHOSEN):
        conv()
    assert backops.torch.choices()[0].chosen == "pytorch"


def test_each_distinct_layer_is_timed_by_itself(clock):
    backops.torch.enable(benchmark=True)
    last = X.contiguous(memory_format=torch.channels_last)
    threads = torch.get_num_threads()
    variants = [
        lambda: conv(),
        lambda: conv(x=X[:1]),
        lambda: conv(x=last),
        lambda: conv(x=X.double(), weight=WEIGHT.double()),
        lambda: conv(weight=WEIGHT[..., :2]),
        lambda: conv(stride=2),
        lambda: conv(padding=1),
        lambda: conv(dilation=2),
        lambda: conv(weight=WEIGHT[:, :4], groups=2),
        lambda: conv(wants_input=False),
        lambda: pool(),
        lambda: pool(last),
        lambda: adaptive_pool(),
        lambda: transposed_conv(),
        *FORWARD_LAYERS,
    ]
    for _ in range(2):
        for variant in variants:
            variant()
    assert len({(each.operator, each.layer) for each in backops.torch.choices()}) == len(variants)
    try:
        torch.set_num_threads(threads + 1)
        conv()
    finally:
        torch.set_num_threads(threads)
    assert [each.threads for each in backops.torch.choices()][-2:] == [threads, threads + 1]


def test_out_variants_are_timed_too(clock):
    grad, windows = torch.randn(2, 8, 6, 6), ([2, 2], [2, 2], [0, 0], False, True, None)
    expected = torch.ops.aten.avg_pool2d_backward(grad, X, *windows)
    backops.torch.enable(benchmark=True)
    for _ in range(UNTIL_CHOSEN + 1):
        out = torch.full_like(X, torch.nan)
        torch.ops.aten.avg_pool2d_backward.grad_input(grad, X, *windows, grad_input=out)
        assert_same(out, expected)
    assert "grad_input (2, 8, 12, 12)" in backops.torch.choices()[0].layer


def test_a_choice_reads_well(clock):
    backops.torch.enable(benchmark=True)
    torch_threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        conv(X.contiguous(memory_format=torch.channels_last), stride=2)
        (early,) = map(str, backops.torch.choices())
        for _ in range(UNTIL_CHOSEN):
            conv(X.contiguous(memory_format=torch.channels_last), stride=2)
        (late,) = map(str, backops.torch.choices())
    finally:
        torch.set_num_threads(torch_threads)
    layer = (
        "conv_backward float32, grad_output (2, 8, 5, 5), "
        "input (2, 8, 12, 12) channels_last, weight (8, 8, 3, 3), stride (2, 2), padding (0, 0), "
        "dilation (1, 1), groups 1, output_mask (True, True, False), 2 threads: "
    )
    assert early == layer + "being timed"
    assert late == layer + "backops chosen, backops 1000.00 ms, pytorch 1000.00 ms"


# When it is on


def test_enabling_again_keeps_what_was_timed_unless_it_is_without_benchmark(clock):
    backops.torch.enable(benchmark=True)
    conv()
    backops.torch.enable(benchmark=True)
    assert len(backops.torch.choices()) == 1
    backops.torch.enable()
    assert backops.torch.is_enabled()
    assert backops.torch.choices() == []
    before = len(clock.operators)
    for _ in range(2):
        conv(X.double(), WEIGHT.double())
    assert len(clock.operators) == before + 2


def test_disabling_forgets(clock):
    backops.torch.enable(benchmark=True)
    conv()
    backops.torch.disable()
    assert backops.torch.choices() == []
    backops.torch.enable(benchmark=True)
    assert backops.torch.choices() == []


@pytest.mark.usefixtures("clock")
def test_a_context_goes_on_where_it_was_left():
    for _ in range(UNTIL_CHOSEN):
        with backops.torch.enabled(benchmark=True):
            conv()
    with backops.torch.enabled(benchmark=True):
        (found,) = backops.torch.choices()
    assert found.chosen is not None
    backops.torch.disable()
    with backops.torch.enabled(benchmark=True):
        assert backops.torch.choices() == []


def test_contexts_restore_what_was_before(clock):
    with backops.torch.enabled(benchmark=True):
        conv()
        with backops.torch.enabled():
            assert backops.torch.choices() == []
            conv()
        assert len(backops.torch.choices()) == 1
    assert not backops.torch.is_enabled()
    assert backops.torch.choices() == []
    backops.torch.enable()
    with backops.torch.enabled(benchmark=True):
        conv()
    assert backops.torch.is_enabled()
    assert backops.torch.choices() == []


def test_nothing_is_timed_where_results_are_to_be_deterministic(clock):
    backops.torch.enable(benchmark=True)
    torch.use_deterministic_algorithms(True)
    try:
        results = [conv(X.double(), WEIGHT.double()) for _ in range(3)]
    finally:
        torch.use_deterministic_algorithms(False)
    assert clock.operators == 3 * ["conv_backward"]
    assert backops.torch.choices() == []
    assert all(torch.equal(a, b) for a, b in zip(results[0], results[1], strict=True))


def test_the_table_has_no_say(clock, monkeypatch):
    monkeypatch.setattr(choice, "conv_is_faster", lambda *_: False)
    backops.torch.enable(benchmark=True)
    conv()
    assert clock.operators == ["conv_backward"]


def test_tiny_pools_are_not_timed(clock):
    backops.torch.enable(benchmark=True)
    pool(torch.randn(1, 1, 4, 4))
    assert backops.torch.choices() == []


# What could go wrong


def test_calls_that_raise_are_not_counted(clock):
    backops.torch.enable(benchmark=True)
    wrong = torch.randn(2, 8, 9, 9)
    rest = [8], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True] * 3
    for _ in range(2 * UNTIL_CHOSEN):
        with pytest.raises(RuntimeError):
            torch.ops.aten.convolution_backward(wrong, X, WEIGHT, *rest)
    (found,) = backops.torch.choices()
    assert (found.chosen, found.backops_seconds, found.pytorch_seconds) == (None, None, None)


def test_only_so_many_layers_are_remembered(clock, monkeypatch):
    monkeypatch.setattr(trials, "MOST_LAYERS", 3)
    backops.torch.enable(benchmark=True)
    for batch in range(1, 6):
        conv(torch.randn(batch, 8, 12, 12))
    layers = [each.layer for each in backops.torch.choices()]
    assert len(layers) == 3
    for batch, layer in zip((3, 4, 5), layers, strict=True):
        assert f"input ({batch}, 8, 12, 12)" in layer


def test_many_threads_time_the_same_layers():
    expected = conv(), pool()
    failures = []

    def body():
        try:
            for _ in range(20):
                for actual, wanted in zip((conv(), pool()), expected, strict=True):
                    for a, w in zip(actual, wanted, strict=True):
                        assert_same(a, w, terms=1000)
        except BaseException as error:
            failures.append(error)

    with backops.torch.enabled(benchmark=True):
        threads = [threading.Thread(target=body) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = backops.torch.choices()
    assert not failures, failures[0]
    assert len(found) == len({each.layer for each in found}) == 2
    assert all(each.chosen for each in found)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_child_of_a_fork_that_found_the_lock_taken():
    read, write = os.pipe()
    with trials._lock:
        pid = os.fork()
        if pid == 0:
            signal.alarm(20)
            counts = trials.Trials()
            layer = trials.layer_of(convolution.BACKWARD[False], 1, (X,), ([1],) * 5)
            os.write(write, counts.run(layer, lambda: b"ours", lambda: b"PyTorch's"))
            os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert os.read(read, 100) == b"ours"


def test_compiled_code_and_autocast_are_timed_as_well(clock):
    def loss(x, weight):
        with torch.autocast("cpu", torch.bfloat16):
            return F.avg_pool2d(F.conv2d(x, weight), 2).float().square().sum()

    compiled = torch.compile(loss, backend="aot_eager")
    inputs = X.clone().requires_grad_(), WEIGHT.clone().requires_grad_()
    expected = torch.autograd.grad(loss(*inputs), inputs)
    backops.torch.enable(benchmark=True)
    for _ in range(UNTIL_CHOSEN):
        for actual, wanted in zip(
            torch.autograd.grad(compiled(*inputs), inputs), expected, strict=True
        ):
            # In float32, of gradients in bfloat16.
            torch.testing.assert_close(actual, wanted, rtol=0.02, atol=0.02 * wanted.abs().max())
    found = backops.torch.choices()
    assert sorted(each.operator for each in found) == [
        "avg_pool2d",
        "avg_pool2d_backward",
        "conv",
        "conv_backward",
    ]
    assert all(each.chosen and "bfloat16" in each.layer for each in found)
