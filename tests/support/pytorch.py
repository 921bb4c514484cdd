"""What the tests of backops.torch share: who computed, comparisons, and the choice switched off."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import backops.torch
from backops import _native
from backops.torch import choice, kernels

FORWARD = ("avg_pool", "adaptive_avg_pool", "conv", "conv_transpose")
BACKWARD = tuple(f"{name}_backward" for name in FORWARD)


class Calls:
    """Stands before `_native` and notes which operators were called, and with how many threads.

    `operators` are the backward ones, `forward` the others.
    """

    def __init__(self) -> None:
        self.operators: list[str] = []
        self.forward: list[str] = []
        self.threads: list[int] = []

    def __getattr__(self, name: str) -> Any:
        function = getattr(_native, name)

        def call(*arguments: Any) -> Any:
            (self.operators if name in BACKWARD else self.forward).append(name)
            self.threads.append(arguments[-1])
            return function(*arguments)

        return call if name in FORWARD + BACKWARD else function


@contextlib.contextmanager
def watched() -> Iterator[Calls]:
    """Enabled, and the calls that come here are noted."""
    calls = Calls()
    with pytest.MonkeyPatch.context() as patch, backops.torch.enabled():
        patch.setattr(kernels, "_native", calls)
        yield calls


@contextlib.contextmanager
def everything_here() -> Iterator[None]:
    """What is supported runs here, whether that pays or not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choice, "pool_is_faster", lambda *_: True)
        patch.setattr(choice, "forward_pool_is_faster", lambda *_: True)
        patch.setattr(choice, "conv_is_faster", lambda *_: True)
        yield


def in_format(tensor: torch.Tensor, layout: str) -> torch.Tensor:
    """`tensor` contiguous, channels-last, or every second element of something wider."""
    if layout == "channels_last" and tensor.dim() in (4, 5):
        formats = {4: torch.channels_last, 5: torch.channels_last_3d}
        # Unlike contiguous() also where sizes of one make a tensor dense in both formats.
        return tensor.to(memory_format=formats[tensor.dim()])
    if layout == "sliced":
        wide = torch.zeros(*tensor.shape[:-1], 2 * tensor.shape[-1], dtype=tensor.dtype)
        wide[..., ::2] = tensor
        return wide[..., ::2]
    return tensor.contiguous()


def assert_same(
    actual: Any,
    expected: torch.Tensor,
    *,
    terms: int = 64,
    strides: bool = True,
    magnitudes: torch.Tensor | None = None,
) -> None:
    """Shape, dtype and strides alike, and values up to the rounding of sums of `terms`.

    `magnitudes` are the same sums of absolute values, for terms that may cancel each other out.
    """
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    assert not strides or actual.stride() == expected.stride()
    eps = torch.finfo(expected.dtype).eps
    largest = (
        (expected if magnitudes is None else magnitudes).abs().max().item()
        if expected.numel()
        else 0.0
    )
    tolerance = {"rtol": 4 * eps, "atol": 2 * eps * largest * terms**0.5}
    torch.testing.assert_close(actual.double(), expected.double(), **tolerance, equal_nan=True)


def gradients(make_loss: Callable[..., Any], *leaves: torch.Tensor) -> list[Any]:
    """Gradients of the leaves, which are not touched; those that need none get None."""
    own = [leaf.detach().requires_grad_(leaf.requires_grad) for leaf in leaves]
    make_loss(*own).backward()
    return [leaf.grad for leaf in own]
