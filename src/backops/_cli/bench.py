"""`backops bench`: speed, side by side with PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

import backops
from backops._cli.base import Command, Group
from backops._cli.types import non_negative_float, positive_int

# Of a case. There are hundreds of layers: these are to take minutes.
LAYER_SECONDS = 0.2
DTYPES = ("float32", "bfloat16", "float16")
TURNS = "All sides take turns in one process; the fastest repeat of each counts."

command = Group(
    "bench",
    help="Measures speed, side by side with PyTorch.",
    example="backops bench all --filter toy --dtype float32",
)

PLOT = click.Option(
    ["--plot"],
    type=click.Path(path_type=Path),
    metavar="FILE.svg",
    help="Also draw times against bytes and operations, with the limits of the machine.",
)


def options(
    *, dtypes: Sequence[str], more_dtypes: Sequence[str], seconds: float
) -> list[click.Parameter]:
    """`dtypes` are measured unless others are asked for, of these and `more_dtypes`."""
    return [
        click.Option(
            ["--json"],
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Also write everything to FILE.",
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
            default=dtypes,
            type=click.Choice((*dtypes, *more_dtypes)),
            help=f"Only this dtype; may be repeated (default: {', '.join(dtypes)}).",
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
            default=seconds,
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


def add_part(
    name: str, parts: Sequence[str], params: list[click.Parameter], *, help: str, example: str
) -> None:
    def run(**chosen: Any) -> None:
        run_bench(parts, **chosen)

    command.add_command(Command(name, callback=run, params=params, help=help, example=example))


def usual_options() -> list[click.Parameter]:
    return [PLOT, *options(dtypes=DTYPES, more_dtypes=(), seconds=1.5)]


add_part(
    "pool",
    ("pool",),
    usual_options(),
    help="Measures average-pooling backward against PyTorch's own with a preallocated output, and "
    f"against the memory bound: a plain fill-and-copy of the same buffers. {TURNS}",
    example="backops bench pool --filter resnet --dtype float32 --json pool.json",
)
add_part(
    "pool-forward",
    ("pool-forward",),
    usual_options(),
    help=f"Measures average pooling itself in the same manner. {TURNS}",
    example="backops bench pool-forward --filter resnet --dtype float32 --json pool.json",
)
add_part(
    "conv",
    ("conv",),
    usual_options(),
    help="Measures convolution backward against PyTorch's own, and against the rate of a large "
    f"matrix product. {TURNS}",
    example="backops bench conv --filter toy --dtype float32 --json conv.json",
)
add_part(
    "all",
    ("pool", "conv"),
    usual_options(),
    help="Measures all operators, one after another.",
    example="backops bench all --filter toy --dtype float32",
)
add_part(
    "layers",
    ("layers",),
    options(dtypes=DTYPES[:2], more_dtypes=("float16", "float64"), seconds=LAYER_SECONDS),
    help="Measures the convolutions of many public networks against PyTorch's own, and against "
    "the rate of a matrix product; shows which are slower, and for which backops.torch chooses the "
    f"slower side. {TURNS}",
    example="backops bench layers --filter lenet5 --dtype float32 --json layers.json",
)
add_part(
    "forward",
    ("forward",),
    options(dtypes=DTYPES[:2], more_dtypes=("float16", "float64"), seconds=LAYER_SECONDS),
    help=f"Measures the same convolutions forward. {TURNS}",
    example="backops bench forward --filter lenet5 --dtype float32 --json forward.json",
)
add_part(
    "transposed",
    ("transposed",),
    options(dtypes=DTYPES[:2], more_dtypes=("float16", "float64"), seconds=LAYER_SECONDS),
    help="Measures transposed convolutions of U-Nets, generators and vocoders, forward and "
    f"backward. {TURNS}",
    example="backops bench transposed --filter hifigan --dtype float32 --json transposed.json",
)


def run_bench(
    parts: Sequence[str],
    *,
    json: Path | None,
    plot: Path | None = None,
    filter: str,
    dtype: Sequence[str],
    threads: int | None,
    seconds: float,
    repeats: int,
) -> None:
    from backops._bench import run
    from backops._bench.timing import Budget
    from backops._cli.info import environment

    run.run(
        parts=parts,
        dtypes=dtype,
        text=filter,
        threads=threads or backops.get_num_threads(),
        budget=Budget(seconds=seconds, rounds=repeats),
        json_path=json,
        plot_path=plot,
        environment=environment(),
    )
