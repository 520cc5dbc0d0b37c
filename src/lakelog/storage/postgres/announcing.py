"""Announcements between processes: NOTIFY, and the connection that listens.

The connection that listens is checked every second, so it is the first to notice that its node stopped or was replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
import time
from collections.abc import AsyncIterator, Collection

import asyncpg

from lakelog import failpoints
from lakelog.errors import LakelogError
from lakelog.storage.changes import ChangedRows, KnownRows
from lakelog.storage.postgres.changes import changes_read
from lakelog.storage.postgres.connecting import NotWritable, Session
from lakelog.storage.postgres.connection import Database
from lakelog.storage.postgres.queries import load

_SQL = load("changes")
_PING_EVERY_SECONDS = 1.0
"""How often the connection that listens is checked."""
_PING_SECONDS = 2.0
"""How long a check may take."""
_DOUBT_SECONDS = 2.0
"""How long the connection that listens is trusted after a check."""
_SENDER_SECONDS = 2.0
"""How long a process counts as a sender after its last announcement."""
_COMPARE_EVERY = 5
"""With several hosts, their timelines are compared once in this many checks."""
_RECONNECT_SECONDS = 0.5
_PAUSE_SECONDS = 0.2
_MAX_ANNOUNCED = 300
"""Maximum size of a notification, which holds 8,000 bytes. Beyond it, `any` is announced."""


class PostgresChanges:
    """Implements `lakelog.storage.changes.ChangeStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._name = secrets.token_hex(4)
        self._confirmed_at = -math.inf
        """When the connection that listens was last known to work."""
        self._heard_at: dict[str, float] = {}
        """When an announcement of each other process last arrived."""

    @property
    def senders(self) -> int:
        after = time.monotonic() - _SENDER_SECONDS
        self._heard_at = {name: at for name, at in self._heard_at.items() if at > after}
        return len(self._heard_at)

    @property
    def is_listening(self) -> bool:
        return time.monotonic() - self._confirmed_at < _DOUBT_SECONDS

    async def changes_read(self, known: KnownRows) -> ChangedRows:
        return await changes_read(self._database, known)

    async def announce(self, numbers: Collection[int]) -> None:
        if failpoints.armed:
            failpoints.hit("announcement.before_send")
        text = ",".join(map(str, numbers)) if len(numbers) <= _MAX_ANNOUNCED else ""
        await self._database.read(_SQL["changes_announce"], f"{self._name}:{text}")

    async def announcements(self) -> AsyncIterator[set[int]]:
        heard: asyncio.Queue[set[int] | None] = asyncio.Queue()

        def hear(_connection: object, _process: int, _channel: str, text: object) -> None:
            sender, _, numbers = str(text).partition(":")
            if sender != self._name:
                self._heard_at[sender] = time.monotonic()
                heard.put_nowait({int(number) for number in numbers.split(",") if number})

        while True:
            try:
                connection = await self._database.connect()
            except LakelogError:
                await asyncio.sleep(_RECONNECT_SECONDS)
                continue
            try:
                connection.add_termination_listener(lambda _connection: heard.put_nowait(None))
                await connection.add_listener("lakelog_grown", hear)
                self._confirmed_at = time.monotonic()
                yield set()
                async for grown in self._heard(connection, heard):
                    yield grown
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, NotWritable) as error:
                self._database.lost(error)
            finally:
                self._confirmed_at = -math.inf
                connection.terminate()
            await asyncio.sleep(_PAUSE_SECONDS)
            while not heard.empty():
                # The end of the old connection must not end the next one.
                heard.get_nowait()

    async def _heard(self, connection: Session, heard: asyncio.Queue[set[int] | None]) -> AsyncIterator[set[int]]:
        """Yield the announcements until the connection ends, and check the connection every second."""
        clock = asyncio.get_running_loop().time
        pings, ping_at = 0, clock() + _PING_EVERY_SECONDS
        while True:
            try:
                async with asyncio.timeout_at(ping_at):
                    if (grown := await heard.get()) is None:
                        return
            except TimeoutError:
                pass
            else:
                yield grown
            if clock() >= ping_at:
                pings += 1
                await self._ping(connection, pings)
                ping_at = clock() + _PING_EVERY_SECONDS

    async def _ping(self, connection: Session, count: int) -> None:
        """Check whether the node stopped, became read-only or was replaced, because statements may hang on it."""
        began = time.monotonic()
        async with asyncio.timeout(_PING_SECONDS):
            await connection.check(self._database.timeline.number)
        self._confirmed_at = began
        if count % _COMPARE_EVERY == 0:
            with contextlib.suppress(LakelogError):
                await self._database.compare_hosts()
