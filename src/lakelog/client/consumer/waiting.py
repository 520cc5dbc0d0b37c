"""Callers that wait for messages, in one event loop."""

from __future__ import annotations

import asyncio
import time


class Waiters:
    """Wakes all waiting callers; each checks again whether there are messages for it."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    async def wait(self, deadline: float | None) -> None:
        """Wait until `wake`, or until that time of the monotonic clock."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            async with asyncio.timeout(None if deadline is None else max(0.0, deadline - time.monotonic())):
                await future
        except TimeoutError:
            pass
        finally:
            self._waiting.discard(future)

    def wake(self) -> None:
        """Wake all callers."""
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
