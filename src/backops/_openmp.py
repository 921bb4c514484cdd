"""PyTorch's own threads, on which calls on its tensors run.

Workers of an OpenMP runtime stay awake for some milliseconds after each parallel region. On a
second pool of threads, the operators would share the cores with them, and then PyTorch's next
kernel with ours; on the same threads there is nothing to share. A backward pass of ResNet-18 took
110 ms so, and 165 ms with two pools.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path


def functions_of_pytorch() -> tuple[int, int] | None:
    """Addresses of GOMP_parallel and omp_get_thread_num in the OpenMP runtime of PyTorch.

    None where PyTorch has no OpenMP with GNU's interface. The caller has imported PyTorch.
    """
    library = Path(sys.modules["torch"].__file__ or "").parent / "lib" / "libtorch_cpu.so"
    try:
        # Also finds what this library links, under whatever file name a wheel has it.
        symbols = ctypes.CDLL(str(library))
        functions = symbols.GOMP_parallel, symbols.omp_get_thread_num
    except (OSError, AttributeError):
        return None
    run, thread_number = (ctypes.cast(f, ctypes.c_void_p).value for f in functions)
    return (run, thread_number) if run and thread_number else None
