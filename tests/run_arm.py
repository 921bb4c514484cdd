"""Builds the core and the C interfaces for AArch64 and runs their tests under QEMU.

    python -m tests.run_arm [--jobs N]
    python -m tests.run_arm --tools-only    install what that takes, where it is Debian's to have

All C++ tests, with the kernels for NEON beside the portable ones, and the C programs. Pooling must
give the very bits that the package gives on this machine.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support import c
from tests.support.paths import ROOT, TESTS

# Where Debian has the libraries of the other processor.
SYSTEM_ROOT = Path("/usr/aarch64-linux-gnu")
EMULATOR = ["qemu-aarch64", "-L", str(SYSTEM_ROOT)]
# What is run, and the package that has it.
TOOLS = {
    "aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu",
    "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu",
    "qemu-aarch64": "qemu-user",
}


def missing_packages() -> list[str]:
    missing = [package for tool, package in TOOLS.items() if not shutil.which(tool)]
    if not (SYSTEM_ROOT / "include" / "stdio.h").exists():
        missing.append("libc6-dev-arm64-cross")
    return missing


def install_tools() -> None:
    """Ends with status 1 and says what is missing where that cannot be installed."""
    missing = missing_packages()
    if not missing:
        return
    if shutil.which("apt-get") and os.geteuid() == 0:
        apt = ["apt-get", "-qq", "-o=Dpkg::Use-Pty=0"]
        subprocess.run([*apt, "update"], check=False)
        install = [*apt, "install", "--yes", "--no-install-recommends", *missing]
        subprocess.run(install, check=False, stdout=subprocess.DEVNULL)
        missing = missing_packages()
    if missing:
        sys.exit(
            f"make arm needs Debian's {', '.join(missing)}, which could not be installed.\n"
            f"As root: apt-get install {' '.join(missing)}"
        )


def run(command: list[object], *, quiet: bool = True, **environment: str) -> str:
    words = [str(word) for word in command]
    print("+", *(f"{k}={v}" for k, v in environment.items()), *words, flush=True)
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT} if quiet else {}
    done = subprocess.run(words, cwd=ROOT, env=os.environ | environment, text=True, **output)
    if done.returncode != 0:
        print(done.stdout or "")
        sys.exit(f"exit status {done.returncode}")
    return done.stdout or ""


def build() -> Path:
    """The folder of the build; what is installed is in its folder `package`."""
    folder = ROOT / "build" / "arm"
    tools = Path(sys.executable).parent
    configure = [tools / "cmake", "-S", ROOT, "-B", folder, "-G", "Ninja"]
    configure += [f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}", "-DCMAKE_SYSTEM_NAME=Linux"]
    configure += ["-DCMAKE_SYSTEM_PROCESSOR=aarch64", "-DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++"]
    configure += [f"-DCMAKE_CROSSCOMPILING_EMULATOR={';'.join(EMULATOR)}"]
    configure += ["-DBACKOPS_PYTHON=OFF", "-DBACKOPS_TESTS=ON", "-DBACKOPS_WERROR=ON"]
    run(configure)
    run([tools / "cmake", "--build", folder])
    run([tools / "cmake", "--install", folder, "--prefix", folder / "package"])
    return folder


def run_c_programs(package: Path, folder: Path) -> None:
    """As users would build them, but for the compilers' names."""
    programs = {source: [] for source in c.EXAMPLES}
    programs |= {TESTS / "c" / "error_table.c": [], TESTS / "c" / "lifecycle.c": ["200", "20"]}
    for source, arguments in programs.items():
        run([*EMULATOR, c.build_c(source, folder, package / "infini"), *arguments])
    programs = {source: [] for source in c.CANN_EXAMPLES}
    programs[TESTS / "c" / "acl_stress.cpp"] = ["8", "20"]
    for source, arguments in programs.items():
        run([*EMULATOR, c.build_cann(source, folder, package / "cann"), *arguments])


def compare_bits(package: Path, folder: Path) -> None:
    """Pooling here, by the package that is installed, and there, at every level."""
    from backops.infiniop import root

    source = TESTS / "c" / "pool_bits.c"
    here, there = folder / "here", folder / "there"
    here.mkdir()
    there.mkdir()
    program = c.build_c(source, there, package / "infini")
    del os.environ["CC"], os.environ["CXX"]
    expected = run([c.build_c(source, here, root())])
    assert len(set(expected.splitlines())) == 300, expected
    for level in ("generic", "neon"):
        if run([*EMULATOR, program], BACKOPS_ISA=level) != expected:
            sys.exit(f"pooling at level {level} has other bits than on this machine")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", default=str(os.cpu_count() or 1))
    parser.add_argument("--tools-only", action="store_true")
    arguments = parser.parse_args()
    install_tools()
    if arguments.tools_only:
        return
    build_folder = build()
    ctest = Path(sys.executable).parent / "ctest"
    run(
        [ctest, "--test-dir", build_folder, "--output-on-failure", "-j", arguments.jobs],
        quiet=False,
    )
    os.environ |= {"CC": "aarch64-linux-gnu-gcc", "CXX": "aarch64-linux-gnu-g++"}
    with tempfile.TemporaryDirectory() as folder:
        run_c_programs(build_folder / "package" / "backops", Path(folder))
        compare_bits(build_folder / "package" / "backops", Path(folder))


if __name__ == "__main__":
    main()
