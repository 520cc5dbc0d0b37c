"""Limits how many connections the callers of one process use, and how many of them background work may use."""

from __future__ import annotations

import asyncio

from lakelog.storage.background import is_background
from lakelog.storage.turns import FairSemaphore

CONNECTIONS = 6
"""Connections of a process to one database, including the one that listens for announcements."""
POOL_SIZE = CONNECTIONS - 1
_BACKGROUND_SHARE = 2
"""Background work gets at most one connection in this many, because its statements can be long."""


class ConnectionRoom:
    """Room for `size` connections. A task must acquire and release in the same context."""

    def __init__(self, size: int) -> None:
        self._all = FairSemaphore(size)
        self._background = asyncio.Semaphore(max(1, size // _BACKGROUND_SHARE))

    async def acquire(self) -> None:
        if not is_background.get():
            await self._all.acquire()
            return
        await self._background.acquire()
        try:
            await self._all.acquire()
        except BaseException:
            self._background.release()
            raise

    def release(self) -> None:
        self._all.release()
        if is_background.get():
            self._background.release()
