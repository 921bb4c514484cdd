"""Interleaved timing: sides take turns, and the fastest repeat of each counts."""

from __future__ import annotations

import gc
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

Call = Callable[[], object]

# Workers of an OpenMP runtime spin for some milliseconds after a parallel region; the next side
# would share its cores with them.
SETTLE_SECONDS = 0.005
# One sample is a loop of calls at least this long, so that the clock and the loop cost nothing.
SAMPLE_SECONDS = 0.002
# One turn of a side: several samples while caches, page tables and workers are its own.
TURN_SECONDS = 0.010
# A call longer than this is timed once, unless it was disturbed: cold caches cost it nothing, turns
# would take minutes.
LONG_CALL_SECONDS = 1.0
# Involuntary preemptions of this process. With the machine to itself 20 to 31 a second were seen,
# with one busy neighbour 107 to 245; then even two identical sides differ, once by a factor of two.
DISTURBED_PREEMPTIONS_PER_SECOND = 60.0
MAX_ATTEMPTS = 3
# A minimum that still fell by more than this in the last rounds is not yet what the side can do:
# clocks change by a third within seconds, and long calls have few turns to meet the fast ones.
SETTLED_WITHIN = 0.01
MAX_EXTENSION = 4


@dataclass(frozen=True)
class Budget:
    """How long to measure: at least `rounds` turns per side, and more until `seconds` are over.

    Then on, up to MAX_EXTENSION times as long, until no minimum fell in the last `rounds` turns.
    """

    seconds: float
    rounds: int


@dataclass(frozen=True)
class Measurement:
    """Seconds of one call of each side; `disturbed` if other work kept taking the CPUs away."""

    seconds: dict[str, float]
    disturbed: bool


def fastest(sides: Mapping[str, Call], budget: Budget) -> Measurement:
    """Minimum over all samples of all turns of each side; a disturbed measurement is repeated."""
    first = {name: _time_once(call) for name, call in sides.items()}
    long = {
        name: _without_disturbance(sides[name], once)
        for name, once in first.items()
        if once.seconds > LONG_CALL_SECONDS
    }
    long_seconds = {name: once.seconds for name, once in long.items()}
    long_disturbed = any(once.disturbed for once in long.values())
    others = {name: call for name, call in sides.items() if name not in long}
    seconds = dict.fromkeys(others, math.inf)
    for _ in range(MAX_ATTEMPTS):
        attempt = _attempt(others, budget)
        if not attempt.disturbed:
            return Measurement(long_seconds | attempt.seconds, disturbed=long_disturbed)
        seconds = {name: min(best, attempt.seconds[name]) for name, best in seconds.items()}
    return Measurement(long_seconds | seconds, disturbed=True)


@dataclass(frozen=True)
class _Once:
    """One call, timed by itself."""

    seconds: float
    disturbed: bool


def _time_once(call: Call) -> _Once:
    preemptions_before = _preemptions()
    seconds = _time_loop(call, 1)
    rate = (_preemptions() - preemptions_before) / seconds
    return _Once(seconds, rate > DISTURBED_PREEMPTIONS_PER_SECOND)


def _without_disturbance(call: Call, once: _Once) -> _Once:
    """A long call again, if it was disturbed: one time, or the fastest of several bad ones."""
    for _ in range(MAX_ATTEMPTS - 1):
        if not once.disturbed:
            break
        again = _time_once(call)
        once = again if not again.disturbed else min(once, again, key=lambda each: each.seconds)
    return once


def _attempt(sides: Mapping[str, Call], budget: Budget) -> Measurement:
    with _no_garbage_collection():
        sample_calls = {name: _calls_per_sample(call) for name, call in sides.items()}
        best = dict.fromkeys(sides, math.inf)
        preemptions_before, start = _preemptions(), time.perf_counter()
        rounds = last_fall = 0
        while _goes_on(budget, time.perf_counter() - start, rounds, rounds - last_fall):
            rounds += 1
            for name, call in sides.items():
                seconds = _take_turn(call, sample_calls[name])
                if seconds < (1 - SETTLED_WITHIN) * best[name]:
                    last_fall = rounds
                best[name] = min(best[name], seconds)
        rate = (_preemptions() - preemptions_before) / (time.perf_counter() - start)
    return Measurement(best, disturbed=rate > DISTURBED_PREEMPTIONS_PER_SECOND)


def _goes_on(budget: Budget, seconds: float, rounds: int, settled_rounds: int) -> bool:
    if rounds < budget.rounds or seconds < budget.seconds:
        return True
    return settled_rounds < budget.rounds and seconds < MAX_EXTENSION * budget.seconds


def _preemptions() -> int:
    if sys.platform == "win32":
        return 0  # not counted there: a disturbed measurement goes unnoticed
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def _take_turn(call: Call, calls: int) -> float:
    time.sleep(SETTLE_SECONDS)
    _time_loop(call, calls)  # untimed: wakes this side's workers and brings its data into cache
    best = math.inf
    spent = 0.0
    while spent < TURN_SECONDS:
        sample = _time_loop(call, calls)
        spent += sample
        best = min(best, sample / calls)
    return best


def _calls_per_sample(call: Call) -> int:
    calls = 1
    while (seconds := _time_loop(call, calls)) < SAMPLE_SECONDS:
        # At most tenfold a step: the first few calls may be far from typical.
        calls = min(10 * calls, math.ceil(1.2 * calls * SAMPLE_SECONDS / seconds))
    return calls


def _time_loop(call: Call, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return time.perf_counter() - start


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
