"""What the elements of a case are, by name, made from a generator of random numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backops._command import CommandError
from backops._files import Shape

PLAIN = ("normal", "positive", "integers")
SPECIAL = ("specials", "nan", "inf", "-inf", "infinities")
WITH_NUMBERS = {
    "normal": "normal:MEAN,DEVIATION",
    "uniform": "uniform:LOW,HIGH",
    "outliers": "outliers:LOW,HIGH",
}
# One value in so many is an outlier, so many times as large.
OUTLIER_EVERY = 1000
OUTLIER_FACTOR = 1000


def check_values(text: str) -> None:
    """Raises unless `make_values` knows the name."""
    if text in PLAIN + SPECIAL:
        return
    name, _, numbers = text.partition(":")
    if name in WITH_NUMBERS and parse_pair(numbers) is not None:
        return
    known = ", ".join((*PLAIN, *SPECIAL, *WITH_NUMBERS.values()))
    raise CommandError(f"values is {text!r}, expected one of {known}")


def parse_pair(text: str) -> tuple[float, float] | None:
    try:
        first, second = map(float, text.split(","))
    except ValueError:
        return None
    return (first, second) if math.isfinite(first) and math.isfinite(second) else None


def has_specials(text: str) -> bool:
    return text in SPECIAL


def make_values(
    generator: np.random.Generator, shape: Shape, dtype: np.dtype[Any], text: str
) -> NDArray[Any]:
    name, _, numbers = text.partition(":")
    pair = parse_pair(numbers)
    if pair is not None:
        values = make_spread(generator, shape, name, *pair)
    elif name == "integers":
        values = generator.integers(-8, 9, shape)
    elif name == "positive":
        values = generator.uniform(0.5, 1.5, shape)
    elif name in SPECIAL[1:]:
        values = make_filled(generator, shape, name)
    else:
        values = generator.standard_normal(shape)
    with np.errstate(over="ignore"):  # what float16 cannot hold is infinite
        array: NDArray[Any] = values.astype(dtype)
    if name == "specials" and array.size:
        flat = array.reshape(-1)
        for special in (np.nan, np.inf, -np.inf):
            flat[generator.integers(0, flat.size)] = special
    return array


def make_spread(
    generator: np.random.Generator, shape: Shape, name: str, first: float, second: float
) -> NDArray[Any]:
    if name == "normal":
        return generator.normal(first, abs(second), shape)
    values = generator.uniform(min(first, second), max(first, second), shape)
    if name == "outliers" and values.size:
        flat = values.reshape(-1)
        count = max(1, flat.size // OUTLIER_EVERY)
        flat[generator.choice(flat.size, count, replace=False)] *= OUTLIER_FACTOR
    return values


def make_filled(generator: np.random.Generator, shape: Shape, name: str) -> NDArray[Any]:
    """Nothing but NaN, one infinity, or both infinities."""
    if name == "infinities":
        return np.where(generator.integers(0, 2, shape) == 1, np.inf, -np.inf)
    return np.full(shape, float(name))
