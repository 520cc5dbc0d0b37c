"""The handler of the Spark subscription scenario: it fails as its message says, and notes each successful run."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


class Run(NamedTuple):
    """One successful run of a handler: the message, and when it began and ended."""

    number: int
    key: str
    began: int
    ended: int


def handler_in(folder: str) -> Callable[[str, Any], None]:
    """Return a handler: a `shaky` message fails twice, a `bad` one always, and a `deadly` one kills the process."""

    def handle(value: str, delivery: Any) -> None:
        began = time.time_ns()
        kind, number = value.split("-")
        if kind == "bad" or (kind == "shaky" and delivery.failures < 2):
            raise ValueError(f"{kind} message")
        if kind == "deadly":
            os.kill(os.getpid(), signal.SIGKILL)
        line = f"{number} {delivery.key.decode()} {began} {time.time_ns()}\n"
        with (Path(folder) / str(os.getpid())).open("a") as file:
            file.write(line)

    return handle


def runs_in(folder: Path) -> list[Run]:
    """Return the runs in order of their start."""
    found = []
    for path in folder.iterdir():
        for line in path.read_text().splitlines():
            number, key, began, ended = line.split(" ")
            found.append(Run(int(number), key, int(began), int(ended)))
    return sorted(found, key=lambda run: run.began)
