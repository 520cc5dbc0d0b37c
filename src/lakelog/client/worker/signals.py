"""Stops a program at SIGTERM and SIGINT: the first signal lets it finish, the second one ends the process."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def stop_on_signals(stop: Callable[[str], object]) -> Iterator[None]:
    """Call `stop` with the name of the first signal, in the main thread only: other threads receive no signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen: list[int] = []

    def arrived(number: int, frame: object) -> None:
        seen.append(number)
        if len(seen) > 1:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        stop(signal.Signals(number).name)

    before = {number: signal.signal(number, arrived) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
