"""The published standards: a right result passes, and each limit fails alone when it is broken."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import backops
from backops._calls import Call
from backops._command import CommandError, UsageError
from backops._verify import benchmark, published
from backops._verify.benchmark import Second
from backops._verify.limits import percent_at_least
from backops._verify.verify import Report, TensorReport, verify
from tests.support.floats import DTYPES

LEVELS = published.LEVELS
COLUMNS = ("float16", "bfloat16", "float32", "HF32")
SIDE = 40  # 1600 elements


def identity(truth: Any, column: str = "float32") -> Call:
    """A call whose truth is exactly what is asked for: windows of one element."""
    dtype = DTYPES["float32" if column == "HF32" else column]
    grad = np.asarray(truth, dtype).reshape(1, 1, SIDE, SIDE)
    given = {"kernel_size": 1, **({"precision": "hf32"} if column == "HF32" else {})}
    return Call("avg_pool2d_backward", grad, grad.shape, None, given)


def steps(low: float = 1.0, high: float = 2.0) -> Any:
    """Different values of few bits, so that every format holds them."""
    return np.resize(np.linspace(low, high, 17), SIDE * SIDE)


def judged(call: Call, values: Any, standard: str, second: Any = None) -> TensorReport:
    candidate = np.asarray(values, call.grad_output.dtype).reshape(call.grad_output.shape)
    other = None
    if second is not None:
        array = np.asarray(second, call.grad_output.dtype).reshape(call.grad_output.shape)
        other = Second("the other one", {"grad_input": array})
    return verify(call, {"grad_input": candidate}, standard, other).tensors[0]


def failing(tensor: TensorReport) -> list[str]:
    assert tensor.is_right == all(limit.holds for limit in tensor.limits)
    return [limit.name for limit in tensor.limits if not limit.holds]


def limit(tensor: TensorReport, name: str) -> Any:
    (found,) = [limit for limit in tensor.limits if limit.name.startswith(name)]
    return found


SHARE, ABSOLUTE = "share of elements within atol + rtol |truth|", "largest absolute error"
LARGEST, MEAN = "largest relative error", "mean relative error"
RMS, SMALL = "root mean square error", "small values off by more than"
MISPLACED = "NaN and infinities out of place"


def random(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(DTYPES[dtype])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("standard", published.NAMES)
def test_rounded_truth_is_right(standard: str, dtype: str) -> None:
    call = Call("avg_pool2d_backward", random((2, 3, 6, 6), dtype), (2, 3, 11, 11), None,
                {"kernel_size": 3, "stride": 2, "padding": 1})  # fmt: skip
    right = backops.reference.avg_pool2d_backward(*call.tensors(), **call.parameters)
    report = verify(call, {"grad_input": right.astype(DTYPES[dtype])}, standard)
    assert report.is_right
    assert report.tensors[0].standard == standard


# cann, July 2026

NUMBERS = {
    "float16": (2**-9, 2**-9, 1e-1),
    "bfloat16": (2**-6, 2**-6, 1.0),
    "float32": (2**-10, 2**-16, 1e-2),
    "HF32": (2**-9, 2**-10, 1e-1),
}


@pytest.mark.parametrize("column", COLUMNS)
def test_cann_lets_one_percent_be_beyond(column: str) -> None:
    rtol, atol, largest = NUMBERS[column]
    truth = np.resize([2**-9, -(2**-9), 2**-10], SIDE * SIDE)
    call = identity(truth, column)
    beyond, within = 1.5 * (atol + rtol * 2**-9), 0.9 * atol
    assert beyond < largest
    for wrong, is_right in ((16, True), (17, False)):  # of 1600
        values = truth + within
        values[:wrong] = truth[:wrong] + beyond
        tensor = judged(call, values, "cann")
        assert failing(tensor) == ([] if is_right else [SHARE])
        assert tensor.wrong == wrong
        assert limit(tensor, SHARE).times == wrong / 16
    assert f"{SHARE}: 0.9894, at least 0.99 (1.06 times" in tensor.findings[0]


def test_shares_are_counted_in_integers() -> None:
    """0.99 * 1100 is a little more than 1089."""
    assert percent_at_least("share", 11, 1100, 99).holds
    assert not percent_at_least("share", 12, 1100, 99).holds
    assert percent_at_least("share", 0, 0, 99).holds


@pytest.mark.parametrize("column", COLUMNS)
def test_cann_limits_the_largest_error(column: str) -> None:
    *_, largest = NUMBERS[column]
    truth = np.resize([2**-9, -(2**-9), 2**-10], SIDE * SIDE)
    call = identity(truth, column)
    for error, is_right in ((0.9 * largest, True), (1.2 * largest, False)):
        values = truth.copy()
        values[5] += error
        tensor = judged(call, values, "cann")
        assert failing(tensor) == ([] if is_right else [ABSOLUTE])
        assert limit(tensor, ABSOLUTE).limit == largest


@pytest.mark.parametrize("column", COLUMNS)
def test_cann_takes_32_ulps_of_the_largest_truth_where_they_are_more(column: str) -> None:
    truth = steps() * 1024
    call = identity(truth, column)
    eps = float(ml_dtypes.finfo(call.grad_output.dtype).eps)  # type: ignore[no-untyped-call]
    largest = max(NUMBERS[column][2], 32 * eps * 2048)
    for error, is_right in ((0.9 * largest, True), (1.2 * largest, False)):
        values = truth.copy()
        values[0] -= error
        tensor = judged(call, values, "cann")
        assert limit(tensor, ABSOLUTE).limit == largest
        assert failing(tensor) == ([] if is_right else [ABSOLUTE])


def test_ulp_is_the_distance_to_the_next_value() -> None:
    for size in (0.0, 1e-8, 0.7, 1.0, 1.999, 2.0, 60000.0):
        assert published.ulp(size, np.dtype(np.float16)) == np.spacing(np.float16(size))
    assert published.ulp(1e30, np.dtype(np.float16)) == 32  # beyond the range: of the largest


# cann-2026-04


@pytest.mark.parametrize("column", COLUMNS)
def test_predecessor_limits_mean_and_largest(column: str) -> None:
    threshold = {"float16": 2**-10, "bfloat16": 2**-7, "float32": 2**-13, "HF32": 2**-11}[column]
    truth = np.resize([1.0, -1.0, 1.0], SIDE * SIDE)
    call = identity(truth, column)
    half = truth.copy()
    half[::3] *= 1 + 2 * threshold  # a mean of two thirds
    tensor = judged(call, half, "cann-2026-04")
    assert failing(tensor) == []
    assert limit(tensor, MEAN).limit == threshold
    assert limit(tensor, LARGEST).limit == 10 * threshold
    assert limit(tensor, MEAN).value == pytest.approx(threshold * 2 * 534 / 1600, rel=1e-5)
    assert failing(judged(call, truth * (1 + 2 * threshold), "cann-2026-04")) == [MEAN]
    one = truth.copy()
    one[7] *= 1 + 12 * threshold
    assert failing(judged(call, one, "cann-2026-04")) == [LARGEST]


def test_predecessor_wants_less_than_the_threshold() -> None:
    """And adds 1e-7 to the truth before it divides."""
    truth = np.zeros(SIDE * SIDE)
    truth[0] = 1.0
    call = identity(truth)
    values = truth.copy()
    values[1] = 1e-7 * 10 * 2**-13
    found = limit(judged(call, values, "cann-2026-04"), LARGEST)
    assert found.value == pytest.approx(10 * 2**-13, rel=1e-6)
    assert not published.below("x", 1.0, 1.0).holds


# cann-L0, cann-L1, cann-L2


def heavy(truth: Any) -> Any:
    """A second implementation with few errors, but large ones."""
    second = truth.copy()
    second[::100] *= 1 + 1e-5
    return second


@pytest.mark.parametrize("name", LEVELS)
def test_double_benchmark_limits_the_largest_error(name: str) -> None:
    factor = LEVELS[name].largest
    truth = steps()
    for times, is_right in ((0.9, True), (1.1, False)):
        values = truth.copy()
        values[17] *= 1 + times * factor * 1e-5
        tensor = judged(identity(truth), values, name, heavy(truth))
        assert failing(tensor) == ([] if is_right else [LARGEST])
        assert tensor.wrong == (0 if is_right else 1)
    found = limit(tensor, LARGEST)
    assert found.limit == factor * found.benchmark
    assert found.ratio == pytest.approx(1.1 * factor, rel=0.05)
    assert found.times == pytest.approx(1.1, rel=0.05)


@pytest.mark.parametrize("name", LEVELS)
def test_double_benchmark_limits_the_mean(name: str) -> None:
    """The other's mean is 1e-7, of which its root mean square is ten times as much."""
    truth = np.resize([1024.0, -1024.0, 1280.0], SIDE * SIDE)
    second = truth.copy()
    second[::100] += 0.25
    for times, is_right in ((0.8, True), (1.2, False)):
        error = 0.25 / 100 * LEVELS[name].mean * times
        values = truth + np.round(error * 2**13) / 2**13
        assert failing(judged(identity(truth), values, name, second)) == (
            [] if is_right else [MEAN]
        )


