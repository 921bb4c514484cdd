"""Python programs in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys

from .paths import ROOT


def settings_in_force() -> str:
    """What the line that repeats a failure begins with."""
    names = ("BACKOPS_ISA", "BACKOPS_ENGINE", "BACKOPS_NUM_THREADS")
    return "".join(f"{name}={os.environ[name]} " for name in names if name in os.environ)


def run_python(code: str, *, check: bool = True, timeout: float = 120, **environment):
    """Runs `code` in a new interpreter that can import what this one can."""
    variables = {**os.environ, **{k: str(v) for k, v in environment.items() if v is not None}}
    for name in [k for k, v in environment.items() if v is None]:
        variables.pop(name, None)
    variables["PYTHONPATH"] = os.pathsep.join([str(ROOT), *(p for p in sys.path if p)])
    done = subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True, timeout=timeout
    )
    if check:
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}{done.stderr}"
    return done
