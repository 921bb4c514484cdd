"""Pictures of benchmark results. Needs matplotlib, which only those who ask for a picture load."""

from __future__ import annotations

import importlib
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from backops._command import CommandError

DTYPES = {"float32": "#4c78a8", "bfloat16": "#e6842a", "float16": "#54a24b"}
TICKS = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000)
INK, QUIET = "#1f2937", "#6b7280"
STYLE = {
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": QUIET,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "none",  # letters stay letters: small, and searchable
    "svg.hashsalt": "backops",  # the same results give the same bytes
}


def check(path: Path) -> None:
    """Raises CommandError where no picture can be drawn into such a file."""
    if path.suffix != ".svg":
        raise CommandError(f"--plot {path}: expected a name that ends in .svg")
    _pyplot()


def _pyplot() -> Any:
    try:
        matplotlib = importlib.import_module("matplotlib")
        matplotlib.use("svg")
        return importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        raise CommandError(
            f"pictures need matplotlib ({error}): pip install 'backops[report]'"
        ) from error


def origin(document: Mapping[str, Any]) -> str:
    """Where the figures were measured: a line under every picture."""
    about = document["environment"]
    threads = document["results"][0]["threads"]
    disturbed = sum(result["disturbed"] for result in document["results"])
    warning = f"; {disturbed} lines were disturbed" if disturbed else ""
    return (
        f"backops {about['backops']}, PyTorch {about['torch']}, {about['CPU']}, "
        f"{about['instruction set']}, {threads} threads, {document['date']}{warning}"
    )


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, facecolor="white", metadata={"Date": None, "Creator": None})


def draw_limits(document: Mapping[str, Any], path: Path) -> None:
    """Time of each case against the bytes or the operations it needs, over the machine's limits."""
    pyplot = _pyplot()
    pool = [result for result in document["results"] if "moved_bytes" in result]
    conv = [result for result in document["results"] if "flops" in result]
    parts = [part for part in ((_draw_pool, pool), (_draw_conv, conv)) if part[1]]
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(
            1, len(parts), figsize=(5.6 * len(parts), 4.8), squeeze=False, layout="constrained"
        )
        figure.get_layout_engine().set(rect=(0, 0.05, 1, 0.95))
        for ax, (draw, of_part) in zip(axes[0], parts, strict=True):
            ax.set(xscale="log", yscale="log", ylabel="seconds")
            ax.grid(alpha=0.25)
            draw(ax, of_part)
            ax.legend(frameon=False, fontsize=9)
        figure.text(0.01, 0.01, origin(document), fontsize=8, color=QUIET)
        _save(figure, path)
        pyplot.close(figure)


def _draw_pool(ax: Any, results: Sequence[Mapping[str, Any]]) -> None:
    """The limit of each case is its own: small tensors stay in caches, which are faster."""
    bytes_of = [result["moved_bytes"] for result in results]
    bounds = [result["bound_seconds"] for result in results]
    ax.scatter(bytes_of, bounds, marker="_", s=90, color=INK, label="memory bound of each case")
    _scatter_dtypes(ax, results, "moved_bytes")
    ax.set(xlabel="bytes: grad_output read, grad_input written", title="pooling")


def _draw_conv(ax: Any, results: Sequence[Mapping[str, Any]]) -> None:
    flops = [result["flops"] for result in results]
    line = (min(flops), max(flops))
    for dtype in ("float32", "bfloat16"):  # float16 is held against float32
        mine = [result for result in results if result["dtype"] == dtype]
        if mine:
            rate = statistics.median(result["flops"] / result["bound_seconds"] for result in mine)
            label = f"matrix product in {dtype}, {rate / 1e9:.0f} GFLOP/s"
            times = [count / rate for count in line]
            ax.plot(line, times, color=DTYPES[dtype], linewidth=1, label=label)
    _scatter_dtypes(ax, results, "flops")
    ax.set(xlabel="operations", title="convolution")


