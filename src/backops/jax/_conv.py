"""Convolution and transposed convolution.

Both are bilinear maps of x and a weight. The map and its two gradients are three operators, of
which each is the derivative and the transpose of the others:

    apply(x, weight) -> y     grad_input(y, weight) -> x     grad_weight(y, x) -> weight

so all derivatives of any order, in either mode, are made of them. `vmap` of x alone makes one
convolution with a larger N; otherwise operands get a leading axis, of size 1 where they are the
same for all, and the convolutions run one after the other.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax.interpreters import ad, batching

from backops import _native
from backops._ops import Axes
from backops.errors import DTypeError, ShapeError
from backops.jax import _ffi, _sharding
from backops.jax._operator import Operator, transposes


@dataclass(frozen=True)
class _Conv:
    """A convolution of arrays with certain spatial sizes; one int per spatial axis."""

    transposed: bool
    stride: tuple[int, ...]
    padding_before: tuple[int, ...]
    padding_after: tuple[int, ...]
    output_padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    input_size: tuple[int, ...]
    kernel_size: tuple[int, ...]
    output_size: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.stride)

    def attributes(self) -> dict[str, Any]:
        names = ("stride", "padding_before", "padding_after", "output_padding", "dilation")
        axes = {name: getattr(self, name) for name in names}
        return {"rank": self.rank, "transposed": self.transposed, "groups": self.groups, **axes}


def conv(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    stride: Axes = 1,
    padding: Axes | str | Sequence[tuple[int, int]] = 0,
    dilation: Axes = 1,
    groups: int = 1,
) -> Any:
    """Convolution over one to three axes, as PyTorch defines it.

    >>> x = jnp.arange(4.0).reshape(1, 4)
    >>> backops.jax.conv(x, jnp.array([[[1.0, 10.0]]]))
    Array([[10., 21., 32.]], dtype=float32)

    Arguments:
        x: ``(N, C_in, *spatial)`` or without ``N``; float16, bfloat16, float32 or float64.
        weight: ``(C_out, C_in / groups, *kernel)``, of the same dtype.
        bias: ``(C_out,)``, of the same dtype, or None.
        stride, dilation: an int, or a sequence of one int or one per spatial axis.
        padding: likewise; or a pair of ints per spatial axis, the zeros before and after; or
            ``"VALID"``, none; or ``"SAME"``, as many outputs as inputs, divided by the stride and
            rounded up.
        groups: into how many independent convolutions the channels are divided.

    Raises DTypeError, ShapeError or ParamError of :mod:`backops`.
    """
    return _convolve("conv", x, weight, bias, stride, padding, dilation, groups)


def conv_transpose(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    stride: Axes = 1,
    padding: Axes | Sequence[tuple[int, int]] = 0,
    output_padding: Axes = 0,
    dilation: Axes = 1,
    groups: int = 1,
) -> Any:
    """Transposed convolution over one to three axes, as PyTorch defines it.

    >>> x = jnp.arange(3.0).reshape(1, 3)
    >>> backops.jax.conv_transpose(x, jnp.array([[[1.0, 10.0]]]), stride=2)
    Array([[ 0.,  0.,  1., 10.,  2., 20.]], dtype=float32)

    Arguments:
        x: ``(N, C_in, *spatial)`` or without ``N``; float16, bfloat16, float32 or float64.
        weight: ``(C_in, C_out / groups, *kernel)``, of the same dtype.
        bias: ``(C_out,)``, of the same dtype, or None.
        stride, dilation: an int, or a sequence of one int or one per spatial axis.
        padding: likewise, or a pair of ints per spatial axis: how much of the result is cut off.
        output_padding: likewise, how much is added behind the result; less than the stride or the
            dilation.
        groups: into how many independent convolutions the channels are divided.

    Raises DTypeError, ShapeError or ParamError of :mod:`backops`.
    """
    return _convolve(
        "conv_transpose", x, weight, bias, stride, padding, dilation, groups, output_padding
    )


def _convolve(
    function: str,
    x: Any,
    weight: Any,
    bias: Any,
    stride: Axes,
    padding: Any,
    dilation: Axes,
    groups: int,
    output_padding: Axes = 0,
) -> Any:
    x, weight = jnp.asarray(x), jnp.asarray(weight)
    shape = _ffi.known_shape(function, x.shape, x.ndim - weight.ndim + 1)
    output_shape, strides, before, dilations, group_count, output_paddings, after = (
        _native.conv_geometry(
            shape, weight.shape, stride, padding, dilation, groups, x.dtype.name, function,
            output_padding, any_padding=True,
        )
    )  # fmt: skip
    rank = weight.ndim - 2
    how = _Conv(
        function == "conv_transpose", strides, before, after, output_paddings, dilations,
        group_count, shape[-rank:], weight.shape[2:], output_shape[-rank:],
    )  # fmt: skip
    operands = [x if x.ndim == weight.ndim else x[None], weight]
    if bias is not None:
        operands.append(jnp.asarray(bias))
    _check(function, output_shape[-rank - 1], *operands)
    result = apply(*operands, how=how)
    return result if x.ndim == weight.ndim else result[0]


def _check(function: str, channels: int, x: Any, weight: Any, bias: Any = None) -> None:
    """What the core is told only when it runs."""
    for name, operand in (("weight", weight), ("bias", bias)):
        if operand is not None and operand.dtype != x.dtype:
            raise DTypeError(f"{function}: {name} is {operand.dtype}, expected {x.dtype} like x")
    if bias is not None and bias.shape != (channels,):
        raise ShapeError(
            f"{function}: bias is {bias.shape}, expected one element per output channel, "
            f"{(channels,)}"
        )


# The operators. Axes before those of one convolution are vmap's.


def _leading(how: _Conv, *shapes: Any) -> tuple[Any, ...]:
    return jnp.broadcast_shapes(*(shape[: -how.rank - 2] for shape in shapes))


def _channels(how: _Conv, weight: Any) -> tuple[Any, Any]:
    """Of x and of y."""
    first, second = weight[-how.rank - 2], how.groups * weight[-how.rank - 1]
    return (first, second) if how.transposed else (second, first)


def _apply_shape(how: _Conv, x: Any, weight: Any, *bias: Any) -> tuple[Any, ...]:
    leading = _leading(how, x, weight, *((*b[:-1], *weight[-how.rank - 2 :]) for b in bias))
    return (*leading, x[-how.rank - 2], _channels(how, weight)[1], *how.output_size)


def _grad_input_shape(how: _Conv, y: Any, weight: Any) -> tuple[Any, ...]:
    channels = _channels(how, weight)[0]
    return (*_leading(how, y, weight), y[-how.rank - 2], channels, *how.input_size)


def _grad_weight_shape(how: _Conv, y: Any, x: Any) -> tuple[Any, ...]:
    channels = [shape[-how.rank - 1] for shape in (y, x)]
    first, second = channels[::-1] if how.transposed else channels
    return (*_leading(how, y, x), first, second // how.groups, *how.kernel_size)


def _batch_axis(how: _Conv, ndim: int) -> range:
    return range(ndim - how.rank - 2, ndim - how.rank - 1)


NOTHING = range(0)


def _keep_batch(how: _Conv, *ndims: int) -> list[range]:
    kept = [NOTHING for _ in ndims]
    kept[0], kept[-1] = _batch_axis(how, ndims[0]), _batch_axis(how, ndims[-1])
    return kept


def _sum_batch(how: _Conv, *ndims: int) -> list[range]:
    return [*(_batch_axis(how, ndim) for ndim in ndims[:-1]), NOTHING]


def _operator(target: str, result_shape: Any, kept: Any) -> Operator:
    def run(how: _Conv, *operands: Any) -> Any:
        shape = result_shape(how, *(operand.shape for operand in operands))
        return _ffi.call(target, shape, *operands, **how.attributes())

    return Operator(target, result_shape, run, kept)


apply = _operator("backops_conv", _apply_shape, _keep_batch)
grad_input = _operator("backops_conv_grad_input", _grad_input_shape, _keep_batch)
grad_weight = _operator("backops_conv_grad_weight", _grad_weight_shape, _sum_batch)


# The bias


@dataclass(frozen=True)
class _Spread:
    """From one element per channel to (N, C, *spatial)."""

    batch: Any
    size: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.size)


def _run_spread(how: _Spread, bias: Any) -> Any:
    shape = _spread_shape(how, bias.shape)
    return jnp.broadcast_to(bias[(..., None, slice(None), *(None,) * how.rank)], shape)


def _spread_shape(how: _Spread, bias: Any) -> tuple[Any, ...]:
    return (*bias[:-1], how.batch, bias[-1], *how.size)


def _sums_shape(how: _Spread, y: Any) -> tuple[Any, ...]:
    return (*y[: -how.rank - 2], y[-how.rank - 1])


def _run_sums(how: _Spread, y: Any) -> Any:
    return _ffi.call("backops_channel_sums", _sums_shape(how, y.shape), y, rank=how.rank)


spread = Operator(
    "backops_channel_spread", _spread_shape, _run_spread, lambda *_: (NOTHING, NOTHING)
)
sums = Operator("backops_channel_sums", _sums_shape, _run_sums, _sum_batch)
transposes(spread, sums)


# Derivatives


def _jvp(operator: Operator, primals: Any, tangents: Any, *, how: _Conv, parts: Any) -> Any:
    first, second, *_ = primals
    result = operator(*primals, how=how)
    bias = [tangent for tangent in tangents[2:] if type(tangent) is not ad.Zero]
    terms = []
    for i, tangent in enumerate(tangents[:2]):
        if type(tangent) is not ad.Zero:
            operands = (first, tangent) if i else (tangent, second)
            terms.append(operator(*operands, *bias, how=how))
            bias = []
    if bias:
        size = _Spread(result.shape[-how.rank - 2], result.shape[-how.rank :])
        terms.append(_sharding.split_as(spread(*bias, how=size), _sharding.type_of(result)))
    # Of operands with other leading axes, the terms have other ones too.
    terms = [jnp.broadcast_to(term, result.shape) for term in terms]
    return result, functools.reduce(jnp.add, terms)


def _sum_to(operand: Any, value: Any) -> Any:
    """Sums over the leading axes that the operand has no elements of its own along."""
    shape = operand.aval.shape
    axes = tuple(i for i, size in enumerate(shape) if size == 1 and value.shape[i] != 1)
    if not axes:
        return value
    return value.sum(axes, _ffi.sum_dtype(value.dtype), keepdims=True).astype(value.dtype)


def _transpose(rules: Any, cotangent: Any, *operands: Any, how: _Conv, parts: Any) -> Any:
    if type(cotangent) is ad.Zero:
        return [
            ad.Zero(operand.aval) if ad.is_undefined_primal(operand) else None
            for operand in operands
        ]
    first, second, *_ = operands
    others = (second, first, None)
    return [
        _sum_to(operand, rule(cotangent, other, how)) if ad.is_undefined_primal(operand) else None
        for operand, other, rule in zip(operands, others, rules, strict=False)
    ]


def _batch(operator: Operator, operands: Any, axes: Any, *, how: _Conv, parts: Any) -> Any:
    first, *others = operands
    is_one = axes[0] is not None and all(axis is None for axis in axes[1:])
    if is_one and operator is not grad_weight:
        place = first.ndim - how.rank - 3
        first = jnp.moveaxis(first, axes[0], place)
        n = first.shape[place : place + 2]
        folded = first.reshape(*first.shape[:place], n[0] * n[1], *first.shape[place + 2 :])
        result = operator(folded, *others, how=how)
        return result.reshape(*result.shape[:place], *n, *result.shape[place + 1 :]), place
    moved = [
        operand[None] if axis is None else jnp.moveaxis(operand, axis, 0)
        for operand, axis in zip(operands, axes, strict=True)
    ]
    return operator(*moved, how=how), 0


# Per operator, the cotangent of each operand, from that of the result and the other operand.
_TRANSPOSES = {
    apply: (
        lambda y, weight, how: grad_input(y, weight, how=how),
        lambda y, x, how: grad_weight(y, x, how=how),
        lambda y, _, how: sums(y, how=_Spread(y.shape[-how.rank - 2], how.output_size)),
    ),
    grad_input: (
        lambda x, weight, how: apply(x, weight, how=how),
        lambda x, y, how: grad_weight(y, x, how=how),
    ),
    grad_weight: (
        lambda weight, x, how: apply(x, weight, how=how),
        lambda weight, y, how: grad_input(y, weight, how=how),
    ),
}
for _operator_, _rules in _TRANSPOSES.items():
    ad.primitive_jvps[_operator_.primitive] = functools.partial(_jvp, _operator_)
    ad.primitive_transposes[_operator_.primitive] = functools.partial(_transpose, _rules)
    batching.primitive_batchers[_operator_.primitive] = functools.partial(_batch, _operator_)
