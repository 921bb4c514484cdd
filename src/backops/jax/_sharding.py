"""Arrays that are split over devices.

Inside `jax.shard_map`, JAX's types say along which axes of the mesh a value differs from device to
device, and operands of one operator must agree in that. On a mesh of explicit axes, types say how
an array is split; there an operator runs on each device's part, inside a `shard_map` of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.sharding import PartitionSpec

# Since JAX 0.6.1; before, nothing here had a type.
_type_of: Callable[[Any], Any] | None = getattr(jax, "typeof", None)


def _varying(x: Any) -> frozenset[Any]:
    """The axes of the mesh along which `x` varies, inside `jax.shard_map`."""
    kind = _type_of(x) if _type_of else None
    manual = getattr(kind, "manual_axis_type", None)  # since JAX 0.10
    axes = getattr(kind, "vma", frozenset()) if manual is None else manual.varying
    return frozenset(axes)


def vary_as(x: Any, *others: Any) -> Any:
    """`x`, typed as varying along every axis that one of `others` varies along."""
    axes = tuple(sorted(frozenset().union(*map(_varying, others)) - _varying(x), key=str))
    if not axes:
        return x
    if hasattr(jax.lax, "pcast"):
        return jax.lax.pcast(x, axes, to="varying")
    return jax.lax.pvary(x, axes)


def over_parts(function: Callable[..., Any], x: Any, *whole: Any, keeps: int) -> Any:
    """`function(x, *whole)`; where a mesh of explicit axes splits `x`, on each of its parts.

    The first `keeps` axes of `x` and of the result stay split. Other splits are undone before.
    """
    splits = [_explicit_splits(operand) for operand in (x, *whole)]
    mesh = next((mesh for mesh, _ in splits if mesh is not None), None)
    if mesh is None:
        return function(x, *whole)
    spec = PartitionSpec(*splits[0][1][:keeps])
    if jax.sharding.AxisType.Manual in mesh.axis_types:
        spec = PartitionSpec()  # JAX 0.10 fails at gradients of such a shard_map in another
    specs = (spec, *(PartitionSpec() for _ in whole))
    operands = [
        jax.sharding.reshard(operand, jax.sharding.NamedSharding(mesh, wanted))
        for operand, wanted in zip((x, *whole), specs, strict=True)
    ]
    if all(axes is None for axes in spec):
        return function(*operands)
    return jax.shard_map(
        function, mesh=mesh, in_specs=specs, out_specs=spec, axis_names=_explicit_axes(mesh)
    )(*operands)


def _explicit_axes(mesh: Any) -> frozenset[Any]:
    explicit = jax.sharding.AxisType.Explicit
    pairs = zip(mesh.axis_names, mesh.axis_types, strict=True)
    return frozenset(name for name, kind in pairs if kind == explicit)


def _explicit_splits(x: Any) -> tuple[Any, Sequence[Any]]:
    """The mesh that `x` is split over, and its axes for each axis of `x`; None if it is whole."""
    # Arrays can be told how to be split, and so have such types, since JAX 0.7.
    sharding = _type_of(x).sharding if _type_of and hasattr(jax.sharding, "reshard") else None
    if sharding is None or all(axes is None for axes in sharding.spec):
        return None, ()
    return sharding.mesh, sharding.spec
