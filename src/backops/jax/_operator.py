"""Operators of backops as JAX primitives: what all of them share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir

from backops.jax import _sharding


class Operator:
    """A function of arrays and of one hashable value, `how`, that makes one array.

    result_shape(how, *shapes): the shape of the result.
    run(how, *operands): the result, as it is put to XLA.
    kept(how, *ndims): per operand, and last for the result, the axes along which parts are
        independent of each other, in the same order; where the result has none, it is the sum over
        the parts. Where none has any, XLA knows itself how to split what is put to it.
    """

    def __init__(
        self,
        name: str,
        result_shape: Callable[..., Sequence[Any]],
        run: Callable[..., Any],
        kept: Callable[..., Sequence[range]],
    ) -> None:
        self.primitive = Primitive(name)
        self._result_shape, self._run, self._kept = result_shape, run, kept
        self.primitive.def_abstract_eval(self._abstract)
        # Compiled as one where the caller compiles nothing.
        compiled = jax.jit(self, static_argnames="how", inline=True)
        self.primitive.def_impl(lambda *operands, how, parts: compiled(*operands, how=how))
        mlir.register_lowering(self.primitive, self._lower)
        self._parts = functools.lru_cache(1024)(self._trace_parts)

    def __call__(self, *operands: Any, how: Hashable) -> Any:
        kept = self._kept_axes(how, [operand.shape for operand in operands])
        fitting = _sharding.vary_alike(_sharding.keep_splits(operands, kept))
        parts = None
        if kept[0] and _sharding.may_be_split_by_xla(*fitting):
            avals = tuple((operand.shape, operand.dtype) for operand in fitting)
            parts = self._parts(how, avals, _sharding.current_mesh())
        return self.primitive.bind(*fitting, how=how, parts=parts)

    def _kept_axes(self, how: Any, shapes: Sequence[Any]) -> Sequence[range]:
        return self._kept(how, *map(len, shapes), len(self._result_shape(how, *shapes)))

    def _abstract(self, *operands: Any, how: Any, parts: Any) -> Any:
        shapes = [operand.shape for operand in operands]
        return _sharding.type_of_result(
            operands[0], tuple(self._result_shape(how, *shapes)), self._kept_axes(how, shapes)
        )

    def _trace_parts(self, how: Any, avals: Any, mesh: Any) -> Any:
        """The operator as a program that XLA can split over devices.

        It stands in the primitive's parameters, because JAX only tells a lowering rule the devices
        where it finds a `custom_partitioning` in them.
        """
        shapes = [shape for shape, _ in avals]
        function = functools.partial(self._run, how)
        ndims = [*map(len, shapes), len(self._result_shape(how, *shapes))]
        split = _sharding.split_by_xla(function, ndims, self._kept_axes(how, shapes))
        return jax.make_jaxpr(split)(*(jax.ShapeDtypeStruct(*aval) for aval in avals))

    def _lower(self, context: Any, *operands: Any, how: Any, parts: Any) -> Any:
        if parts is not None:
            rule = mlir.lower_fun(jaxpr_as_fun(parts), multiple_results=True)
        else:
            rule = mlir.lower_fun(functools.partial(self._run, how), multiple_results=False)
        return rule(context, *operands)


def transposes(one: Operator, other: Operator) -> None:
    """Gives two operators their derivatives: each is linear, and the other is its transpose.

    Axes before those that they know of are `vmap`'s.
    """
    for operator, transpose in ((one, other), (other, one)):
        ad.deflinear2(operator.primitive, functools.partial(_transpose, transpose))
        batching.primitive_batchers[operator.primitive] = functools.partial(_batch, operator)


def _transpose(transpose: Operator, cotangent: Any, operand: Any, *, how: Any, parts: Any) -> Any:
    return [_sharding.split_as(transpose(cotangent, how=how), operand.aval)]


def _batch(operator: Operator, operands: Any, axes: Any, *, how: Any, parts: Any) -> Any:
    return operator(jnp.moveaxis(operands[0], axes[0], 0), how=how), 0
