"""Which calls are faster here than in PyTorch's own kernels; the others stay with PyTorch.

The table says where PyTorch was faster, with what was measured; `bench/layers.py` measures it anew.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from backops.torch.layouts import suggested_format


@dataclass(frozen=True)
class Slower:
    """Convolutions that PyTorch computes faster: those that are all of this; None: whatever.

    `least_weights_per_position` counts weights over output positions of the batch, `most_inputs` input
    channels of a group. `strides_overlap`: windows share elements. `only_weight`: no gradient of the
    input is asked for.
    """

    dtypes: tuple[torch.dtype, ...]
    least_kernel: int = 1
    most_kernel: int | None = None
    depthwise: bool | None = None
    channels_last: bool | None = None
    only_weight: bool | None = None
    windows_overlap: bool | None = None
    dilated: bool | None = None
    most_inputs: int | None = None
    outputs_exceed_inputs: bool | None = None
    least_weights_per_position: float = 0.0


SLOWER = (
    # Left to the plain engine here: no gain, whatever the shape.
    Slower((torch.float64,)),
)


def pool_is_faster(grad_output: Any, input: Any) -> bool:
    return True


def conv_is_faster(
    grad_output: Any,
    input: Any,
    weight: Any,
    stride: list[int],
    dilation: list[int],
    groups: int,
    wants_input: bool,
) -> bool:
    return _layer_is_faster(
        input.dtype,
        input.shape,
        weight.shape,
        grad_output.shape,
        tuple(stride),
        tuple(dilation),
        groups,
        wants_input,
        suggested_format(input) is not torch.contiguous_format,
    )


@lru_cache(maxsize=4096)
def _layer_is_faster(
    dtype: torch.dtype,
    input_shape: tuple[int, ...],
    weight_shape: tuple[int, ...],
    output_shape: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
    wants_input: bool,
    channels_last: bool,
) -> bool:
    return True
