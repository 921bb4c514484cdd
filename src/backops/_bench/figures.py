"""Figures of several CPUs: a file of each in docs/figures, from which tables and picture are made.

    python -m backops._bench.figures add docs/figures all.json layers.json train.json

puts what `bench all`, `bench layers`, `bench forward`, `bench transposed` and bench/train.py wrote
with --json into the file of the CPU they name, in the place of what it had of that kind. What was
measured under BACKOPS_ISA is kept beside, in a set of its own.

    python -m backops._bench.figures write .

writes the marked blocks of README.md and docs/performance.md, and docs/pictures/bench.svg, anew.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backops._bench import figures_text, plot
from backops._bench.problems import FORWARD
from backops._capabilities import best_of
from backops._command import CommandError

PAGES = ("README.md", "docs/performance.md")
FIGURES, PICTURE = "docs/figures", "docs/pictures/bench.svg"
# Of what benchmarks of layers write, the rest would be a megabyte.
LAYER_FIELDS = (
    "name", "problem", "dtype", "layout", "gradients", "seconds", "pytorch_seconds", "ratio",
    "disturbed", "choice",
)  # fmt: skip

Document = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """One CPU, or one held to less than it has: what the tables have a column for.

    `parts` has the documents of `bench all`, `layers`, `forward` and `transposed` by these names,
    and of bench/train.py ("train"), as far as there are any; `note` is for every reader, `remarks`
    for those of details.
    """

    title: str
    parts: Mapping[str, Document]
    held: bool = False
    note: str = ""
    remarks: Sequence[str] = ()


def columns_of(folder: Path) -> list[Column]:
    found: list[Column] = []
    for path in sorted(folder.glob("*.json")):
        machine = json.loads(path.read_text(encoding="utf-8"))
        title = title_of(machine["environment"])
        texts = {"note": machine.get("note", ""), "remarks": machine.get("remarks", ())}
        found.append(Column(title, machine["parts"], **texts))
        for level, parts in machine.get("held", {}).items():
            found.append(Column(f"{title}, held to {level}", parts, held=True))
    return found


def title_of(environment: Mapping[str, str]) -> str:
    """For people: `AMD EPYC, avx512_bf16`."""
    brand = re.sub(r"\((?:R|TM|tm)\)|\bCPU\b|\bProcessor\b|@.*", " ", environment["CPU"])
    names = environment.get("capabilities", environment["instruction set"])
    return f"{' '.join(brand.split())}, {best_of(names)}"


def slug_of(environment: Mapping[str, str]) -> str:
    """For files: `amd-epyc-avx512_bf16`."""
    return re.sub(r"[^a-z0-9_]+", "-", title_of(environment).lower()).strip("-")


def part_of(document: Document) -> str:
    """Which benchmark wrote this."""
    results = document["results"]
    if "network" in results[0]:
        return "train"
    if "choice" not in results[0]:
        return "all"
    products = {each["gradients"] for each in results}
    if FORWARD not in products:
        return "layers"
    return "forward" if products == {FORWARD} else "transposed"


# ---- add -----------------------------------------------------------------------------------------


def add(folder: Path, paths: Sequence[Path], here: Mapping[str, str]) -> list[Path]:
    """Puts documents into the files of their CPUs, which are returned; `here` is this one.

    Of what was held to less than the CPU has, the document does not tell which CPU that is: it is
    this one.
    """
    changed: list[Path] = []
    for path in paths:
        document = _read(path)
        environment = document["environment"]
        level = held_to(environment)
        if level and ("limits" in here or here["CPU"] != environment["CPU"]):
            raise CommandError(
                f"{path}: was held to {level}; add it on its own CPU, without limits"
            )
        machine_environment = here if level else environment
        target = folder / f"{slug_of(machine_environment)}.json"
        _put(target, machine_environment, level, document)
        changed.append(target)
    return changed


def _read(path: Path) -> Document:
    try:
        document: Document = json.loads(path.read_text(encoding="utf-8"))
        part_of(document)
    except (ValueError, LookupError, TypeError) as error:
        raise CommandError(f"{path}: not what a finished run wrote with --json") from error
    return document


def held_to(environment: Mapping[str, str]) -> str:
    """The level of BACKOPS_ISA; empty without one."""
    limit = re.search(r"BACKOPS_ISA=(\S+)", environment.get("limits", ""))
    return limit[1] if limit else ""


def _put(target: Path, environment: Mapping[str, str], level: str, document: Document) -> None:
    machine: dict[str, Any] = {"environment": dict(environment), "parts": {}}
    if target.exists():
        machine = json.loads(target.read_text(encoding="utf-8"))
    parts = machine.setdefault("held", {}).setdefault(level, {}) if level else machine["parts"]
    part = part_of(document)
    if part not in ("all", "train"):
        short = [{name: each[name] for name in LAYER_FIELDS} for each in document["results"]]
        document = {**document, "results": short}
    parts[part] = document
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(dumps(machine) + "\n", encoding="utf-8")


def dumps(value: Any, indent: str = "") -> str:
    """JSON in which a record, a dictionary in a list, is one line: changes can be read."""
    inner = indent + "  "
    if isinstance(value, Mapping) and value:
        items = [f"{inner}{json.dumps(key)}: {dumps(each, inner)}" for key, each in value.items()]
        return "{\n" + ",\n".join(items) + f"\n{indent}}}"
    if isinstance(value, Sequence) and not isinstance(value, str) and value:
        return "[\n" + ",\n".join(f"{inner}{json.dumps(each)}" for each in value) + f"\n{indent}]"
    return json.dumps(value)


# ---- write ---------------------------------------------------------------------------------------


def write(root: Path) -> None:
    columns = columns_of(root / FIGURES)
    for name in PAGES:
        page = root / name
        text = page.read_text(encoding="utf-8")
        page.write_text(figures_text.with_blocks(text, columns), encoding="utf-8")
    plot.draw_ratios(drawn(columns), root / PICTURE)


def drawn(columns: Sequence[Column]) -> list[tuple[str, Document]]:
    """What the picture shows: what each CPU can do, with what is to be said about it."""
    return [
        (column.note, column.parts["all"])
        for column in columns
        if "all" in column.parts and not column.held and plot.compared(column.parts["all"])
    ]


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m backops._bench.figures")
    commands = parser.add_subparsers(dest="command", required=True)
    adding = commands.add_parser("add", help="files of --json into the file of their CPU")
    adding.add_argument("folder", type=Path)
    adding.add_argument("files", type=Path, nargs="+")
    writing = commands.add_parser("write", help="tables and picture, from the files")
    writing.add_argument("root", type=Path)
    options = parser.parse_args(arguments)
    if options.command == "write":
        write(options.root)
        return
    from backops._cli.info import environment

    for path in dict.fromkeys(add(options.folder, options.files, environment())):
        print(path)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except CommandError as error:
        sys.exit(f"error: {error}")
