"""Whether the server is shutting down: set once by SIGTERM, and never unset. It stops nothing itself."""

from __future__ import annotations

import asyncio


class Drain:
    """The state of shutting down: responses say `Connection: close`, readiness fails, and long polls end."""

    def __init__(self) -> None:
        self._begun = asyncio.Event()

    @property
    def begun(self) -> bool:
        return self._begun.is_set()

    def begin(self) -> None:
        self._begun.set()

    async def wait(self) -> None:
        await self._begun.wait()
