"""Benchmarks and the demonstration of `python -m backops`; `import backops` loads none of it."""

from __future__ import annotations

from importlib import resources

from backops._command import CommandError

__all__ = ["CommandError", "case_lines"]


def case_lines(file_name: str) -> list[str]:
    """Lines of a case file of this package, without comments and empty lines."""
    text = resources.files(__package__).joinpath(file_name).read_text(encoding="utf-8")
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if line]
