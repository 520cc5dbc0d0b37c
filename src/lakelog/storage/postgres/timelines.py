"""The timelines of a cell on PostgreSQL: rows that the first session on a new timeline writes."""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.storage.postgres.connection import Database
from lakelog.storage.postgres.queries import load

_SQL = load("partitions")


class PostgresTimelines:
    """Implements `lakelog.storage.failover.TimelineStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def ends_after(self, asks: Sequence[tuple[int, int]]) -> list[int | None]:
        pids, timelines = [pid for pid, _ in asks], [timeline for _, timeline in asks]
        rows = await self._database.read(_SQL["timeline_ends_read"], pids, timelines)
        return [row["end_offset"] for row in rows]

    async def await_standby(self) -> None:
        await self._database.await_standby()
