"""Which calls are computed here, and which stay with PyTorch's own kernels.

`enable(benchmark=True)` times both sides of each layer on this machine (`trials`). Without it a
layer is computed here, unless the core has nothing but its plain loops for it, or a table says that
PyTorch was measured to be faster. `backops bench layers` measures the convolutions of networks on
both sides, and shows where that is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from backops import _native, errors
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


@dataclass(frozen=True)
class Layer:
    """What rules are about. Channels are those of a group."""

    dtype: torch.dtype
    rank: int
    inputs: int
    outputs: int
    groups: int
    kernel_elements: int
    strided: bool
    channels_last: bool
    wants_input: bool

    @property
    def depthwise(self) -> bool:
        return self.inputs == 1 and self.groups > 1

    @property
    def whole_vectors(self) -> bool:
        """Whether groups fill vectors of any CPU."""
        return self.groups % 16 == 0


Range = tuple[float, float]  # the least and the most
ANY = (0, math.inf)


@dataclass(frozen=True)
class Rule:
    """Layers that PyTorch computes faster: those for which all of this holds; None: any will do.

    `measured` has PyTorch's time over ours.
    """

    measured: str
    dtypes: tuple[torch.dtype, ...]
    rank: Range = ANY
    inputs: Range = ANY
    outputs: Range = ANY
    kernel_elements: Range = ANY
    strided: bool | None = None
    depthwise: bool | None = None
    whole_vectors: bool | None = None
    channels_last: bool | None = None
    wants_input: bool | None = None

    def holds(self, layer: Layer) -> bool:
        ranges = ("rank", "inputs", "outputs", "kernel_elements")
        flags = ("strided", "depthwise", "whole_vectors", "channels_last", "wants_input")
        return (
            layer.dtype in self.dtypes
            and all(low <= getattr(layer, name) <= high for name in ranges
                    for low, high in [getattr(self, name)])
            and all(getattr(self, name) in (None, getattr(layer, name)) for name in flags)
        )  # fmt: skip


FLOAT32 = (torch.float32,)
# From the best on. A CPU is held against the rules of the first one it has.
CAPABILITIES = ("amx", "avx512_bf16", "avx512", "avx2", "neon")

# By the capability of the CPU that was measured. What is in no rule was faster here, or was not
# measured.
PYTORCH_IS_FASTER: dict[str, tuple[Rule, ...]] = {
    # Xeon, 512-bit units, two cores, 2026-11-16.
    "avx512": (
        # Images of one channel into a first layer; with a gradient of the input 0.9 to 1.9.
        Rule("0.7 to 1.1", FLOAT32, rank=(2, 3), inputs=(1, 1), depthwise=False, wants_input=False),
        # Depthwise 3x3, for which PyTorch has a kernel. Channels that fill vectors: 1.05 to 1.7;
        # larger kernels: 5 to 30.
        Rule("0.8 to 1.0", FLOAT32, kernel_elements=(1, 9), depthwise=True, whole_vectors=False,
             channels_last=True),
    ),
    # AMD EPYC (Zen 4), 256-bit units, two cores, 2026-11-17.
    "avx512_bf16": (
        # First layers of images, strided, or of few channels; others 1.0 to 4.8.
        Rule("0.8 to 1.1", FLOAT32, rank=(2, 2), inputs=(1, 3), strided=True, depthwise=False,
             wants_input=False),
        Rule("0.6 to 0.9", FLOAT32, rank=(2, 2), inputs=(1, 3), outputs=(1, 16),
             kernel_elements=(1, 25), strided=False, depthwise=False, wants_input=False),
        # Depthwise 3x3, as above; strided 1.2.
        Rule("0.9", FLOAT32, kernel_elements=(1, 9), strided=False, depthwise=True,
             whole_vectors=False, channels_last=True),
        # Matrix products over many channels of small images; strided or with fewer of either: 1.0
        # and more.
        Rule("0.7 to 1.0", FLOAT32, inputs=(320, 2048), outputs=(250, 1280),
             kernel_elements=(1, 1), strided=False),
        # In channels-last, to more than a few outputs.
        Rule("0.8 to 1.0", FLOAT32, outputs=(16, math.inf), kernel_elements=(1, 1),
             channels_last=True),
    ),
}  # fmt: skip


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
    return _is_faster(capability(), input.dtype, channels_last, *problem)


@lru_cache(maxsize=1)
def capability() -> str:
    """The best that this CPU has, of those that the table may name."""
    names = _native.capabilities().split()
    return next((name for name in CAPABILITIES if name in names), "generic")


@lru_cache(maxsize=4096)
def _is_faster(
    capability: str,
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
    layer = Layer(
        dtype,
        rank=len(weight_shape) - 2,
        inputs=weight_shape[1],
        outputs=weight_shape[0] // max(1, groups),
        groups=groups,
        kernel_elements=math.prod(weight_shape[2:]),
        strided=any(step > 1 for step in stride),
        channels_last=channels_last,
        wants_input=output_mask[0],
    )
    if any(rule.holds(layer) for rule in PYTORCH_IS_FASTER.get(capability, ())):
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
