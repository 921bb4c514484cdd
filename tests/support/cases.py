"""The lines of case files: a name, an operator, then words like k=3 or k=3x2, or flags."""

from __future__ import annotations

from .paths import TESTS


def read_lines(name: str) -> list[str]:
    """The lines of a case file that hold a case."""
    lines = (TESTS / "cases" / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def assert_names_differ(cases) -> None:
    names = [case.name for case in cases]
    assert len(set(names)) == len(names), "case names repeat"


def numbers(text: str) -> tuple[int, ...]:
    """The numbers of 3x2."""
    return tuple(map(int, text.split("x")))


def number_or_numbers(text: str) -> int | tuple[int, ...]:
    several = numbers(text)
    return several[0] if len(several) == 1 else several


def join(value: int | tuple[int, ...]) -> str:
    """3x2 for (3, 2)."""
    return str(value) if isinstance(value, int) else "x".join(map(str, value))


def per_axis(value, rank: int) -> tuple[int, ...]:
    """A number for each axis, from one for all or one for each."""
    several = (value,) if isinstance(value, int) else tuple(value)
    return several * rank if len(several) == 1 else several
