"""Arrays that are split over devices.

Inside `jax.shard_map`, JAX's types say along which axes of the mesh a value differs from device to
device, and operands of one operator must agree in that. On a mesh of explicit axes, types say how
an array is split. On automatic axes XLA decides. It is told which splits an operator can keep, and
then runs the operator on each device's part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding, PartitionSpec

# Since JAX 0.6.1; before, nothing here had a type.
_type_of: Callable[[Any], Any] | None = getattr(jax, "typeof", None)


def _varying(x: Any) -> frozenset[Any]:
    """The axes of the mesh along which `x` varies, inside `jax.shard_map`."""
    kind = type_of(x)
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


def vary_alike(operands: Sequence[Any]) -> list[Any]:
    """The operands, typed as varying along every axis that one of them varies along."""
    return [vary_as(operand, *operands) for operand in operands]


def type_of(x: Any) -> Any:
    """JAX's type of an array; None where it has none."""
    return _type_of(x) if _type_of else None


def _explicit_splits(kind: Any) -> tuple[Any, Sequence[Any]]:
    """The mesh of explicit axes that a type says to be split over; its axes for each axis."""
    # Arrays can be told how to be split, and so have such types, since JAX 0.7.
    sharding = getattr(kind, "sharding", None) if hasattr(jax.sharding, "reshard") else None
    if sharding is None or all(axes is None for axes in sharding.spec):
        return None, ()
    return sharding.mesh, sharding.spec


def keep_splits(operands: Sequence[Any], kept: Sequence[range]) -> Sequence[Any]:
    """The operands on a mesh of explicit axes: split as the first one, and only along `kept`."""
    splits = [_explicit_splits(type_of(operand)) for operand in operands]
    mesh = next((mesh for mesh, _ in splits if mesh is not None), None)
    if mesh is None:
        return operands
    spec = splits[0][1] or [None] * operands[0].ndim
    axes = [spec[i] for i in kept[0]]
    return [
        jax.sharding.reshard(operand, _sharding_along(mesh, operand.ndim, own, axes))
        for operand, own in zip(operands, kept, strict=False)
    ]


def split_as(x: Any, kind: Any) -> Any:
    """`x`, on a mesh of explicit axes split as this type says, which has its shape."""
    mesh, spec = _explicit_splits(kind)
    if mesh is None:
        return x
    return jax.sharding.reshard(x, NamedSharding(mesh, PartitionSpec(*spec)))


def _sharding_along(mesh: Any, ndim: int, own: range, axes: Sequence[Any]) -> Any:
    spec = [None] * ndim
    spec[own.start : own.stop] = axes[: len(own)]
    return NamedSharding(mesh, PartitionSpec(*spec))


def type_of_result(first: Any, shape: tuple[Any, ...], kept: Sequence[range]) -> Any:
    """The type of a result of this shape, from that of the first operand."""
    if not hasattr(first, "sharding"):
        return first.update(shape=shape)
    axes = [first.sharding.spec[i] for i in kept[0]]
    sharding = _sharding_along(first.sharding.mesh, len(shape), kept[-1], axes)
    return first.update(shape=shape, sharding=sharding)


def current_mesh() -> Any:
    """The mesh that types refer to; None where this JAX has none."""
    return jax.sharding.get_abstract_mesh() if hasattr(jax.sharding, "get_abstract_mesh") else None


def may_be_split_by_xla(*operands: Any) -> bool:
    """Whether XLA may be asked to split an operator: not inside shard_map, and all sizes known."""
    if not getattr(jax.config, "jax_use_shardy_partitioner", False):
        return False
    mesh = current_mesh()
    kinds = () if mesh is None else mesh.axis_types
    inside = jax.sharding.AxisType.Manual in kinds
    # JAX 0.7 cannot compile the sum over parts on explicit axes; there XLA gathers them.
    if inside or (jax.sharding.AxisType.Explicit in kinds and jax.__version_info__ < (0, 10)):
        return False
    return all(isinstance(size, int) for operand in operands for size in operand.shape)


def split_by_xla(function: Callable[..., Any], ndims: Sequence[int], kept: Sequence[range]) -> Any:
    """`function`, whose operands XLA may split along the axes `kept`.

    The last of `ndims` and `kept` is the result's; where that keeps nothing, it is a sum.
    """

    def partition(mesh: Any, operands: Any, result: Any) -> Any:
        # After XLA's propagation, all that keep an axis are split alike.
        spec = operands[0].sharding.spec
        axes = [spec[i] for i in kept[0]]
        is_sum = not kept[-1] and any(axis is not None for axis in axes)

        def local(*parts: Any) -> Any:
            value = function(*parts)
            return jax.lax.psum(value, tuple(_names(axes))) if is_sum else value

        shardings = [
            _sharding_along(mesh, ndim, own, axes) for ndim, own in zip(ndims, kept, strict=True)
        ]
        return mesh, local, shardings[-1], tuple(shardings[:-1])

    rule, others = _rule(ndims, kept)
    split = custom_partitioning(function)
    reduced = {"reduction_factors": tuple(f"k{i}" for i in range(len(kept[0])))}
    split.def_partition(
        partition,
        sharding_rule=rule,
        need_replication_factors=others,
        **({} if kept[-1] else reduced),
    )
    return split


def _names(axes: Sequence[Any]) -> list[Any]:
    """The axes of the mesh in one entry or more of a PartitionSpec."""
    return [
        name
        for axis in axes
        if axis is not None
        for name in (axis if isinstance(axis, tuple) else (axis,))
    ]


def _rule(ndims: Sequence[int], kept: Sequence[range]) -> tuple[str, tuple[str, ...]]:
    """A rule of Shardy: axes of one name are split alike. And the names that are not split."""
    tensors = [
        [f"k{axis - own.start}" if axis in own else f"t{t}a{axis}" for axis in range(ndim)]
        for t, (ndim, own) in enumerate(zip(ndims, kept, strict=True))
    ]
    others = tuple(name for names in tensors for name in names if name.startswith("t"))
    *operands, result = (" ".join(names) for names in tensors)
    return f"{', '.join(operands)} -> {result}", others
