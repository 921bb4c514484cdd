"""A report as tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from backops._verify.verify import Report, TensorReport

WORST_SHOWN = 5
BAR_WIDTH = 30


def print_report(report: Report, console: Console) -> None:
    for tensor in report.tensors:
        print_tensor(report, tensor, console)


def print_tensor(report: Report, tensor: TensorReport, console: Console) -> None:
    verdict = "[bold green]right[/]" if tensor.is_right else "[bold red]wrong[/]"
    console.print(f"{report.operator} {tensor.name}: {verdict} by {tensor.standard}", end="")
    console.print(f" ({escape(tensor.standard_description)})")
    for finding in tensor.findings:
        console.print(f"  - {escape(finding)}")
    console.print()
    if tensor.shape != tensor.expected_shape:
        return
    console.print(figures(tensor))
    console.print(histogram(tensor))
    if tensor.worst:
        console.print(worst(tensor))
        console.print()
    places = [f"{name} {axis_line(rows)}" for name, rows in tensor.wrong_by_axis.items() if rows]
    if places and tensor.wrong > 1:
        console.print("wrong elements by index: " + escape("; ".join(places)))
        console.print()


def figures(tensor: TensorReport) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    dtype = tensor.dtype
    if tensor.dtype != tensor.expected_dtype:
        dtype += f" (operands {tensor.expected_dtype})"
    for name, value in (
        ("shape, dtype", f"{tensor.shape} {dtype}"),
        ("truth", tensor.truth),
        ("wrong elements", f"{tensor.wrong:,} of {tensor.elements:,}"),
        (
            "NaN and infinity",
            f"{tensor.missing_nans} NaN missing, {tensor.unexpected_nans} NaN unexpected, "
            f"{tensor.wrong_infinities} wrong infinities",
        ),
        ("absolute error", f"largest {tensor.max_error:.3e}, mean {tensor.mean_error:.3e}"),
        ("relative error", f"largest {tensor.max_relative:.3e}, mean {tensor.mean_relative:.3e}"),
        ("beyond", ", ".join(f"{key}: {share(tensor, key)}" for key in tensor.beyond)),
    ):
        table.add_row(name, value)
    return table


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


def worst(tensor: TensorReport) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False)
    title = "furthest off" if tensor.wrong else "largest errors"
    for name in (title, "candidate", "truth", "ulps", "made of"):
        table.add_column(name, overflow="fold")
    for element in tensor.worst[:WORST_SHOWN]:
        table.add_row(
            escape(str(list(element.index))),
            f"{element.candidate:.7g}",
            f"{element.truth:.7g}",
            f"{element.ulps:.0f}",
            escape(element.origin),
        )
    return table


def axis_line(rows: Sequence[tuple[int, int]]) -> str:
    shown = ", ".join(f"{index} ({count})" for index, count in rows[:8])
    return shown + (", ..." if len(rows) > 8 else "")
