"""Timelines in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence


class MemoryTimelines:
    """The `timelines` of a `MemoryStore`."""

    def __init__(self) -> None:
        self.number = 1
        self._ends: dict[int, Mapping[int, int]] = {}
        """The ends of the partitions when each timeline began."""
        self.followers: list[Callable[[], None]] = []

    def began(self, ends: Mapping[int, int]) -> None:
        """Begin the next timeline with these ends of partitions, and tell the followers."""
        self.number += 1
        self._ends[self.number] = ends
        for call in self.followers:
            call()

    async def ends_after(self, asks: Sequence[tuple[int, int]]) -> list[int | None]:
        await asyncio.sleep(0)
        return [
            min((ends.get(pid, 0) for number, ends in self._ends.items() if number > timeline), default=None)
            for pid, timeline in asks
        ]

    async def await_standby(self) -> None:
        """Return at once: there is no standby."""
        await asyncio.sleep(0)
