"""Arrays of PyTorch and JAX, and settings of the latter."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import torch

from .floats import DTYPES

TORCH_DTYPES = {name: getattr(torch, name) for name in DTYPES}


def to_torch(array):
    """A tensor with the same values; PyTorch does not read ml_dtypes.bfloat16."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def to_numpy(array):
    """The values of any framework's array, with their dtype."""
    if isinstance(array, torch.Tensor):
        if array.dtype == torch.bfloat16:
            bits = array.detach().contiguous().view(torch.int16).numpy()
            return bits.view(ml_dtypes.bfloat16)
        return array.detach().numpy()
    return np.asarray(array)


def jax_x64():
    """JAX with float64, while the context lasts."""
    import jax
    import jax.experimental

    # Named so since JAX 0.8.
    return jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64()


def quickly_compiled():
    """A fixture's body: XLA leaves out what only makes its code faster.

    For modules where compiling takes most of the time. Others, such as tests/jax/test_pool.py and
    test_transforms.py, have what users have.
    """
    import jax

    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
