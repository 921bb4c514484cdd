"""Instruction sets, as BACKOPS_ISA names them; it is read once in each process."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path
from typing import Any

from backops import _native

from .processes import run_python

LEVELS = tuple(_native.isa_levels())
# Those below the one in force here: what a process of its own can be told to keep to.
LOWER_LEVELS = LEVELS[: LEVELS.index(_native.isa())] if _native.isa() in LEVELS else ()


def call_on(level: str, module: str, function: str, *arguments: object) -> Any:
    """What a function of that module returns in a process that keeps to the instruction set."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "returned"
        run_python(
            f"import pathlib, pickle; from {module} import {function}; "
            f"returned = {function}(*{arguments!r}); "
            f"pathlib.Path({str(path)!r}).write_bytes(pickle.dumps(returned))",
            BACKOPS_ISA=level,
            timeout=600,
        )
        return pickle.loads(path.read_bytes())
