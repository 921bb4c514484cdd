"""Errors that any command may raise: apart, so that what raises it loads no click."""

from __future__ import annotations


class CommandError(Exception):
    """Something the person at the command line can put right; shown as one line."""


class UsageError(CommandError):
    """Options that do not go together; the exit status is 2."""
