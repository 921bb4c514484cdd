"""Every distinct convolution of the networks' backward passes, here and by PyTorch's own kernel.

    python bench/layers.py [--network resnet18] [--dtype float32] [--channels-last]

Shows what backops.torch.choice chooses, and where the other side was faster.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from typing import Any

import torch
from train import BATCH, NETWORKS, TARGETS

import backops.torch
from backops._bench import pytorch
from backops.torch import choice, kernels

SECONDS = 0.3
# Of two times, for calling a choice wrong.
MARGIN = 1.05


def recorded_calls(network: torch.nn.Module, batch: torch.Tensor) -> list[tuple[Any, ...]]:
    """Keyset and arguments of the convolutions of one backward pass, each distinct one once."""
    calls: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def record(own: Any) -> kernels.Kernel:
        def backward(keyset: Any, *arguments: Any) -> Any:
            tensors = [(tuple(t.shape), t.stride()) for t in arguments[:3]]
            key = (*tensors, str(arguments[3:]))
            calls[key] = (keyset, *arguments)
            return own.call_boxed(keyset, *arguments)

        return backward

    ours = backops.torch.OPERATORS["convolution_backward"]
    backops.torch.OPERATORS["convolution_backward"] = record
    try:
        with backops.torch.enabled():
            network(batch).float().square().mean().backward()
    finally:
        backops.torch.OPERATORS["convolution_backward"] = ours
    return list(calls.values())


def fastest(sides: list[Callable[[], Any]]) -> list[float]:
    """Seconds of the fastest call of each side; they take turns."""
    best = [math.inf] * len(sides)
    end, rounds = time.perf_counter() + SECONDS, 0
    while rounds < 4 or time.perf_counter() < end:
        for index, side in enumerate(sides):
            side()
            for _ in range(3):
                start = time.perf_counter()
                side()
                best[index] = min(best[index], time.perf_counter() - start)
        rounds += 1
    return best


def measure(call: tuple[Any, ...]) -> str:
    _, x, weight, _, stride, padding, dilation, *_, groups, mask = call[1:]
    own = torch.library.get_kernel("aten::convolution_backward", "CPU")
    here = choice.conv_is_faster(x, weight, groups, mask[0])
    is_faster, choice.conv_is_faster = choice.conv_is_faster, lambda *_: True
    try:
        kernel = kernels.convolution_backward(own)
        pytorchs, ours = fastest([lambda: own.call_boxed(*call), lambda: kernel(*call)])
    finally:
        choice.conv_is_faster = is_faster
    wrong = ours > MARGIN * pytorchs if here else pytorchs > MARGIN * ours
    return (
        f"{pytorchs * 1e3:8.2f} {ours * 1e3:8.2f} ms {pytorchs / ours:6.2f}x "
        f"{'here' if here else 'PyTorch':<8} {'wrong' if wrong else '':<6}"
        f"{tuple(x.shape)} {tuple(weight.shape)} stride {stride} padding {padding} "
        f"dilation {dilation} groups {groups} gradients {mask}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", action="append", choices=NETWORKS, help="only this one")
    parser.add_argument("--dtype", default="float32", choices=TARGETS)
    parser.add_argument("--channels-last", action="store_true")
    options = parser.parse_args()
    pytorch.survive_bfloat16()
    dtype = getattr(torch, options.dtype)
    for name in options.network or NETWORKS:
        network = NETWORKS[name].make().to(dtype)
        batch = torch.randn(BATCH, *NETWORKS[name].sizes[options.dtype]).to(dtype)
        if options.channels_last:
            layout = {4: torch.channels_last, 5: torch.channels_last_3d}[batch.dim()]
            network, batch = network.to(memory_format=layout), batch.to(memory_format=layout)
        print(f"{name}, {options.dtype}: PyTorch, here, ratio, chosen")
        for call in recorded_calls(network, batch):
            print(measure(call), flush=True)


if __name__ == "__main__":
    main()
