"""The right results in float64, plane by plane, so that a large tensor needs little memory.

A plane is the spatial part of a tensor: one channel of one image. Small problems come from
`backops.reference`; large ones from the core in float64, one plane of which is compared with the
reference. Operands are widened, and rounded first where `precision` says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import backops
from backops import _geometry, reference
from backops._calls import ADAPTIVE, FIXED, GRADIENTS, Call
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

    def __init__(self, call: Call, name: str, *, with_magnitudes: bool) -> None:
        self._make = partial(truth_of, call, name, with_magnitudes=with_magnitudes)
        self._is_kept = math.prod(call.result_shapes()[name]) <= KEPT_ELEMENTS
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


def truth_of(call: Call, name: str, *, with_magnitudes: bool) -> Truth:
    """Of the result of that name."""
    if not call.is_conv:
        return pool_truth(call, with_magnitudes)
    if name in ("output", "grad_input"):
        return conv_image_truth(call, name, with_magnitudes)
    return conv_sum_truth(call, name, with_magnitudes)


def widened(array: NDArray[Any]) -> Floats:
    with np.errstate(invalid="ignore"):  # a signalling NaN would warn
        return np.asarray(array).astype(np.float64)


def operand(array: NDArray[Any], call: Call) -> Floats:
    """In float64, rounded as the precision of the call asks; a bias is not."""
    precision = call.parameters.get("precision", "keep")
    return reference._round_inputs(widened(array), array.dtype.name, precision)


# ---- pooling -------------------------------------------------------------------------------------


def pool_numbers(call: Call) -> tuple[Shape, Shape, Shape]:
    """Kernel size, stride and padding of a fixed pool, one per spatial axis."""
    return _geometry.pool_numbers(call.rank, call.parameters)


def pool_axes(call: Call) -> _geometry.Windows:
    """The windows of every output along each spatial axis."""
    if call.operator in ADAPTIVE:
        outputs = call.output_shape[-call.rank :]
        return _geometry.adaptive_windows(call.rank, call.input_shape, outputs)
    return _geometry.fixed_windows(call.rank, call.input_shape, call.parameters)


def pool_terms(call: Call) -> int:
    """Most inputs that a window has, or most windows that one input is in."""
    axes = pool_axes(call)
    if call.is_forward:
        return math.prod(max(window.end - window.begin for window in axis) for axis in axes)
    most = 1
    for windows, size in zip(axes, call.input_shape[-call.rank :], strict=True):
        steps = np.zeros(size + 1, np.int64)
        np.add.at(steps, [window.begin for window in windows], 1)
        np.add.at(steps, [window.end for window in windows], -1)
        most *= max(1, int(np.cumsum(steps).max(initial=0)))
    return most


def pool_truth(call: Call, with_magnitudes: bool) -> Truth:
    check_pool(call)
    outputs = math.prod(call.output_shape[-call.rank :])
    elements = math.prod(call.input_shape)
    is_small = outputs <= SMALL_POOL_OUTPUTS and elements <= SMALL_POOL_ELEMENTS
    source = "backops.reference" if is_small else "the core in float64"
    operator = getattr(reference if is_small else backops, call.operator)
    terms = pool_terms(call) if elements else 1
    blocks = pool_blocks(call, operator, with_magnitudes)
    if not is_small and outputs <= CHECKED_OUTPUTS:
        check_core(call)
    return Truth(source, terms, blocks)


def check_pool(call: Call) -> None:
    """Raises what the operator itself would raise, for the whole tensors."""
    rank = call.rank
    output, shape = call.output_shape, call.input_shape
    if len(output) != len(shape) or output[:-rank] != shape[:-rank]:
        raise UsageError(
            f"{call.operator}: grad_output is {output}, which does not fit input {shape}"
        )
    if math.prod(shape) and call.operator in FIXED:
        # One plane tells the rest: kernel, padding, and the pooled size.
        plane = np.zeros((1, *call.source.shape[-rank:]), call.source.dtype)
        pooled(call, getattr(backops, call.operator), plane, call.parameters)


def pooled(
    call: Call, operator: Callable[..., Any], part: NDArray[Any], given: Mapping[str, Any]
) -> Floats:
    """`operator` on some planes of the source; a gradient needs to know of which input."""
    shapes = () if call.is_forward else ((len(part), *call.input_shape[-call.rank :]),)
    result: Floats = operator(part, *shapes, **given)
    return result


def pool_planes(call: Call) -> NDArray[Any]:
    """What is pooled, or the gradient that is spread."""
    return call.source.reshape(-1, *call.source.shape[-call.rank :])


def pool_blocks(
    call: Call, operator: Callable[..., Floats], with_magnitudes: bool
) -> Iterator[Block]:
    rank = call.rank
    source = pool_planes(call)
    (result,) = call.result_shapes().values()
    size = math.prod(result[-rank:])
    largest = max(size, math.prod(source.shape[1:]), 1)
    if largest > LARGE_PLANE_ELEMENTS and call.operator in FIXED:
        rows = output_rows if call.is_forward else input_rows
        for index in range(len(source)):
            for position, values, magnitudes in rows(call, source[index], operator):
                yield Block(index * size + position, values, magnitudes)
        return
    given = {name: value for name, value in call.parameters.items() if name != "precision"}
    positive = dict(given)
    if given.get("divisor_override"):
        positive["divisor_override"] = abs(given["divisor_override"])
    step = max(1, BLOCK_ELEMENTS // largest)
    for first in range(0, len(source), step):
        part = operand(source[first : first + step], call)
        values = pooled(call, operator, part, given)
        magnitudes = None
        if with_magnitudes:
            magnitudes = pooled(call, operator, np.abs(part, out=part), positive)
        yield Block(first * size, values, magnitudes)


def without_rows(call: Call) -> dict[str, Any]:
    """Parameters of a smaller pool that holds some rows: not padded along them, not divided."""
    kernels, strides, paddings = pool_numbers(call)
    return {
        "kernel_size": kernels,
        "stride": strides,
        "padding": (0, *paddings[1:]),
        "ceil_mode": call.parameters.get("ceil_mode", False),
        "divisor_override": 1,
    }


def divide(values: Floats, axes: _geometry.Windows, override: int, rows: slice) -> None:
    """By the divisors of the windows, in place; `values` are those of some `rows`."""
    if override:
        values /= override
        return
    for axis, windows in enumerate(axes):
        chosen = windows[rows] if axis == 0 else windows
        divisors = np.array([window.divisor for window in chosen])
        values /= divisors.reshape([-1 if axis == i else 1 for i in range(values.ndim)])


def output_rows(
    call: Call, plane: NDArray[Any], operator: Callable[..., Floats]
) -> Iterator[Block]:
    """One plane of a fixed pool, some rows of outputs at a time."""
    axes, given = pool_axes(call), without_rows(call)
    kernels, strides, paddings = pool_numbers(call)
    override = call.parameters.get("divisor_override") or 0
    outputs, *others = call.output_shape[-call.rank :]
    rows, *inner = plane.shape
    step = max(1, BLOCK_ELEMENTS // (math.prod(inner) * strides[0]))
    for first in range(0, outputs, step):
        chosen = slice(first, min(first + step, outputs))
        count = chosen.stop - first
        top = first * strides[0] - paddings[0]
        part = np.zeros(((count - 1) * strides[0] + kernels[0], *inner))
        begin, end = max(top, 0), min(top + len(part), rows)
        part[begin - top : end - top] = operand(plane[begin:end], call)
        results = []
        for terms, divisor in ((part, override), (np.abs(part), abs(override))):
            values = operator(terms[np.newaxis], **given)[0]
            divide(values, axes, divisor, chosen)
            results.append(values)
        yield Block(first * math.prod(others), *results)


def input_rows(call: Call, grad: NDArray[Any], operator: Callable[..., Floats]) -> Iterator[Block]:
    """One plane of a fixed pool's gradient, some rows of inputs at a time.

    The windows that reach into those rows make a smaller pool, without padding along its rows.
    They are divided first, since the smaller pool would not know by what.
    """
    axes, given = pool_axes(call), without_rows(call)
    kernels, strides, paddings = pool_numbers(call)
    override = call.parameters.get("divisor_override") or 0
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
            part = operand(grad[chosen], call)
            divide(part, axes, override, chosen)
            top = chosen.start * strides[0] - paddings[0]
            shape = (1, (len(part) - 1) * strides[0] + kernels[0], *others)
            begin, end = max(first, top), min(last, top + shape[1])
            for target, terms in ((values, part), (magnitudes, np.abs(part))):
                smaller = operator(terms[np.newaxis], shape, **given)[0]
                target[begin - first : end - first] = smaller[begin - top : end - top]
        yield Block(first * math.prod(others), values, magnitudes)


def check_core(call: Call) -> None:
    """The core must not vouch for itself: its first plane is compared with the reference."""
    part = operand(pool_planes(call)[:1], call)
    part = np.where(np.isfinite(part), part, 1.0)
    given = {name: value for name, value in call.parameters.items() if name != "precision"}
    core, slow = (
        pooled(call, getattr(namespace, call.operator), part, given)
        for namespace in (backops, reference)
    )
    if not np.allclose(core, slow, rtol=1e-11, atol=1e-11 * float(np.abs(part).max(initial=0))):
        raise CommandError(
            f"{call.operator}: the core in float64 disagrees with backops.reference: "
            "this is an error in backops itself"
        )


# ---- convolution ---------------------------------------------------------------------------------


def conv_images(array: NDArray[Any], call: Call) -> NDArray[Any]:
    """With a batch axis."""
    return array.reshape(-1, *array.shape[-call.rank - 1 :])


def conv_numbers(call: Call) -> tuple[Shape, Shape, Shape]:
    """Stride, padding and dilation, one per spatial axis."""
    return _geometry.conv_numbers(call.rank, call.parameters)


def conv_products(call: Call) -> int:
    """Each element of the side with fewer meets one kernel per channel of the other."""
    meeting = call.input_shape if call.is_transposed else call.output_shape
    return math.prod(meeting) * math.prod(call.weight_shape[1:])


def conv_operator(call: Call) -> tuple[str, Callable[..., Any]]:
    if conv_products(call) <= SMALL_CONV_PRODUCTS:
        return "backops.reference", getattr(reference, call.operator)
    return "the core in float64", getattr(backops, call.operator)


def conv_parameters(call: Call, name: str) -> dict[str, Any]:
    dropped = ("precision", "output_mask")
    given = {key: value for key, value in call.parameters.items() if key not in dropped}
    if not call.is_forward:
        given["output_mask"] = tuple(name == each for each in GRADIENTS)
    return given


def conv_image_terms(call: Call) -> int:
    """Products in one element of an output, or of an input's gradient."""
    if call.is_forward != call.is_transposed:  # elements of a window
        return math.prod(call.weight_shape[1:])
    groups = max(1, int(call.parameters.get("groups", 1)))
    return call.weight_shape[0] // groups * math.prod(call.weight_shape[2:])


