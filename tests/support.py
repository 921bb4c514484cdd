"""Cases, data, layouts and the tolerance that the tests share."""

from __future__ import annotations

import functools
import itertools
import math
import os
import pathlib
import subprocess
import sys
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from backops import reference

TESTS = pathlib.Path(__file__).resolve().parent
ROOT = TESTS.parent

DTYPES = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
}

# Operators as the case files spell them.
OPERATORS = {
    f"{short}{rank}d": (f"{long}{rank}d_backward", rank)
    for short, long in (("avg", "avg_pool"), ("adaptive", "adaptive_avg_pool"))
    for rank in (1, 2, 3)
}


# Cases


@dataclass(frozen=True)
class Case:
    """One pooling problem; a parameter is an int (for every axis) or a tuple."""

    name: str
    operator: str
    input_shape: tuple[int, ...]
    kernel_size: int | tuple[int, ...] = 1
    stride: int | tuple[int, ...] | None = None
    padding: int | tuple[int, ...] = 0
    ceil_mode: bool = False
    count_include_pad: bool = True
    divisor_override: int | None = None
    output_size: int | tuple[int, ...] = 1

    @property
    def function(self) -> str:
        """The operator's name in `backops`, `backops.plan` and `backops.reference`."""
        return OPERATORS[self.operator][0]

    @property
    def rank(self) -> int:
        return OPERATORS[self.operator][1]

    @property
    def adaptive(self) -> bool:
        return self.operator.startswith("adaptive")

    @property
    def positional(self) -> tuple:
        """What follows `grad_output, input`."""
        return () if self.adaptive else (self.kernel_size, self.stride, self.padding)

    @property
    def keywords(self) -> dict:
        if self.adaptive:
            return {}
        return {
            "ceil_mode": self.ceil_mode,
            "count_include_pad": self.count_include_pad,
            "divisor_override": self.divisor_override,
        }

    @property
    def problem(self) -> str:
        """The line of a case file, without the name."""
        parts = [self.operator, f"in={_join(self.input_shape)}"]
        if self.adaptive:
            parts.append(f"out={_join(self.output_size)}")
            return " ".join(parts)
        parts.append(f"k={_join(self.kernel_size)}")
        if self.stride is not None:
            parts.append(f"s={_join(self.stride)}")
        if self.padding != 0:
            parts.append(f"p={_join(self.padding)}")
        if self.ceil_mode:
            parts.append("ceil")
        if not self.count_include_pad:
            parts.append("exclude_pad")
        if self.divisor_override is not None:
            parts.append(f"div={self.divisor_override}")
        return " ".join(parts)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of `grad_output`."""
        spatial = self.input_shape[-self.rank :]
        if self.adaptive:
            outputs = per_axis(self.output_size, self.rank)
        else:
            kernels = per_axis(self.kernel_size, self.rank)
            strides = kernels if self.stride is None else per_axis(self.stride, self.rank)
            paddings = per_axis(self.padding, self.rank)
            outputs = tuple(
                _count_windows(*axis, self.ceil_mode)
                for axis in zip(spatial, kernels, strides, paddings, strict=True)
            )
        return (*self.input_shape[: -self.rank], *outputs)

    def backward(self, module, grad_output, **more):
        """Calls this case's operator of `module` (`backops` or `backops.reference`)."""
        function = getattr(module, self.function)
        return function(grad_output, self.input_shape, *self.positional, **self.keywords, **more)

    def plan(self, module, **more):
        """Calls this case's plan of `module` (`backops.plan`)."""
        function = getattr(module, self.function)
        if self.adaptive:
            return function(self.input_shape, self.output_size, **more)
        return function(self.input_shape, *self.positional, **self.keywords, **more)


def per_axis(value, rank) -> tuple[int, ...]:
    numbers = (value,) if isinstance(value, int) else tuple(value)
    return numbers * rank if len(numbers) == 1 else numbers


def _join(value) -> str:
    return str(value) if isinstance(value, int) else "x".join(map(str, value))


def _count_windows(length, kernel, stride, padding, ceil_mode) -> int:
    padded = length + 2 * padding
    slack = stride - 1 if ceil_mode else 0
    return sum(
        1
        for start in range(0, padded, stride)
        if start + kernel <= padded + slack and start < length + padding
    )


