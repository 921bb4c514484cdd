"""Gradients and forward operators on model-sized tensors: how fast, how far from the reference."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import backops
import backops.reference
from backops._bench import CommandError
from backops._bench.problems import PoolCase, PoolProblem, parse_pool_problem
from backops._bench.report import format_seconds
from backops._bench.timing import Budget, fastest

DTYPES: dict[str, Any] = {
    "float64": np.float64,
    "float32": np.float32,
    "bfloat16": ml_dtypes.bfloat16,
    "float16": np.float16,
}
PROBLEMS = tuple(
    map(
        parse_pool_problem,
        (
            "sequence         avg_pool1d           64x128x1024    k4s2p1",
            "resnet_stem      avg_pool2d           32x64x112x112  k3s2p1",
            "video            avg_pool3d           4x32x16x56x56  k3s2p1",
            "sequence_to_48   adaptive_avg_pool1d  64x128x1000    to48",
            "vgg_head         adaptive_avg_pool2d  32x512x20x20   to7x7",
            "video_to_5x7x9   adaptive_avg_pool3d  8x64x17x29x31  to5x7x9",
        ),
    )
)
# Of one problem, the operator that its gradient belongs to is there too.
FORWARD = ("resnet_stem",)
# Positive values cannot cancel, so even float32 sums stay within a few ulps: more is a bug.
MAX_ULPS = 16.0
COLUMNS = "{operator:<30} {shape:<19} {window:<8} {dtype:<9} {time:>10} {rate:>7} {ulps:>6}"


# A layer of a ResNet: input, weight, padding.
CONV_INPUT, CONV_WEIGHT, CONV_PADDING = (16, 64, 56, 56), (64, 64, 3, 3), 1


@dataclass(frozen=True)
class Row:
    operator: str
    shape: tuple[int, ...]
    window: str
    dtype: str
    seconds: float
    rate: str
    ulps: float
    max_ulps: float = MAX_ULPS


def run(*, quick: bool) -> None:
    """Prints the table, row by row; raises CommandError if a result is far from the reference."""
    print(f"backops {backops.__version__}, {backops.get_num_threads()} threads")
    print("time: fastest of several calls. rate: GB/s of what is read plus what is written, or")
    print(
        "GFLOP/s (GF) of a convolution or its gradients. ulps: largest error in units in the last"
    )
    print(
        "place of the result's dtype, against backops.reference (float64) on a part of each result;"
    )
    print("values are drawn from [0.5, 1.5).")
    print()
    print(
        COLUMNS.format(
            operator="operator",
            shape="input shape",
            window="window",
            dtype="dtype",
            time="time",
            rate="rate",
            ulps="ulps",
        )
    )
    worst = 0.0
    for row in rows(quick=quick):
        print(format_row(row), flush=True)
        # A NaN error must not pass as a small one.
        worst = row.ulps if np.isnan(row.ulps) else max(worst, row.ulps)
        if not row.ulps <= row.max_ulps:
            raise CommandError(f"{row.operator}: {row.ulps:g} ulps off the reference")
    print(f"\nlargest error: {worst:.2f} ulps")


def rows(*, quick: bool) -> Iterator[Row]:
    budget = Budget(seconds=0.0, rounds=1) if quick else Budget(seconds=0.2, rounds=3)
    for problem in PROBLEMS:
        chosen = batch_of_one(problem) if quick else problem
        for forward in (False, True) if problem.name in FORWARD else (False,):
            for dtype in DTYPES:
                yield measure(PoolCase(chosen, dtype, "contiguous", forward), budget)
    batch = 1 if quick else CONV_INPUT[0]
    for measure_one in (measure_gradients, measure_convolution):
        for dtype in DTYPES:
            yield measure_one(batch, dtype, budget)


def batch_of_one(problem: PoolProblem) -> PoolProblem:
    return replace(problem, input_shape=(1, *problem.input_shape[1:]))


def measure(case: PoolCase, budget: Budget) -> Row:
    source = random_values(case.source_shape, case.dtype)
    target = np.zeros(case.target_shape, DTYPES[case.dtype])
    operator = getattr(backops, case.operator)
    call = partial(operator, source, *case.operator_arguments, out=target)
    seconds = fastest({"ours": call}, budget).seconds["ours"]
    return Row(
        operator=case.operator,
        shape=case.problem.input_shape,
        window=case.problem.window,
        dtype=case.dtype,
        seconds=seconds,
        rate=f"{(source.nbytes + target.nbytes) / seconds / 1e9:.1f}",
        ulps=largest_error_ulps(case, source, target),
    )


def measure_gradients(batch: int, dtype: str, budget: Budget) -> Row:
    input = random_values((batch, *CONV_INPUT[1:]), dtype)
    weight = random_values(CONV_WEIGHT, dtype)
    grad_output = random_values((batch, CONV_WEIGHT[0], *CONV_INPUT[2:]), dtype)
    call = partial(backops.conv_backward, grad_output, input, weight, padding=CONV_PADDING)
    terms = grad_output.size // CONV_WEIGHT[0]
    return convolution_row(
        "conv_backward", input, 4 * terms * weight.size, call, budget,
        error=lambda: convolution_error_ulps(call(), grad_output, input, weight),
        # A weight's gradient is a sum as long as this, in float32.
        terms=terms,
    )  # fmt: skip


def measure_convolution(batch: int, dtype: str, budget: Budget) -> Row:
    input = random_values((batch, *CONV_INPUT[1:]), dtype)
    weight, bias = random_values(CONV_WEIGHT, dtype), random_values(CONV_WEIGHT[:1], dtype)
    call = partial(backops.conv, input, weight, bias, padding=CONV_PADDING)

    def error() -> float:
        first = backops.reference.conv(input[:1], weight, bias, padding=CONV_PADDING)
        return error_ulps(call()[:1], first)

    places = input.size // CONV_INPUT[1]
    terms = math.prod(CONV_WEIGHT[1:])
    return convolution_row(
        "conv", input, 2 * places * weight.size, call, budget, error=error, terms=terms
    )


def convolution_row(
    operator: str,
    input: NDArray[Any],
    operations: int,
    call: Callable[[], Any],
    budget: Budget,
    *,
    error: Callable[[], float],
    terms: int,
) -> Row:
    """`terms`: how many products, added up in float32, one element has."""
    seconds = fastest({"ours": call}, budget).seconds["ours"]
    return Row(
        operator=operator,
        shape=input.shape,
        window="64x3x3p1",
        dtype=input.dtype.name,
        seconds=seconds,
        rate=f"{operations / seconds / 1e9:.0f} GF",
        ulps=error(),
        max_ulps=4 * terms**0.5,
    )


def convolution_error_ulps(
    gradients: tuple[Any, Any, Any],
    grad_output: NDArray[Any],
    input: NDArray[Any],
    weight: NDArray[Any],
) -> float:
    """Largest error of the first image's gradient and of the first output channel's weights."""
    image, _, _ = backops.reference.conv_backward(
        grad_output[:1], (1, *input.shape[1:]), weight,
        padding=CONV_PADDING, output_mask=(True, False, False),
    )  # fmt: skip
    _, weights, bias = backops.reference.conv_backward(
        grad_output[:, :1], input, (1, *weight.shape[1:]),
        padding=CONV_PADDING, output_mask=(False, True, True),
    )  # fmt: skip
    errors = [0.0]
    for got, wanted in zip(gradients, (image, weights, bias), strict=True):
        assert wanted is not None
        errors.append(error_ulps(got[:1], wanted))
    return max(errors)


def error_ulps(got: NDArray[Any], wanted: NDArray[np.float64]) -> float:
    return float(np.max(np.abs(got.astype(np.float64) - wanted) / ulp(wanted, got.dtype)))


def random_values(shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    uniform = np.random.default_rng(0).random(shape, np.float32)
    return np.add(uniform, np.float32(0.5), out=uniform).astype(DTYPES[dtype])


def largest_error_ulps(case: PoolCase, source: NDArray[Any], target: NDArray[Any]) -> float:
    """Largest error on a few planes: planes are independent, so leaving out the rest is exact."""
    actual = some_planes(target)
    arguments = case.operator_arguments
    if not case.forward:
        arguments = (actual.shape, *arguments[1:])  # the shape of those planes
    operator = getattr(backops.reference, case.operator)
    return error_ulps(actual, operator(some_planes(source).astype(np.float64), *arguments))


def some_planes(array: NDArray[Any]) -> NDArray[Any]:
    """The first, the middle and the last (n, c) plane, as one unbatched array."""
    planes = array.reshape(-1, *array.shape[2:])
    return planes[[0, len(planes) // 2, -1]]


def ulp(values: NDArray[np.float64], dtype: np.dtype[Any]) -> NDArray[np.float64]:
    """Distance between neighbours of `dtype` at these values."""
    finfo: Any = ml_dtypes.finfo  # has no type annotations
    info = finfo(dtype)
    _, exponents = np.frexp(values)  # a value in [1, 2) has exponent 1
    spacing: NDArray[np.float64] = np.ldexp(
        1.0, np.maximum(exponents - 1, info.minexp) - info.nmant
    )
    return spacing


def format_row(row: Row) -> str:
    return COLUMNS.format(
        operator=row.operator,
        shape="({})".format(",".join(map(str, row.shape))),
        window=row.window,
        dtype=row.dtype,
        time=format_seconds(row.seconds),
        rate=row.rate,
        ulps=f"{row.ulps:.2f}",
    )
