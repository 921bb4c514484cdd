"""What cubeMathType rounds float32 operands to, in other words than the core's."""

from __future__ import annotations

import numpy as np

# Ties and neighbours of every rounding, and numbers in between.
TIES = np.array(
    [
        1 + 2.0**-11 + 2.0**-12,
        1 + 2.0**-12,
        -1 - 2.0**-12,
        1 + 2.0**-11,
        -1 - 3 * 2.0**-11,
        3.14159265,
        -1e-3,
        0.1,
        7e3,
    ],
    np.float32,
)


def round_hf32(values, bits):
    """Half away from zero on a grid of 2**n."""
    values = np.asarray(values, np.float64)
    mantissa, exponent = np.frexp(values)
    scale = 2.0 ** (bits + 1)
    rounded = np.sign(mantissa) * np.floor(np.abs(mantissa) * scale + 0.5) / scale
    return np.ldexp(rounded, exponent)


def keep(values):
    return values.astype(np.float64)


def half(values):
    return values.astype(np.float16).astype(np.float64)


def hf32_11(values):
    return round_hf32(values, 11)


def hf32_10(values):
    return round_hf32(values, 10)