def parse_case(line: str) -> Case:
    """A case from a line of a case file; the name may be missing."""
    words = line.split()
    name = "unnamed" if words[0] in OPERATORS else words.pop(0)
    values = {"name": name, "operator": words[0]}
    fields = {"in": "input_shape", "k": "kernel_size", "s": "stride", "p": "padding"}
    fields |= {"out": "output_size", "div": "divisor_override"}
    for word in words[1:]:
        key, _, text = word.partition("=")
        if key == "ceil":
            values["ceil_mode"] = True
        elif key == "exclude_pad":
            values["count_include_pad"] = False
        elif key == "div":
            values["divisor_override"] = int(text)
        else:
            numbers = tuple(map(int, text.split("x")))
            values[fields[key]] = numbers[0] if len(numbers) == 1 and key != "in" else numbers
    return Case(**values)


@functools.cache
def load_cases(name: str = "pool") -> tuple[Case, ...]:
    lines = (TESTS / "cases" / f"{name}.txt").read_text().splitlines()
    cases = tuple(parse_case(line) for line in lines if line and not line.startswith("#"))
    assert len({case.name for case in cases}) == len(cases), "case names repeat"
    return cases


def find_case(name: str) -> Case:
    return next(case for case in load_cases() if case.name == name)


# Data


def make_grad(case: Case, dtype: str = "float32", seed: int = 0, kind: str = "normal"):
    """The gradient of a case: the same arguments give the same values everywhere.

    kind "normal" is normally distributed, "integer" small whole numbers, "wide" spreads over many
    powers of two.
    """
    random = np.random.default_rng([seed, *case.output_shape])
    if kind == "integer":
        values = random.integers(-8, 9, case.output_shape).astype(np.float64)
    else:
        values = random.standard_normal(case.output_shape)
        if kind == "wide":
            values *= 2.0 ** random.integers(-12, 13, case.output_shape)
    return round_to(values, dtype).astype(DTYPES[dtype])


# Layouts

# Bytes on both sides of every placed array, so that a write past its ends is seen.
GUARD_BYTES = 192
FILL_BYTE = 0xA5

LAYOUTS = (
    "contiguous",
    "channels_last",
    "transposed",
    "every_second",
    "reversed",
    "padded_rows",
    "offset_by_element",
    "offset_by_byte",
)
# Where each element of one axis repeats the first: for arrays that are only read.
READ_LAYOUTS = (*LAYOUTS, "broadcast_channels", "broadcast_last_axis", "broadcast_everything")


def place(shape, rank: int, dtype: str, layout: str):
    """Memory filled with FILL_BYTE, and an array of that shape and layout inside it.

    `rank` is the number of spatial axes; the axis before them holds the channels.
    """
    itemsize = DTYPES[dtype].itemsize
    channel = len(shape) - rank - 1
    order = list(range(len(shape)))
    sizes = list(shape)
    offset = GUARD_BYTES
    if layout == "channels_last":
        order.append(order.pop(channel))
    elif layout == "transposed":
        # With one spatial axis, swapping it with the channels would be channels-last.
        order = order[::-1] if rank == 1 else [*order[:-2], order[-1], order[-2]]
    elif layout == "every_second":
        sizes = [2 * size for size in sizes]
    elif layout == "padded_rows":
        sizes[-1] += 3
    elif layout == "offset_by_element":
        offset += itemsize
    elif layout == "offset_by_byte":
        offset += 1
    strides = [0] * len(shape)
    span_bytes = itemsize
    for axis in reversed(order):
        strides[axis] = span_bytes
        span_bytes *= max(sizes[axis], 1)
    if layout == "every_second":
        strides = [2 * stride for stride in strides]
    elif layout == "reversed":
        offset += span_bytes - itemsize
        strides = [-stride for stride in strides]
    elif layout == "broadcast_channels":
        strides[channel] = 0
    elif layout == "broadcast_last_axis":
        strides[-1] = 0
    elif layout == "broadcast_everything":
        strides = [0] * len(shape)
    memory = np.full(span_bytes + 2 * GUARD_BYTES + itemsize, FILL_BYTE, np.uint8)
    return memory, np.ndarray(shape, DTYPES[dtype], memory, offset, strides)


def in_layout(values, case: Case, layout: str):
    """`values` in that layout; for a broadcast layout, what fits of them."""
    dtype = values.dtype.name
    _, array = place(values.shape, case.rank, dtype, layout)
    array[...] = values
    return array


def same_bits(a, b) -> bool:
    """Whether two arrays agree in every bit: the sign of zeros and NaNs included."""
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


