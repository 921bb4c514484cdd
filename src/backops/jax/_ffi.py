"""Calls of backops' handlers from inside XLA programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from backops import _native
from backops.jax import _sharding

for _name, _handler in _native.xla_handlers().items():
    jax.ffi.register_ffi_target(_name, _handler, platform="cpu")


def call(
    target: str, results: Sequence[Any], *operands: Any, **attributes: int | Sequence[int]
) -> Any:
    """The results of one handler; `vmap` puts axes before those of all operands and results."""
    arrays = {name: np.atleast_1d(np.asarray(v, np.int64)) for name, v in attributes.items()}
    function = jax.ffi.ffi_call(target, tuple(results), vmap_method="expand_dims")
    return [_sharding.vary_as(r, *operands) for r in function(*operands, **arrays)]


def sum_dtype(dtype: Any) -> Any:
    """What sums of this dtype are taken in."""
    return jnp.float64 if dtype == jnp.float64 else jnp.float32
