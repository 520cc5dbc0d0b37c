"""Threads for work on large bodies. Small work runs directly in the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from lakelog.storage.turns import FairSemaphore

INLINE_BYTES = 64 << 10
"""The largest body that is handled in the event loop."""
_THREADS = 2

Given = ParamSpec("Given")
Made = TypeVar("Made")


class Threads:
    """A few threads for work on large bodies, which would delay other calls if it ran in the event loop.

    Environments take turns, so that one with many large bodies delays the others by one body.
    """

    def __init__(self) -> None:
        self._free = FairSemaphore(_THREADS)

    async def run(self, size: int, work: Callable[Given, Made], *args: Given.args, **kwargs: Given.kwargs) -> Made:
        """Return the result of the work. Short work runs directly, because a thread switch would take longer."""
        if size <= INLINE_BYTES:
            return work(*args, **kwargs)
        await self._free.acquire()
        try:
            return await asyncio.to_thread(work, *args, **kwargs)
        finally:
            self._free.release()
