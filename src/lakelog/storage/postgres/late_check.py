"""The first use of a database that could not be reached when the process started."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from lakelog.errors import ConfigurationError, Unavailable

RECHECK_SECONDS = 1.0
"""How long a failed attempt counts for all callers. An attempt can take 10 s, and callers must not queue for theirs."""


class LateCheck:
    """Checks once, before the first use, that a database can be reached and is the expected one."""

    def __init__(self, check: Callable[[], Awaitable[None]], database: str) -> None:
        self._check: Callable[[], Awaitable[None]] | None = check
        self._database = database
        self._turn = asyncio.Lock()
        self._failed: tuple[float, str] | None = None
        """The time of the last failure, and its reason."""

    async def run(self) -> None:
        """Return if the check has succeeded, now or before. Raise `Unavailable` otherwise."""
        async with self._turn:
            if self._check is None:
                return
            loop = asyncio.get_running_loop()
            if self._failed is not None and loop.time() < self._failed[0] + RECHECK_SECONDS:
                raise self._unavailable(self._failed[1])
            try:
                await self._check()
            except (ConfigurationError, Unavailable) as error:
                self._failed = (loop.time(), error.detail)
                raise self._unavailable(error.detail) from error
            self._check = None

    def _unavailable(self, reason: str) -> Unavailable:
        return Unavailable(reason, unreachable="database", database=self._database)
