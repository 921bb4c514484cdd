"""`backops info`: what a measurement or a bug report depends on."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

import click

import backops
from backops import _native
from backops._cli.base import Command

# What holds one side of a comparison, or the other, to less than the CPU has.
LIMITS = ("BACKOPS_ISA", "BACKOPS_ENGINE", "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA")


@click.command(cls=Command, example="BACKOPS_ISA=avx2 backops info")
def command() -> None:
    """Shows CPU, instruction set, threads, versions, and where the C libraries are."""
    for name, value in (environment() | c_roots() | engines()).items():
        print(f"{name + ':':<17} {value}")


def environment() -> dict[str, str]:
    """What a reader of a measurement needs to know about where it was made."""
    about = {
        "backops": backops.__version__,
        "instruction set": _native.isa(),
        "threads": str(backops.get_num_threads()),
        "CPU": cpu_name(),
        "capabilities": _native.capabilities() or "none",
        "caches": cache_sizes(),
        "system": f"{platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
        "numpy": installed_version("numpy"),
        "ml_dtypes": installed_version("ml_dtypes"),
        "torch": installed_version("torch"),
        "jax": installed_version("jax"),
    }
    limits = " ".join(f"{name}={os.environ[name]}" for name in LIMITS if os.environ.get(name))
    return about | ({"limits": limits} if limits else {})


def cache_sizes() -> str:
    level1, level2 = _native.cache_bytes()
    return f"{level1 >> 10} KB and {level2 >> 10} KB a core"


def engines() -> dict[str, str]:
    """What convolutions may run on; `plan.why` tells which one does, and why."""
    return {f"engine {name}": takes for name, takes in _native.conv_engines()}


def c_roots() -> dict[str, str]:
    """The folders that C programs build against; `backops env` prints them for a shell."""
    package = Path(backops.__file__).parent
    folders = {"InfiniOp": package / "infini", "CANN": package / "cann"}
    return {
        name: str(folder) if folder.is_dir() else "not in this build"
        for name, folder in folders.items()
    }


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()


def installed_version(package: str) -> str:
    # Package metadata, because importing torch to ask takes seconds.
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
