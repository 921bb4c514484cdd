"""Instruction sets, as BACKOPS_ISA names them; it is read once in each process."""

from __future__ import annotations

from backops import _native

LEVELS = tuple(_native.isa_levels())
# Those below the one in force here: what a process of its own can be told to keep to.
LOWER_LEVELS = LEVELS[: LEVELS.index(_native.isa())] if _native.isa() in LEVELS else ()
