"""Candidate and truth side by side on a part of the tensor that is small enough to look at."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backops._calls import Call
from backops._command import CommandError
from backops._verify import mistakes, places, truth

Floats = NDArray[np.float64]

# Larger planes are neither searched for explanations nor drawn.
MOST_ELEMENTS = 1 << 24
# A convolution's truth is worked out again only where that takes seconds at most.
MOST_PRODUCTS = 1 << 32


def sample_call(call: Call, name: str, plane: int) -> tuple[Call, slice] | None:
    """A call whose result holds that plane, and which planes of the whole result it gives."""
    rank = call.rank
    if not call.is_conv:
        if math.prod(call.input_shape[-rank:]) > MOST_ELEMENTS:
            return None
        chosen = slice(plane, plane + 1)
        return with_source(call, truth.pool_planes(call)[chosen]), chosen
    if truth.conv_products(call) > MOST_PRODUCTS:
        return None
    shape = call.result_shapes()[name]
    if name not in places.IMAGES:
        return call, slice(0, math.prod(shape[:2]))
    channels = shape[-rank - 1]
    image = plane // channels
    part = with_source(call, truth.conv_images(call.source, call)[image : image + 1])
    if not call.is_forward:
        parameters = {**call.parameters, "output_mask": (True, False, False)}
        part = replace(part, parameters=parameters)
    return part, slice(image * channels, (image + 1) * channels)


def with_source(call: Call, source: NDArray[Any]) -> Call:
    """The same on a part of its planes or images."""
    if call.is_forward:
        return replace(call, input=source)
    kept = call.rank + 1 if call.is_conv else call.rank
    return replace(call, grad_output=source, input=(1, *call.input_shape[-kept:]))


def sample_truth(call: Call, gradient: str) -> Floats:
    """The whole truth of a small call, as planes."""
    blocks = truth.truth_of(call, gradient, with_magnitudes=False).blocks
    return np.concatenate([block.values for block in blocks])


def explanations(call: Call, gradient: str, candidate: NDArray[Any], plane: int) -> Iterator[str]:
    """Known mistakes under which the candidate would be right, as seen on one plane.

    `candidate` is the whole tensor as planes.
    """
    found = sample_call(call, gradient, plane)
    if found is None:
        return
    part, planes = found
    got = candidate[planes].astype(np.float64)
    wanted = sample_truth(part, gradient)
    dtype = candidate.dtype
    if not got.any() and wanted.any():
        yield "the candidate is all zeros here"
        return
    if is_close(got, wanted, dtype):
        return
    for what, other in changed_results(part, gradient, wanted):
        if is_close(got, other, dtype):
            yield f"it would be right {what}"
    factor = constant_factor(got, wanted)
    if factor is not None:
        yield f"every element is {factor:.6g} times what it should be"


def is_close(got: Floats, wanted: Floats, dtype: np.dtype[Any]) -> bool:
    roundoff = truth_roundoff(dtype)
    finite = np.abs(wanted[np.isfinite(wanted)])
    atol = 1e-6 * float(finite.max(initial=0.0))
    return np.allclose(got, wanted, rtol=8 * roundoff, atol=atol, equal_nan=True)


def truth_roundoff(dtype: np.dtype[Any]) -> float:
    from backops._verify.standards import Format

    return max(Format.of(dtype).unit_roundoff, 2.0**-24)


def changed_results(call: Call, name: str, wanted: Floats) -> Iterator[tuple[str, Floats]]:
    """What the result would be after each of the usual mistakes."""
    for what, changed in mistakes.changed_calls(call):
        try:
            if changed.result_shapes() == call.result_shapes():
                yield what, sample_truth(changed, name)
        except (ValueError, TypeError, CommandError):
            continue  # the mistake is not possible with these shapes
    yield from mistakes.unwritten_outputs(call, wanted)
    for axis in range(1, wanted.ndim):
        if wanted.shape[axis] > 1:
            yield f"with spatial axis {axis - 1} reversed", np.flip(wanted, axis)
        for second in range(axis + 1, wanted.ndim):
            if wanted.shape[axis] == wanted.shape[second]:
                what = f"with spatial axes {axis - 1} and {second - 1} exchanged"
                yield what, np.swapaxes(wanted, axis, second)


def constant_factor(got: Floats, wanted: Floats) -> float | None:
    usable = np.isfinite(got) & np.isfinite(wanted) & (np.abs(wanted) > 0)
    if np.count_nonzero(usable) < 2:
        return None
    ratios = got[usable] / wanted[usable]
    middle = float(np.median(ratios))
    is_constant = bool(np.all(np.abs(ratios - middle) <= 0.02 * abs(middle)))
    return middle if is_constant and middle != 0 and abs(middle - 1) > 0.02 else None
