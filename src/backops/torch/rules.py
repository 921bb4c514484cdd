"""Layers that one side was measured to be faster at, as data.

`python -m backops._bench.rules` holds the rules against what `backops bench layers`, `forward` or
`transposed` measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache

import torch

from backops import _native
from backops._capabilities import best_of


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
    dilated: bool
    channels_last: bool
    wants_input: bool

    @property
    def depthwise(self) -> bool:
        return self.inputs == 1 and self.groups > 1

    @property
    def whole_vectors(self) -> bool:
        """Whether channels, or the groups of depthwise layers, fill vectors of any CPU."""
        lanes = (self.groups,) if self.depthwise else (self.inputs, self.outputs)
        return all(each % 16 == 0 for each in lanes)


def layer_of(
    dtype: torch.dtype,
    weight_shape: tuple[int, ...],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    *,
    transposed: bool,
    channels_last: bool,
    wants_input: bool,
) -> Layer:
    first, second = weight_shape[0] // max(1, groups), weight_shape[1]
    return Layer(
        dtype,
        rank=len(weight_shape) - 2,
        inputs=first if transposed else second,
        outputs=second if transposed else first,
        groups=groups,
        kernel_elements=math.prod(weight_shape[2:]),
        strided=any(step > 1 for step in stride),
        dilated=any(step > 1 for step in dilation),
        channels_last=channels_last,
        wants_input=wants_input,
    )


Range = tuple[float, float]  # the least and the most
ANY = (0, math.inf)


@dataclass(frozen=True)
class Rule:
    """Layers that one side computes faster: those for which all of this holds; None: any will do.

    `measured` has PyTorch's time over ours.
    """

    measured: str
    dtypes: tuple[torch.dtype, ...]
    rank: Range = ANY
    inputs: Range = ANY
    outputs: Range = ANY
    kernel_elements: Range = ANY
    groups: Range = ANY
    strided: bool | None = None
    dilated: bool | None = None
    depthwise: bool | None = None
    whole_vectors: bool | None = None
    channels_last: bool | None = None
    wants_input: bool | None = None

    def __str__(self) -> str:
        """What is not left open."""
        said = ((each.name, getattr(self, each.name), each.default) for each in fields(self)[2:])
        parts = [f"{name}={value}" for name, value, default in said if value != default]
        return ", ".join([" or ".join(map(str, self.dtypes)), *parts, f"measured {self.measured}"])

    def holds(self, layer: Layer) -> bool:
        ranges = ("rank", "inputs", "outputs", "kernel_elements", "groups")
        flags = ("strided", "dilated", "depthwise", "whole_vectors", "channels_last", "wants_input")
        return (
            layer.dtype in self.dtypes
            and all(low <= getattr(layer, name) <= high for name in ranges
                    for low, high in [getattr(self, name)])
            and all(getattr(self, name) in (None, getattr(layer, name)) for name in flags)
        )  # fmt: skip


FLOAT32, BFLOAT16 = (torch.float32,), (torch.bfloat16,)
BOTH = FLOAT32 + BFLOAT16
# By operator, and by the capability of the CPU that was measured.
Table = dict[tuple[str, str], tuple[Rule, ...]]
# Backward, what is in no rule was faster here, or was not measured. Forward, they are exceptions to
# the table below.
PYTORCH_IS_FASTER: Table = {
    # Xeon, 512-bit units, two cores, 2026-11-16.
    ("conv_backward", "avx512"): (
        # Images of one channel into a first layer; with a gradient of the input 0.9 to 1.9.
        Rule("0.7 to 1.1", FLOAT32, rank=(2, 3), inputs=(1, 1), depthwise=False, wants_input=False),
        # Depthwise 3x3, for which PyTorch has a kernel. Channels that fill vectors: 1.05 to 1.7;
        # larger kernels: 5 to 30.
        Rule("0.8 to 1.0", FLOAT32, kernel_elements=(1, 9), depthwise=True, whole_vectors=False,
             channels_last=True),
    ),
    # AMD EPYC (Zen 5), 512-bit units, two cores, 2026-11-19.
    ("conv_backward", "avx512_bf16 wide_512"): (
        # First layers, as below; patches.
        Rule("0.7 to 0.8", FLOAT32, rank=(2, 2), inputs=(1, 3), outputs=(1, 16),
             kernel_elements=(1, 25), strided=False, depthwise=False, wants_input=False),
        Rule("0.9 to 1.1", FLOAT32, rank=(2, 2), inputs=(1, 3), kernel_elements=(200, math.inf),
             strided=True, depthwise=False, wants_input=False),
        # Many channels to few.
        Rule("0.8", FLOAT32, inputs=(2000, math.inf), outputs=(1, 30), kernel_elements=(1, 1)),
        # Channels-last: dense layers of 16 channels, 1x1, depthwise 3x3.
        Rule("0.7 to 0.9", BOTH, inputs=(16, 16), outputs=(16, 16), groups=(1, 1),
             channels_last=True),
        Rule("0.7 to 1.0", BFLOAT16, kernel_elements=(1, 1), channels_last=True),
        Rule("0.8 to 0.9", BFLOAT16, rank=(2, 2), kernel_elements=(1, 9), strided=False,
             depthwise=True, channels_last=True),
        Rule("0.8", FLOAT32, rank=(2, 2), kernel_elements=(1, 9), strided=True,
             depthwise=True, whole_vectors=False, channels_last=True),
    ),
    # Forward, the same.
    ("conv", "avx512_bf16 wide_512"): (
        # Channels-last: depthwise, groups of 8, dense layers, few outputs.
        Rule("0.8 to 1.0", BFLOAT16, rank=(2, 2), kernel_elements=(1, 9), depthwise=True,
             channels_last=True),
        Rule("0.7 to 0.9", BOTH, rank=(3, 3), depthwise=True, channels_last=True),
        Rule("0.7 to 0.8", BFLOAT16, inputs=(8, 8), groups=(2, math.inf), channels_last=True),
        Rule("0.9 to 1.0", FLOAT32, rank=(2, 2), inputs=(16, math.inf), outputs=(16, math.inf),
             groups=(1, 1), kernel_elements=(2, math.inf), channels_last=True),
        Rule("0.8 to 1.0", BFLOAT16, rank=(2, 2), inputs=(16, math.inf), outputs=(16, math.inf),
             groups=(1, 1), channels_last=True),
        Rule("0.7 to 0.8", BOTH, inputs=(16, math.inf), outputs=(1, 2), groups=(1, 1),
             channels_last=True),
        # Small images of few channels, and volumes of few.
        Rule("0.9", FLOAT32, rank=(2, 2), inputs=(1, 6), outputs=(1, 16), kernel_elements=(25, 25),
             depthwise=False),
        Rule("0.9 to 1.0", FLOAT32, rank=(3, 3), inputs=(1, 8), outputs=(8, 8), groups=(1, 1)),
        Rule("0.8 to 1.1", BFLOAT16, rank=(3, 3), inputs=(8, 8), groups=(1, 1)),
        # Many channels to few.
        Rule("0.8", FLOAT32, inputs=(2000, math.inf), outputs=(1, 30), kernel_elements=(1, 1)),
    ),
    # Transposed, the same.
    ("conv_transpose", "avx512_bf16 wide_512"): (
        Rule("0.8 to 0.9", BOTH, kernel_elements=(1, 4), strided=True, depthwise=False,
             channels_last=True),
    ),
    # AMD EPYC (Zen 4), 256-bit units, two cores, 2026-11-18.
    ("conv_backward", "avx512_bf16"): (
        # First layers of small images; in bfloat16 1.1 to 1.2, with a gradient of the input 1.0 and
        # more.
        Rule("0.7 to 0.9", FLOAT32, rank=(2, 2), inputs=(1, 3), outputs=(1, 16),
             kernel_elements=(1, 25), strided=False, depthwise=False, wants_input=False),
        # Depthwise 3x3, as above; strided 1.2. In bfloat16 of any channels, strided 12.
        Rule("0.9", FLOAT32, kernel_elements=(1, 9), strided=False, depthwise=True,
             whole_vectors=False, channels_last=True),
        Rule("0.8 to 0.9", BFLOAT16, rank=(2, 2), kernel_elements=(1, 9), strided=False,
             depthwise=True, channels_last=True),
        # 1x1 in channels-last; in float32 0.9 to 1.2. Dense layers of larger kernels: 0.9 to 4.4.
        Rule("0.8 to 1.3", BFLOAT16, kernel_elements=(1, 1), channels_last=True),
        # Contiguous 1x1 of many channels on both sides; of fewer outputs, or strided, 1.1 to 3.3.
        Rule("0.9 to 0.97", FLOAT32, rank=(2, 2), inputs=(300, math.inf), outputs=(200, math.inf),
             kernel_elements=(1, 1), groups=(1, 1), strided=False, channels_last=False),
    ),
    # Forward, the same EPYC, 2026-11-18.
    ("conv", "avx512_bf16"): (
        # Depthwise 3x3 in channels-last, whose larger kernels are 0.9 to 1.1, and small images,
        # which have many channels.
        Rule("0.7 to 0.95", BOTH, rank=(2, 2), kernel_elements=(1, 9), depthwise=True,
             channels_last=True),
        Rule("0.7 to 0.9", BOTH, rank=(3, 3), depthwise=True, channels_last=True),
        Rule("0.7 to 1.2", BOTH, rank=(2, 2), groups=(200, math.inf), depthwise=True,
             channels_last=False),
        # Groups of few channels; others 1.0 to 6.
        Rule("0.6 to 0.7", BFLOAT16, inputs=(4, 4), groups=(2, math.inf)),
        Rule("0.7 to 1.0", BFLOAT16, inputs=(8, 8), kernel_elements=(1, 9), groups=(2, math.inf)),
        Rule("0.8 to 0.9", BFLOAT16, inputs=(24, 24), groups=(2, math.inf)),
        # Dense layers in channels-last, and volumes of few channels.
        Rule("0.9 to 1.0", FLOAT32, rank=(2, 2), inputs=(16, math.inf), outputs=(16, math.inf),
             groups=(1, 1), kernel_elements=(2, math.inf), channels_last=True),
        Rule("0.9 to 1.0", BFLOAT16, rank=(2, 2), inputs=(16, math.inf), outputs=(16, math.inf),
             groups=(1, 1), kernel_elements=(1, 1), channels_last=True),
        Rule("0.6 to 1.1", BFLOAT16, rank=(3, 3), inputs=(8, 8), groups=(1, 1)),
    ),
    # AMD EPYC (Zen 3), two cores, 2026-11-18.
    ("conv_backward", "avx2"): (
        # Contiguous 1x1 of many channels on both sides, as above.
        Rule("0.7 to 1.0", FLOAT32, inputs=(300, math.inf), outputs=(190, math.inf),
             kernel_elements=(1, 1), groups=(1, 1), strided=False, channels_last=False),
    ),
    # Forward, the same.
    ("conv", "avx2"): (
        # Contiguous 1x1 of many channels to many; of fewer 0.7 to 1.8.
        Rule("0.7 to 1.8", FLOAT32, inputs=(200, math.inf), outputs=(100, math.inf),
             kernel_elements=(1, 1), groups=(1, 1), channels_last=False),
        # Dense layers with a stride, whose positions cannot be read in rows.
        Rule("0.7 to 1.0", FLOAT32, rank=(1, 2), inputs=(96, math.inf), groups=(1, 1),
             strided=True, channels_last=False),
        # Dense images in channels-last.
        Rule("0.8 to 1.1", FLOAT32, rank=(2, 2), inputs=(16, math.inf), outputs=(16, math.inf),
             groups=(1, 1), channels_last=True),
        # Small depthwise images, which have many channels.
        Rule("0.6 to 1.2", FLOAT32, rank=(2, 2), groups=(200, math.inf), depthwise=True,
             channels_last=False),
    ),
}  # fmt: skip
# Forward, what is in no rule was faster there, or was not measured. For float16 see `are_for_us`.
BACKOPS_IS_FASTER: Table = {
    # AMD EPYC (Zen 5), 512-bit units, two cores, 2026-11-19: 525 layers, 0.7 to 50, mean 1.8; 129
    # transposed ones, 0.8 to 60, mean 1.9.
    ("conv", "avx512_bf16 wide_512"): (Rule("0.7 to 50", BOTH),),
    ("conv_transpose", "avx512_bf16 wide_512"): (Rule("0.8 to 60", BOTH),),
    # AMD EPYC (Zen 4), 256-bit units, two cores, 2026-11-18: 531 layers, 0.6 to 28, mean 1.5.
    ("conv", "avx512_bf16"): (Rule("0.6 to 28", BOTH),),
    # The same day: 68 layers of U-Nets, generators and vocoders, 0.9 to 48, mean 1.8.
    ("conv_transpose", "avx512_bf16"): (Rule("0.9 to 48", BOTH),),
    # AMD EPYC (Zen 3), two cores, the same day: 264 layers in float32, 0.6 to 37, mean 1.5; 162 in
    # bfloat16, for which PyTorch has no fast convolution there, 2.3 to 400.
    ("conv", "avx2"): (Rule("0.6 to 400", BOTH),),
    # 34 layers of U-Nets, generators and vocoders, mean 1.6; bfloat16 was not measured.
    ("conv_transpose", "avx2"): (Rule("0.7 to 6.8", FLOAT32),),
}  # fmt: skip


@lru_cache(maxsize=1)
def capability() -> str:
    """Whose rules this CPU is held against."""
    return best_of(_native.capabilities())


@lru_cache(maxsize=1)
def pytorch_has_float16() -> bool:
    """Whether oneDNN computes convolutions in float16 here.

    Where it does not, PyTorch's own loops take 2 to 500 times as long as ours, forward and
    backward. Where it does, nothing was measured.
    """
    return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())


def active(operator: str) -> tuple[Rule, ...]:
    """The rules for this CPU."""
    key = operator, capability()
    return PYTORCH_IS_FASTER.get(key, ()) + BACKOPS_IS_FASTER.get(key, ())


def are_for_us(operator: str, layer: Layer) -> bool:
    """Whether a layer is faster here, as far as is known."""
    if layer.dtype is torch.float16 and not pytorch_has_float16():
        return True

    def is_in(table: Table) -> bool:
        return any(rule.holds(layer) for rule in table.get((operator, capability()), ()))

    if is_in(PYTORCH_IS_FASTER):
        return False
    return operator.endswith("backward") or is_in(BACKOPS_IS_FASTER)
