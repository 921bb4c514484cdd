"""The usual mistakes of an implementation: the call that it computed instead."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backops import _geometry
from backops._calls import ADAPTIVE, FIXED, PARAMETERS, Call
from backops._command import CommandError
from backops._files import Shape
from backops._verify import truth

Floats = NDArray[np.float64]


def changed_calls(call: Call) -> Iterator[tuple[str, Call]]:
    """Each with what would have to be so for the candidate to be right."""
    for changes in (divisions, precisions, geometries):
        for what, parameters in changes(call):
            yield what, replace(call, parameters={**call.parameters, **parameters})
    if isinstance(call.weight, np.ndarray):
        flipped = np.flip(call.weight, tuple(range(2, call.weight.ndim)))
        if math.prod(call.weight_shape[2:]) > 1:
            yield "with the kernel flipped", replace(call, weight=flipped)
        if min(group_channels(call)) > 1:
            axes = ("C_out", "C_in") if call.is_transposed else ("C_in", "C_out")
            what = f"with the weight taken as ({axes[0]}, {axes[1]}, ...)"
            yield what, replace(call, weight=exchanged_channels(call))
    if call.bias is not None:
        yield "without the bias", replace(call, bias=None)
        yield "with the bias added twice", replace(call, bias=call.bias + call.bias)


def group_channels(call: Call) -> tuple[int, int]:
    """Of one group, along the weight's first two axes."""
    return call.weight_shape[0] // call.parameters.get("groups", 1), call.weight_shape[1]


def exchanged_channels(call: Call) -> NDArray[Any]:
    """The weight's elements, read as if its channels were in the other order."""
    assert isinstance(call.weight, np.ndarray)
    one, other = group_channels(call)
    read = call.weight.reshape(-1, other, one, *call.weight_shape[2:])
    return read.swapaxes(1, 2).reshape(call.weight_shape)


def divisions(call: Call) -> Iterator[tuple[str, Mapping[str, Any]]]:
    given = call.parameters
    if call.operator not in FIXED:
        return
    includes = given.get("count_include_pad", True)
    yield f"with count_include_pad={not includes}", {"count_include_pad": not includes}
    if given.get("divisor_override"):
        yield "without divisor_override", {"divisor_override": None}
    kernel = math.prod(truth.pool_numbers(call)[0])
    yield f"with every window divided by {kernel}", {"divisor_override": kernel}
    yield "without a division", {"divisor_override": 1}


def precisions(call: Call) -> Iterator[tuple[str, Mapping[str, Any]]]:
    given = call.parameters
    if call.operator in ADAPTIVE or call.source.dtype != np.float32:
        return
    for precision in ("keep", "hf32", "fp16"):
        if precision != given.get("precision", "keep"):
            yield f"with precision={precision!r}", {"precision": precision}


def geometries(call: Call) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Numbers per axis that were mixed up or left out. Many of these change an output's shape."""
    numbers = numbers_of(call)
    for name, values in numbers.items():
        if values != values[::-1]:
            yield f"with {name} in the reverse order of axes", {name: values[::-1]}
    for one, other in (("stride", "padding"), ("stride", "dilation"), ("padding", "dilation")):
        if one in numbers and other in numbers and numbers[one] != numbers[other]:
            changed = {one: numbers[other], other: numbers[one]}
            yield f"with {one} and {other} exchanged", changed
    for name, usual in (("padding", 0), ("dilation", 1), ("output_padding", 0), ("stride", 1)):
        if name in numbers and set(numbers[name]) != {usual}:
            yield f"with {name}={usual}", {name: usual}
    if "ceil_mode" in PARAMETERS[call.operator]:
        ceil_mode = call.parameters.get("ceil_mode", False)
        yield f"with ceil_mode={not ceil_mode}", {"ceil_mode": not ceil_mode}


def numbers_of(call: Call) -> dict[str, Shape]:
    """One per axis, of each parameter that has them."""
    if call.operator in ADAPTIVE:
        if not call.is_forward:
            return {}
        return {"output_size": call.output_shape[-call.rank :]}
    if call.operator in FIXED:
        names: tuple[str, ...] = ("kernel_size", "stride", "padding")
        return dict(zip(names, truth.pool_numbers(call), strict=True))
    names = ("stride", "padding", "dilation")
    numbers = dict(zip(names, truth.conv_numbers(call), strict=True))
    if call.is_transposed:
        numbers["output_padding"] = _geometry.output_padding(call.rank, call.parameters)
    return numbers


def unwritten_outputs(call: Call, wanted: Floats) -> Iterator[tuple[str, Floats]]:
    """A transposed convolution that leaves out what output_padding adds."""
    if call.operator != "conv_transpose":
        return
    more = _geometry.output_padding(call.rank, call.parameters)
    if not any(more):
        return
    fills = [("at 0", np.zeros(len(wanted)))]
    if call.bias is not None:
        bias = truth.widened(call.bias)
        fills.append(("at the bias", np.resize(bias, len(wanted))))
    for where, fill in fills:
        left = np.broadcast_to(fill.reshape(-1, *[1] * call.rank), wanted.shape).copy()
        kept = (slice(None), *(slice(0, size - n) for size, n in zip(wanted.shape[1:], more,
                                                                     strict=True)))  # fmt: skip
        left[kept] = wanted[kept]
        yield f"with what output_padding adds left {where}", left


def shapes(call: Call, name: str, got: Shape) -> Iterator[str]:
    """Mistakes that would give the result this shape."""
    for what, changed in changed_calls(call):
        try:
            if changed.result_shapes()[name] == got:
                yield what
        except CommandError:
            continue
