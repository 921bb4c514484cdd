"""Runs the parts of the benchmark that were asked for, and reports on each."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from backops._bench import CommandError, conv, layers, plot, pool, problems, pytorch
from backops._bench.progress import Progress
from backops._bench.report import Result, SummaryRow, format_summary, to_json
from backops._bench.timing import Budget


@dataclass(frozen=True)
class Part:
    """One benchmark: its cases in given dtypes, and what measures and summarizes them."""

    cases: Callable[[Sequence[str]], Sequence[Any]]
    run: Callable[
        [Any, Sequence[Any], int, Budget, Progress], tuple[Sequence[Result], Sequence[SummaryRow]]
    ]


PARTS = {
    "pool": Part(problems.pool_cases, pool.run),
    "pool-forward": Part(partial(problems.pool_cases, forward=True), pool.run),
    "conv": Part(problems.conv_cases, conv.run),
    "layers": Part(problems.layer_cases, layers.run),
    "forward": Part(problems.forward_cases, layers.run),
    "transposed": Part(problems.transposed_cases, layers.run),
}


def run(
    *,
    parts: Sequence[str],
    dtypes: Sequence[str],
    text: str,
    threads: int,
    budget: Budget,
    json_path: Path | None,
    plot_path: Path | None,
    environment: Mapping[str, str],
) -> None:
    """Measures the selected cases of each part, printing each as it is done, then the summary."""
    selected = select_cases(parts, dtypes, text)
    # What cannot be written is reported now, not after minutes.
    if plot_path is not None:
        plot.check(plot_path)
    for path in filter(None, (json_path, plot_path)):
        path.touch()
    print(f"{environment['CPU']}, {environment['instruction set']}, {threads} threads")
    convolutions = [case for part in selected if "pool" not in part for case in selected[part]]
    if any(case.dtype == "bfloat16" for case in convolutions):
        pytorch.survive_bfloat16()
    torch = pytorch.import_torch()
    all_results: list[Result] = []
    all_rows: list[SummaryRow] = []
    progress = Progress(sum(map(len, selected.values())))
    with progress, pytorch.same_threads(torch, threads), torch.inference_mode():
        for index, (part, cases) in enumerate(selected.items()):
            if index:
                progress.print()
            results, rows = PARTS[part].run(torch, cases, threads, budget, progress)
            print_summary(progress, results, rows)
            all_results += results
            all_rows += rows
    document = to_json(environment, all_results, all_rows)
    if json_path is not None:
        json_path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    if plot_path is not None:
        plot.draw_limits(document, plot_path)


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


def print_summary(
    progress: Progress, results: Sequence[Result], rows: Sequence[SummaryRow]
) -> None:
    progress.print()
    progress.print(format_summary(rows))
    disturbed = sum(result.disturbed for result in results)
    if disturbed:
        progress.print(
            f"\n{disturbed} of {len(results)} lines are marked disturbed: other processes kept "
            "taking the CPUs, so their figures, and the summary with them, are not to be trusted"
        )
