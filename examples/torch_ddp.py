"""Data-parallel training with backops.torch: the same model in every process, a part of each batch.

On this machine, two processes:

    torchrun --nproc-per-node 2 torch_ddp.py

On many, the same line on each, with the address of one of them:

    torchrun --nnodes 4 --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint HOST:29500 \\
        torch_ddp.py

Alone (python torch_ddp.py) it trains on the whole batches, with the same losses but for rounding.
"""

import argparse
import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import backops.torch

BATCH = 16


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--losses", type=Path, help="a .json to write the losses to")
    arguments = parser.parse_args()
    share_cpus()
    if "RANK" in os.environ:  # by torchrun
        dist.init_process_group("gloo")
        losses = train(arguments.steps, dist.get_rank(), dist.get_world_size())
    else:
        losses = train(arguments.steps, 0, 1)
    if int(os.environ.get("RANK", 0)) == 0:
        print("\n".join(f"step {i}: loss {loss:.6f}" for i, loss in enumerate(losses)), flush=True)
        if arguments.losses:
            record = {"losses": losses, "threads": torch.get_num_threads()}
            arguments.losses.write_text(json.dumps(record))
    if dist.is_initialized():
        dist.destroy_process_group()


def share_cpus():
    """As many threads as CPUs for each process of this machine.

    torchrun sets OMP_NUM_THREADS=1 where nothing is set. Work of backops.torch runs on PyTorch's
    own threads, so one number serves both.
    """
    cpus = len(os.sched_getaffinity(0))
    torch.set_num_threads(max(1, cpus // int(os.environ.get("LOCAL_WORLD_SIZE", 1))))


def train(steps, rank, world):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.AvgPool2d(3, 2, 1),
        torch.nn.Conv2d(16, 32, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(4),
        torch.nn.Flatten(),
        torch.nn.Linear(512, 10),
    )
    parallel = DistributedDataParallel(model) if world > 1 else model
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.05)
    losses = []
    with backops.torch.enabled():
        for step in range(steps):
            images, labels = batch(step)
            own = slice(rank * BATCH // world, (rank + 1) * BATCH // world)
            loss = torch.nn.functional.cross_entropy(parallel(images[own]), labels[own])
            optimizer.zero_grad()
            loss.backward()  # gradients are averaged over the processes here
            optimizer.step()
            losses.append(mean(loss.detach(), world))
    return losses


def batch(step):
    """The same in every process; each takes its part."""
    generator = torch.Generator().manual_seed(step)
    images = torch.randn(BATCH, 3, 32, 32, generator=generator)
    return images, torch.randint(0, 10, (BATCH,), generator=generator)


def mean(loss, world):
    if world > 1:
        dist.all_reduce(loss)
    return float(loss) / world


if __name__ == "__main__":
    main()
