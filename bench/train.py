"""Training steps of whole networks: PyTorch alone against PyTorch with backops.torch.enable().

    python bench/train.py [--network resnet18] [--dtype float32] [--seconds 10]

Both sides take turns in one process, step by step, on the same network and batch; the fastest
forward and backward pass of each side counts.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field

import torch
from networks import UNet3d, convnext, mobilenet_v2, resnet18
from torch import Tensor, nn

import backops.torch
from backops._bench import pytorch

BATCH = 8


@dataclass(frozen=True)
class Network:
    """`sizes` has the shape of one sample by dtype: a step takes less than a second or so.

    PyTorch's float16 convolutions take a hundred times as long as its float32 ones.
    """

    make: Callable[[], nn.Module]
    sizes: dict[str, tuple[int, ...]]


def images(size: int, float16_size: int) -> dict[str, tuple[int, ...]]:
    large, small = (3, size, size), (3, float16_size, float16_size)
    return {"float32": large, "bfloat16": large, "float16": small}


NETWORKS = {
    "resnet18": Network(resnet18, images(112, 32)),
    "mobilenet_v2": Network(mobilenet_v2, images(128, 48)),
    "convnext": Network(convnext, images(128, 64)),
    "unet3d": Network(
        UNet3d,
        {"float32": (1, 24, 32, 32), "bfloat16": (1, 24, 32, 32), "float16": (1, 8, 16, 16)},
    ),
}
# On the backward pass.
TARGETS = {"float32": 1.25, "bfloat16": 1.0, "float16": 4.0}


@dataclass
class Side:
    """The fastest passes so far, in seconds."""

    forward: float = math.inf
    backward: float = math.inf
    step: float = field(default=math.inf)


def take_step(network: nn.Module, batch: Tensor, side: Side) -> None:
    network.zero_grad(set_to_none=True)
    start = time.perf_counter()
    loss = network(batch).float().square().mean()
    middle = time.perf_counter()
    loss.backward()
    end = time.perf_counter()
    side.forward = min(side.forward, middle - start)
    side.backward = min(side.backward, end - middle)
    side.step = min(side.step, end - start)


def measure(name: str, dtype: str, seconds: float) -> tuple[Side, Side]:
    """PyTorch alone, and enabled."""
    torch.manual_seed(0)
    network = NETWORKS[name].make().to(getattr(torch, dtype))
    batch = torch.randn(BATCH, *NETWORKS[name].sizes[dtype]).to(getattr(torch, dtype))
    alone, enabled = Side(), Side()
    take_step(network, batch, Side())
    start, rounds = time.perf_counter(), 0
    while rounds < 3 or time.perf_counter() - start < seconds:
        for side, context in ((alone, nullcontext()), (enabled, backops.torch.enabled())):
            with context:
                take_step(network, batch, side)
        rounds += 1
    return alone, enabled


def format_line(name: str, dtype: str, alone: Side, enabled: Side) -> str:
    backward = f"{alone.backward * 1e3:9.1f} {enabled.backward * 1e3:9.1f} ms"
    step = f"{alone.step * 1e3:9.1f} {enabled.step * 1e3:9.1f} ms"
    return (
        f"{name:<14} {dtype:<9} {backward} {alone.backward / enabled.backward:6.2f}x "
        f"{step} {alone.step / enabled.step:6.2f}x"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", action="append", choices=NETWORKS, help="only this one")
    parser.add_argument("--dtype", action="append", choices=TARGETS, help="only this one")
    parser.add_argument("--seconds", type=float, default=10.0, help="per network and dtype")
    parser.add_argument("--threads", type=int, help="threads of both sides")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    pytorch.survive_bfloat16()
    print(f"batch {BATCH}, {torch.get_num_threads()} threads; PyTorch alone, then enabled")
    print(f"{'network':<14} {'dtype':<9} {'backward':>22} {'ratio':>7} {'step':>22} {'ratio':>7}")
    for dtype in options.dtype or TARGETS:
        ratios = []
        for name in options.network or NETWORKS:
            alone, enabled = measure(name, dtype, options.seconds)
            print(format_line(name, dtype, alone, enabled), flush=True)
            ratios.append(alone.backward / enabled.backward)
        mean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
        print(
            f"{'':<14} {dtype:<9} geometric mean of the backward pass {mean:.2f}x "
            f"(target {TARGETS[dtype]:g}x), worst {min(ratios):.2f}x\n"
        )


if __name__ == "__main__":
    main()
