"""Benchmarks and the demonstration of `python -m backops`; `import backops` loads none of it."""

from __future__ import annotations

from importlib import resources


class CommandError(Exception):
    """Something the person at the command line can put right; shown as one line."""


def case_lines(file_name: str) -> list[str]:
    """Lines of a case file of this package, without comments and empty lines."""
    text = resources.files(__package__).joinpath(file_name).read_text(encoding="utf-8")
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if line]
