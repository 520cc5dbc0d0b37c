"""A progress bar on stderr if it is a terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

_EVERY_SECONDS = 0.1


class Progress:
    """Counts messages, and shows the count, the rate and, if the size is known, the progress."""

    def __init__(self, *, total_bytes: int | None, watched: bool | None = None) -> None:
        self.count = 0
        self._bytes = 0
        self._total = total_bytes
        self._watched = sys.stderr.isatty() if watched is None else watched
        self._shown: Any = None
        self._task: Any = None
        self._started = self._next = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    @property
    def rate(self) -> float:
        return self.count / max(self.seconds, 1e-6)

    def add(self, size: int) -> None:
        self.count += 1
        self._bytes += size
        if self._shown is not None and time.monotonic() >= self._next:
            self._next = time.monotonic() + _EVERY_SECONDS
            self._shown.update(self._task, completed=self._bytes, count=self.count, rate=self.rate)

    def __enter__(self) -> Progress:
        if self._watched:
            from rich.console import Console
            from rich.progress import BarColumn, SpinnerColumn, TaskProgressColumn, TextColumn
            from rich.progress import Progress as Bar

            known = [BarColumn(), TaskProgressColumn()] if self._total else []
            numbers = TextColumn("{task.fields[count]:,} messages  {task.fields[rate]:,.0f}/s")
            console = Console(stderr=True)
            self._shown = Bar(SpinnerColumn(), *known, numbers, console=console, transient=True)
            self._task = self._shown.add_task("", total=self._total, count=0, rate=0.0)
            self._shown.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._shown is not None:
            self._shown.stop()
