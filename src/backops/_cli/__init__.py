"""The command line, a file per command. `import backops` loads none of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

import backops
from backops._cli.base import Group, usage_line

COMMANDS = ("run", "verify", "bench", "demo", "info", "env")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit status: 0, 1 for a failure, 2 for wrong usage."""
    try:
        status = make_group().main(
            None if arguments is None else list(arguments),
            prog_name="backops",
            standalone_mode=False,
        )
    except click.UsageError as error:
        print(usage_line(error), file=sys.stderr)
        return 2
    except click.Abort:
        print("backops: interrupted", file=sys.stderr)
        return 130
    return status if isinstance(status, int) else 0


def make_group() -> Group:
    group = Group(
        "backops",
        modules={name: f"backops._cli.{name}" for name in COMMANDS},
        help="Backward passes of pooling and convolution on the CPU.",
        example="backops info",
    )
    version = click.version_option(backops.__version__, message="%(prog)s %(version)s")
    return version(group)
