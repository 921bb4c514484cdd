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
    from matplotlib.ticker import MaxNLocator
except ImportError as error:
    raise CommandError("--report needs matplotlib: pip install 'backops[report]'") from error

Floats = NDArray[np.float64]

WRONG, PLAIN = "#c0392b", "#2c6fbb"


def data_url(figure: Figure) -> str:
    """The figure as an SVG inside an address, so that nothing else needs to be loaded."""
    stream = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "path", "svg.hashsalt": "backops"}):
        figure.savefig(stream, format="svg", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(stream.getvalue()).decode()


def ulp_histogram(rows: Sequence[tuple[int, int, int]], labels: Sequence[str]) -> str:
    figure = Figure(figsize=(7.5, 2.8), layout="constrained")
    axes = figure.subplots()
    counts = [count for _, _, count in rows]
    axes.bar(range(len(rows)), counts, color=PLAIN, width=0.8)
    axes.set_yscale("log")
    axes.set_ylim(bottom=0.5)
    axes.set_xticks(range(len(rows)), labels, rotation=40, ha="right", fontsize=8)
    axes.set_xlabel("ulps from the rounded truth")
    axes.set_ylabel("elements")
    plain(axes)
    return data_url(figure)


def axis_counts(name: str, counts: Sequence[tuple[int, int]], length: int) -> str:
    """How many wrong elements each index of an axis has."""
    heights = np.zeros(length)
    for index, count in counts:
        heights[index] = count
    figure = Figure(figsize=(3.6, 1.9), layout="constrained")
    axes = figure.subplots()
    axes.bar(np.arange(length), heights, width=1.0, color=WRONG)
    axes.set_xlim(-0.5, length - 0.5)
    axes.set_xlabel(f"{name} index")
    axes.set_ylabel("wrong")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    plain(axes)
    return data_url(figure)


def error_map(candidate: Floats, truth: Floats) -> str:
    """Candidate, truth and absolute error of one plane; of a volume, its worst slice."""
    with np.errstate(all="ignore"):
        error = np.abs(candidate - truth)
    # Where only one of the two is finite, the picture shows a gap.
    if candidate.ndim == 3:
        worst = int(np.nanargmax(np.nan_to_num(error, nan=np.inf).reshape(len(error), -1).max(1)))
        candidate, truth, error = candidate[worst], truth[worst], error[worst]
    if candidate.ndim == 1:
        return line_map(candidate, truth, error)
    figure = Figure(figsize=(10.5, 3.3), layout="constrained")
    panels = figure.subplots(1, 3)
    finite = truth[np.isfinite(truth)]
    limit = float(np.abs(finite).max(initial=0.0)) or 1.0
    for axes, values, title in zip(
        panels, (candidate, truth), ("candidate", "truth"), strict=False
    ):
        image = axes.imshow(values, cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest")
        finish_map(figure, axes, image, title)
    shown = np.where(np.isfinite(error) & (error > 0), error, np.nan)
    norm = None
    if np.isfinite(shown).any():
        largest = float(np.nanmax(shown))
        norm = LogNorm(max(float(np.nanmin(shown)), largest * 1e-9), largest)
    image = panels[2].imshow(shown, cmap="viridis", norm=norm, interpolation="nearest")
    finish_map(figure, panels[2], image, "absolute error (white: none, or not finite)")
    return data_url(figure)


def line_map(candidate: Floats, truth: Floats, error: Floats) -> str:
    figure = Figure(figsize=(10.5, 3.3), layout="constrained")
    values, errors = figure.subplots(1, 2)
    values.plot(truth, color=PLAIN, label="truth", linewidth=2)
    values.plot(candidate, color=WRONG, label="candidate", linewidth=1)
    values.legend(fontsize=8)
    errors.plot(error, color=WRONG, linewidth=1)
    errors.set_title("absolute error", fontsize=10)
    for axes in (values, errors):
        axes.set_xlabel("width")
        plain(axes)
    return data_url(figure)


def finish_map(figure: Figure, axes: Any, image: Any, title: str) -> None:
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("width", fontsize=8)
    axes.set_ylabel("height", fontsize=8)
    axes.tick_params(labelsize=7)
    figure.colorbar(image, ax=axes, shrink=0.85).ax.tick_params(labelsize=7)


def plain(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
