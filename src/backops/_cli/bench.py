"""`backops bench`: speed, side by side with PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

import backops
from backops._cli.base import Command, Group
from backops._cli.types import non_negative_float, positive_int

TURNS = "All sides take turns in one process; the fastest repeat of each counts."

command = Group(
    "bench",
    help="Measures speed, side by side with PyTorch.",
    example="backops bench all --filter toy --dtype float32",
)


def options() -> list[click.Parameter]:
    return [
        click.Option(
            ["--json"],
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Also write everything to FILE.",
        ),
        click.Option(
            ["--plot"],
            type=click.Path(path_type=Path),
            metavar="FILE.svg",
            help="Also draw times against bytes and operations, with the limits of the machine.",
        ),
        click.Option(
            ["--filter"],
            default="",
            metavar="TEXT",
            help="Only cases with TEXT in their name, problem, dtype or layout.",
        ),
        click.Option(
            ["--dtype"],
            multiple=True,
            type=click.Choice(("float32", "bfloat16", "float16")),
            help="Only this dtype; may be repeated (default: all).",
        ),
        click.Option(
            ["--threads"],
            type=positive_int,
            metavar="N",
            help="Threads of each side (default: BACKOPS_NUM_THREADS, or all CPUs).",
        ),
        click.Option(
            ["--seconds"],
            type=non_negative_float,
            default=1.5,
            show_default=True,
            metavar="S",
            help="Measure each case for S seconds, and on (up to 4 x S) while minima fall.",
        ),
        click.Option(
            ["--repeats"],
            type=positive_int,
            default=3,
            show_default=True,
            metavar="N",
            help="At least N turns of each side, however long they take.",
        ),
    ]


def add_part(name: str, parts: Sequence[str], *, help: str, example: str) -> None:
    def run(**chosen: Any) -> None:
        run_bench(parts, **chosen)

    command.add_command(Command(name, callback=run, params=options(), help=help, example=example))


add_part(
    "pool",
    ("pool",),
    help="Measures average-pooling backward against PyTorch's own with a preallocated output, and "
    f"against the memory bound: a plain fill-and-copy of the same buffers. {TURNS}",
    example="backops bench pool --filter resnet --dtype float32 --json pool.json",
)
add_part(
    "conv",
    ("conv",),
    help="Measures convolution backward against PyTorch's own, and against the rate of a large "
    f"matrix product. {TURNS}",
    example="backops bench conv --filter toy --dtype float32 --json conv.json",
)
add_part(
    "all",
    ("pool", "conv"),
    help="Measures all operators, one after another.",
    example="backops bench all --filter toy --dtype float32",
)


def run_bench(
    parts: Sequence[str],
    *,
    json: Path | None,
    plot: Path | None,
    filter: str,
    dtype: Sequence[str],
    threads: int | None,
    seconds: float,
    repeats: int,
) -> None:
    from backops._bench import problems, run
    from backops._bench.timing import Budget
    from backops._cli.info import environment

    run.run(
        parts=parts,
        dtypes=dtype or problems.DTYPES,
        text=filter,
        threads=threads or backops.get_num_threads(),
        budget=Budget(seconds=seconds, rounds=repeats),
        json_path=json,
        plot_path=plot,
        environment=environment(),
    )
