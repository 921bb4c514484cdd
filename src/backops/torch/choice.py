"""Which calls are computed here, and which stay with PyTorch's own kernels.

`enable(benchmark=True)` times both sides of each layer on this machine (`trials`). Without it a
layer is computed here, unless the core has nothing but its plain loops for it, or a rule says that
PyTorch was measured to be faster (`rules`). `backops bench layers` measures the convolutions of
networks on both sides, and shows where that is wrong.
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


def conv_is_faster(
    input: Any,
    weight: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> bool:
    channels_last = suggested_format(input) is not torch.contiguous_format
    problem = (
        tuple(input.shape), tuple(weight.shape), tuple(stride), tuple(padding), tuple(dilation),
        groups, tuple(output_mask),
    )  # fmt: skip
    return _is_faster(input.dtype, channels_last, *problem)


@lru_cache(maxsize=4096)
def _is_faster(
    dtype: torch.dtype,
    channels_last: bool,
    input_shape: tuple[int, ...],
    weight_shape: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
    output_mask: tuple[bool, ...],
) -> bool:
    layer = rules.layer_of(
        dtype, weight_shape, stride, groups, channels_last=channels_last, wants_input=output_mask[0]
    )
    if any(rule.holds(layer) for rule in rules.active()):
        return False
    windows = stride, padding, dilation, groups
    try:
        output_shape, *_ = _native.conv_geometry(
            input_shape, weight_shape, *windows, _name_of(dtype)
        )
        if math.prod(output_shape) * math.prod(weight_shape[1:]) <= MOST_PLAIN_PRODUCTS:
            return True
        plan = _native.plan_conv(
            input_shape, weight_shape, *windows, output_mask, "keep", _name_of(dtype)
        )
    except errors.Error:
        return True  # ours will say what is wrong
    return not plan.kernel.endswith(" plain")


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
