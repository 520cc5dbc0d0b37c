"""Whether the server is on its way out: set once, by SIGTERM, and never unset. It ends nothing itself."""

from __future__ import annotations

import asyncio


class Drain:
    """Answers say `Connection: close`, readiness says no, and long polls end, from the moment that this begins."""

    def __init__(self) -> None:
        self._begun = asyncio.Event()

    @property
    def begun(self) -> bool:
        return self._begun.is_set()

    def begin(self) -> None:
        self._begun.set()

    async def wait(self) -> None:
        await self._begun.wait()
