"""Which calls are faster here than in PyTorch's own kernels; the others stay with PyTorch.

`backops bench layers` measures the convolutions of networks on both sides, and shows where this is
wrong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from backops.torch.layouts import suggested_format

# A call through Python costs 4 to 8 µs, whoever computes. Of the rest, PyTorch's share is the
# smaller one up to about this size.
LEAST_POOL_ELEMENTS = 256


@dataclass(frozen=True)
class Layer:
    """What the choice depends on. Channels are those of a group."""

    dtype: torch.dtype
    rank: int
    inputs: int
    groups: int
    kernel_elements: int
    channels_last: bool
    wants_input: bool

    @property
    def whole_vectors(self) -> bool:
        """Whether groups fill vectors of any CPU."""
        return self.groups % 16 == 0


@dataclass(frozen=True)
class Rule:
    """Layers that PyTorch computes faster: those for which all of this holds; None: any will do."""

    dtypes: tuple[torch.dtype, ...]
    least_rank: int = 1
    most_inputs: int | None = None
    depthwise: bool | None = None
    whole_vectors: bool | None = None
    most_kernel_elements: int | None = None
    channels_last: bool | None = None
    wants_input: bool | None = None

    def holds(self, layer: Layer) -> bool:
        most_inputs = layer.inputs if self.most_inputs is None else self.most_inputs
        most_kernel = self.most_kernel_elements or layer.kernel_elements
        exact = (
            (self.depthwise, layer.inputs == 1 and layer.groups > 1),
            (self.whole_vectors, layer.whole_vectors),
            (self.channels_last, layer.channels_last),
            (self.wants_input, layer.wants_input),
        )
        return (
            layer.dtype in self.dtypes
            and layer.rank >= self.least_rank
            and layer.inputs <= most_inputs
            and layer.kernel_elements <= most_kernel
            and all(wanted is None or wanted == actual for wanted, actual in exact)
        )


# PyTorch's time over ours in brackets, measured on two cores with AVX-512, batches of 8 to 32.
PYTORCH_IS_FASTER = (
    # Images of one channel into a first layer, which need no gradient: [0.7 to 1.1], with one [0.9
    # to 1.9].
    Rule((torch.float32,), least_rank=2, most_inputs=1, depthwise=False, wants_input=False),
    # Depthwise 3x3 in channels-last, for which PyTorch has a kernel: [0.8 to 1.0] unless channels
    # fill vectors [1.05 to 1.7]. Larger ones: [5 to 30].
    Rule(
        (torch.float32,),
        depthwise=True,
        whole_vectors=False,
        most_kernel_elements=9,
        channels_last=True,
    ),
)


def pool_is_faster(input: Any) -> bool:
    return bool(input.numel() >= LEAST_POOL_ELEMENTS)


def conv_is_faster(input: Any, weight: Any, groups: int, wants_input: bool) -> bool:
    channels_last = suggested_format(input) is not torch.contiguous_format
    return _is_faster(input.dtype, weight.shape, groups, channels_last, wants_input)


@lru_cache(maxsize=4096)
def _is_faster(
    dtype: torch.dtype,
    weight_shape: tuple[int, ...],
    groups: int,
    channels_last: bool,
    wants_input: bool,
) -> bool:
    layer = Layer(
        dtype,
        len(weight_shape) - 2,
        weight_shape[1],
        groups,
        math.prod(weight_shape[2:]),
        channels_last,
        wants_input,
    )
    return not any(rule.holds(layer) for rule in PYTORCH_IS_FASTER)
