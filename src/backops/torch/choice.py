"""Which calls are computed here, and which stay with PyTorch's own kernels.

`enable(benchmark=True)` times both sides of each layer on this machine (`trials`). Without it a
layer goes where it was measured to be faster (`rules`), and to PyTorch if the core has nothing but
its plain loops for it. `backops bench layers`, `forward` and `transposed` measure the convolutions
of networks on both sides, and show where that is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch

from backops import _native, errors
from backops.torch import rules
from backops.torch.layouts import suggested_format
from backops.torch.trials import Trials

# What `enable(benchmark=True)` has timed; None without it.
trials: Trials | None = None

# A call through Python costs 4 to 8 µs, whoever computes. Of the rest, PyTorch's share is the
# smaller one up to about this size.
LEAST_POOL_ELEMENTS = 256
# Planes of one window, forward in float32: 0.74 of PyTorch's speed for 7x7, 1.9 for 14x14 (Zen 4,
# two cores, 2026-11-18). In 16 bits 1.1 and more.
MOST_ELEMENTS_OF_SMALL_PLANES = 64
# The core reckons with 30 cycles for a product of its plain loops. PyTorch's smallest convolutions
# take as long as this many, some 10 µs.
MOST_PLAIN_PRODUCTS = 1000


def active_trials() -> Trials | None:
    """What times this call, or has timed its like; None where the rules decide.

    Which side wins may change from run to run, and with it the last bits of a result.
    """
    if trials is None or torch.are_deterministic_algorithms_enabled():
        return None
    return trials


def pool_is_faster(input: Any) -> bool:
    return bool(input.numel() >= LEAST_POOL_ELEMENTS)


def forward_pool_is_faster(input: Any, kernel_size: Sequence[int]) -> bool:
    plane = input.shape[-len(kernel_size) :]
    is_small = plane.numel() <= MOST_ELEMENTS_OF_SMALL_PLANES
    return not (input.dtype is torch.float32 and is_small and [*plane] == [*kernel_size])


def conv_is_faster(
    operator: str,
    input: Any,
    weight: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool] = (),
) -> bool:
    """`operator` is ours, of which `transposed` is a part; without gradients there is no mask."""
    channels_last = suggested_format(input) is not torch.contiguous_format
    problem = (
        tuple(input.shape), tuple(weight.shape), tuple(stride), tuple(padding), tuple(dilation),
        transposed, tuple(output_padding), groups, tuple(output_mask),
    )  # fmt: skip
    return _is_faster(operator, input.dtype, channels_last, *problem)


@lru_cache(maxsize=4096)
def _is_faster(
    operator: str,
    dtype: torch.dtype,
    channels_last: bool,
    input_shape: tuple[int, ...],
    weight_shape: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    transposed: bool,
    output_padding: tuple[int, ...],
    groups: int,
    output_mask: tuple[bool, ...],
) -> bool:
    layer = rules.layer_of(
        dtype, weight_shape, stride, dilation, groups, transposed=transposed,
        channels_last=channels_last, wants_input=output_mask[:1] == (True,),
    )  # fmt: skip
    if not rules.are_for_us(operator, layer):
        return False
    windows = stride, padding, dilation, groups
    more = () if not transposed else (operator, output_padding)
    try:
        output_shape, *_ = _native.conv_geometry(
            input_shape, weight_shape, *windows, _name_of(dtype), *more
        )
        # Each element of the shape that has the windows meets a filter.
        outputs = input_shape if transposed else output_shape
        if math.prod(outputs) * math.prod(weight_shape[1:]) <= MOST_PLAIN_PRODUCTS:
            return True
        if output_mask:
            plan: Any = _native.plan_conv(
                input_shape, weight_shape, *windows, output_mask, "keep", _name_of(dtype), *more
            )
        else:
            plan = _native.plan_conv_forward(
                operator, input_shape, weight_shape, stride, padding, output_padding, dilation,
                groups, "keep", _name_of(dtype),
            )  # fmt: skip
    except errors.Error:
        return True  # ours will say what is wrong
    return not plan.kernel.endswith(" plain")


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
