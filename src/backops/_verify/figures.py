"""Pictures of a report, by matplotlib, as data that a page can hold."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backops._command import CommandError

try:
    import matplotlib
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
except ImportError as error:
    raise CommandError("--report needs matplotlib: pip install 'backops[report]'") from error

Floats = NDArray[np.float64]

WRONG, PLAIN = "#c0392b", "#2c6fbb"


def data_url(figure: Figure) -> str:
    """The figure as an SVG inside an address, so that nothing else needs to be loaded."""
    stream = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "backops"}):
        figure.savefig(stream, format="svg", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(stream.getvalue()).decode()


def ulp_histogram(rows: Sequence[tuple[int, int, int]], labels: Sequence[str]) -> str:
    figure = Figure(figsize=(7.5, 3))
    axes = figure.add_axes((0.11, 0.36, 0.87, 0.6))
    counts = [count for _, _, count in rows]
    axes.bar(range(len(rows)), counts, color=PLAIN, width=0.8)
    axes.set_yscale("log")
    axes.set_ylim(bottom=0.5)
    few_powers(axes.yaxis)
    axes.set_xticks(range(len(rows)), labels, rotation=40, ha="right")
    axes.set_xlabel("ulps from the rounded truth")
    axes.set_ylabel("elements")
    plain(axes)
    return data_url(figure)


def axis_counts(counts: Sequence[tuple[str, Sequence[tuple[int, int]], int]]) -> str:
    """How many wrong elements each index has; (name, counts, length) of each axis."""
    columns = len(counts)
    figure = Figure(figsize=(3.4 * columns, 2))
    for column, (name, rows, length) in enumerate(counts):
        axes = figure.add_axes(((column + 0.2) / columns, 0.27, 0.77 / columns, 0.66))
        heights = np.zeros(length)
        for index, count in rows:
            heights[index] = count
        axes.stairs(heights, np.arange(length + 1) - 0.5, fill=True, color=WRONG)
        axes.set_xlim(-0.5, length - 0.5)
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(3, integer=True))
        axes.set_xlabel(f"{name} index")
        plain(axes)
    return data_url(figure)


def error_map(candidate: Floats, truth: Floats) -> str:
    """Candidate, truth and absolute error of one plane; of a volume, its worst slice."""
    with np.errstate(all="ignore"):
        error = np.abs(candidate - truth)
    if candidate.ndim == 3:
        # An error that is no number is the largest.
        worst = int(np.argmax(np.nan_to_num(error, nan=np.inf).max(axis=(1, 2))))
        candidate, truth, error = candidate[worst], truth[worst], error[worst]
    if candidate.ndim == 1:
        return line_map(candidate, truth, error)
    finite = truth[np.isfinite(truth)]
    limit = float(np.abs(finite).max(initial=0.0)) or 1.0
    shown = np.where(np.isfinite(error) & (error > 0), error, np.nan)
    norm = None
    if np.isfinite(shown).any():
        largest = float(np.nanmax(shown))
        norm = LogNorm(max(float(np.nanmin(shown)), largest * 1e-9), largest * 1.01)
    figure = Figure(figsize=(10.5, 3.2))
    values = {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit}
    add_map(figure, 0, candidate, "candidate", values)
    add_map(figure, 1, truth, "truth", values)
    title = "absolute error (white: none, or not finite)"
    add_map(figure, 2, shown, title, {"cmap": "viridis", "norm": norm})
    return data_url(figure)


def add_map(figure: Figure, column: int, values: Floats, title: str, colors: Any) -> None:
    axes = figure.add_axes(((column + 0.1) / 3, 0.14, 0.75 / 3, 0.74))
    image = axes.imshow(values, interpolation="nearest", **colors)
    axes.set_title(title, fontsize=10)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.set_xlabel("width", fontsize=8)
    axes.set_ylabel("height", fontsize=8)
    axes.tick_params(labelsize=7)
    bar = figure.colorbar(image, cax=figure.add_axes(((column + 0.865) / 3, 0.14, 0.006, 0.74)))
    if isinstance(colors.get("norm"), LogNorm):
        few_powers(bar.ax.yaxis)
    bar.ax.tick_params(labelsize=7)


def line_map(candidate: Floats, truth: Floats, error: Floats) -> str:
    figure = Figure(figsize=(10.5, 3.2))
    values = figure.add_axes((0.06, 0.16, 0.42, 0.74))
    errors = figure.add_axes((0.57, 0.16, 0.42, 0.74))
    values.plot(truth, color=PLAIN, label="truth", linewidth=2)
    values.plot(candidate, color=WRONG, label="candidate", linewidth=1)
    values.legend(fontsize=8)
    errors.plot(error, color=WRONG, linewidth=1)
    errors.set_title("absolute error", fontsize=10)
    for axes in (values, errors):
        axes.set_xlabel("width")
        plain(axes)
    return data_url(figure)


def few_powers(axis: Any) -> None:
    """Powers of ten as 1e-3: their exponents set small would take most of a page's time."""
    axis.set_major_locator(LogLocator(10, numticks=6))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0e}"))


def plain(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
