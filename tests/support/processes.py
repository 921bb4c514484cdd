"""Python programs in processes of their own."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from .paths import ROOT


def settings_in_force() -> str:
    """What the line that repeats a failure begins with."""
    names = ("BACKOPS_ISA", "BACKOPS_ENGINE", "BACKOPS_NUM_THREADS")
    return "".join(f"{name}={os.environ[name]} " for name in names if name in os.environ)


def run_python(code: str, *, check: bool = True, timeout: float = 120, **environment):
    """Runs `code` in a new interpreter that can import what this one can."""
    variables = _variables(environment)
    done = subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True, timeout=timeout
    )
    if check:
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def _variables(environment) -> dict[str, str]:
    variables = {**os.environ, **{k: str(v) for k, v in environment.items() if v is not None}}
    for name in [k for k, v in environment.items() if v is None]:
        variables.pop(name, None)
    variables["PYTHONPATH"] = os.pathsep.join([str(ROOT), *(p for p in sys.path if p)])
    return variables


def run_python_with_torch(code: str, *, timeout: int = 120, **environment) -> str:
    """As `run_python`, in a copy of a process that has imported PyTorch and nothing else.

    For programs that import it first anyway, which takes longer than most of them do. Variables
    that PyTorch reads on import, such as OpenMP's, are those of the first call. What was printed.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "printed"
        starter = _starter()
        print(json.dumps([code, _variables(environment), str(path), timeout]), file=starter.stdin)
        starter.stdin.flush()
        status = starter.stdout.readline().strip()
        printed = path.read_text()
        assert status == "0", f"status {status}\n{printed}"
        return printed


# Each program ends as that of a new interpreter does: by reaching its end.
_STARTER = """
import json, os, signal, sys, torch
while line := sys.stdin.readline():
    code, variables, path, timeout = json.loads(line)
    child = os.fork()
    if not child:
        signal.alarm(timeout)
        os.environ.clear()
        os.environ.update(variables)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        printed = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(printed, 1)
        os.dup2(printed, 2)
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
        break
    print(os.waitpid(child, 0)[1], flush=True)
"""


@functools.cache
def _starter() -> subprocess.Popen:
    """Ends with this process, whose end closes its input."""
    return subprocess.Popen(
        [sys.executable, "-c", _STARTER], env=_variables({"OMP_WAIT_POLICY": "passive"}),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
