"""The dtypes: rounding to them, the order of their numbers, and bits."""

from __future__ import annotations

import ml_dtypes
import numpy as np

DTYPES = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
}

# Bits of the mantissa with the leading one, smallest exponent of a normal number, largest number.
_FORMATS = {
    "float16": (11, -14, 65504.0),
    "bfloat16": (8, -126, float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)),
    "float32": (24, -126, float(np.finfo(np.float32).max)),
}


def round_to(values, dtype: str):
    """float64 values rounded once, to nearest even, to what `dtype` can hold; still float64."""
    if dtype == "float64":
        return np.asarray(values, np.float64)
    if dtype == "bfloat16":
        return round_by_exponent(values, dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(values, np.float64).astype(DTYPES[dtype]).astype(np.float64)


def round_by_exponent(values, dtype: str):
    """The same, slowly. NumPy rounds twice to bfloat16: to float32 first."""
    mantissa_bits, least_exponent, largest = _FORMATS[dtype]
    values = np.asarray(values, np.float64)
    finite = np.where(np.isfinite(values), values, 0.0)
    # frexp's mantissa is below 1, so its exponent is one higher than the format's.
    exponent = np.maximum(np.frexp(finite)[1] - 1, least_exponent) - (mantissa_bits - 1)
    rounded = np.ldexp(np.rint(np.ldexp(finite, -exponent)), exponent)
    rounded = np.where(np.abs(rounded) > largest, np.copysign(np.inf, rounded), rounded)
    return np.where(np.isfinite(values), rounded, values)


def order_of(values, dtype: str):
    """Integers in the order of the values, neighbours one apart; both zeros are 0."""
    bits = np.asarray(values, np.float64).astype(DTYPES[dtype])
    integers = bits.view(f"i{bits.dtype.itemsize}").astype(np.int64)
    sign = np.int64(-1) << np.int64(8 * bits.dtype.itemsize - 1)
    return np.where(integers < 0, sign - integers, integers)


def same_bits(a, b) -> bool:
    """Whether two arrays agree in every bit: the sign of zeros and NaNs included."""
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def with_special_values(array):
    """A copy with NaN and infinities in it."""
    flat = array.reshape(-1).copy()
    flat[np.linspace(0, flat.size - 1, 5).astype(int)] = [np.nan, np.inf, -np.inf, np.nan, np.inf]
    # Neighbours, so that opposite infinities meet.
    flat[flat.size // 3 : flat.size // 3 + 2] = [np.inf, -np.inf]
    return flat.reshape(array.shape)
