"""The right results in float64, plane by plane, so that a large tensor needs little memory.

A plane is the spatial part of a tensor: one channel of one image. Small problems come from
`backops.reference`; large ones from the core in float64, one plane of which is compared with the
reference. Operands are widened, and rounded first where `precision` says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import backops
from backops import reference
from backops._calls import ADAPTIVE, FIXED, Call
from backops._command import CommandError, UsageError
from backops._files import Shape

Floats = NDArray[np.float64]

# A block of this many elements is small enough for a second-level cache, large enough to be worth
# the calls that work on it.
BLOCK_ELEMENTS = 1 << 17
# A plane beyond this is worked out some rows at a time.
LARGE_PLANE_ELEMENTS = 1 << 22
# What backops.reference does in well under a second.
SMALL_POOL_OUTPUTS = 1 << 12
SMALL_POOL_ELEMENTS = 1 << 20
SMALL_CONV_PRODUCTS = 1 << 25
# A truth of this many elements is kept where it is needed twice.
KEPT_ELEMENTS = 1 << 20
# The plane that is compared with the reference may have up to this many outputs.
CHECKED_OUTPUTS = 1 << 15


class Block(NamedTuple):
    """Consecutive elements of a result, from `position` on: whole planes, or a part of one."""

    position: int
    values: Floats
    magnitudes: Floats | None
    """The same sums over the absolute values of the terms."""


@dataclass(frozen=True)
class Truth:
    source: str
    terms: int
    """Most terms that the sum of one element has."""
    blocks: Iterator[Block]


class Repeated:
    """The blocks of a truth that is needed twice: kept if they are few, else worked out again."""

    def __init__(self, call: Call, gradient: str, *, with_magnitudes: bool) -> None:
        self._make = partial(truth_of, call, gradient, with_magnitudes=with_magnitudes)
        self._is_kept = math.prod(call.result_shapes()[gradient]) <= KEPT_ELEMENTS
        first = self._make()
        self.source, self.terms = first.source, first.terms
        self._first: Iterator[Block] | None = first.blocks
        self._kept: list[Block] = []

    def __iter__(self) -> Iterator[Block]:
        if self._is_kept:
            if self._first is not None:
                self._kept, self._first = list(self._first), None
            return iter(self._kept)
        blocks, self._first = self._first, None
        return blocks if blocks is not None else self._make().blocks


def truth_of(call: Call, gradient: str, *, with_magnitudes: bool) -> Truth:
    if not call.is_conv:
        return pool_truth(call, with_magnitudes)
    if gradient == "grad_input":
        return conv_input_truth(call, with_magnitudes)
    return conv_sum_truth(call, gradient, with_magnitudes)


def operand(array: NDArray[Any], call: Call) -> Floats:
    """In float64, rounded as the precision of the call asks."""
    with np.errstate(invalid="ignore"):  # a signalling NaN would warn
        values = np.asarray(array).astype(np.float64)
    precision = call.parameters.get("precision", "keep")
    return reference._round_inputs(values, array.dtype.name, precision)


# ---- pooling -------------------------------------------------------------------------------------


def pool_numbers(call: Call) -> tuple[Shape, Shape, Shape]:
    """Kernel size, stride and padding of a fixed pool, one per spatial axis."""
    given, rank = call.parameters, call.rank
    kernels = reference._per_axis("kernel_size", given["kernel_size"], rank, least=1)
    strides = kernels
    if given.get("stride") not in (None, ()):
        strides = reference._per_axis("stride", given["stride"], rank, least=1)
    return kernels, strides, reference._per_axis("padding", given.get("padding", 0), rank, least=0)


def pool_axes(call: Call) -> list[list[reference._Window]]:
    """The windows of every output along each spatial axis."""
    rank, sizes = call.rank, call.input_shape[-call.rank :]
    if call.operator in ADAPTIVE:
        outputs = call.grad_output.shape[-rank:]
        pairs = zip(sizes, outputs, strict=True)
        return [reference._adaptive_windows(size, count) for size, count in pairs]
    ceil_mode = call.parameters.get("ceil_mode", False)
    count_include_pad = call.parameters.get("count_include_pad", True)
    return [
        reference._fixed_windows(*axis, ceil_mode, count_include_pad)
        for axis in zip(sizes, *pool_numbers(call), strict=True)
    ]


def pool_terms(axes: list[list[reference._Window]], sizes: Shape) -> int:
    """Most windows that one input is in."""
    most = 1
    for windows, size in zip(axes, sizes, strict=True):
        steps = np.zeros(size + 1, np.int64)
        np.add.at(steps, [window.begin for window in windows], 1)
        np.add.at(steps, [window.end for window in windows], -1)
        most *= max(1, int(np.cumsum(steps).max(initial=0)))
    return most


def pool_truth(call: Call, with_magnitudes: bool) -> Truth:
    check_pool(call)
    rank = call.rank
    outputs = math.prod(call.grad_output.shape[-rank:])
    elements = math.prod(call.input_shape)
    is_small = outputs <= SMALL_POOL_OUTPUTS and elements <= SMALL_POOL_ELEMENTS
    source = "backops.reference" if is_small else "the core in float64"
    operator = getattr(reference if is_small else backops, call.operator)
    terms = pool_terms(pool_axes(call), call.input_shape[-rank:]) if elements else 1
    blocks = pool_blocks(call, operator, with_magnitudes)
    if not is_small and outputs <= CHECKED_OUTPUTS:
        check_core(call)
    return Truth(source, terms, blocks)


def check_pool(call: Call) -> None:
    """Raises what the operator itself would raise, for the whole tensors."""
    rank = call.rank
    grad, shape = call.grad_output, call.input_shape
    if grad.ndim != len(shape) or grad.shape[:-rank] != shape[:-rank]:
        raise UsageError(
            f"{call.operator}: grad_output is {grad.shape}, which does not fit input {shape}"
        )
    if math.prod(shape) and call.operator in FIXED:
        # One plane tells the rest: kernel, padding, and the pooled size.
        plane = np.zeros((1, *grad.shape[-rank:]), grad.dtype)
        getattr(backops, call.operator)(plane, (1, *shape[-rank:]), **call.parameters)


def pool_blocks(
    call: Call, operator: Callable[..., Floats], with_magnitudes: bool
) -> Iterator[Block]:
    rank = call.rank
    grad = call.grad_output.reshape(-1, *call.grad_output.shape[-rank:])
    plane = call.input_shape[-rank:]
    size = math.prod(plane)
    if size > LARGE_PLANE_ELEMENTS and call.operator in FIXED:
        for index in range(len(grad)):
            for position, values, magnitudes in row_blocks(call, grad[index], operator):
                yield Block(index * size + position, values, magnitudes)
        return
    given = {name: value for name, value in call.parameters.items() if name != "precision"}
    positive = dict(given)
    if given.get("divisor_override"):
        positive["divisor_override"] = abs(given["divisor_override"])
    step = max(1, BLOCK_ELEMENTS // max(size, math.prod(grad.shape[1:]), 1))
    for first in range(0, len(grad), step):
        part = operand(grad[first : first + step], call)
        shape = (len(part), *plane)
        values = operator(part, shape, **given)
        magnitudes = None
        if with_magnitudes:
            magnitudes = operator(np.abs(part, out=part), shape, **positive)
        yield Block(first * size, values, magnitudes)


def row_blocks(call: Call, grad: NDArray[Any], operator: Callable[..., Floats]) -> Iterator[Block]:
    """One plane of a fixed pool, some rows at a time.

    The windows that reach into those rows make a smaller pool, without padding along its rows.
    They are divided first, since the smaller pool would not know by what.
    """
    axes = pool_axes(call)
    kernels, strides, paddings = pool_numbers(call)
    given = {
        "kernel_size": kernels,
        "stride": strides,
        "padding": (0, *paddings[1:]),
        "ceil_mode": call.parameters.get("ceil_mode", False),
        "divisor_override": 1,
    }
    override = call.parameters.get("divisor_override")
    divisors = [np.array([1 if override else w.divisor for w in windows]) for windows in axes]
    begins = np.array([window.begin for window in axes[0]])
    ends = np.array([window.end for window in axes[0]])
    rows, *others = call.input_shape[-call.rank :]
    step = max(1, BLOCK_ELEMENTS // math.prod(others))
    for first in range(0, rows, step):
        last = min(first + step, rows)
        outputs = np.flatnonzero((ends > first) & (begins < last))
        values = np.zeros((last - first, *others))
        magnitudes = np.zeros_like(values)
        if len(outputs):
            chosen = slice(int(outputs[0]), int(outputs[-1]) + 1)
            part = operand(grad[chosen], call) / (override or 1)
            for axis, divisor in enumerate((divisors[0][chosen], *divisors[1:])):
                part /= divisor.reshape([-1 if axis == i else 1 for i in range(part.ndim)])
            top = chosen.start * strides[0] - paddings[0]
            shape = (1, (len(part) - 1) * strides[0] + kernels[0], *others)
            begin, end = max(first, top), min(last, top + shape[1])
            for target, terms in ((values, part), (magnitudes, np.abs(part))):
                smaller = operator(terms[np.newaxis], shape, **given)[0]
                target[begin - first : end - first] = smaller[begin - top : end - top]
        yield Block(first * math.prod(others), values, magnitudes)


def check_core(call: Call) -> None:
    """The core must not vouch for itself: its first plane is compared with the reference."""
    rank = call.rank
    part = operand(call.grad_output.reshape(-1, *call.grad_output.shape[-rank:])[:1], call)
    part = np.where(np.isfinite(part), part, 1.0)
    shape = (1, *call.input_shape[-rank:])
    given = {name: value for name, value in call.parameters.items() if name != "precision"}
    core = getattr(backops, call.operator)(part, shape, **given)
    slow = getattr(reference, call.operator)(part, shape, **given)
    if not np.allclose(core, slow, rtol=1e-11, atol=1e-11 * float(np.abs(part).max(initial=0))):
        raise CommandError(
            f"{call.operator}: the core in float64 disagrees with backops.reference: "
            "this is an error in backops itself"
        )


# ---- convolution ---------------------------------------------------------------------------------


def conv_images(call: Call) -> tuple[NDArray[Any], Any]:
    """grad_output and input (or its shape) with a batch axis."""
    rank = call.rank
    grad = call.grad_output.reshape(-1, *call.grad_output.shape[-rank - 1 :])
    if isinstance(call.input, tuple):
        return grad, (len(grad), *call.input[-rank - 1 :])
    return grad, call.input.reshape(-1, *call.input.shape[-rank - 1 :])


def conv_numbers(call: Call) -> tuple[Shape, Shape, Shape]:
    """Stride, padding and dilation, one per spatial axis."""
    given, rank = call.parameters, call.rank
    return (
        reference._per_axis("stride", given.get("stride", 1), rank, least=1),
        reference._per_axis("padding", given.get("padding", 0), rank, least=0),
        reference._per_axis("dilation", given.get("dilation", 1), rank, least=1),
    )


def conv_products(call: Call) -> int:
    outputs = math.prod(call.grad_output.shape)
    return outputs * math.prod(call.weight_shape[1:])


def conv_operator(call: Call) -> tuple[str, Callable[..., Any]]:
    if conv_products(call) <= SMALL_CONV_PRODUCTS:
        return "backops.reference", reference.conv_backward
    return "the core in float64", backops.conv_backward


def conv_parameters(call: Call, gradient: str) -> dict[str, Any]:
    dropped = ("precision", "output_mask")
    given = {name: value for name, value in call.parameters.items() if name not in dropped}
    names = ("grad_input", "grad_weight", "grad_bias")
    return {**given, "output_mask": tuple(gradient == name for name in names)}


def conv_input_truth(call: Call, with_magnitudes: bool) -> Truth:
    source, operator = conv_operator(call)
    groups = call.parameters.get("groups", 1)
    terms = math.prod(call.weight_shape) // max(call.weight_shape[1] * groups, 1)

    def blocks() -> Iterator[Block]:
        assert isinstance(call.weight, np.ndarray)
        grad, _ = conv_images(call)
        weight = operand(call.weight, call)
        image = call.input_shape[-call.rank - 1 :]
        given = conv_parameters(call, "grad_input")
        step = max(1, BLOCK_ELEMENTS // max(math.prod(image), 1))
        for first in range(0, len(grad), step):
            part = operand(grad[first : first + step], call)
            shape = (len(part), *image)
            values = operator(part, shape, weight, **given)[0]
            magnitudes = None
            if with_magnitudes:
                magnitudes = operator(np.abs(part), shape, np.abs(weight), **given)[0]
                magnitudes = magnitudes.reshape(-1, *image[1:])
            yield Block(first * math.prod(image), values.reshape(-1, *image[1:]), magnitudes)

    return Truth(source, max(1, terms), blocks())


def conv_sum_truth(call: Call, gradient: str, with_magnitudes: bool) -> Truth:
    """Gradients that are sums over the batch: added up image by image."""
    source, operator = conv_operator(call)
    grad, input = conv_images(call)
    terms = max(1, len(grad) * math.prod(grad.shape[2:]))

    def blocks() -> Iterator[Block]:
        given = conv_parameters(call, gradient)
        index = given["output_mask"].index(True)
        shape = call.result_shapes()[gradient]
        values = np.zeros(shape)
        magnitudes = np.zeros(shape) if with_magnitudes else None
        needs_input = gradient == "grad_weight"
        images = max(1, BLOCK_ELEMENTS // max(math.prod(grad.shape[1:]), 1))
        for first in range(0, len(grad), images):
            part = operand(grad[first : first + images], call)
            x: Any = (len(part), *call.input_shape[-call.rank - 1 :])
            if needs_input:
                x = operand(input[first : first + images], call)
            with np.errstate(all="ignore"):
                values += operator(part, x, call.weight_shape, **given)[index]
                if magnitudes is not None:
                    x = np.abs(x) if needs_input else x
                    part = np.abs(part)
                    magnitudes += operator(part, x, call.weight_shape, **given)[index]
        plane = shape[2:] or (1,)
        values = values.reshape(-1, *plane)
        yield Block(0, values, None if magnitudes is None else magnitudes.reshape(-1, *plane))

    return Truth(source, terms, blocks())