def conv_image_truth(call: Call, name: str, with_magnitudes: bool) -> Truth:
    """An output or an input's gradient: each image by itself."""
    source, operator = conv_operator(call)
    terms = conv_image_terms(call) + (call.bias is not None)
    image = call.result_shapes()[name][-call.rank - 1 :]

    def compute(part: Floats, weight: Floats, bias: Floats | None) -> Floats:
        given = conv_parameters(call, name)
        if call.is_forward:
            result: Floats = operator(part, weight, bias, **given)
        else:
            shape = (len(part), *call.input_shape[-call.rank - 1 :])
            result = operator(part, shape, weight, **given)[0]
        return result.reshape(-1, *image[1:])

    def blocks() -> Iterator[Block]:
        assert isinstance(call.weight, np.ndarray)
        images = conv_images(call.source, call)
        weight = operand(call.weight, call)
        bias = None if call.bias is None else widened(call.bias)
        step = max(1, BLOCK_ELEMENTS // max(math.prod(image), 1))
        for first in range(0, len(images), step):
            part = operand(images[first : first + step], call)
            values, magnitudes = compute(part, weight, bias), None
            if with_magnitudes:
                positive = None if bias is None else np.abs(bias)
                magnitudes = compute(np.abs(part), np.abs(weight), positive)
            yield Block(first * math.prod(image), values, magnitudes)

    return Truth(source, max(1, terms), blocks())


def conv_sum_truth(call: Call, gradient: str, with_magnitudes: bool) -> Truth:
    """Gradients that are sums over the batch: added up image by image."""
    source, operator = conv_operator(call)
    grad = conv_images(call.grad_output, call)
    is_over_inputs = call.is_transposed and gradient == "grad_weight"
    places = call.input_shape if is_over_inputs else call.output_shape
    terms = max(1, len(grad) * math.prod(places[-call.rank :]))

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
                assert isinstance(call.input, np.ndarray)
                x = operand(conv_images(call.input, call)[first : first + images], call)
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
