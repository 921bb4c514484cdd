"""Candidate and truth side by side on a part of the tensor that is small enough to look at."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backops._calls import Call
from backops._verify import truth

Floats = NDArray[np.float64]

# Larger planes are neither searched for explanations nor drawn.
MOST_ELEMENTS = 1 << 24
# A convolution's truth is worked out again only where that takes seconds at most.
MOST_PRODUCTS = 1 << 32


def sample_call(call: Call, gradient: str, plane: int) -> tuple[Call, slice] | None:
    """A call whose result holds that plane, and which planes of the whole result it gives."""
    rank = call.rank
    if not call.is_conv:
        if math.prod(call.input_shape[-rank:]) > MOST_ELEMENTS:
            return None
        grad = call.grad_output.reshape(-1, *call.grad_output.shape[-rank:])[plane : plane + 1]
        part = replace(call, grad_output=grad, input=(1, *call.input_shape[-rank:]))
        return part, slice(plane, plane + 1)
    if truth.conv_products(call) > MOST_PRODUCTS:
        return None
    if gradient != "grad_input":
        return call, slice(0, math.prod(call.result_shapes()[gradient][:2]))
    channels = call.input_shape[-rank - 1]
    image = plane // channels
    grad, _ = truth.conv_images(call)
    parameters = {**call.parameters, "output_mask": (True, False, False)}
    part = replace(
        call,
        grad_output=grad[image : image + 1],
        input=(1, *call.input_shape[-rank - 1 :]),
        parameters=parameters,
    )
    return part, slice(image * channels, (image + 1) * channels)


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


def changed_results(call: Call, gradient: str, wanted: Floats) -> Iterator[tuple[str, Floats]]:
    """What the result would be after each of the usual mistakes."""
    for what, parameters in changed_parameters(call):
        try:
            changed = replace(call, parameters={**call.parameters, **parameters})
            yield what, sample_truth(changed, gradient)
        except (ValueError, TypeError):
            continue  # the mistake is not possible with these shapes
    if call.is_conv and gradient == "grad_input" and isinstance(call.weight, np.ndarray):
        flipped = np.flip(call.weight, tuple(range(2, call.weight.ndim)))
        yield "with the kernel flipped", sample_truth(replace(call, weight=flipped), gradient)
    for axis in range(1, wanted.ndim):
        if wanted.shape[axis] > 1:
            yield f"with spatial axis {axis - 1} reversed", np.flip(wanted, axis)
        for other in range(axis + 1, wanted.ndim):
            if wanted.shape[axis] == wanted.shape[other]:
                what = f"with spatial axes {axis - 1} and {other - 1} exchanged"
                yield what, np.swapaxes(wanted, axis, other)


def changed_parameters(call: Call) -> Iterator[tuple[str, Mapping[str, Any]]]:
    given = call.parameters
    if "kernel_size" in given:
        includes = given.get("count_include_pad", True)
        yield f"with count_include_pad={not includes}", {"count_include_pad": not includes}
        if given.get("divisor_override"):
            yield "without divisor_override", {"divisor_override": None}
        kernel = math.prod(truth.pool_numbers(call)[0])
        yield f"with every window divided by {kernel}", {"divisor_override": kernel}
        yield "without a division", {"divisor_override": 1}
    if "precision" in given or call.grad_output.dtype == np.float32:
        for precision in ("keep", "hf32", "fp16"):
            if precision != given.get("precision", "keep") and "adaptive" not in call.operator:
                yield f"with precision={precision!r}", {"precision": precision}


def constant_factor(got: Floats, wanted: Floats) -> float | None:
    usable = np.isfinite(got) & np.isfinite(wanted) & (np.abs(wanted) > 0)
    if np.count_nonzero(usable) < 2:
        return None
    ratios = got[usable] / wanted[usable]
    middle = float(np.median(ratios))
    is_constant = bool(np.all(np.abs(ratios - middle) <= 0.02 * abs(middle)))
    return middle if is_constant and middle != 0 and abs(middle - 1) > 0.02 else None
