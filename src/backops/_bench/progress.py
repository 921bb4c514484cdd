"""Lines as they are measured, and under them, on a terminal, how far the run is.

The bar is drawn between measurements only: a thread that redraws it would take a CPU away from what
is being timed.
"""

from __future__ import annotations

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar


class Progress:
    """Prints lines inside `with`; without a terminal there is no bar, and nothing else differs."""

    def __init__(self, total: int, console: Console | None = None) -> None:
        # Not what rich takes for one: FORCE_COLOR and its like would put a bar into files.
        shown = console or (Console() if sys.stdout.isatty() else None)
        self._bar: Bar | None = None
        if shown is not None:
            self._bar = Bar(
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.description}", markup=False),
                console=shown,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._task = self._bar.add_task("", total=total)

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def print(self, text: str = "") -> None:
        if self._bar is None:
            print(text, flush=True)
        else:
            # A line is as long as it is; the terminal may break it, and a copy of it is whole.
            self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def begin(self, what: str) -> None:
        """Says what is measured now."""
        if self._bar is not None:
            self._bar.update(self._task, description=what, refresh=True)

    def advance(self) -> None:
        if self._bar is not None:
            self._bar.update(self._task, advance=1, refresh=True)
