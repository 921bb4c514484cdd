"""Convolution: forward by XLA, backward by backops.

`conv` is a primitive of its own around a `jax.custom_vjp` function. The primitive is there for
vmap: with one weight for the whole batch it becomes one convolution with a larger N, and so does
its gradient. A custom_vjp function alone would give vmap a weight gradient per example, to be
summed afterwards. The rule for derivatives is custom_vjp's.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from backops import _native
from backops._ops import Axes
from backops.errors import DTypeError, ShapeError
from backops.jax import _ffi, _sharding


@dataclass(frozen=True)
class _Conv:
    """The parameters of a convolution, one int per spatial axis."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int


def conv(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    stride: Axes = 1,
    padding: Axes = 0,
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
        stride, padding, dilation: an int, or a sequence of one int or one per spatial axis.
        groups: into how many independent convolutions the channels are divided.

    Raises DTypeError, ShapeError or ParamError of :mod:`backops`.
    """
    x, weight = jnp.asarray(x), jnp.asarray(weight)
    _, strides, paddings, dilations, group_count, _ = _native.conv_geometry(
        x.shape, weight.shape, stride, padding, dilation, groups, x.dtype.name
    )
    operands = [x if x.ndim == weight.ndim else x[None], weight]
    if bias is not None:
        operands.append(jnp.asarray(bias))
    _check(*operands)
    parameters = _Conv(strides, paddings, dilations, group_count)
    result = _sharding.over_parts(functools.partial(_bind, parameters), *operands, keeps=1)
    return result if x.ndim == weight.ndim else result[0]


def _bind(parameters: _Conv, *operands: Any) -> Any:
    operands = tuple(_sharding.vary_as(operand, *operands) for operand in operands)
    return _conv_p.bind(*operands, conv=parameters)


def _check(x: Any, weight: Any, bias: Any = None) -> None:
    """What the core cannot see: it knows one dtype and no bias."""
    for name, operand in (("weight", weight), ("bias", bias)):
        if operand is not None and operand.dtype != x.dtype:
            raise DTypeError(f"conv: {name} is {operand.dtype}, expected {x.dtype} like x")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ShapeError(
            f"conv: bias is {bias.shape}, expected one element per output channel, "
            f"{weight.shape[:1]}"
        )


# Forward

_MOST_TAPS = 64


def _convolve(x: Any, weight: Any, conv: _Conv) -> Any:
    padding = [(size, size) for size in conv.padding]
    depthwise = weight.shape[0] == x.shape[1] == conv.groups
    if depthwise and math.prod(weight.shape[2:]) <= _MOST_TAPS:
        return _sum_taps(jnp.pad(x, [(0, 0), (0, 0), *padding]), weight, conv)
    return jax.lax.conv_general_dilated(
        x,
        weight,
        conv.stride,
        padding,
        rhs_dilation=conv.dilation,
        feature_group_count=conv.groups,
    )


def _sum_taps(padded: Any, weight: Any, conv: _Conv) -> Any:
    """A depthwise convolution, one product per element of the kernel.

    XLA makes one loop of it, 15 to 40 times as fast as its own convolution of such a shape.
    """
    kernel = weight.shape[2:]
    spans = [
        (size - dilation * (taps - 1) - 1) // stride * stride + 1
        for size, taps, stride, dilation in zip(
            padded.shape[2:], kernel, conv.stride, conv.dilation, strict=True
        )
    ]
    products = []
    for tap in itertools.product(*map(range, kernel)):
        starts = [i * dilation for i, dilation in zip(tap, conv.dilation, strict=True)]
        limits = [start + span for start, span in zip(starts, spans, strict=True)]
        part = jax.lax.slice(
            padded, (0, 0, *starts), (*padded.shape[:2], *limits), (1, 1, *conv.stride)
        )
        factor = weight[(slice(None), 0, *tap)].reshape(1, -1, *(1,) * len(kernel))
        products.append(part * factor)
    return functools.reduce(jnp.add, products)


def _forward(x: Any, weight: Any, bias: Any = None, *, conv: _Conv) -> Any:
    dtype = _ffi.sum_dtype(x.dtype)
    result = _convolve(x.astype(dtype), weight.astype(dtype), conv)
    if bias is not None:
        result += bias.astype(dtype).reshape(1, -1, *(1,) * len(conv.stride))
    return result.astype(x.dtype)


# Backward


@dataclass(frozen=True)
class _Gradients:
    """Which gradients of which convolution."""

    conv: _Conv
    input_shape: tuple[int, ...]
    weight_shape: tuple[int, ...]
    mask: tuple[bool, bool, bool]  # of input, weight, bias
    has_bias: bool = False


def _backward(wanted: _Gradients, grad_output: Any, x: Any, weight: Any) -> tuple[Any, ...]:
    """Three gradients, None where not wanted. x and weight are None where nothing needs them."""
    if not any(wanted.mask[:2]):
        axes = (0, *range(2, grad_output.ndim))
        total = grad_output.sum(axes, _ffi.sum_dtype(grad_output.dtype))
        return None, None, total.astype(grad_output.dtype) if wanted.mask[2] else None
    shapes = (wanted.input_shape, wanted.weight_shape, wanted.weight_shape[:1])
    gradients = iter(
        _ffi.call(
            "backops_conv_backward",
            [
                jax.ShapeDtypeStruct(shape, grad_output.dtype)
                for shape, is_wanted in zip(shapes, wanted.mask, strict=True)
                if is_wanted
            ],
            *(operand for operand in (grad_output, x, weight) if operand is not None),
            rank=len(wanted.conv.stride),
            stride=wanted.conv.stride,
            padding=wanted.conv.padding,
            dilation=wanted.conv.dilation,
            groups=wanted.conv.groups,
            output_mask=wanted.mask,
        )
    )
    return tuple(next(gradients) if is_wanted else None for is_wanted in wanted.mask)


_conv_backward = jax.custom_vjp(_backward, nondiff_argnums=(0,))


def _backward_forward(wanted: _Gradients, grad_output: Any, x: Any, weight: Any) -> Any:
    return _conv_backward(wanted, grad_output, x, weight), (grad_output, x, weight)


def _backward_backward(wanted: _Gradients, operands: Any, cotangents: Any) -> Any:
    """The gradients of the gradients.

    grad_output's is what the cotangents convolve to. For x and weight, the cotangents of their
    gradients take each other's place: <v, grad_weight(g, x)> = <g, conv(x, v)> for every v, which
    is <x, grad_input(g, v)>, and likewise with x and weight exchanged.
    """
    grad_output, x, weight = operands
    for_input, for_weight, for_bias = cotangents
    terms = []
    if for_input is not None:
        terms.append(_conv_p.bind(for_input, weight, conv=wanted.conv))
    if for_weight is not None:
        terms.append(_conv_p.bind(x, for_weight, conv=wanted.conv))
    if for_bias is not None:
        per_channel = for_bias.reshape(-1, *(1,) * len(wanted.conv.stride))
        terms.append(jnp.broadcast_to(per_channel, grad_output.shape))
    exchanged = replace(wanted, mask=(wanted.mask[1], wanted.mask[0], False))
    for_x, for_w, _ = _conv_backward(exchanged, grad_output, for_input, for_weight)
    return functools.reduce(jnp.add, terms), for_x, for_w


_conv_backward.defvjp(_backward_forward, _backward_backward)


# Compiled as one where the caller compiles nothing.
_compiled = jax.jit(_forward, static_argnames="conv", inline=True)


def _differentiable(wanted: _Gradients, *operands: Any) -> Any:
    return _compiled(*operands, conv=wanted.conv)


_differentiable_conv = jax.custom_vjp(_differentiable, nondiff_argnums=(0,))


def _keep(wanted: _Gradients, *operands: Any) -> Any:
    kept = (operands[0] if wanted.mask[1] else None, operands[1] if wanted.mask[0] else None)
    return _conv_p.bind(*operands, conv=wanted.conv), kept


def _give_back(wanted: _Gradients, residuals: Any, grad_output: Any) -> Any:
    return _conv_backward(wanted, grad_output, *residuals)[: 3 if wanted.has_bias else 2]


_differentiable_conv.defvjp(_keep, _give_back)


# The primitive


def _abstract(x: Any, weight: Any, *bias: Any, conv: _Conv) -> Any:
    output_shape, *_ = _native.conv_geometry(
        x.shape, weight.shape, conv.stride, conv.padding, conv.dilation, conv.groups, x.dtype.name
    )
    return x.update(shape=output_shape)


def _linearize(primals: Any, tangents: Any, *, conv: _Conv) -> Any:
    # Only here is it known which gradients will be asked for.
    varies = [type(tangent) is not ad.Zero for tangent in tangents]
    has_bias = len(primals) > 2
    mask = (varies[0], varies[1], has_bias and varies[2])
    wanted = _Gradients(conv, primals[0].shape, primals[1].shape, mask, has_bias)
    tangents = tuple(ad.instantiate_zeros(tangent) for tangent in tangents)
    return jax.jvp(functools.partial(_differentiable_conv, wanted), tuple(primals), tangents)


def _batch(operands: Any, axes: Any, *, conv: _Conv) -> Any:
    x, weight, *bias = operands
    if axes[0] is not None and all(axis is None for axis in axes[1:]):
        x = jnp.moveaxis(x, axes[0], 0)
        folded = x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])
        result = _conv_p.bind(folded, weight, *bias, conv=conv)
        return result.reshape(*x.shape[:2], *result.shape[1:]), 0
    shapes = [
        operand.shape if axis is None else operand.shape[:axis] + operand.shape[axis + 1 :]
        for operand, axis in zip(operands[:2], axes[:2], strict=True)
    ]
    has_bias = len(operands) > 2
    wanted = _Gradients(conv, shapes[0], shapes[1], (True, True, has_bias), has_bias)
    function = functools.partial(_differentiable_conv, wanted)
    return jax.vmap(function, in_axes=tuple(axes))(*operands), 0


_conv_p = Primitive("backops_conv")
_conv_p.def_impl(_compiled)
_conv_p.def_abstract_eval(_abstract)
mlir.register_lowering(_conv_p, mlir.lower_fun(_forward, multiple_results=False))
ad.primitive_jvps[_conv_p] = _linearize
batching.primitive_batchers[_conv_p] = _batch
