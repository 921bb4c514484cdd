"""Training steps of whole networks: PyTorch alone, and with backops.torch, enabled in both ways.

    python bench/train.py [--network resnet18] [--dtype float32] [--seconds 10] [--json train.json]

All sides take turns in one process, step by step, on the same network and batch; the fastest
forward and backward pass of each side counts.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

import torch
from networks import UNet3d, convnext, mobilenet_v2, resnet18
from torch import Tensor, nn

import backops.torch
from backops._bench import pytorch
from backops._cli.info import environment
from backops.torch.trials import CALLS, Trials

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
# Times as fast as PyTorch alone, by pass and dtype.
TARGETS = {
    "backward": {"float32": 1.25, "bfloat16": 1.0, "float16": 4.0},
    "step": {"float32": 1.2, "bfloat16": 1.2, "float16": 10.0},
}
DTYPES = ("float32", "bfloat16", "float16")


# PyTorch alone, backops.torch.enable(), and enable(benchmark=True).
SIDES = ("alone", "enabled", "benchmark")
# What is timed of each step.
PASSES = ("forward", "backward", "step")


@dataclass
class Side:
    """The fastest passes so far, in seconds."""

    forward: float = math.inf
    backward: float = math.inf
    step: float = math.inf


Sides = dict[str, Side]


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


def measure(name: str, dtype: str, seconds: float) -> Sides:
    torch.manual_seed(0)
    network = NETWORKS[name].make().to(getattr(torch, dtype))
    batch = torch.randn(BATCH, *NETWORKS[name].sizes[dtype]).to(getattr(torch, dtype))
    trials = Trials()
    states = {"alone": (False, None), "enabled": (True, None), "benchmark": (True, trials)}
    with backops.torch._state(*states["benchmark"]):
        for _ in range(2 * CALLS):  # until all layers are timed
            take_step(network, batch, Side())
    sides = {side: Side() for side in SIDES}
    start, rounds = time.perf_counter(), 0
    while rounds < 3 or time.perf_counter() - start < seconds:
        for side, state in states.items():
            with backops.torch._state(*state):
                take_step(network, batch, sides[side])
        rounds += 1
    return sides


def format_line(name: str, dtype: str, sides: Sides) -> str:
    """Times of each side, and how many times as fast as PyTorch alone the other two are."""
    cells = [f"{name:<14} {dtype:<9}"]
    for what in PASSES:
        alone, *others = (getattr(sides[side], what) for side in SIDES)
        cells.append(f"{alone * 1e3:9.1f}")
        cells += [f"{seconds * 1e3:9.1f} {alone / seconds:6.2f}x" for seconds in others]
    return " ".join(cells)


def header() -> str:
    times = f"{'alone':>9} {'enabled':>9} {'ratio':>7} {'benchmark':>9} {'ratio':>7}"
    titles = " ".join(f"{what + ', ms':<{len(times)}}" for what in PASSES)
    return f"{'':<24} {titles.rstrip()}\n{'network':<14} {'dtype':<9} {' '.join([times] * 3)}"


def format_mean(dtype: str, what: str, all_sides: list[Sides]) -> str:
    parts = []
    for side in SIDES[1:]:
        ratios = [getattr(sides["alone"], what) / getattr(sides[side], what) for sides in all_sides]
        mean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
        parts.append(f"{side} {mean:.2f}x, worst {min(ratios):.2f}x")
    name = f"{what} pass" if what == "backward" else f"whole {what}"
    target = f"(target {TARGETS[what][dtype]:g}x)"
    return f"{'':<14} {dtype:<9} geometric mean of the {name} {target}: {'; '.join(parts)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", action="append", choices=NETWORKS, help="only this one")
    parser.add_argument("--dtype", action="append", choices=DTYPES, help="only this one")
    parser.add_argument("--seconds", type=float, default=10.0, help="per network and dtype")
    parser.add_argument("--threads", type=int, help="threads of all sides")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all times to FILE")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    about = environment() | {"threads": str(torch.get_num_threads())}
    print(f"{about['CPU']}, {about['capabilities']}; batch {BATCH}, {about['threads']} threads")
    pytorch.survive_bfloat16()
    print(header())
    results = []
    for dtype in options.dtype or DTYPES:
        of_dtype = []
        for name in options.network or NETWORKS:
            sides = measure(name, dtype, options.seconds)
            print(format_line(name, dtype, sides), flush=True)
            of_dtype.append(sides)
            seconds = {side: asdict(each) for side, each in sides.items()}
            results.append({"network": name, "dtype": dtype, "seconds": seconds})
        for what in TARGETS:
            print(format_mean(dtype, what, of_dtype))
        print()
    if options.json is not None:
        document = {"date": date.today().isoformat(), "environment": about, "results": results}
        options.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
