"""Calls of backops' handlers from inside XLA programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from backops import _native
from backops.errors import ShapeError
from backops.jax import _sharding

_HANDLERS = _native.xla_handlers()
CUSTOM_CALLS = tuple(_HANDLERS)
for _name, _handler in _HANDLERS.items():
    jax.ffi.register_ffi_target(_name, _handler, platform="cpu")


def call(
    target: str, shape: Sequence[Any], *operands: Any, **attributes: int | Sequence[int]
) -> Any:
    """What one handler makes of its operands, of their dtype."""
    arrays = {name: np.atleast_1d(np.asarray(v, np.int64)) for name, v in attributes.items()}
    result = jax.ShapeDtypeStruct(tuple(shape), operands[0].dtype)
    return _sharding.vary_as(jax.ffi.ffi_call(target, result)(*operands, **arrays), *operands)


def sum_dtype(dtype: Any) -> Any:
    """What sums of this dtype are taken in."""
    return jnp.float64 if dtype == jnp.float64 else jnp.float32


def known_shape(function: str, shape: Sequence[Any], free: int) -> tuple[int, ...]:
    """The shape as the core is told it: sizes along the first `free` axes may be symbols."""
    if all(isinstance(size, int) for size in shape[free:]):
        return tuple(size if isinstance(size, int) else 1 for size in shape)
    raise ShapeError(
        f"{function}: x is ({', '.join(map(str, shape))}), expected numbers, no symbols, along the "
        f"last {len(shape) - free} axes"
    )
