"""Builds C programs against a folder with include/ and lib/, as a user would."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted((ROOT / "examples" / "infiniop").glob("*.c"))
WARNINGS = ["-std=c11", "-Wall", "-Wextra", "-pedantic", "-Werror"]


def compiler() -> str:
    found = shutil.which("cc") or shutil.which("gcc")
    assert found, "these tests need a C compiler"
    return found


def build_c(source: Path, folder: Path, infini_root: Path, *options: str) -> Path:
    """The program of a C file, which finds its libraries by itself."""
    program = folder / source.stem
    command = [compiler(), *WARNINGS, str(source), "-o", str(program), *options]
    command += [f"-I{infini_root}/include", f"-L{infini_root}/lib", "-linfiniop", "-linfinirt"]
    command += ["-lm", f"-Wl,-rpath,{infini_root}/lib"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return program