@pytest.mark.parametrize("name", LEVELS)
def test_double_benchmark_limits_the_root_mean_square(name: str) -> None:
    """Relative errors of the same sizes, but on larger elements."""
    truth = np.resize([1.0, -1.0, 1024.0, -1024.0], SIDE * SIDE)
    on_small, on_large = truth.copy(), truth.copy()
    on_small[::4] *= 1 + 2**-16
    on_large[2::4] *= 1 + 2**-16
    assert failing(judged(identity(truth), on_large, name, on_large)) == []
    tensor = judged(identity(truth), on_large, name, on_small)
    assert failing(tensor) == [RMS]
    assert limit(tensor, RMS).ratio == pytest.approx(1024, rel=1e-3)


@pytest.mark.parametrize("name", LEVELS)
@pytest.mark.parametrize("column", COLUMNS)
def test_double_benchmark_counts_small_values_apart(name: str, column: str) -> None:
    below, error = {
        "float16": (2**-11, 2**-16),
        "bfloat16": (2**-8, 2**-16),
        "float32": (2**-14, 2**-30),
        "HF32": (2**-12, 2**-28),
    }[column]
    truth = np.resize([1.0, -1.0, 0.75 * below, below], SIDE * SIDE)
    call = identity(truth, column)

    def off(count: int) -> Any:
        values = truth.copy()
        values[2 : 2 + 4 * count : 4] += 4 * error
        return values

    for candidate, second, is_right in ((2, 0, True), (3, 0, False), (6, 3, True), (7, 3, False)):
        tensor = judged(call, off(candidate), name, off(second))
        assert [text.split(" off")[0] for text in failing(tensor)] == (
            [] if is_right else ["small values"]
        )
        small = tensor.small_values
        assert small is not None
        assert (small.below, small.error) == (below, error)
        assert (small.elements, small.beyond, small.benchmark_beyond) == (400, candidate, second)
        # They leave the other figures.
        assert limit(tensor, LARGEST).value == limit(tensor, RMS).value == 0
    just = truth.copy()
    just[2::4] += error
    assert limit(judged(call, just, name, truth), SMALL).value == 0


