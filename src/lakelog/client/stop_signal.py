"""A signal to stop: `AsyncStopSignal` for asyncio, `StopSignal` for threads."""

from __future__ import annotations

import asyncio
import contextlib
import threading


class AsyncStopSignal:
    """A signal that is set once, and that tasks wait for."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        self._event.set()

    def is_set(self) -> bool:
        return self._event.is_set()

    async def wait(self, seconds: float) -> bool:
        """Wait for the signal for at most `seconds`. Return whether it is set."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        return self._event.is_set()


StopSignal = threading.Event
