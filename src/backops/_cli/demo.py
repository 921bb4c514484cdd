"""`backops demo`: every operator, its speed and its error."""

from __future__ import annotations

import click

from backops._cli.base import Command


@click.command(cls=Command, example="backops demo --quick")
@click.option("--quick", is_flag=True, help="Batches of one, timed once.")
def command(quick: bool) -> None:
    """Runs every operator on model-sized tensors and compares it with the reference.

    Prints time, GB/s and the largest error.
    """
    from backops._bench import demo

    demo.run(quick=quick)
