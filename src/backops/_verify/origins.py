"""What an element of a result is made of, in words."""

from __future__ import annotations

import itertools
import math

import numpy as np

from backops._calls import Call
from backops._files import Shape
from backops._verify import truth

TERMS_SHOWN = 6


def origin(call: Call, gradient: str, index: Shape) -> str:
    """The sum that the element at `index` is."""
    if not call.is_conv:
        return pool_origin(call, index)
    if gradient == "grad_input":
        return conv_input_origin(call, index)
    batch = math.prod(call.grad_output.shape[: -call.rank - 1])
    positions = call.grad_output.shape[-call.rank :]
    if gradient == "grad_bias":
        return f"sum of {batch * math.prod(positions)} terms: grad_output[:, {index[0]}, ...]"
    return (
        f"sum of up to {batch * math.prod(positions)} products: grad_output[:, {index[0]}, ...] "
        f"with input channel {weight_input_channel(call, index)} at kernel position {index[2:]}"
    )


def pool_origin(call: Call, index: Shape) -> str:
    rank = call.rank
    covers = []
    for axis, windows in enumerate(truth.pool_axes(call)):
        at = index[axis - rank]
        covers.append([(o, w) for o, w in enumerate(windows) if w.begin <= at < w.end])
    terms = list(itertools.islice(itertools.product(*covers), TERMS_SHOWN))
    count = math.prod(map(len, covers))
    if count == 0:
        return "in no window: 0"
    override = call.parameters.get("divisor_override")
    texts = []
    for term in terms:
        place = (*index[:-rank], *(output for output, _ in term))
        divisor = override or math.prod(window.divisor for _, window in term)
        value = float(call.grad_output[place])
        texts.append(f"grad_output{list(place)} {value:.6g} / {divisor}")
    if count > len(terms):
        texts.append(f"... ({count} terms)")
    return " + ".join(texts)


def conv_input_origin(call: Call, index: Shape) -> str:
    rank = call.rank
    groups = call.parameters.get("groups", 1)
    per_group = call.weight_shape[0] // groups
    group = index[-rank - 1] // call.weight_shape[1]
    ranges, taps_met = [], 1
    for axis in range(rank):
        outputs = met_outputs(call, axis, index[axis - rank])
        taps_met *= len(outputs)
        ranges.append(f"{outputs[0]}:{outputs[-1] + 1}" if outputs else "none")
    channels = f"{group * per_group}:{(group + 1) * per_group}"
    where = ", ".join([*map(str, index[: -rank - 1]), channels, *ranges])
    return f"sum of {taps_met * per_group} products: grad_output[{where}] with their weights"


def met_outputs(call: Call, axis: int, at: int) -> list[int]:
    """Outputs along an axis whose window holds input `at`."""
    stride, padding, dilation = (numbers[axis] for numbers in truth.conv_numbers(call))
    outputs = call.grad_output.shape[axis - call.rank]
    starts = {at + padding - tap * dilation for tap in range(call.weight_shape[2 + axis])}
    return sorted(s // stride for s in starts if s % stride == 0 and 0 <= s // stride < outputs)


def weight_input_channel(call: Call, index: Shape) -> int:
    groups = call.parameters.get("groups", 1)
    group = index[0] // max(1, call.weight_shape[0] // groups)
    return int(np.int64(group) * call.weight_shape[1] + index[1])
