"""Builds C and C++ programs against the folders of the C interfaces, as a user would; runs them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from .paths import ROOT

EXAMPLES = sorted((ROOT / "examples" / "infiniop").glob("*.c"))
CANN_EXAMPLES = sorted((ROOT / "examples" / "cann").glob("*.cpp"))
WARNINGS = ["-std=c11", "-Wall", "-Wextra", "-pedantic", "-Werror"]
# The libraries that programs for CANN name in their builds.
LINKED_AS = (
    ("ascendcl", "nnopbase", "opapi_math", "opapi_nn"),
    ("ascendcl", "nnopbase", "opapi"),
    ("opapi", "ascendcl"),
    ("opapi",),
)


def compiler(language: str = "c") -> str:
    """CC or CXX where that is a program's name, as in builds for another processor."""
    names = ("CC", "cc", "gcc") if language == "c" else ("CXX", "c++", "g++")
    names = (os.environ.get(names[0], ""), *names[1:])
    found = next(filter(None, map(shutil.which, names)), None)
    assert found, f"these tests need a compiler of {language}"
    return found


def build_c(source: Path, folder: Path, infini_root: Path, *options: str) -> Path:
    """The program of a C file, which finds its libraries by itself."""
    program = folder / source.stem
    command = [compiler(), *WARNINGS, str(source), "-o", str(program), *options]
    command += [f"-I{infini_root}/include", f"-L{infini_root}/lib", "-linfiniop", "-linfinirt"]
    command += ["-lm", f"-Wl,-rpath,{infini_root}/lib"]
    _run(command)
    return program


def build_cann(
    source: Path,
    folder: Path,
    cann_root: Path,
    *options: str,
    libraries: tuple[str, ...] = LINKED_AS[0],
) -> Path:
    """The program of a C++ file for CANN, which finds its libraries by itself."""
    program = folder / source.stem
    command = [compiler("c++"), "-std=c++11", "-Wall", "-Wextra", "-Werror", str(source)]
    command += ["-o", str(program), *options, f"-I{cann_root}/include"]
    command += [f"-I{cann_root}/include/aclnn", "-pthread"]
    command += [f"{cann_root}/lib64/lib{name}.so" for name in libraries]
    _run([*command, f"-Wl,-rpath,{cann_root}/lib64"])
    return program


def run(command, *, status=0, **environment):
    """A process without the variables that would help it find a library."""
    variables = {k: v for k, v in os.environ.items() if k not in ("LD_LIBRARY_PATH", "LD_PRELOAD")}
    done = subprocess.run(
        [str(word) for word in command],
        env=variables | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == status, f"exit status {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def run_under_valgrind(program, *, status=0):
    run(["valgrind", "-q", "--leak-check=full", "--error-exitcode=9", program], status=status)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