def _scatter_dtypes(ax: Any, results: Sequence[Mapping[str, Any]], quantity: str) -> None:
    for dtype, colour in DTYPES.items():
        mine = [result for result in results if result["dtype"] == dtype]
        if mine:
            x = [result[quantity] for result in mine]
            y = [result["seconds"] for result in mine]
            ax.scatter(x, y, s=22, color=colour, label=dtype)


def draw_ratios(documents: Sequence[tuple[str, Mapping[str, Any]]], path: Path) -> None:
    """How many times as fast as PyTorch, by case: bars to the left of 1 are slower.

    A row for each document, which comes with a note, and of which something can be compared.
    """
    pyplot = _pyplot()
    rows = [(note, document, compared(document)) for note, document in documents]
    height = 0.6 + sum(0.9 + 0.27 * max(map(len, map(_cases, p.values()))) for _, _, p in rows)
    with pyplot.rc_context(STYLE):
        figure = pyplot.figure(figsize=(11, height), layout="constrained")
        figure.get_layout_engine().set(rect=(0.01, 0, 0.98, 1 - 0.45 / height))
        shares = [max(map(len, map(_cases, parts.values()))) for _, _, parts in rows]
        parts_of_figure = figure.subfigures(len(rows), 1, squeeze=False, height_ratios=shares)
        for [part], (note, document, parts) in zip(parts_of_figure, rows, strict=True):
            part.suptitle(_about(note, document), fontsize=9, color=INK, x=0.01, ha="left")
            for ax, (title, of_part) in zip(
                part.subplots(1, len(parts), squeeze=False)[0], parts.items(), strict=True
            ):
                _draw_bars(ax, of_part)
                ax.set_title(title, loc="left")
        handles, labels = figure.axes[0].get_legend_handles_labels()
        top = 1 - 0.12 / height
        figure.legend(
            handles, labels, frameon=False, ncols=len(DTYPES), loc="upper right",
            bbox_to_anchor=(0.99, 1),
        )  # fmt: skip
        figure.text(0.02, top, "Backward pass: times as fast as PyTorch", fontsize=13, va="top")
        _save(figure, path)
        pyplot.close(figure)


def compared(document: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    """By title of a panel. A disturbed line is worth nothing."""
    trusted = [result for result in document["results"] if not result["disturbed"]]
    compared = [result for result in trusted if result["pytorch_note"] != "not timed"]
    parts = {
        "pooling": [result for result in compared if "moved_bytes" in result],
        "convolution, all three gradients": [r for r in compared if r.get("gradients") == "all"],
    }
    return {title: of_part for title, of_part in parts.items() if of_part}


def _about(note: str, document: Mapping[str, Any]) -> str:
    return origin(document) + (f"\n{note}" if note else "")


def _cases(results: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(map(_case_name, results)))


def _draw_bars(ax: Any, results: Sequence[Mapping[str, Any]]) -> None:
    cases = _cases(results)
    height = 0.8 / len(DTYPES)
    for place, (dtype, colour) in enumerate(DTYPES.items()):
        mine = [result for result in results if result["dtype"] == dtype]
        rows = [cases.index(_case_name(result)) + (place - 1) * height for result in mine]
        lengths = [(result["ratio"] or 1) - 1 for result in mine]
        ax.barh(rows, lengths, height=height, left=1, color=colour, label=dtype)
        for row, result in zip(rows, mine, strict=True):
            if result["ratio"] is None:
                ax.text(1.06, row, result["pytorch_note"], fontsize=6, va="center", color=colour)
    ax.axvline(1, color=INK, linewidth=1)
    ax.set(xscale="log", ylim=(len(cases) - 0.5, -0.5))
    ax.set_yticks(range(len(cases)), cases)
    ax.tick_params(axis="y", length=0)
    low, high = ax.get_xlim()
    ticks = [tick for tick in TICKS if low <= tick <= high]
    ax.set_xticks(ticks, [f"{tick:g}x" for tick in ticks])
    ax.set_xticks([], minor=True)
    ax.grid(axis="x", alpha=0.25)
    ax.set_axisbelow(True)


def _case_name(result: Mapping[str, Any]) -> str:
    layout = ", channels-last" if result["layout"] == "channels_last" else ""
    return str(result["name"]).replace("_", " ") + layout
