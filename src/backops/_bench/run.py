"""Runs the parts of the benchmark that were asked for, and reports on each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backops._bench import CommandError, conv, pool, problems, pytorch
from backops._bench.report import Result, SummaryRow, format_summary, to_json
from backops._bench.timing import Budget


@dataclass(frozen=True)
class Part:
    """One benchmark: its cases in given dtypes, and what measures and summarizes them."""

    cases: Callable[[Sequence[str]], Sequence[Any]]
    run: Callable[[Any, Sequence[Any], int, Budget], tuple[Sequence[Result], Sequence[SummaryRow]]]


PARTS = {
    "pool": Part(problems.pool_cases, pool.run),
    "conv": Part(problems.conv_cases, conv.run),
}


def run(
    *,
    parts: Sequence[str],
    dtypes: Sequence[str],
    text: str,
    threads: int,
    budget: Budget,
    json_path: Path | None,
    environment: Mapping[str, str],
) -> None:
    """Measures the selected cases of each part, printing each as it is done, then the summary."""
    selected = select_cases(parts, dtypes, text)
    if json_path is not None:
        json_path.touch()  # an unwritable path is reported now, not after minutes
    if any(case.dtype == "bfloat16" for case in selected.get("conv", ())):
        pytorch.survive_bfloat16()
    torch = pytorch.import_torch()
    all_results: list[Result] = []
    all_rows: list[SummaryRow] = []
    with pytorch.same_threads(torch, threads), torch.inference_mode():
        for index, (part, cases) in enumerate(selected.items()):
            print(end="\n" if index else "")
            results, rows = PARTS[part].run(torch, cases, threads, budget)
            print_summary(results, rows)
            all_results += results
            all_rows += rows
    if json_path is not None:
        json_path.write_text(to_json(environment, all_results, all_rows), encoding="utf-8")


def select_cases(
    parts: Sequence[str], dtypes: Sequence[str], text: str
) -> dict[str, Sequence[Any]]:
    """The cases whose label has `text` in it, of each part that has any."""
    selected = {
        part: [case for case in PARTS[part].cases(dtypes) if text in case.label] for part in parts
    }
    if not any(selected.values()):
        raise CommandError(f"no case has {text!r} in its name, problem, dtype or layout")
    return {part: cases for part, cases in selected.items() if cases}


def print_summary(results: Sequence[Result], rows: Sequence[SummaryRow]) -> None:
    print()
    print(format_summary(rows))
    disturbed = sum(result.disturbed for result in results)
    if disturbed:
        print(
            f"\n{disturbed} of {len(results)} lines are marked disturbed: other processes kept "
            "taking the CPUs, so their figures, and the summary with them, are not to be trusted"
        )
