"""Scheduled messages on PostgreSQL, by the functions `lakelog.schedule` and `lakelog.deliver` (in migrations)."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import asyncpg

from lakelog.storage.postgres.appending import Appender
from lakelog.storage.postgres.connection import TRIM_ROWS, Database
from lakelog.storage.postgres.queries import load
from lakelog.storage.scheduled import (
    ENDED_MEMORY,
    FoundScheduled,
    NewScheduled,
    NextDue,
    ScheduledKey,
    ScheduledState,
    ScheduleResult,
    ScheduleStatus,
    StoredScheduled,
)
from lakelog.storage.store import Append, Appended, Refused

_SQL = load("scheduled")
_FIRST = (datetime(1, 1, 1, tzinfo=UTC), ScheduledKey(pid=0, mark=b""))


class PostgresScheduled:
    """Implements `lakelog.storage.scheduled.ScheduledStore`."""

    def __init__(self, database: Database, appender: Appender) -> None:
        self._database = database
        self._appender = appender

    async def schedule(self, messages: Sequence[NewScheduled], *, longest: timedelta) -> builtins.list[ScheduleResult]:
        rows = await self._database.write(
            _SQL["messages_schedule"],
            longest,
            [message.key.pid for message in messages],
            [message.epoch for message in messages],
            [message.key.mark for message in messages],
            [message.delay for message in messages],
            [message.at for message in messages],
            [message.memory for message in messages],
            [message.expires_ms for message in messages],
            [message.payload for message in messages],
        )
        if any(row["status"] in (ScheduleStatus.REPEATED, ScheduleStatus.PUBLISHED) for row in rows):
            # The first write of a repeat is visible even if its wait for the standby was cancelled.
            await self._database.await_standby()
        return [
            ScheduleResult(status=ScheduleStatus(row["status"]), due_at=row["due_at"], offset=row["base_offset"])
            for row in rows
        ]

    async def next_due(self, since: datetime | None = None) -> NextDue:
        row = (await self._database.read(_SQL["next_due_read"], since))[0]
        return NextDue(now=row["now"], due_at=row["due_at"])

    async def due(self, *, since: datetime | None = None, limit: int, max_bytes: int) -> builtins.list[StoredScheduled]:
        return [_stored(row) for row in await self._database.read(_SQL["due_read"], since, limit, max_bytes)]

    async def deliver(
        self, appends: Sequence[Append]
    ) -> tuple[builtins.list[Appended | Refused], builtins.list[ScheduledKey]]:
        answers, absent = await self._appender.deliver(appends)
        return answers, [ScheduledKey(pid=pid, mark=mark) for pid, mark in absent]

    async def refuse(self, keys: Sequence[ScheduledKey], *, is_listed: bool) -> int:
        ordered = sorted((key.pid, key.mark) for key in keys)
        pids, marks = [pid for pid, _ in ordered], [mark for _, mark in ordered]
        return int((await self._database.read(_SQL["messages_refuse"], pids, marks, is_listed))[0][0])

    async def cancel(self, key: ScheduledKey) -> FoundScheduled:
        # A repeat finds the cancelled message, so a lost reply is reported as `Unavailable`.
        await self._database.read(_SQL["message_cancel"], key.pid, key.mark)
        return await self.find(key)

    async def find(self, key: ScheduledKey) -> FoundScheduled:
        row = (await self._database.read(_SQL["message_find"], key.pid, key.mark))[0]
        if row["state"] is not None:
            return FoundScheduled(state=ScheduledState(row["state"]), due_at=row["due_at"])
        return FoundScheduled(offset=row["base_offset"])

    async def list(
        self, pids: Sequence[int], *, after: tuple[datetime, ScheduledKey] | None = None, limit: int
    ) -> builtins.list[StoredScheduled]:
        due_at, key = after or _FIRST
        rows = await self._database.read(_SQL["messages_list"], list(pids), due_at, key.pid, key.mark, limit)
        return [_stored(row) for row in rows]

    async def trim(self, memory: timedelta = ENDED_MEMORY) -> int:
        trimmed, found = 0, TRIM_ROWS
        while found == TRIM_ROWS:
            found = int((await self._database.read(_SQL["messages_trim"], memory, TRIM_ROWS))[0][0])
            trimmed += found
        return trimmed


def _stored(row: asyncpg.Record) -> StoredScheduled:
    return StoredScheduled(
        key=ScheduledKey(pid=row["pid"], mark=row["mark"]),
        due_at=row["due_at"],
        scheduled_at=row["scheduled_at"],
        memory=row["memory"],
        payload=row["payload"],
        expires_ms=row["expires_ms"],
    )
