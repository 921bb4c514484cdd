"""Draws the pictures of windows that the operators page shows.

    python docs/pictures/windows.py [FOLDER]

Writes them beside this file, or into FOLDER. The same input gives the same bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

CELL = 34
LEFT = 96
TEXT = "#1f2937"
QUIET = "#6b7280"
CELL_FILL = "#e5e7eb"
PADDING_FILL = "#ffffff"
COLOURS = ("#4c78a8", "#e6842a", "#54a24b", "#b279a2")
FONT = "font-family='Helvetica, Arial, sans-serif'"


class Drawing:
    """Shapes on white, so that they can be read on a dark page, too."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.shapes: list[str] = []

    def cell(self, x: float, y: float, label: str = "", *, padding: bool = False) -> None:
        fill = PADDING_FILL if padding else CELL_FILL
        dashes = " stroke-dasharray='3 3'" if padding else ""
        self.shapes.append(
            f"<rect x='{x}' y='{y}' width='{CELL}' height='{CELL}' fill='{fill}' "
            f"stroke='{QUIET}'{dashes}/>"
        )
        if label:
            self.text(x + CELL / 2, y + CELL / 2 + 5, label, anchor="middle")

    def box(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        self.shapes.append(
            f"<rect x='{x}' y='{y}' width='{width}' height='{height}' rx='5' fill='{colour}' "
            f"fill-opacity='0.22' stroke='{colour}' stroke-width='2'/>"
        )

    def text(
        self, x: float, y: float, label: str, *, anchor: str = "start", colour: str = TEXT
    ) -> None:
        self.shapes.append(
            f"<text x='{x}' y='{y}' {FONT} font-size='14' text-anchor='{anchor}' "
            f"fill='{colour}'>{label}</text>"
        )

    def svg(self) -> str:
        head = (
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {self.width} {self.height}' "
            f"width='{self.width}' height='{self.height}'>"
        )
        ground = f"<rect width='{self.width}' height='{self.height}' fill='#ffffff'/>"
        return "\n".join([head, ground, *self.shapes, "</svg>", ""])


def row_of_windows(
    size: int,
    windows: Iterable[tuple[int, int, str]],
    *,
    before: int = 0,
    after: int = 0,
    dropped: Iterable[int] = (),
) -> Drawing:
    """One axis with its windows (begin, end, what to say about it), one below the other.

    `before` and `after` count the cells of padding; outputs in `dropped` are drawn in grey.
    """
    windows, dropped = list(windows), set(dropped)
    cells = before + size + after
    drawing = Drawing(LEFT + cells * CELL + 310, 68 + 42 * len(windows))
    drawing.text(12, 36, "input")
    for index in range(-before, size + after):
        inside = 0 <= index < size
        x = LEFT + (index + before) * CELL
        drawing.cell(x, 14, str(index) if inside else "", padding=not inside)
    for output, (begin, end, note) in enumerate(windows):
        y = 64 + 42 * output
        colour = QUIET if output in dropped else COLOURS[output % len(COLOURS)]
        drawing.text(12, y + 20, f"output {output}", colour=colour)
        drawing.box(LEFT + (begin + before) * CELL + 2, y, (end - begin) * CELL - 4, 30, colour)
        drawing.text(LEFT + cells * CELL + 16, y + 20, note)
    return drawing


def fixed() -> Drawing:
    """kernel 3, stride 2, padding 1 on 7 inputs: outputs 0 and 3 reach into the padding."""
    windows = [(o * 2 - 1, o * 2 + 2) for o in range(4)]
    notes = [f"{min(end, 7) - max(begin, 0)} inputs, divisor 3" for begin, end in windows]
    notes[0] += " (2 without padding)"
    notes[3] += " (2 without padding)"
    rows = [(*window, note) for window, note in zip(windows, notes, strict=True)]
    return row_of_windows(7, rows, before=1, after=1)


def ceil_mode() -> Drawing:
    """kernel 3, stride 2, padding 1 on 6 inputs: one more window, cut at the end of the padding."""
    rows = [
        (-1, 2, "divisor 3"),
        (1, 4, "divisor 3"),
        (3, 6, "divisor 3"),
        (5, 7, "ceil_mode only; cut to 2, divisor 2"),
    ]
    return row_of_windows(6, rows, before=1, after=1)


def ceil_mode_dropped() -> Drawing:
    """kernel 2, stride 3, padding 1 on 5 inputs: the last window would start in the padding."""
    rows = [
        (-1, 1, "divisor 2"),
        (2, 4, "divisor 2"),
        (5, 6, "starts in the padding: dropped"),
    ]
    return row_of_windows(5, rows, before=1, after=1, dropped=[2])


def adaptive() -> Drawing:
    """8 inputs to 3 outputs: windows overlap and differ in length."""
    rows = []
    for output in range(3):
        begin, end = output * 8 // 3, -((output + 1) * 8 // -3)
        rows.append((begin, end, f"inputs {begin} to {end - 1}, divisor {end - begin}"))
    return row_of_windows(8, rows)


def divisors() -> Drawing:
    """Divisors of each output of a 5x5 plane, kernel 3, stride 2, padding 1, under both rules."""
    drawing = Drawing(360, 190)
    tables: list[tuple[str, Callable[[int, int], int]]] = [
        ("count_include_pad", lambda row, column: 9),
        ("without", lambda row, column: (3 - (row != 1)) * (3 - (column != 1))),
    ]
    for place, (title, divisor) in enumerate(tables):
        x = 20 + place * 200
        drawing.text(x, 26, title)
        for row in range(3):
            for column in range(3):
                drawing.cell(x + column * CELL, 40 + row * CELL, str(divisor(row, column)))
    drawing.text(20, 170, "What each of the 3x3 outputs divides by", colour=QUIET)
    return drawing


def convolution() -> Drawing:
    """1-D convolution, kernel 3, dilation 2, padding 2: the taps of two outputs."""
    before, size, after = 2, 6, 2
    drawing = Drawing(LEFT + (before + size + after) * CELL + 16, 178)
    drawing.text(12, 36, "input")
    for index in range(-before, size + after):
        inside = 0 <= index < size
        x = LEFT + (index + before) * CELL
        drawing.cell(x, 14, str(index) if inside else "", padding=not inside)
    for place, output in enumerate((0, 3)):
        y, colour = 64 + 42 * place, COLOURS[place]
        drawing.text(12, y + 21, f"output {output}", colour=colour)
        for tap in range(3):
            x = LEFT + (output - 2 + 2 * tap + before) * CELL
            drawing.box(x + 2, y, CELL - 4, 30, colour)
            drawing.text(x + CELL / 2, y + 20, f"w{tap}", anchor="middle")
    drawing.text(12, 166, "Taps over padding multiply nothing", colour=QUIET)
    return drawing


PICTURES = {
    "windows-fixed": fixed,
    "windows-ceil": ceil_mode,
    "windows-ceil-dropped": ceil_mode_dropped,
    "windows-adaptive": adaptive,
    "windows-divisors": divisors,
    "convolution-taps": convolution,
}


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for name, draw in PICTURES.items():
        (folder / f"{name}.svg").write_text(draw().svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
