"""`backops demo`: gradients and forward operators, their speed and their error."""

from __future__ import annotations

import click

from backops._cli.base import Command


@click.command(cls=Command, example="backops demo --quick")
@click.option("--quick", is_flag=True, help="Batches of one, timed once.")
def command(quick: bool) -> None:
    """Runs every gradient, average pooling and a convolution on model-sized tensors.

    Prints time, GB/s or GFLOP/s, and the largest error against the reference.
    """
    from backops._bench import demo

    demo.run(quick=quick)