# Rounding and tolerance

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
    mantissa_bits, least_exponent, largest = _FORMATS[dtype]
    values = np.asarray(values, np.float64)
    finite = np.where(np.isfinite(values), values, 0.0)
    # frexp's mantissa is below 1, so its exponent is one higher than the format's.
    exponent = np.maximum(np.frexp(finite)[1] - 1, least_exponent) - (mantissa_bits - 1)
    rounded = np.ldexp(np.rint(np.ldexp(finite, -exponent)), exponent)
    rounded = np.where(np.abs(rounded) > largest, np.copysign(np.inf, rounded), rounded)
    return np.where(np.isfinite(values), rounded, values)


def _order(values, dtype: str):
    """Integers in the order of the values, neighbours one apart; both zeros are 0."""
    bits = np.asarray(values, np.float64).astype(DTYPES[dtype])
    integers = bits.view(f"i{bits.dtype.itemsize}").astype(np.int64)
    sign = np.int64(-1) << np.int64(8 * bits.dtype.itemsize - 1)
    return np.where(integers < 0, sign - integers, integers)


@functools.lru_cache(maxsize=256)
def window_counts(case: Case):
    """For each input element, the number of windows that hold it."""
    if not case.adaptive:
        ones = np.ones(case.output_shape)
        keywords = {**case.keywords, "divisor_override": 1}
        function = getattr(reference, case.function)
        return function(ones, case.input_shape, *case.positional, **keywords)
    # There is no divisor_override: gradients that equal the window's size count 1 after division.
    sizes = np.ones(case.output_shape[-case.rank :])
    for axis, (length, outputs) in enumerate(
        zip(case.input_shape[-case.rank :], sizes.shape, strict=True)
    ):
        along = [
            math.ceil((o + 1) * length / outputs) - o * length // outputs for o in range(outputs)
        ]
        sizes *= np.reshape(along, [-1 if i == axis else 1 for i in range(case.rank)])
    sizes = np.broadcast_to(sizes, case.output_shape)
    return np.rint(case.backward(reference, sizes))


def error_bound(case: Case, grad, dtype: str, precision: str = "keep"):
    """How far each element may be from the exact result, before it is rounded to `dtype`."""
    info = np.finfo(np.float64 if dtype == "float64" else np.float32)
    counts = window_counts(case)
    more = {} if case.adaptive else {"precision": precision}
    contributions = np.abs(case.backward(reference, np.abs(grad), **more))
    factor = np.maximum(4.0, np.sqrt(counts))
    # The second term is for gradients so small that products lose bits to underflow.
    return factor * float(info.eps) * contributions + (counts + 2) * float(info.smallest_subnormal)


