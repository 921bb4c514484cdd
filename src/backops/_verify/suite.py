"""Many cases: in parallel, with a progress bar, and with a file that lets a stop lose nothing."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from backops._command import CommandError
from backops._verify import cluster as clusters
from backops._verify.benchmark import prepare
from backops._verify.campaign import campaign
from backops._verify.cases import Case, read_cases
from backops._verify.limits import Limit, shown
from backops._verify.published import LEVELS
from backops._verify.results import BAD, Result
from backops._verify.rules import Rules
from backops._verify.targets import Target
from backops._verify.workers import run_cases

__all__ = ["BAD", "Rules", "Target", "campaign", "read_cases", "run_suite"]

LINE_START = '{"key": "'


def run_suite(
    cases: Sequence[Case],
    target: Target,
    rules: Rules,
    *,
    resume: Path | None = None,
    jobs: int | None = None,
    timeout: float | None = None,
    cluster: str | None = None,
    show: bool = True,
) -> list[Result]:
    """Runs the cases that `resume` does not hold yet; all results, in the order of the cases.

    They run in processes of this machine, or on the workers of a `cluster`.
    """
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    jobs = jobs or cpus
    keys = {case.label: case.key(target.name, *rules.key) for case in cases}
    known = {} if resume is None else read_known(resume)
    results = {case.label: known[keys[case.label]] for case in cases if keys[case.label] in known}
    left = [case for case in cases if case.label not in results]
    console = Console(highlight=False, quiet=not show)
    if results:
        console.print(f"{len(results)} of {len(cases)} cases are in {resume} already")
    if rules.is_double and left:
        prepare(rules.benchmark, {(case.operator, case.dtype) for case in left})
    columns = (TextColumn("verify"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    terminal = Console(stderr=True)
    is_shown = show and terminal.is_terminal
    bar = Progress(*columns, console=terminal, disable=not is_shown, transient=True)
    with bar:
        task = bar.add_task("verify", total=len(cases), completed=len(results))
        if cluster is not None:
            done = clusters.run_cases(left, target, rules, cluster=cluster, timeout=timeout)
        else:
            threads = max(1, cpus // jobs)
            done = run_cases(left, target, rules, jobs=jobs, threads=threads, timeout=timeout)
        for case, result in done:
            results[case.label] = result
            if resume is not None:
                append(resume, keys[case.label], result)
            bar.advance(task)
    ordered = [results[case.label] for case in cases]
    print_summary(ordered, target, rules, console)
    return ordered


def read_known(path: Path) -> dict[str, Result]:
    """Results by key. A last line that a stop cut off is taken away: its case runs again."""
    if not path.exists():
        return {}
    text = path.read_text(encoding="utf-8")
    whole, _, rest = text.rpartition("\n")
    known = {}
    for number, line in enumerate(whole.splitlines(), start=1):
        try:
            row = json.loads(line)
            key = row.pop("key")
            known[key] = Result.from_json(row)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CommandError(f"{path}: line {number} is not a result of a suite") from error
    if rest:
        if not LINE_START.startswith(rest[: len(LINE_START)]):
            raise CommandError(f"{path}: its last line is not a result of a suite")
        os.truncate(path, len((whole + "\n").encode()) if whole else 0)
    return known


def append(path: Path, key: str, result: Result) -> None:
    row: dict[str, Any] = {"key": key, **result.to_json()}
    with path.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(row) + "\n")
        stream.flush()
        os.fsync(stream.fileno())


def print_summary(
    results: Sequence[Result], target: Target, rules: Rules, console: Console
) -> None:
    bad = [result for result in results if result.status in BAD]
    if bad:
        console.print(bad_table(bad))
    console.print(operator_table(results))
    figures = figure_table(results)
    if figures is not None:
        console.print(figures)
    skipped = Counter(result.detail for result in results if result.status == "skipped")
    for reason, count in skipped.most_common():
        console.print(f"skipped {count}: {escape(reason)}")
    for line in campaign_lines(results, rules):
        console.print(escape(line), soft_wrap=True)
    right = sum(result.status == "right" for result in results)
    verdict = "[bold green]right[/]" if right else "not checked"
    if bad:
        verdict = "[bold red]wrong[/]"
    console.print(
        f"{escape(target.name)}: {verdict} by {rules.standard}: {counts_line(results)}",
        soft_wrap=True,
    )


def counts_line(results: Sequence[Result]) -> str:
    right = sum(result.status == "right" for result in results)
    bad = sum(result.status in BAD for result in results)
    return f"{right} right, {bad} not, {len(results) - right - bad} skipped"


def bad_table(bad: Sequence[Result]) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False)
    for name in ("case", "status", "wrong", "why"):
        table.add_column(name, overflow="fold")
    for result in bad:
        share = f"{result.wrong}/{result.elements}" if result.elements else ""
        table.add_row(escape(result.name), result.status, share, escape(result.detail))
    return table


def operator_table(results: Sequence[Result]) -> Table:
    """How the cases of each operator ended, and how near they came to what is allowed."""
    table = Table(box=box.SIMPLE, pad_edge=False)
    seen = {result.status for result in results}
    statuses = [status for status in ("right", *BAD, "skipped") if status in seen]
    table.add_column("operator", no_wrap=True)
    for name in (*statuses, "largest error / allowed"):
        table.add_column(name, justify="right")
    for operator in dict.fromkeys(result.operator for result in results):
        own = [result for result in results if result.operator == operator]
        counts = Counter(result.status for result in own)
        row = [str(counts[status] or "-") for status in statuses]
        table.add_row(operator, *row, f"{max(result.times_allowed for result in own):.2g}")
    return table


def figure_table(results: Sequence[Result]) -> Table | None:
    """The figures of a published standard, each where it is nearest to its limit or beyond."""
    worst: dict[str, tuple[Limit, str]] = {}
    for result in results:
        for tensor, limits in result.limits.items():
            for limit in limits:
                # The error that counts in small values depends on the dtype.
                kind = limit.name.partition(" off by ")[0]
                if kind not in worst or limit.times > worst[kind][0].times:
                    worst[kind] = limit, f"{result.name} {tensor}"
    if len(worst) <= 2:  # elements alone decide
        return None
    table = Table(box=box.SIMPLE, pad_edge=False)
    for name in ("figure", "largest", "limit", "of the limit", "in"):
        table.add_column(name, justify="left" if name in ("figure", "in") else "right")
    for kind, (limit, where) in worst.items():
        cells = shown(limit.value), f"{limit.rule} {shown(limit.limit)}", f"{limit.times:.3g}"
        table.add_row(kind, *cells, escape(where) if limit.times > 0 else "")
    return table


def campaign_lines(results: Sequence[Result], rules: Rules) -> list[str]:
    """What the standard asks beyond the limits, and what was done of it."""
    again = [result for result in results if result.retry is not None]
    lines = []
    if again:
        right = sum(result.status == "right" for result in again)
        lines.append(f"{len(again)} failed and were tried again with other seeds: {right} right")
    benchmarks = Counter(result.benchmark for result in results if result.benchmark)
    if benchmarks:
        named = ", ".join(f"{name} ({count} cases)" for name, count in benchmarks.most_common())
        lines.append(f"benchmark: {named}")
    if rules.is_double:
        level = LEVELS[rules.standard]
        lines.append(
            f"{rules.standard} asks for {level.cases:,} cases of {level.runs:,} runs each; these "
            f"were {len(results):,} of {rules.runs:,}"
        )
    return lines
