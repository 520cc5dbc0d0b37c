"""The announcements of a store in memory, as one reader receives them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection


class Listener:
    """A reader of announcements. Announcements that arrive between two reads are kept as one set."""

    def __init__(self) -> None:
        self._pids: set[int] = set()
        self._told = asyncio.Event()

    def tell(self, pids: Collection[int]) -> None:
        self._pids.update(pids)
        self._told.set()

    def __aiter__(self) -> Listener:
        return self

    async def __anext__(self) -> set[int]:
        await self._told.wait()
        self._told.clear()
        pids, self._pids = self._pids, set()
        return pids
