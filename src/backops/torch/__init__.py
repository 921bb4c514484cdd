"""PyTorch's own CPU backward of average pooling and convolution, computed by backops.

>>> import torch, backops.torch
>>> x = torch.arange(16.0).reshape(1, 1, 4, 4).requires_grad_()
>>> with backops.torch.enabled():
...     torch.nn.functional.avg_pool2d(x, 2).sum().backward()
>>> x.grad[0, 0, 0]
tensor([0.2500, 0.2500, 0.2500, 0.2500])

`enable()` is for the whole process, all threads included. Calls that are not supported here, or
that PyTorch is faster at, go to PyTorch's own kernels.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from backops.torch import kernels

__all__ = ["disable", "enable", "enabled", "is_enabled"]

# PyTorch's operators, each with what makes our kernel around its own. 1-D pooling is 2-D pooling in
# PyTorch.
OPERATORS: dict[str, Callable[[Any], kernels.Kernel]] = {
    "avg_pool2d_backward": lambda own: kernels.avg_pool_backward(own, 2),
    "avg_pool2d_backward.grad_input": lambda own: kernels.avg_pool_backward(own, 2),
    "avg_pool3d_backward": lambda own: kernels.avg_pool_backward(own, 3),
    "avg_pool3d_backward.grad_input": lambda own: kernels.avg_pool_backward(own, 3),
    "_adaptive_avg_pool2d_backward": lambda own: kernels.adaptive_avg_pool_backward(own, 2),
    "_adaptive_avg_pool3d_backward": lambda own: kernels.adaptive_avg_pool_backward(own, 3),
    "adaptive_avg_pool3d_backward.grad_input": lambda own: kernels.adaptive_avg_pool_backward(
        own, 3
    ),
    "convolution_backward": kernels.convolution_backward,
}

_lock = threading.Lock()
_library: Any = None


def enable() -> None:
    """From now on, PyTorch's CPU backward operators run here; does nothing if they do already."""
    global _library
    with _lock:
        if _library is None:
            _library = _register()


def disable() -> None:
    """PyTorch is again as it was before `enable()`; does nothing if it is so already.

    Not while another thread is in a backward pass: PyTorch may take the kernel away under it.
    """
    global _library
    with _lock:
        if _library is not None:
            _library._destroy()
            _library = None


def is_enabled() -> bool:
    """Whether PyTorch's operators run here."""
    return _library is not None


@contextmanager
def enabled() -> Iterator[None]:
    """Enabled inside, as before afterwards."""
    before = is_enabled()
    enable()
    try:
        yield
    finally:
        if not before:
            disable()


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
