"""What the values of options may be, as functions from text."""

from __future__ import annotations

import click


def positive_int(text: str) -> int:
    if not str(text).isdecimal() or int(text) == 0:
        raise click.BadParameter(f"{text!r} is not a positive integer")
    return int(text)


def non_negative_int(text: str) -> int:
    if not str(text).isdecimal():
        raise click.BadParameter(f"{text!r} is not an integer of 0 or more")
    return int(text)


def non_negative_float(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise click.BadParameter(f"{text!r} is not a number of seconds")
    return value
