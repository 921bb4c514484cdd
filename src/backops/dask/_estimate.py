"""What a call will take, before it is run: tasks, bytes, memory, and seconds by a simple model.

A worker computes its share of the tasks, at the rates of the machine, and brings what lies on other
workers over the network. One scheduler starts all tasks, one after the other, while workers compute
unless it shares their CPUs. The last levels of a tree of sums wait for the others.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from backops.dask._calls import recording
from backops.dask._graph import FAN_IN, Graph


@dataclass(frozen=True)
class Machine:
    """Rates of one thread of a worker, and of what joins workers.

    The defaults were measured on two cores of an AMD EPYC (Zen 4): docs/scale.md.
    """

    bytes_per_second: float = 5e9
    """Of memory, read and written, in pooling, copies and sums."""
    operations_per_second: float = 9e10
    """Of convolutions, in float32."""
    network_bytes_per_second: float = 1e9
    seconds_per_task: float = 1e-3
    """Of the scheduler."""
    is_scheduler_apart: bool = True
    """On a CPU that no worker has; else what it does comes on top."""
    round_trip: float = 2e-3
    """Before a task can use what another worker has."""


@dataclass(frozen=True)
class Estimate:
    """Of one call on so many workers of one thread each.

    Bytes of operands that have to be read or made are not counted: they are there before.
    """

    workers: int
    tasks: int
    kinds: Mapping[str, int]
    bytes_moved: int
    bytes_per_worker: int
    share: float
    """Of the busiest worker in all of the arithmetic."""
    seconds_computing: float
    seconds_moving: float
    seconds_scheduling: float
    seconds_last: float
    is_scheduler_apart: bool

    @property
    def seconds(self) -> float:
        return self.seconds_from(self.seconds_computing / self.share)

    def seconds_from(self, one_thread: float) -> float:
        """If one thread takes `one_thread` for all of the arithmetic."""
        computing = one_thread * self.share + self.seconds_moving
        if not self.is_scheduler_apart:
            return computing + self.seconds_scheduling + self.seconds_last
        return max(computing, self.seconds_scheduling) + self.seconds_last


def estimate(
    function: Callable[..., Any],
    *arguments: Any,
    workers: int = 2,
    machine: Machine | None = None,
    **keywords: Any,
) -> Estimate:
    """What a call of a function of this module takes; nothing is computed.

    >>> grad = da.ones((1, 8, 64, 64, 64), chunks=(1, 8, 32, 32, 32), dtype="float32")
    >>> found = backops.dask.estimate(
    ...     backops.dask.avg_pool3d_backward, grad, (1, 8, 128, 128, 128), 3, 2, 1, workers=4
    ... )
    >>> found.tasks, found.kinds["cut"], found.bytes_moved
    (20, 12, 299544)

    Arguments:
        function, arguments, keywords: the call.
        workers: how many there are, of one thread each.
        machine: their rates; those that docs/scale.md has if None.
    """
    with recording() as graphs:
        function(*arguments, **keywords)
    return _of(graphs, workers, machine or Machine())


def _of(graphs: list[Graph], workers: int, machine: Machine) -> Estimate:
    costs = {key: cost for graph in graphs for key, cost in graph.costs.items()}
    kinds = Counter(cost.kind for cost in costs.values())
    # Of what a task needs beside its largest block, this share lies elsewhere.
    moved = sum(cost.moved for cost in costs.values())
    elsewhere = (workers - 1) / workers
    pieces = max(1, len(costs) - kinds["cut"] - kinds["sum"])
    share = math.ceil(pieces / workers) / pieces
    seconds = sum(
        cost.operations / machine.operations_per_second
        if cost.operations
        else cost.touched / machine.bytes_per_second
        for cost in costs.values()
    )
    sums = max((cost.held for cost in costs.values() if cost.kind == "sum"), default=0)
    levels = math.ceil(math.log(max(kinds["sum"], 1), FAN_IN)) if kinds["sum"] else 0
    last = levels * (machine.round_trip + sums / machine.network_bytes_per_second)
    return Estimate(
        workers=workers,
        tasks=len(costs),
        kinds=dict(kinds),
        bytes_moved=int(moved * elsewhere),
        bytes_per_worker=_held(graphs),
        share=share,
        seconds_computing=seconds * share,
        seconds_moving=moved * elsewhere * share / machine.network_bytes_per_second,
        seconds_scheduling=len(costs) * machine.seconds_per_task,
        seconds_last=last,
        is_scheduler_apart=machine.is_scheduler_apart,
    )


def _held(graphs: list[Graph]) -> int:
    """Of the largest task: operands in their chunks, what it puts together, and its result."""
    task = max((cost.held for graph in graphs for cost in graph.costs.values()), default=0)
    chunk = max(
        (
            math.prod(max(sizes) for sizes in source.chunks) * source.dtype.itemsize
            for graph in graphs
            for source in graph.sources
        ),
        default=0,
    )
    return int(task + 2 * chunk)
