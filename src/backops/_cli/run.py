"""`backops run`: one operator on files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from backops._cli.base import Command
from backops._cli.operator import make_call, operator_options

EXAMPLE = """
python -c 'import numpy; numpy.save("grad.npy", numpy.ones((1, 3, 4, 4), "float32"))'
backops run avg_pool2d_backward --grad-output grad.npy --input 1,3,8,8 --kernel-size 2 -o out.npy
backops run avg_pool2d --input grad.npy --kernel-size 2 -o pooled.npy
"""


@click.command(cls=Command, example=EXAMPLE)
@operator_options(required=True)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    required=True,
    help="Where the result goes; a convolution's three gradients go to one .npz or "
    ".safetensors, or to FILE.grad_input.npy and so on.",
)
def command(output: Path, **arguments: Any) -> None:
    """Runs one operator on tensors in files.

    A FILE is a .npy, a .npz or .safetensors (FILE:NAME chooses an array), or a raw .bin
    (FILE:DTYPE:SHAPE, as in grad.bin:float16:2,3,8,8). NumPy saves bfloat16 without a name:
    FILE.npy:bfloat16, or --dtype bfloat16.
    """
    from backops._files import write_tensors

    results = make_call(**arguments).run()
    paths = write_tensors(output, results)
    for name, array in results.items():
        print(f"{paths[name]}: {name} {array.shape} {array.dtype}")
