"""The second implementation of a double benchmark: PyTorch, backops, a module, or files."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from numpy.typing import NDArray

import backops
from backops._calls import CONVOLUTIONS, Call
from backops._command import CommandError
from backops._files import SUFFIXES
from backops._verify.targets import open_module


@dataclass(frozen=True)
class Second:
    """What the second implementation computed, and its name."""

    name: str
    results: Mapping[str, NDArray[Any]]


Benchmark: TypeAlias = Callable[[Call], Second]


def open_benchmark(text: str | None) -> Benchmark:
    """MODULE[:FUNCTION], `torch`, or None: PyTorch where it can, else backops itself."""
    if text is None:
        return preferred
    if text == "torch":
        return pytorch
    function = open_module(text)

    def run(call: Call) -> Second:
        try:
            return Second(text, function(call))
        except Exception as error:
            detail = f"{type(error).__name__}: {error}"
            raise CommandError(f"the benchmark {text} failed: {detail}") from error

    return run


def prepare(text: str | None, operators: Iterable[tuple[str, str]]) -> None:
    """Before PyTorch is loaded, for calls of these operators and dtypes."""
    is_pytorch = text in (None, "torch") and importlib.util.find_spec("torch") is not None
    convolutions = {(name, "bfloat16") for name in CONVOLUTIONS}
    if is_pytorch and not convolutions.isdisjoint(operators):
        from backops._bench.pytorch import limit_onednn

        limit_onednn()


def names_file(text: str) -> bool:
    return re.search(rf"({'|'.join(map(re.escape, SUFFIXES))})(:|$)", text) is not None


def preferred(call: Call) -> Second:
    return of_pytorch(call) or Second(f"backops {backops.__version__}", call.run())


def pytorch(call: Call) -> Second:
    found = of_pytorch(call)
    if found is None:
        raise CommandError(
            f"the benchmark torch: PyTorch has no {call.operator} with these parameters in "
            f"{call.source.dtype}, or is not installed"
        )
    return found


def of_pytorch(call: Call) -> Second | None:
    try:
        from backops._verify import pytorch as runner
    except ImportError:
        return None
    results = runner.run(call)
    return None if results is None else Second(runner.NAME, results)
