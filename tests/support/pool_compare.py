"""How close a result of pooling must be to the exact one."""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np

import backops
from backops import reference

from .floats import order_of, round_to
from .layouts import in_layout
from .pool_cases import Case, make_source, parse_case
from .processes import settings_in_force


@functools.lru_cache(maxsize=256)
def term_counts(case: Case):
    """The number of terms of each target: windows that hold an input, or elements of a window."""
    if not case.adaptive:
        counted = dataclasses.replace(case, divisor_override=1)
        return counted.run(reference, np.ones(case.source_shape))
    # There is no divisor_override.
    sizes = np.ones(case.output_shape[-case.rank :])
    for axis, (length, outputs) in enumerate(
        zip(case.input_shape[-case.rank :], sizes.shape, strict=True)
    ):
        along = [
            math.ceil((o + 1) * length / outputs) - o * length // outputs for o in range(outputs)
        ]
        sizes *= np.reshape(along, [-1 if i == axis else 1 for i in range(case.rank)])
    sizes = np.broadcast_to(sizes, case.output_shape)
    if case.is_forward:
        return sizes
    # Gradients that equal the window's size count 1 after division.
    return np.rint(case.run(reference, sizes))


def exact_and_magnitudes(case: Case, source, precision: str = "keep"):
    """The exact result, and the sum of absolute contributions to each of its elements.

    The reference takes its time for each window, not for what is in it: both are computed as one,
    the absolute values behind the others along the first axis, which pooling does not look across.
    """
    first, *others = case.input_shape
    both = dataclasses.replace(case, input_shape=(2 * first, *others))
    more = {} if case.adaptive else {"precision": precision}
    exact, magnitudes = np.split(
        both.run(reference, np.concatenate([source, np.abs(source)]), **more), 2
    )
    return exact, np.abs(magnitudes)


def error_bound(case: Case, contributions, dtype: str):
    """How far each element may be from the exact result, before it is rounded to `dtype`."""
    info = np.finfo(np.float64 if dtype == "float64" else np.float32)
    counts = term_counts(case)
    factor = np.maximum(4.0, np.sqrt(counts))
    # The second term is for numbers so small that products lose bits to underflow.
    return factor * float(info.eps) * contributions + (counts + 2) * float(info.smallest_subnormal)


def assert_close(result, case: Case, source, *, expected=None, precision="keep", repeat=None):
    """Fails unless every element of `result` is as close to the exact one as rounding allows.

    float32 and float64: within max(4, sqrt(K)) eps times the sum of absolute contributions, K the
    number of its terms. Half types: one unit in the last place more than what that
    bound rounds to. NaN and infinity must be where they belong.

    `expected` replaces the exact result of `backops.reference`; `repeat` is the line to show.
    """
    dtype = source.dtype.name
    assert isinstance(result, np.ndarray), f"result is a {type(result).__name__}"
    assert result.shape == case.target_shape, f"result is {result.shape}: {case.problem}"
    assert result.dtype == source.dtype, f"result is {result.dtype}, not {dtype}: {case.problem}"
    with np.errstate(all="ignore"):
        exact, contributions = exact_and_magnitudes(case, source, precision)
        expected = exact if expected is None else expected
        bound = error_bound(case, contributions, dtype)
        got = result.astype(np.float64)
        finite = np.isfinite(expected)
        low = round_to(np.where(finite, expected - bound, 0.0), dtype)
        high = round_to(np.where(finite, expected + bound, 0.0), dtype)
        slack = 1 if dtype in ("float16", "bfloat16") else 0
        position = order_of(np.where(np.isnan(got), 0.0, got), dtype)
        inside = (position >= order_of(low, dtype) - slack) & (
            position <= order_of(high, dtype) + slack
        )
        same = (got == expected) | (np.isnan(got) & np.isnan(expected))
        good = np.where(finite, inside & ~np.isnan(got), same)
    if good.all():
        return
    where = tuple(int(i) for i in np.argwhere(~good)[0])
    raise AssertionError(
        f"{case.name} ({case.problem}), {dtype}: {np.count_nonzero(~good)} of {good.size} elements "
        f"differ, first at {where}: got {float(got[where])}, expected {float(expected[where])} "
        f"within {float(bound[where])}\nto repeat: {repeat or 'run this test'}"
    )


def check(
    problem, dtype="float32", *, seed=0, kind="normal", layout="contiguous", precision="keep"
):
    """Runs one problem (a `Case` or its line) and compares it with the reference."""
    case = problem if isinstance(problem, Case) else parse_case(problem)
    values = make_source(case, dtype, seed, kind)
    source = values if layout == "contiguous" else in_layout(values, case, layout)
    more = {} if case.adaptive else {"precision": precision}
    result = case.run(backops, source, **more)
    repeat = (
        f'{settings_in_force()}python -c "from tests.support.pool_compare import check; '
        f"check('{case.problem}', "
        f"'{dtype}', seed={seed}, kind='{kind}', layout='{layout}', precision='{precision}')\""
    )
    assert_close(result, case, np.asarray(source), precision=precision, repeat=repeat)
    return result
