"""The code blocks of a Markdown page, and how to run them as a reader would."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .paths import ROOT

PAGES = sorted(
    path
    for pattern in ("*.md", "cpp/README.md", "docs/**/*.md", "examples/**/*.md")
    for path in ROOT.glob(pattern)
)
FENCE = re.compile(
    r"(?:^<!-- not run: (?P<reason>.*?) -->\n+)?"
    r'^```(?P<language>\w*)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^```$',
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """`title` names a file that later blocks use; `reason` says why a block is not run."""

    language: str
    title: str | None
    text: str
    line: int
    reason: str | None


def blocks_of(markdown: str) -> list[Block]:
    return [
        Block(
            language=match["language"],
            title=match["title"],
            text=match["text"],
            line=markdown[: match.start("text")].count("\n") + 1,
            reason=match["reason"],
        )
        for match in FENCE.finditer(markdown)
    ]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def run(page: Path, folder: Path) -> None:
    """Runs the blocks in the order of the page, in `folder`: later ones go on from earlier ones."""
    shutil.copytree(ROOT / "examples", folder / "examples")
    environment = os.environ | {"PATH": f"{_commands(folder)}:{os.environ['PATH']}"}
    names: dict[str, Any] = {"__name__": "snippets"}
    for block in blocks_of(page.read_text(encoding="utf-8")):
        if block.reason is not None:
            continue
        if block.title is not None:
            (folder / block.title).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            # Lines are those of the page, in a traceback too.
            source = "\n" * (block.line - 1) + block.text
            exec(compile(source, name_of(page), "exec"), names)
        elif block.language == "sh":
            _run_shell(block, folder, environment, f"{name_of(page)}:{block.line}")


def _run_shell(block: Block, folder: Path, environment: dict[str, str], where: str) -> None:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.text],
        cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, f"{where}: exit status {done.returncode}\n{done.stdout}"


def _commands(folder: Path) -> Path:
    """A folder with the commands of the Python that runs the tests."""
    commands = folder / "commands"
    commands.mkdir()
    for name, arguments in {"python": "", "backops": " -m backops"}.items():
        command = commands / name
        command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)}{arguments} "$@"\n')
        command.chmod(0o755)
    return commands
