"""Both sides timed on the first calls of each layer, after the manner of cudnn.benchmark.

Each call runs one side only, in turns, and returns its result: a trial costs no work beyond what
was asked for.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from backops.torch.layouts import CHANNELS_LAST, dense_strides

Call = Callable[[], Any]

SIDES = ("backops", "pytorch")
# Of each side. The first makes plans and touches new memory, and does not count; of the others the
# fastest does.
CALLS = 4
# As many layers as this are remembered; then the oldest is forgotten, and timed anew if it comes
# back.
MOST_LAYERS = 4096

clock = time.perf_counter
_lock = threading.Lock()


def _renew_lock() -> None:
    """In the child of a fork: the thread that held the lock may not be there."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no forks
    os.register_at_fork(after_in_child=_renew_lock)


@dataclass(frozen=True)
class Choice:
    """Which side computes a layer, and the fastest counted call of each, in seconds.

    `chosen` is "backops" or "pytorch", or None while both are being timed. A side of which no call
    counted yet has None seconds.
    """

    operator: str
    layer: str
    threads: int
    chosen: str | None
    backops_seconds: float | None
    pytorch_seconds: float | None

    def __str__(self) -> str:
        sides = (("backops", self.backops_seconds), ("pytorch", self.pytorch_seconds))
        times = [f"{side} {_format_seconds(seconds)}" for side, seconds in sides if seconds]
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        chosen = f"{self.chosen} chosen" if self.chosen else "being timed"
        return f"{self.operator} {self.layer}, {threads}: {', '.join([chosen, *times])}"


class Operator(NamedTuple):
    name: str
    tensors: tuple[str, ...]
    parameters: tuple[str, ...]


class Layer(NamedTuple):
    """What calls of one layer have in common: all that their times may depend on."""

    operator: Operator
    threads: int
    dtype: torch.dtype
    tensors: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]  # sizes and strides
    parameters: tuple[Any, ...]

    def text(self) -> str:
        names = self.operator.tensors
        parts = [str(self.dtype).removeprefix("torch.")]
        parts += [
            f"{name} {_format_tensor(*tensor)}"
            for name, tensor in zip(names, self.tensors, strict=False)  # out= is not always there
        ]
        named = zip(self.operator.parameters, self.parameters, strict=True)
        return ", ".join(parts + [f"{name} {value}" for name, value in named])


def layer_of(
    operator: Operator, threads: int, tensors: tuple[Any, ...], parameters: tuple[Any, ...]
) -> Layer:
    return Layer(
        operator,
        threads,
        tensors[0].dtype,
        tuple([(tuple(tensor.shape), tensor.stride()) for tensor in tensors]),
        tuple([tuple(each) if isinstance(each, list) else each for each in parameters]),
    )


def _format_tensor(sizes: tuple[int, ...], strides: tuple[int, ...]) -> str:
    formats = {"": torch.contiguous_format}
    if len(sizes) in CHANNELS_LAST:
        formats[" channels_last"] = CHANNELS_LAST[len(sizes)]
    for name, memory_format in formats.items():
        axes = zip(sizes, strides, dense_strides(sizes, memory_format), strict=True)
        if all(size == 1 or stride == dense for size, stride, dense in axes):
            return f"{sizes}{name}"
    return f"{sizes} strides {strides}"


def _format_seconds(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} us"


@dataclass(slots=True)
class Trial:
    """Of one layer: whose turn it is, what was timed, and in the end who won, by place in SIDES."""

    turns: int = 0
    calls: list[int] = field(default_factory=lambda: [0, 0])
    best: list[float] = field(default_factory=lambda: [math.inf, math.inf])
    winner: int | None = None

    def note(self, side: int, seconds: float) -> None:
        self.calls[side] += 1
        if self.calls[side] == 1 or self.winner is not None:
            return
        self.best[side] = min(self.best[side], seconds)
        if min(self.calls) >= CALLS:
            self.winner = 0 if self.best[0] <= self.best[1] else 1


class Trials:
    """Of all layers that came by; used by many threads at once."""

    def __init__(self) -> None:
        self._trials: dict[Layer, Trial] = {}

    def run(self, layer: Layer, ours: Call, pytorchs: Call) -> Any:
        """What the side returns whose turn it is, or that was found to be the faster one."""
        trial = self._trials.get(layer)
        if trial is not None and trial.winner is not None:
            return pytorchs() if trial.winner else ours()
        with _lock:
            trial = self._trials.get(layer) or self._add(layer)
            side = trial.turns % 2
            trial.turns += 1
        start = clock()
        result = pytorchs() if side else ours()
        seconds = clock() - start
        with _lock:
            trial.note(side, seconds)
        return result

    def _add(self, layer: Layer) -> Trial:
        if len(self._trials) >= MOST_LAYERS:
            del self._trials[next(iter(self._trials))]
        trial = self._trials[layer] = Trial()
        return trial

    def choices(self) -> list[Choice]:
        with _lock:
            return [_choice_of(layer, trial) for layer, trial in self._trials.items()]


def _choice_of(layer: Layer, trial: Trial) -> Choice:
    return Choice(
        layer.operator.name,
        layer.text(),
        layer.threads,
        None if trial.winner is None else SIDES[trial.winner],
        *(seconds if seconds < math.inf else None for seconds in trial.best),
    )