def test_errors_that_the_second_implementation_has_not_are_too_much() -> None:
    truth = steps()
    values = truth.copy()
    values[0] = np.nextafter(np.float32(values[0]), np.float32(9))
    tensor = judged(identity(truth), values, "cann-L0", truth)
    assert failing(tensor) == [LARGEST, MEAN, RMS]
    assert limit(tensor, LARGEST).times == np.inf


def test_double_benchmark_has_no_float64() -> None:
    call = Call("avg_pool1d_backward", random((1, 1, 4), "float64"), (1, 1, 8), None,
                {"kernel_size": 2})  # fmt: skip
    assert verify(call, call.run(), "cann").is_right  # held to float32's numbers
    assert verify(call, call.run(), "cann-2026-04").is_right
    with pytest.raises(UsageError, match="cann-L1 has no float64"):
        verify(call, call.run(), "cann-L1")


# HF32


@pytest.mark.parametrize(
    ("dtype", "precision", "column"),
    [
        ("float32", "keep", "float32"),
        ("float32", "hf32", "HF32"),
        ("float32", "allow_fp32_down", "HF32"),
        ("float32", "fp16", "float32"),
        ("float16", "allow_fp32_down", "float16"),
        ("bfloat16", "allow_fp32_down", "bfloat16"),
    ],
)
@pytest.mark.parametrize("standard", published.NAMES)
def test_hf32_has_numbers_of_its_own(
    standard: str, dtype: str, precision: str, column: str
) -> None:
    call = Call("avg_pool1d_backward", random((1, 1, 4), dtype), (1, 1, 8), None,
                {"kernel_size": 2, "precision": precision})  # fmt: skip
    report = verify(call, call.run(), standard)
    assert report.is_right
    assert report.tensors[0].standard_description.startswith(f"{column}: ")