def assert_close(result, case: Case, grad, *, expected=None, precision="keep", repeat=None):
    """Fails unless every element of `result` is as close to the exact one as rounding allows.

    float32 and float64: within max(4, sqrt(K)) eps times the sum of absolute contributions, K the
    number of windows over the element. Half types: one unit in the last place more than what that
    bound rounds to. NaN and infinity must be where they belong.

    `expected` replaces the exact result of `backops.reference`; `repeat` is the line to show.
    """
    dtype = grad.dtype.name
    assert isinstance(result, np.ndarray), f"result is a {type(result).__name__}"
    assert result.shape == case.input_shape, f"result is {result.shape}: {case.problem}"
    assert result.dtype == grad.dtype, f"result is {result.dtype}, not {dtype}: {case.problem}"
    if expected is None:
        more = {} if case.adaptive else {"precision": precision}
        expected = case.backward(reference, grad, **more)
    with np.errstate(all="ignore"):
        bound = error_bound(case, grad, dtype, precision)
        got = result.astype(np.float64)
        finite = np.isfinite(expected)
        low = round_to(np.where(finite, expected - bound, 0.0), dtype)
        high = round_to(np.where(finite, expected + bound, 0.0), dtype)
        slack = 1 if dtype in ("float16", "bfloat16") else 0
        position = _order(np.where(np.isnan(got), 0.0, got), dtype)
        inside = (position >= _order(low, dtype) - slack) & (
            position <= _order(high, dtype) + slack
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
    import backops

    case = problem if isinstance(problem, Case) else parse_case(problem)
    values = make_grad(case, dtype, seed, kind)
    grad = values if layout == "contiguous" else in_layout(values, case, layout)
    more = {} if case.adaptive else {"precision": precision}
    result = case.backward(backops, grad, **more)
    settings = "".join(
        f"{name}={os.environ[name]} "
        for name in ("BACKOPS_ISA", "BACKOPS_NUM_THREADS")
        if name in os.environ
    )
    repeat = (
        f"{settings}PYTHONPATH=tests python -c \"import support; support.check('{case.problem}', "
        f"'{dtype}', seed={seed}, kind='{kind}', layout='{layout}', precision='{precision}')\""
    )
    assert_close(result, case, np.asarray(grad), precision=precision, repeat=repeat)
    return result


# Other implementations


def torch_backward(case: Case, grad):
    """PyTorch's gradient of a case in float64, or None where PyTorch cannot."""
    import torch
    import torch.nn.functional as F

    if case.divisor_override is not None and case.rank == 1:
        return None  # avg_pool1d has no divisor_override
    kernels = per_axis(case.kernel_size, case.rank)
    spatial = case.input_shape[-case.rank :]
    if case.rank == 3 and not case.adaptive and any(map(int.__gt__, kernels, spatial)):
        return None  # refused by avg_pool3d only
    x = torch.zeros(case.input_shape, dtype=torch.float64, requires_grad=True)
    name = case.function.removesuffix("_backward")
    keywords = dict(case.keywords)
    if case.rank == 1:
        keywords.pop("divisor_override", None)
    arguments = (case.output_size,) if case.adaptive else case.positional
    if case.adaptive and 0 in case.input_shape:
        return np.zeros(case.input_shape)  # PyTorch's adaptive backward refuses an empty batch
    y = getattr(F, name)(x, *arguments, **keywords)
    y.backward(torch.from_numpy(np.ascontiguousarray(grad, dtype=np.float64)))
    return x.grad.numpy()


def forward(case: Case, x):
    """Average pooling by its definition: the mean, or sum over the divisor, of each slice of `x`.

    Padding is made real here, so the divisor comes from counting ones, not from a formula.
    """
    rank = case.rank
    spatial = x.shape[-rank:]
    if case.adaptive:
        outputs = per_axis(case.output_size, rank)
        windows = [
            [
                slice(math.floor(o * size / count), math.ceil((o + 1) * size / count))
                for o in range(count)
            ]
            for size, count in zip(spatial, outputs, strict=True)
        ]
        padded, weights = x, np.ones(spatial)
    else:
        kernels = per_axis(case.kernel_size, rank)
        strides = kernels if case.stride is None else per_axis(case.stride, rank)
        pads = [(p, p) for p in per_axis(case.padding, rank)]
        padded = np.pad(x, [(0, 0)] * (x.ndim - rank) + pads)
        weights = np.pad(np.ones(spatial), pads, constant_values=float(case.count_include_pad))
        windows = [
            [slice(o * s, o * s + k) for o in range(count)]
            for k, s, count in zip(kernels, strides, case.output_shape[-rank:], strict=True)
        ]
    result = np.empty((*x.shape[:-rank], *map(len, windows)))
    axes = tuple(range(x.ndim - rank, x.ndim))
    for position in itertools.product(*(range(len(w)) for w in windows)):
        window = tuple(w[o] for w, o in zip(windows, position, strict=True))
        divisor = case.divisor_override or weights[window].sum()
        result[(..., *position)] = padded[(..., *window)].sum(axis=axes) / divisor
    return result


def jax_x64():
    """JAX with float64, while the context lasts."""
    import jax
    import jax.experimental

    # Named so since JAX 0.8.
    return jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64()


# Subprocesses


def run_python(code: str, *, check: bool = True, timeout: float = 120, **environment):
    """Runs `code` in a new interpreter that can import what this one can."""
    variables = {**os.environ, **{k: str(v) for k, v in environment.items() if v is not None}}
    for name in [k for k, v in environment.items() if v is None]:
        variables.pop(name, None)
    variables["PYTHONPATH"] = os.pathsep.join([str(TESTS), *(p for p in sys.path if p)])
    done = subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True, timeout=timeout
    )
    if check:
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def dump_results(path) -> None:
    """Writes the results of every case and dtype, with the kernels that made them, to an .npz."""
    import backops.plan

    results = {}
    for case, dtype in itertools.product(load_cases(), DTYPES):
        result = case.backward(backops, make_grad(case, dtype))
        key = f"{case.name}/{dtype}"
        results[key] = result.view(f"u{result.dtype.itemsize}")
        results[f"{key}/kernel"] = np.array(case.plan(backops.plan, dtype=dtype).kernel)
    np.savez(path, **results)
