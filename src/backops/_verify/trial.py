"""One case of a suite from its data to its result."""

from __future__ import annotations

import time
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backops._calls import Call
from backops._command import CommandError
from backops._verify.benchmark import Benchmark, open_benchmark
from backops._verify.cases import Case, make_call
from backops._verify.library import Unsupported
from backops._verify.published import NotCovered
from backops._verify.results import Result
from backops._verify.retry import LEAST, Figure, Limits, try_again
from backops._verify.rules import Rules
from backops._verify.targets import Candidate
from backops._verify.verify import Report, compare, second_of, standard_of, verify


def run_case(
    case: Case, candidate: Candidate, rules: Rules, benchmark: Benchmark | None = None
) -> Result:
    """`benchmark` is opened from the rules if it is not given."""
    start = time.monotonic()
    if benchmark is None and rules.is_double:
        benchmark = open_benchmark(rules.benchmark)
    trial = Trial(case, candidate, rules, benchmark)
    try:
        result = trial.run()
    except (Unsupported, NotCovered) as reason:
        return Result(case.label, case.operator, "skipped", detail=str(reason))
    except Exception as error:
        detail = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return Result(case.label, case.operator, "failed", detail=detail)
    return replace(result, seconds=round(time.monotonic() - start, 4))


class Trial:
    def __init__(
        self, case: Case, candidate: Candidate, rules: Rules, benchmark: Benchmark | None
    ) -> None:
        self.case, self.candidate, self.rules, self.benchmark = case, candidate, rules, benchmark

    def run(self) -> Result:
        call = make_call(self.case)
        results = run_candidate(call, self.candidate)
        second = self.benchmark(call) if self.benchmark is not None else None
        report = verify(call, results, self.rules.standard, second)
        result = Result.of(self.case, report)
        difference = self.difference_between_runs(call, results)
        if difference:
            return result.failed_by(difference)
        if report.is_right or not self.rules.is_double:
            return result
        return self.again(result, report)

    def difference_between_runs(self, call: Call, first: dict[str, NDArray[Any]]) -> str:
        for run in range(2, self.rules.runs + 1):
            for name, array in run_candidate(call, self.candidate).items():
                count = differing(array, first[name])
                if count:
                    return (
                        f"{name}: run {run} differs from the first in {count} of {array.size} "
                        "elements"
                    )
        return ""

    def again(self, result: Result, report: Report) -> Result:
        """The last word on a case that failed: other seeds tell whether by chance."""
        failed = failed_ratios(report)
        if failed is None:
            return result
        seeds = self.rules.retries
        if seeds < LEAST:
            return result.with_finding(
                f"not tried again: {seeds} other seeds are fewer than the {LEAST} that count"
            )
        seed = [self.case.seed, zlib.crc32(self.case.name.encode())]
        try:
            retry = try_again(failed, self.attempt, seeds, seed)
        except OtherFailure as failure:
            return result.with_finding(str(failure))
        return result.after(retry)

    def attempt(self, number: int) -> Limits:
        """The figures of the case with another seed."""
        call = make_call(self.case, number)
        results = run_candidate(call, self.candidate)
        assert self.benchmark is not None
        second = second_of(call, results, self.rules.standard, self.benchmark(call))
        assert second is not None
        limits = {}
        for name, array in results.items():
            if array.shape != call.result_shapes()[name]:
                raise OtherFailure(f"{name}: the shape is {array.shape} with seed {number}")
            standard = standard_of(call, array, self.rules.standard)
            compared = compare(call, name, array, standard, second.results[name])
            if compared.suspicion:
                raise OtherFailure(f"{name}: {compared.suspicion} with seed {number}")
            for limit in compared.limits:
                if limit.ratio is None and not limit.holds:
                    raise OtherFailure(f"{name}: {limit.sentence()} with seed {number}")
                limits[name, limit.name] = limit
        return limits


class OtherFailure(Exception):
    """What no number of seeds makes good."""


def failed_ratios(report: Report) -> list[Figure] | None:
    """The figures that were too large; None if anything else is wrong too."""
    failed = []
    for tensor in report.tensors:
        bad = [limit for limit in tensor.limits if not limit.holds]
        is_other = tensor.suspicion or tensor.shape != tensor.expected_shape
        if is_other or any(limit.ratio is None for limit in bad):
            return None
        failed += [(tensor.name, limit.name) for limit in bad]
    return failed


def run_candidate(call: Call, candidate: Candidate) -> dict[str, NDArray[Any]]:
    """Its results, in memory of their own; what it was given must be as before."""
    before = [np.array(tensor).tobytes() for tensor in call.tensors()]
    results = candidate(call)
    for name, tensor, bytes_before in zip(call.operands(), call.tensors(), before, strict=True):
        if np.array(tensor).tobytes() != bytes_before:
            raise CommandError(f"the candidate changed {name}")
    missing = [name for name in call.result_shapes() if name not in results]
    if missing:
        raise CommandError(f"the candidate returned no {missing[0]}")
    return {name: np.array(results[name]) for name in call.result_shapes()}


def differing(one: NDArray[Any], other: NDArray[Any]) -> int:
    """How many elements have other bits."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return max(one.size, 1)
    bits = f"u{one.dtype.itemsize}"
    return int(np.count_nonzero(one.reshape(-1).view(bits) != other.reshape(-1).view(bits)))
