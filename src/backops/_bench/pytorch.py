"""What the benchmarks need of PyTorch; only those who ask load it."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import backops
from backops._bench import CommandError

ONEDNN_LIMIT = ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
# Strided on purpose: the others may run where this one does not.
BFLOAT16_CONVOLUTION = """
import torch
def zeros(*shape): return torch.zeros(shape, dtype=torch.bfloat16)
torch.ops.aten.convolution_backward(
    zeros(1, 16, 4, 4), zeros(1, 16, 8, 8), zeros(16, 16, 3, 3), [16],
    [2, 2], [1, 1], [1, 1], False, [0, 0], 1, [True, True, True],
)
"""


def import_torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise CommandError(f"this benchmark compares with PyTorch: {error}") from error


def survive_bfloat16() -> None:
    """As `limit_onednn`, and tells it."""
    signal = limit_onednn()
    if signal:
        name, value = ONEDNN_LIMIT
        print(
            f"{name}={value} for both sides: without it PyTorch's bfloat16 convolution dies of "
            f"signal {signal}"
        )


def limit_onednn() -> int:
    """Keeps oneDNN from the instructions that kill a bfloat16 convolution of PyTorch's here.

    Some virtual machines have AMX but do not tell how large its tiles are. A process reads the
    setting when it first uses oneDNN, so this comes before that. The signal of which a convolution
    died; 0 if it did not.
    """
    done = subprocess.run([sys.executable, "-c", BFLOAT16_CONVOLUTION], capture_output=True)
    if done.returncode >= 0:
        return 0
    name, value = ONEDNN_LIMIT
    os.environ[name] = value
    return -done.returncode


@contextmanager
def same_threads(torch: Any, threads: int) -> Iterator[None]:
    """Both sides with this many threads inside, as before afterwards."""
    before = backops.get_num_threads(), torch.get_num_threads()
    backops.set_num_threads(threads)
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        backops.set_num_threads(before[0])
        torch.set_num_threads(before[1])


def memory_format(torch: Any, layout: str, rank: int) -> Any:
    if layout == "contiguous":
        return torch.contiguous_format
    return {2: torch.channels_last, 3: torch.channels_last_3d}[rank]


def random_tensors(
    torch: Any, dtype: str, memory_format: Any, *shapes: tuple[int, ...]
) -> list[Any]:
    """Normal values; the same arguments give the same ones."""
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(shape, generator=generator)
        .to(getattr(torch, dtype))
        .contiguous(memory_format=memory_format)
        for shape in shapes
    ]


def check_close(torch: Any, label: str, actual: Any, expected: Any) -> None:
    """Compares with PyTorch's result in float32 or float64: a fast wrong answer is no result."""
    info = torch.finfo(actual.dtype)
    # PyTorch sums in float32, one term after another: its own error grows with their number.
    float32_noise = 1e-5 * expected.abs().max().item()
    subnormal_spacing = info.smallest_normal * info.eps
    tolerance = {"rtol": 4 * info.eps, "atol": float32_noise + subnormal_spacing}
    actual = actual.to(expected.dtype)
    if not torch.allclose(actual, expected, **tolerance):
        difference = (actual - expected).abs().max().item()
        raise CommandError(f"{label}: differs from PyTorch by up to {difference:.3g}")
