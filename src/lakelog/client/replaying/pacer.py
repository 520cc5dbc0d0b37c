"""Limits the rate at which messages are handled."""

from __future__ import annotations

import asyncio
import time


class Pacer:
    """Lets messages pass at a rate, in the order in which callers ask. Without a rate, it never waits."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._free_at = 0.0

    @property
    def most(self) -> int | None:
        """The number of messages that pass in a tenth of a second, at least one; None without a rate."""
        return None if self._rate is None else max(1, int(self._rate / 10))

    async def pass_(self, count: int) -> None:
        """Wait until that many messages may be handled."""
        if self._rate is None:
            return
        now = time.monotonic()
        starts_at = max(now, self._free_at)
        self._free_at = starts_at + count / self._rate
        if starts_at > now:
            await asyncio.sleep(starts_at - now)
