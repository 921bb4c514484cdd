"""Prints what a call through InfiniOp and a launch through CANN cost beyond the operator itself.

    python -m tests.call_overhead

Compiles cpp/infiniop/overhead.cpp and cpp/acl/overhead.cpp against the installed package, and runs
them: a call from Python would measure Python.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import backops
from backops import acl, infiniop
from tests.support import c

CPP = c.ROOT / "cpp"


def build(name: str, root: Path, libraries: str, *links: str) -> list[str]:
    """The compiler's command, but for the program's name. `root` holds headers and libraries."""
    core = Path(backops.__file__).parent / "lib"
    folders = [str(root / libraries), str(core)]
    command = [c.compiler("c++"), "-std=c++17", "-O2", f"{CPP / name / 'overhead.cpp'}"]
    command += [f"-I{CPP}", f"-I{root / 'include'}"]
    command += [option for folder in folders for option in (f"-L{folder}", f"-Wl,-rpath,{folder}")]
    return [*command, *links, "-lbackops", "-pthread"]


def main() -> None:
    commands = {
        "InfiniOp": build("infiniop", infiniop.root(), "lib", "-linfiniop", "-linfinirt"),
        "CANN": build("acl", acl.root(), "lib64", "-lascendcl"),
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, command in commands.items():
            program = Path(folder) / name
            subprocess.run([*command, "-o", str(program)], check=True)
            done = subprocess.run([program], check=True, capture_output=True, text=True)
            for line in done.stdout.splitlines():
                print(f"{name} {line}")


if __name__ == "__main__":
    main()
