"""How close the gradients of a convolution must be to the exact ones."""

from __future__ import annotations

import functools

import numpy as np

import backops
from backops import reference

from .conv_cases import GRADIENTS, ConvCase, make_arrays, parse_conv_case
from .floats import DTYPES, round_to
from .layouts import in_layout, place
from .processes import settings_in_force

EPS_FLOAT32 = float(np.finfo(np.float32).eps)
EPS_FLOAT64 = float(np.finfo(np.float64).eps)


def bound(case: ConvCase, grad_output, input, weight, which: str, eps: float = EPS_FLOAT32, **more):
    """How far each element of the gradient `which` (of GRADIENTS) may be from the exact one.

    4 sqrt(K) eps times the sum of the absolute products, K the number of products in that sum.
    """
    mask = tuple(name == which for name in GRADIENTS)
    magnitudes = case.backward(
        reference, *map(np.abs, (grad_output, input, weight)), output_mask=mask, **more
    )
    index = GRADIENTS.index(which)
    return 4 * np.sqrt(_sum_lengths(case)[index]) * eps * magnitudes[index]


@functools.lru_cache(maxsize=256)
def _sum_lengths(case: ConvCase):
    # Where every product is 1, a sum is its own length.
    shapes = (case.output_shape, case.input_shape, case.weight_shape)
    return case.backward(reference, *map(np.ones, shapes))


def assert_close(results, case: ConvCase, arrays, *, expected=None, repeat=None, **more):
    """Fails unless every gradient is as close to the exact one as rounding allows.

    That is: between the exact values minus and plus their `bound`, both rounded to the dtype. NaN
    and infinity must be where they belong. A result of None must be masked.

    `expected` replaces the exact results of `backops.reference`, `more` are arguments of both;
    `repeat` is the line to show.
    """
    dtype = np.asarray(arrays[0]).dtype.name
    if expected is None:
        expected = case.backward(reference, *arrays, **more)
    more.pop("output_mask", None)
    assert len(results) == len(GRADIENTS)
    for which, got, exact in zip(GRADIENTS, results, expected, strict=True):
        assert (got is None) == (exact is None), f"{which} is {got}: {case}"
        if exact is None:
            continue
        eps = EPS_FLOAT64 if dtype == "float64" else EPS_FLOAT32
        with np.errstate(all="ignore"):
            allowed = bound(case, *arrays, which, eps, **more)
        _assert_between(got, exact, allowed, f"{which} of {case}, {dtype}", dtype, repeat)


def _assert_between(result, exact, allowed, what, dtype, repeat):
    assert isinstance(result, np.ndarray), f"{what}: a {type(result).__name__}"
    assert result.shape == exact.shape, f"{what}: shape {result.shape}, expected {exact.shape}"
    assert result.dtype == DTYPES[dtype], f"{what}: dtype {result.dtype}"
    with np.errstate(all="ignore"):
        got = result.astype(np.float64)
        low, high = round_to(exact - allowed, dtype), round_to(exact + allowed, dtype)
        same = (got == exact) | (np.isnan(got) & np.isnan(exact))
        good = np.where(np.isfinite(exact), (low <= got) & (got <= high), same)
    if good.all():
        return
    where = tuple(int(i) for i in np.argwhere(~good)[0])
    raise AssertionError(
        f"{what}: {np.count_nonzero(~good)} of {good.size} elements differ, first at {where}: "
        f"got {got[where]}, expected {exact[where]} within {allowed[where]}\n"
        f"to repeat: {repeat or 'run this test'}"
    )


def check(problem, dtype="float32", *, seed=0, kind="normal", layout="contiguous", **keywords):
    """Runs one problem (a `ConvCase` or its line), all tensors in that layout, and compares."""
    case = problem if isinstance(problem, ConvCase) else parse_conv_case(problem)
    arrays = make_arrays(case, dtype, seed, kind)
    if layout != "contiguous":
        arrays = tuple(in_layout(array, case, layout) for array in arrays)
    more = "".join(f", {name}={value!r}" for name, value in keywords.items())
    repeat = (
        f'{settings_in_force()}python -c "from tests.support.conv_compare import check; '
        f"check('{case.problem}', '{dtype}', seed={seed}, kind='{kind}', layout='{layout}'{more})\""
    )
    results = case.backward(backops, *arrays, **keywords)
    assert_close(results, case, arrays, repeat=repeat, **keywords)
    return results


def assert_exact(results, case: ConvCase, arrays, **more):
    """Fails unless results of "integer" data are the exact ones, rounded once to their dtype."""
    expected = case.backward(reference, *arrays, **more)
    dtype = np.asarray(arrays[0]).dtype.name
    for which, got, exact in zip(GRADIENTS, results, expected, strict=True):
        assert (got is None) == (exact is None), f"{which}: {case}"
        if exact is not None:
            what = f"{which} of {case}, {dtype}"
            _assert_between(got, round_to(exact, dtype), np.zeros_like(exact), what, dtype, None)


def place_gradients(case, dtype, layout):
    """For each gradient, memory and an array of that layout in it."""
    placed = [
        place(shape, case.rank, dtype, layout) for shape in (case.input_shape, case.weight_shape)
    ]
    # A vector cannot be transposed.
    layout = "contiguous" if layout in ("channels_last", "transposed") else layout
    placed.append(place(case.weight_shape[:1], 0, dtype, layout))
    return placed


def assert_nothing_else_changed(placed, case, dtype, layout):
    """Fails if a byte beside the elements of `place_gradients` was written."""
    for (memory, out), (wanted, copy) in zip(
        placed, place_gradients(case, dtype, layout), strict=True
    ):
        copy[...] = out
        assert np.array_equal(memory, wanted), f"{case}, {dtype}, {layout}"
