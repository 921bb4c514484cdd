"""PyTorch's own threads, on which the operators run when PyTorch calls them.

Workers of an OpenMP runtime stay awake for some milliseconds after each parallel region. On a
second pool of threads, the operators would share the cores with them, and then PyTorch's next
kernel with ours; on the same threads there is nothing to share. A backward pass of ResNet-18 took
110 ms so, and 165 ms with two pools.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import torch

from backops._native import Team


def find_openmp() -> Team | None:
    """The OpenMP threads of PyTorch, or None where it has none with GNU's interface."""
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        # Also finds what this library links, under whatever file name a wheel has it.
        symbols = ctypes.CDLL(str(library))
        functions = symbols.GOMP_parallel, symbols.omp_get_thread_num
    except (OSError, AttributeError):
        return None
    run, thread_number = (ctypes.cast(f, ctypes.c_void_p).value for f in functions)
    return Team(run, thread_number) if run and thread_number else None


# None: the operators use the pool of backops.
team = find_openmp()


def _forget_team() -> None:
    """A child of a fork has none of its parent's threads, but OpenMP would wait for them."""
    global team
    team = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_team)