def test_precision_of_half_operands_has_no_effect() -> None:
    """Also where the candidate is float32."""
    call = Call("avg_pool1d_backward", random((1, 1, 4), "float16"), (1, 1, 8), None,
                {"kernel_size": 2, "precision": "allow_fp32_down"})  # fmt: skip
    wide = {"grad_input": call.run()["grad_input"].astype(np.float32)}
    (tensor,) = verify(call, wide, "cann").tensors
    assert tensor.standard_description.startswith("float32: ")


# NaN and infinity

NAN, INF = np.nan, np.inf


def with_first(values: Any, first: float) -> Any:
    changed = values.copy()
    changed[0] = first
    return changed


@pytest.mark.parametrize(
    ("truth", "candidate", "is_right"),
    [
        (NAN, NAN, True), (INF, INF, True), (-INF, -INF, True),
        (NAN, 1.0, False), (NAN, INF, False), (INF, -INF, False), (INF, NAN, False),
        (1.0, NAN, False), (1.0, INF, False), (INF, 1.0, False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("standard", ["cann", "cann-2026-04"])
def test_specials_must_agree(standard: str, truth: float, candidate: float, is_right: bool) -> None:
    call = identity(with_first(steps(), truth))
    tensor = judged(call, with_first(steps(), candidate), standard)
    assert tensor.is_right == is_right
    assert (MISPLACED in failing(tensor)) != is_right
    assert limit(tensor, MISPLACED).value == (0 if is_right else 1)


@pytest.mark.parametrize(
    ("truth", "candidate", "second", "is_right"),
    [
        (NAN, NAN, 1.0, True),  # as the truth
        (INF, INF, NAN, True),
        (INF, NAN, NAN, True),  # as the second implementation
        (INF, 1.0, 1.0, True),
        (1.0, INF, INF, True),
        (INF, 1.0, NAN, True),  # both differ from the truth
        (INF, 1.0, INF, False),  # the second implementation is right
        (NAN, INF, NAN, False),
        (INF, -INF, INF, False),
        (1.0, NAN, 1.0, False),  # neither has it
        (1.0, INF, -INF, False),
    ],
)
@pytest.mark.parametrize("name", LEVELS)
def test_second_implementation_excuses_specials(
    name: str, truth: float, candidate: float, second: float, is_right: bool
) -> None:
    call = identity(with_first(steps(), truth))
    tensor = judged(call, with_first(steps(), candidate), name, with_first(steps(), second))
    assert failing(tensor) == ([] if is_right else [MISPLACED])


# The second implementation


def pool_call(dtype: str = "float32", **more: Any) -> Call:
    return Call("avg_pool2d_backward", random((2, 3, 6, 6), dtype), (2, 3, 11, 11), None,
                {"kernel_size": 3, "stride": 2, "padding": 1, **more})  # fmt: skip


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize(
    ("operator", "grad", "input", "weight", "given"),
    [
        ("avg_pool1d_backward", (2, 3, 6), (2, 3, 11), None,
         {"kernel_size": 3, "stride": 2, "padding": 1}),
        ("avg_pool2d_backward", (3, 4, 6), (3, 8, 11), None,
         {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False}),
        ("avg_pool2d_backward", (1, 2, 4, 4), (1, 2, 8, 8), None,
         {"kernel_size": 3, "stride": 2, "ceil_mode": True, "divisor_override": -5}),
        ("adaptive_avg_pool1d_backward", (2, 3, 4), (2, 3, 11), None, {}),
        ("adaptive_avg_pool2d_backward", (2, 3, 4, 5), (2, 3, 11, 7), None, {}),
        ("adaptive_avg_pool3d_backward", (3, 4, 5, 2), (3, 11, 7, 5), None, {}),
        ("conv_backward", (2, 6, 9), (2, 4, 11), (6, 2, 3), {"groups": 2}),
        ("conv_backward", (6, 4, 5), (4, 9, 11), (6, 4, 3, 3),
         {"stride": 2, "padding": (0, 1), "dilation": (1, 2)}),
        ("conv_backward", (1, 6, 3, 3, 3), (1, 4, 5, 5, 5), (6, 4, 3, 3, 3),
         {"output_mask": (False, True, True)}),
    ],
)  # fmt: skip
def test_pytorch_computes_every_operator(
    operator: str, grad: Any, input: Any, weight: Any, given: Any, dtype: str
) -> None:
    if weight is not None:
        input, weight = random(input, dtype, 1), random(weight, dtype, 2)
    call = Call(operator, random(grad, dtype), input, weight, given)
    second = benchmark.open_benchmark(None)(call)
    assert second.name.startswith("PyTorch 2")
    tolerance = {"float16": 5e-2, "bfloat16": 3e-1, "float32": 1e-5}[dtype]
    assert list(second.results) == list(call.result_shapes())
    for name, array in call.run().items():
        other = second.results[name]
        assert (other.dtype, other.shape) == (array.dtype, array.shape)
        np.testing.assert_allclose(
            other.astype(np.float64), array.astype(np.float64), rtol=tolerance, atol=tolerance
        )
    report = verify(call, second.results, "cann-L2")
    assert report.is_right
    assert {tensor.benchmark for tensor in report.tensors} == {second.name}


def test_pytorch_computes_pooling_in_three_dimensions() -> None:
    """In float32 only."""
    call = Call("avg_pool3d_backward", random((1, 2, 4, 4, 4), "float32"), (1, 2, 8, 8, 8), None,
                {"kernel_size": 3, "stride": 2, "ceil_mode": True,
                 "divisor_override": -5})  # fmt: skip
    second = benchmark.open_benchmark("torch")(call)
    assert second.name.startswith("PyTorch 2")
    np.testing.assert_allclose(second.results["grad_input"], call.run()["grad_input"], atol=1e-6)


@pytest.mark.parametrize(
    "call",
    [
        pool_call(precision="hf32"),
        pool_call(precision="allow_fp32_down"),
        Call("avg_pool1d_backward", random((1, 1, 4), "float32"), (1, 1, 8), None,
             {"kernel_size": 2, "divisor_override": 3}),
        Call("avg_pool3d_backward", random((1, 1, 2, 2, 2), "bfloat16"), (1, 1, 4, 4, 4), None,
             {"kernel_size": 2}),
        # A kernel longer than the axis, which PyTorch takes in three dimensions for an error.
        Call("avg_pool3d_backward", random((1, 1, 1, 4, 4), "float32"), (1, 1, 2, 8, 8), None,
             {"kernel_size": (4, 2, 2), "stride": 2, "padding": (1, 0, 0)}),
    ],
    ids=["hf32", "allow_fp32_down", "1-D divisor", "3-D bfloat16", "long kernel"],
)  # fmt: skip
def test_backops_stands_in_where_pytorch_has_no_operator(call: Call) -> None:
    report = verify(call, call.run(), "cann-L0")
    assert report.is_right
    assert report.tensors[0].benchmark == f"backops {backops.__version__}"
    with pytest.raises(CommandError, match="PyTorch has no avg_pool"):
        benchmark.open_benchmark("torch")(call)


def test_pytorch_that_is_backops_is_not_called_pytorch() -> None:
    import backops.torch

    call = pool_call()
    with backops.torch.enabled():
        assert verify(call, call.run(), "cann-L0").tensors[0].benchmark.startswith("backops")
    assert verify(call, call.run(), "cann-L0").tensors[0].benchmark.startswith("PyTorch")


def wrong_second(call: Call) -> list[tuple[dict[str, Any], str]]:
    right = call.run()["grad_input"]
    return [
        ({}, "the benchmark x has no grad_input"),
        ({"grad_input": right[0]}, r"of the benchmark x is \(3, 11, 11\), expected \(2, 3, 11"),
        ({"grad_input": right.astype(np.float16)}, "is float16, expected the candidate's float32"),
    ]


@pytest.mark.parametrize("index", range(3))
def test_benchmark_must_be_like_the_candidate(index: int) -> None:
    call = pool_call()
    results, message = wrong_second(call)[index]
    with pytest.raises(UsageError, match=message):
        verify(call, call.run(), "cann-L0", Second("x", results))


# What was never computed

LOOSE = ("cann", "cann-2026-04", "cann-L0", "cann-L1", "cann-L2", "allclose:10,10", "float32")


def findings(report: Report) -> str:
    return "\n".join(text for tensor in report.tensors for text in tensor.findings)


def small_conv() -> Call:
    """Gradients so small that absolute tolerances take anything."""
    scale = np.float32(1e-8)
    return Call("conv_backward", random((1, 4, 5, 5), "float32") * scale,
                random((1, 4, 5, 5), "float32", 1), random((4, 4, 1, 1), "float32", 2),
                {})  # fmt: skip


@pytest.mark.parametrize("standard", LOOSE)
def test_what_was_not_computed_passes_no_standard(standard: str) -> None:
    call = small_conv()
    assert verify(call, call.run(), standard).is_right
    right = call.run()["grad_input"]
    for values, text in (
        (np.zeros_like(right), "the candidate is all zeros, and the truth is not"),
        (-np.zeros_like(right), "the candidate is all zeros, and the truth is not"),
        (np.full_like(right, 1e-9), "the candidate is 1e-09 everywhere, and the truth is not"),
        (np.full_like(right, np.nan), "the candidate is nan everywhere, and the truth is not"),
        (
            call.grad_output.copy(),
            "the candidate is grad_output, handed back, and the truth is not",
        ),
        (np.array(call.input), "the candidate is input, handed back, and the truth is not"),
    ):
        report = verify(call, {"grad_input": values}, standard)
        assert not report.is_right, text
        assert text in findings(report)
        assert report.tensors[0].suspicion in text


def test_loose_standards_would_pass_them() -> None:
    """The control: nothing but the name of what they are makes these wrong."""
    call = small_conv()
    for values in (np.zeros_like(call.grad_output), call.grad_output):
        tensor = verify(call, {"grad_input": values}, "cann").tensors[0]
        assert all(limit.holds for limit in tensor.limits)
        assert not tensor.is_right


@pytest.mark.parametrize("standard", LOOSE)
def test_they_are_right_where_the_truth_is_the_same(standard: str) -> None:
    zero = Call("avg_pool2d_backward", np.zeros((1, 1, 4, 4), np.float32), (1, 1, 8, 8), None,
                {"kernel_size": 2})  # fmt: skip
    ones = Call("avg_pool2d_backward", np.full((1, 1, 4, 4), 0.3, np.float32), (1, 1, 12, 12), None,
                {"kernel_size": 3})  # fmt: skip
    same = identity(np.linspace(-3, 3, SIDE * SIDE))
    rounded = Call("avg_pool2d_backward", random((1, 1, 9, 9), "float32"), (1, 1, 9, 9), None,
                   {"kernel_size": 1, "precision": "allow_fp32_down"})  # fmt: skip
    one = Call("avg_pool1d_backward", np.full((1, 1, 1), 3, np.float32), (1, 1, 1), None,
               {"kernel_size": 1})  # fmt: skip
    nothing = Call("avg_pool1d_backward", np.zeros((0, 1, 2), np.float32), (0, 1, 4), None,
                   {"kernel_size": 2})  # fmt: skip
    for call in (zero, ones, same, rounded, one, nothing):
        assert verify(call, call.run(), standard).is_right, call
    if standard != "float32" and "L" not in standard:
        # Full precision where less is allowed: the operand itself, unrounded.
        assert verify(rounded, {"grad_input": rounded.grad_output}, standard).is_right


def test_zeros_in_the_dtype_count_as_zeros() -> None:
    call = Call("avg_pool1d_backward", np.full((1, 1, 2), 6e-8, np.float16), (1, 1, 16), None,
                {"kernel_size": 8})  # fmt: skip
    result = call.run()
    assert not result["grad_input"].any()
    assert verify(call, result, "cann").is_right
