"""The progress bar of commands that run for long."""

from __future__ import annotations

import sys
from typing import Any


class ProgressBar:
    """A progress bar on a terminal; nothing if the output is not a terminal. It appears with the first update."""

    def __init__(self, numbers: str) -> None:
        """Take the text after the bar, in the format of rich."""
        self._numbers = numbers
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def update(self, name: str, completed: int, total: int | None, **fields: int) -> None:
        if not sys.stderr.isatty():
            return
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn

            numbers = TextColumn(self._numbers)
            columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), numbers)
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(name, total=total, **fields)
            self._bar.start()
        self._bar.update(self._task, completed=completed, total=total, **fields)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
