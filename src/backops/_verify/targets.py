"""What a suite drives: Python functions, or a shared library."""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from backops._calls import Call
from backops._command import CommandError
from backops._verify.library import open_library

Candidate: TypeAlias = Callable[[Call], dict[str, NDArray[Any]]]


@dataclass(frozen=True)
class Target:
    """Either a `module` (or module:function), or the path of a `library`."""

    module: str | None = None
    library: str | None = None
    device: str = "cpu"

    @property
    def name(self) -> str:
        return self.module or f"{self.library} on {self.device}"

    def digest(self) -> str:
        """Of the library's file; two machines must have the same one. Empty for a module."""
        if self.library is None:
            return ""
        try:
            return hashlib.sha256(Path(self.library).read_bytes()).hexdigest()
        except OSError as error:
            raise CommandError(f"{self.library}: {error.strerror}") from error

    def open(self) -> Candidate:
        """Loads it, in the process that will call it."""
        if self.library is not None:
            return open_library(self.library, self.device)
        assert self.module is not None
        return open_module(self.module)


def open_module(text: str) -> Candidate:
    name, _, attribute = text.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` does; the `backops` script does not
    try:
        found: Any = importlib.import_module(name)
    except ImportError as error:
        raise CommandError(f"{name}: cannot be imported ({error})") from error
    if not attribute:
        return lambda call: named(call, getattr(found, call.operator))
    function = getattr(found, attribute, None)
    if not callable(function):
        raise CommandError(f"{text}: {name} has no function {attribute!r}")
    return lambda call: named(call, function, call.operator)


def named(call: Call, function: Any, *first: Any) -> dict[str, NDArray[Any]]:
    result = function(*first, *call.tensors(), **call.parameters)
    if isinstance(result, tuple | list):
        result = tuple(None if array is None else as_numpy(array) for array in result)
    else:
        result = as_numpy(result)
    return call.named(result)


def as_numpy(array: Any) -> NDArray[Any]:
    if hasattr(array, "detach") and str(array.dtype) == "torch.bfloat16":
        # NumPy does not know PyTorch's bfloat16.
        bits = array.detach().cpu().contiguous().view(sys.modules["torch"].int16)
        return np.asarray(bits).view(ml_dtypes.bfloat16)
    return np.asarray(array.detach().cpu() if hasattr(array, "detach") else array)
