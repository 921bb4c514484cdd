"""How close the results of convolutions must be to the exact ones."""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib

import numpy as np

import backops
from backops import reference

from .conv_cases import ConvCase, make_arrays, parse_conv_case
from .floats import DTYPES, round_to
from .layouts import in_layout, place
from .processes import settings_in_force

EPS_FLOAT32 = float(np.finfo(np.float32).eps)
EPS_FLOAT64 = float(np.finfo(np.float64).eps)

# What the reference gave last, by the problem and a digest of the operands.
_KEPT_MOST = 64
_kept: collections.OrderedDict[tuple, tuple] = collections.OrderedDict()


def exact_results(case: ConvCase, arrays, output_mask=None, precision: str = "keep") -> tuple:
    """The results of `backops.reference`, which are not to be written to.

    The same values in another layout, dtype or mask, or of another engine, are not computed again.
    """
    values = [np.asarray(array) for array in arrays]
    if precision == "keep":
        # Whole numbers are the same in every dtype. A signalling NaN would warn.
        with np.errstate(invalid="ignore"):
            values = [array.astype(np.float64) for array in values]
    digests = ((a.dtype.name, hashlib.blake2b(a.tobytes()).digest()) for a in values)
    key = (dataclasses.replace(case, name=""), precision, *digests)
    if key not in _kept:
        _kept[key] = case.call(reference, *values, precision=precision)
        for result in _kept[key]:
            result.flags.writeable = False
        if len(_kept) > _KEPT_MOST:
            _kept.popitem(last=False)
    _kept.move_to_end(key)
    mask = (True,) * len(case.result_names) if output_mask is None else output_mask
    return tuple(r if wanted else None for r, wanted in zip(_kept[key], mask, strict=True))


def bounds(case: ConvCase, arrays, eps: float = EPS_FLOAT32, *, magnitudes=None, **more):
    """How far each element of the results may be from the exact one; None for a masked one.

    4 sqrt(K) eps times the sum of the absolute terms, K the number of terms in that sum: products,
    and the bias. `magnitudes` replaces these sums.
    """
    if magnitudes is None:
        magnitudes = exact_results(case, [np.abs(array) for array in arrays], **more)
    return tuple(
        None if sums is None else 4 * np.sqrt(lengths) * eps * sums
        for sums, lengths in zip(magnitudes, _sum_lengths(case, len(arrays)), strict=True)
    )


@functools.lru_cache(maxsize=256)
def _sum_lengths(case: ConvCase, operands: int):
    # Where every product is 1, a sum is its own length: of one image and one channel, which others
    # repeat or add to.
    batch = case.input_shape[0] if case.batched else 1
    one = dataclasses.replace(
        case,
        input_shape=(1, *case.input_shape[-case.rank :]),
        weight_shape=(1, 1, *case.weight_shape[2:]),
        groups=1,
    )
    shapes = tuple(one.operand_shapes.values())
    lengths = one.call(reference, *map(np.ones, shapes if case.is_backward else shapes[:2]))
    outputs, inputs = case.weight_shape[0] // case.groups, case.weight_shape[1]
    added = inputs if case.operator in ("conv", "conv_transpose_backward") else outputs
    if case.is_backward:
        data, weight, bias = lengths
        lengths = data * added, weight * batch, bias * batch
    else:
        lengths = (lengths[0] * added + (operands == 3),)
    return tuple(map(np.broadcast_to, lengths, case.result_shapes))


@functools.lru_cache(maxsize=8)
def _magnitudes(case: ConvCase, seed: int, kind: str, layout: str):
    """The sums of absolute terms of `make_arrays`, whose roundings to a dtype do not matter."""
    arrays = make_arrays(case, "float32", seed, kind)
    return case.call(reference, *(np.abs(in_layout(array, case, layout)) for array in arrays))


def assert_close(
    results, case: ConvCase, arrays, *, expected=None, repeat=None, magnitudes=None, **more
):
    """Fails unless every result is as close to the exact one as rounding allows.

    That is: between the exact values minus and plus their bound, both rounded to the dtype. NaN
    and infinity must be where they belong. A result of None must be masked.

    `expected` replaces the exact results of `backops.reference`, `more` are arguments of both;
    `repeat` is the line to show; `magnitudes` are for `bounds`.
    """
    dtype = np.asarray(arrays[0]).dtype.name
    if expected is None:
        expected = exact_results(case, arrays, **more)
    eps = EPS_FLOAT64 if dtype == "float64" else EPS_FLOAT32
    with np.errstate(all="ignore"):
        allowed = bounds(case, arrays, eps, magnitudes=magnitudes, **more)
    names = case.result_names
    assert len(results) == len(names)
    for which, got, exact, error in zip(names, results, expected, allowed, strict=True):
        assert (got is None) == (exact is None), f"{which} is {got}: {case}"
        if exact is not None:
            _assert_between(got, exact, error, f"{which} of {case}, {dtype}", dtype, repeat)


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


def check(
    problem,
    dtype="float32",
    *,
    operator=None,
    seed=0,
    kind="normal",
    layout="contiguous",
    **keywords,
):
    """Runs one problem (a `ConvCase` or its line), all tensors in that layout, and compares."""
    case = problem if isinstance(problem, ConvCase) else parse_conv_case(problem)
    case = case if operator is None else case.read_as(operator)
    arrays = make_arrays(case, dtype, seed, kind)
    if layout != "contiguous":
        arrays = tuple(in_layout(array, case, layout) for array in arrays)
    repeat = repeat_line(case, dtype, seed=seed, kind=kind, layout=layout, **keywords)
    results = case.call(backops, *arrays, **keywords)
    magnitudes = None if keywords else _magnitudes(case, seed, kind, layout)
    assert_close(results, case, arrays, repeat=repeat, magnitudes=magnitudes, **keywords)
    return results


def repeat_line(case: ConvCase, dtype: str, *, settings: str | None = None, **keywords) -> str:
    """The command that repeats a `check`, where settings are those of this process or the given."""
    before = settings_in_force() if settings is None else settings
    more = "".join(f", {name}={value!r}" for name, value in keywords.items())
    return (
        f'{before}python -c "from tests.support.conv_compare import check; '
        f"check('{case.problem}', '{dtype}', operator='{case.operator}'{more})\""
    )


def assert_exact(results, case: ConvCase, arrays, **more):
    """Fails unless results of "integer" data are the exact ones, rounded once to their dtype."""
    expected = exact_results(case, arrays, **more)
    dtype = np.asarray(arrays[0]).dtype.name
    for which, got, exact in zip(case.result_names, results, expected, strict=True):
        assert (got is None) == (exact is None), f"{which}: {case}"
        if exact is not None:
            what = f"{which} of {case}, {dtype}"
            _assert_between(got, round_to(exact, dtype), np.zeros_like(exact), what, dtype, None)


def place_results(case, dtype, layout):
    """For each result, memory and an array of that layout in it."""
    return [place(shape, case.rank, dtype, layout) for shape in case.result_shapes]


def assert_nothing_else_changed(placed, case, dtype, layout):
    """Fails if a byte beside the elements of `place_results` was written."""
    for (memory, out), (wanted, copy) in zip(
        placed, place_results(case, dtype, layout), strict=True
    ):
        copy[...] = out
        assert np.array_equal(memory, wanted), f"{case}, {dtype}, {layout}"
