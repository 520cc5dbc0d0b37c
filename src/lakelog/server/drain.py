"""The shutdown flag of the server: SIGTERM sets it, and nothing unsets it. The module stops nothing itself."""

from __future__ import annotations

import asyncio


class Drain:
    """The shutdown flag. While it is set, responses say `Connection: close`, readiness fails, and long polls end."""

    def __init__(self) -> None:
        self._begun = asyncio.Event()

    @property
    def begun(self) -> bool:
        return self._begun.is_set()

    def begin(self) -> None:
        self._begun.set()

    async def wait(self) -> None:
        await self._begun.wait()
