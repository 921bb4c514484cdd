"""PyTorch's own average pooling and convolution on the CPU, computed by backops.

>>> import torch, backops.torch
>>> x = torch.arange(16.0).reshape(1, 1, 4, 4).requires_grad_()
>>> with backops.torch.enabled():
...     torch.nn.functional.avg_pool2d(x, 2).sum().backward()
>>> x.grad[0, 0, 0]
tensor([0.2500, 0.2500, 0.2500, 0.2500])

`enable()` is for the whole process, all threads included. Calls that are not supported here, or
that PyTorch is known to be faster at, go to PyTorch's own kernels. `enable(benchmark=True)` times
both sides on this machine instead, and `choices()` shows what it found.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from backops.torch import choice, convolution, kernels, pooling
from backops.torch.trials import Choice, Trials

__all__ = ["Choice", "choices", "disable", "enable", "enabled", "is_enabled"]

# PyTorch's operators, each with what makes our kernel around its own. 1-D pooling is 2-D pooling in
# PyTorch.
OPERATORS: dict[str, Callable[[Any], kernels.Kernel]] = {
    "avg_pool2d": lambda own: pooling.avg_pool(own, 2),
    "avg_pool3d": lambda own: pooling.avg_pool(own, 3),
    "_adaptive_avg_pool2d": lambda own: pooling.adaptive_avg_pool(own, 2),
    "_adaptive_avg_pool3d": lambda own: pooling.adaptive_avg_pool(own, 3),
    "convolution": convolution.convolution,
    "avg_pool2d_backward": lambda own: pooling.avg_pool_backward(own, 2),
    "avg_pool2d_backward.grad_input": lambda own: pooling.avg_pool_backward(own, 2),
    "avg_pool3d_backward": lambda own: pooling.avg_pool_backward(own, 3),
    "avg_pool3d_backward.grad_input": lambda own: pooling.avg_pool_backward(own, 3),
    "_adaptive_avg_pool2d_backward": lambda own: pooling.adaptive_avg_pool_backward(own, 2),
    "_adaptive_avg_pool3d_backward": lambda own: pooling.adaptive_avg_pool_backward(own, 3),
    "adaptive_avg_pool3d_backward.grad_input": lambda own: pooling.adaptive_avg_pool_backward(
        own, 3
    ),
    "convolution_backward": convolution.convolution_backward,
}

_lock = threading.Lock()
_library: Any = None
# What `enabled(benchmark=True)` timed, for the next time it is entered.
_kept: Trials | None = None


def enable(benchmark: bool = False) -> None:
    """From now on, PyTorch's CPU pooling and convolution run here, forward and backward.

    With `benchmark`, the first calls of each distinct layer (operator, sizes, strides, dtype,
    parameters, threads) run here and in PyTorch's own kernel in turns, and are timed; the side that
    was faster has all later ones. Each call runs once, on one side, and its result is right.
    Under `torch.use_deterministic_algorithms(True)` nothing is timed.

    Enabling again keeps what was timed, unless it is without `benchmark`.
    """
    global _kept
    with _lock:
        _kept = (choice.trials or _kept or Trials()) if benchmark else None
        _set(True, _kept)


def disable() -> None:
    """PyTorch is again as it was before `enable()`; does nothing if it is so already.

    Not while another thread computes: PyTorch may take the kernel away under it.
    """
    global _kept
    with _lock:
        _kept = None
        _set(False, None)


def is_enabled() -> bool:
    """Whether PyTorch's operators run here."""
    return _library is not None


@contextmanager
def enabled(benchmark: bool = False) -> Iterator[None]:
    """Enabled inside, as before afterwards. What was timed is kept for the next time."""
    global _kept
    with _lock:
        if benchmark:
            _kept = choice.trials or _kept or Trials()
        trials = _kept if benchmark else None
    with _state(True, trials):
        yield


def choices() -> list[Choice]:
    """What `enable(benchmark=True)` has timed: a record for each layer, in order of first calls.

    >>> layer = torch.nn.Conv2d(8, 8, 3)
    >>> with backops.torch.enabled(benchmark=True):
    ...     for _ in range(10):
    ...         layer(torch.randn(2, 8, 16, 16)).sum().backward()
    ...     forward, backward = backops.torch.choices()
    >>> backward.operator, backward.chosen in ("backops", "pytorch")
    ('conv_backward', True)
    """
    return [] if choice.trials is None else choice.trials.choices()


@contextmanager
def _state(enabled: bool, trials: Trials | None) -> Iterator[None]:
    """This inside, as before afterwards."""
    with _lock:
        before = is_enabled(), choice.trials
        _set(enabled, trials)
    try:
        yield
    finally:
        with _lock:
            _set(*before)


def _set(enabled: bool, trials: Trials | None) -> None:
    """Under the lock."""
    global _library
    choice.trials = trials
    if enabled and _library is None:
        _library = _register()
    elif not enabled and _library is not None:
        _library._destroy()
        _library = None


def _register() -> Any:
    library = torch.library.Library("aten", "IMPL")
    try:
        for name, make_kernel in OPERATORS.items():
            # Taken before it is covered: ours would otherwise call itself.
            own = torch.library.get_kernel(f"aten::{name}", "CPU")
            with warnings.catch_warnings():
                # Said once per process, about whichever operator comes first.
                warnings.filterwarnings("ignore", "(?s).*Overriding a previously registered kernel")
                library.impl(name, make_kernel(own), "CPU", with_keyset=True)
    except BaseException:
        library._destroy()
        raise
    return library
