"""A report as tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from backops._verify.limits import Limit, power_of_two, shown
from backops._verify.verify import Report, TensorReport

WORST_SHOWN = 5
BAR_WIDTH = 30


def print_report(report: Report, console: Console) -> None:
    for tensor in report.tensors:
        print_tensor(report, tensor, console)


def print_tensor(report: Report, tensor: TensorReport, console: Console) -> None:
    verdict = "[bold green]right[/]" if tensor.is_right else "[bold red]wrong[/]"
    head = f"{report.operator} {tensor.name}: {verdict} by {tensor.standard}"
    console.print(f"{head} ({escape(tensor.standard_description)})", soft_wrap=True)
    for finding in tensor.findings:
        console.print(f"  - {escape(finding)}", soft_wrap=True)
    console.print()
    if tensor.shape != tensor.expected_shape:
        return
    console.print(figures(tensor))
    console.print(limit_table(tensor))
    console.print(histogram(tensor))
    if tensor.worst:
        print_worst(tensor, console)
        console.print()
    places = [f"{name} {axis_line(rows)}" for name, rows in tensor.wrong_by_axis.items() if rows]
    if places and tensor.wrong > 1:
        console.print("wrong elements by index: " + escape("; ".join(places)), soft_wrap=True)
        console.print()


def figures(tensor: TensorReport) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    dtype = tensor.dtype
    if tensor.dtype != tensor.expected_dtype:
        dtype += f" (operands {tensor.expected_dtype})"
    small = [("small values", small_line(tensor))] if tensor.small_values else []
    benchmark = [("benchmark", tensor.benchmark)] if tensor.benchmark else []
    for name, value in (
        ("shape, dtype", f"{tensor.shape} {dtype}"),
        ("truth", tensor.truth),
        *benchmark,
        ("wrong elements", f"{tensor.wrong:,} of {tensor.elements:,}"),
        (
            "NaN and infinity",
            f"{tensor.missing_nans} NaN missing, {tensor.unexpected_nans} NaN unexpected, "
            f"{tensor.wrong_infinities} wrong infinities",
        ),
        ("absolute error", f"largest {tensor.max_error:.3e}, mean {tensor.mean_error:.3e}"),
        ("relative error", f"largest {tensor.max_relative:.3e}, mean {tensor.mean_relative:.3e}"),
        (
            "of what is allowed",
            f"{tensor.times_allowed:.3g} {'ulps' if tensor.standard == 'exact' else 'times'}",
        ),
        *small,
        ("share beyond", ", ".join(f"{key}: {share(tensor, key)}" for key in tensor.beyond)),
    ):
        table.add_row(name, value)
    return table


def limit_table(tensor: TensorReport) -> Table:
    """Each figure that decides, with its limit."""
    table = Table(box=box.SIMPLE, pad_edge=False)
    has_benchmark = bool(tensor.benchmark)
    for name in limit_head(has_benchmark):
        table.add_column(name, justify="left" if name in ("figure", "") else "right")
    for limit in tensor.limits:
        style = "" if limit.holds else "bold red"
        table.add_row(*limit_cells(limit, has_benchmark), style=style)
    return table


def limit_head(has_benchmark: bool) -> list[str]:
    return ["figure", "candidate", *["benchmark"] * has_benchmark, "limit", "of the limit", ""]


def limit_cells(limit: Limit, has_benchmark: bool) -> list[str]:
    benchmark = "" if limit.benchmark is None else shown(limit.benchmark)
    return [
        limit.name,
        shown(limit.value),
        *[benchmark] * has_benchmark,
        f"{limit.rule} {shown(limit.limit)}",
        f"{limit.times:.3g}",
        "holds" if limit.holds else "fails",
    ]


def small_line(tensor: TensorReport) -> str:
    small = tensor.small_values
    assert small is not None
    return (
        f"{small.elements:,} with a truth below {power_of_two(small.below)} are apart; off by "
        f"more than {power_of_two(small.error)}: {small.beyond:,}, benchmark "
        f"{small.benchmark_beyond:,}"
    )


def share(tensor: TensorReport, threshold: str) -> str:
    return f"{tensor.beyond[threshold] / max(1, tensor.elements):.3%}"


def histogram(tensor: TensorReport) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("ulps from the rounded truth")
    table.add_column("elements", justify="right")
    table.add_column("")
    total = max(1, sum(count for _, _, count in tensor.ulp_histogram))
    for low, high, count in tensor.ulp_histogram:
        bar = "#" * max(1, round(BAR_WIDTH * count / total))
        table.add_row(ulp_range(low, high), f"{count:,}", bar)
    return table


def ulp_range(low: int, high: int) -> str:
    if low == high:
        return str(low)
    return f"{low} to {high}" if high < 10**6 else f"{low:.1e} to {high:.1e}"


def print_worst(tensor: TensorReport, console: Console) -> None:
    console.print("furthest off:" if tensor.wrong else "largest errors:")
    for element in tensor.worst[:WORST_SHOWN]:
        values = f"{element.candidate:.7g}, truth {element.truth:.7g} ({element.ulps:.0f} ulps)"
        console.print(escape(f"  {tensor.name}{list(element.index)} is {values}"), soft_wrap=True)
        console.print(escape(f"    = {element.origin}"), soft_wrap=True)


def axis_line(rows: Sequence[tuple[int, int]]) -> str:
    shown = ", ".join(f"{index} ({count})" for index, count in rows[:8])
    return shown + (", ..." if len(rows) > 8 else "")
