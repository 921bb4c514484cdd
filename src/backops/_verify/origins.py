"""What an element of a result is made of, in words."""

from __future__ import annotations

import itertools
import math

import numpy as np

from backops._calls import Call
from backops._files import Shape
from backops._verify import truth

TERMS_SHOWN = 6


def origin(call: Call, name: str, index: Shape) -> str:
    """The sum that the element at `index` of a result is."""
    if not call.is_conv:
        return average_origin(call, index) if call.is_forward else pool_origin(call, index)
    if name in ("output", "grad_input"):
        return conv_image_origin(call, index)
    gradient = name
    batch = math.prod(call.grad_output.shape[: -call.rank - 1])
    positions = call.output_shape[-call.rank :]
    if gradient == "grad_bias":
        return f"sum of {batch * math.prod(positions)} terms: grad_output[:, {index[0]}, ...]"
    if call.is_transposed:
        positions = call.input_shape[-call.rank :]
        return (
            f"sum of up to {batch * math.prod(positions)} products: input[:, {index[0]}, ...] with "
            f"grad_output channel {weight_other_channel(call, index)} at kernel position "
            f"{index[2:]}"
        )
    return (
        f"sum of up to {batch * math.prod(positions)} products: grad_output[:, {index[0]}, ...] "
        f"with input channel {weight_other_channel(call, index)} at kernel position {index[2:]}"
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


def average_origin(call: Call, index: Shape) -> str:
    rank = call.rank
    pairs = zip(truth.pool_axes(call), index[-rank:], strict=True)
    window = [windows[at] for windows, at in pairs]
    override = call.parameters.get("divisor_override")
    divisor = override or math.prod(each.divisor for each in window)
    count = math.prod(each.end - each.begin for each in window)
    spans = (f"{each.begin}:{each.end}" for each in window)
    where = ", ".join([*map(str, index[:-rank]), *spans])
    return f"sum of {count} elements: input[{where}] / {divisor}"


def conv_image_origin(call: Call, index: Shape) -> str:
    """Of an output or of an input's gradient: which elements of the other it is made of."""
    rank = call.rank
    groups = call.parameters.get("groups", 1)
    source = call.source.shape
    per_group = source[-rank - 1] // groups
    channels_here = call.output_channels if call.is_forward else call.input_shape[-rank - 1]
    group = index[-rank - 1] // max(1, channels_here // groups)
    ranges, taps_met = [], 1
    for axis in range(rank):
        met = met_places(call, axis, index[axis - rank])
        taps_met *= len(met)
        ranges.append(f"{met[0]}:{met[-1] + 1}" if met else "none")
    channels = f"{group * per_group}:{(group + 1) * per_group}"
    where = ", ".join([*map(str, index[: -rank - 1]), channels, *ranges])
    name = "input" if call.is_forward else "grad_output"
    text = f"sum of {taps_met * per_group} products: {name}[{where}] with their weights"
    return text if call.bias is None else f"{text}, and bias[{index[-rank - 1]}]"


def met_places(call: Call, axis: int, at: int) -> list[int]:
    """Along an axis, the elements of the source that are in the sum of the result's `at`."""
    stride, padding, dilation = (numbers[axis] for numbers in truth.conv_numbers(call))
    size = call.source.shape[axis - call.rank]
    taps = range(call.weight_shape[2 + axis])
    if call.is_forward != call.is_transposed:  # the result is of windows on the source
        places = {at * stride - padding + tap * dilation for tap in taps}
    else:  # the source is of windows on the result
        starts = {at + padding - tap * dilation for tap in taps}
        places = {start // stride for start in starts if start % stride == 0}
    return sorted(place for place in places if 0 <= place < size)


def weight_other_channel(call: Call, index: Shape) -> int:
    """The channel of the second axis of a weight, which counts within a group."""
    groups = call.parameters.get("groups", 1)
    group = index[0] // max(1, call.weight_shape[0] // groups)
    return int(np.int64(group) * call.weight_shape[1] + index[1])
