"""Samples on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.storage.history import Resolution, Sample, StoredSample
from lakelog.storage.postgres.connection import TRIM_ROWS, Database
from lakelog.storage.postgres.queries import load

_SQL = load("history")
_READS = {
    Resolution.MINUTE: "samples_read_minute",
    Resolution.TEN_MINUTES: "samples_read_ten_minutes",
    Resolution.HOUR: "samples_read_hour",
}


class PostgresSamples:
    """Implements `lakelog.storage.history.SampleStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def samples_write(self, minute: int, samples: Sequence[Sample]) -> int:
        groups, incarnations = [each.group_id for each in samples], [each.incarnation for each in samples]
        bodies = [each.body for each in samples]
        rows = await self._database.write(_SQL["samples_write"], minute, groups, incarnations, bodies)
        return int(rows[0]["written"])

    async def samples_read(
        self,
        group_ids: Sequence[int],
        incarnations: Sequence[int],
        resolution: Resolution,
        first: int,
        last: int,
        every: int = 1,
    ) -> list[StoredSample]:
        query = _SQL[_READS[resolution]]
        rows = await self._database.read(query, list(group_ids), list(incarnations), first, last, every)
        return [
            StoredSample(
                group_id=row["group_id"], incarnation=row["incarnation"], minute=row["minute"], body=row["body"]
            )
            for row in rows
        ]

    async def samples_trim(self, minute: int) -> int:
        dropped = int((await self._database.write(_SQL["samples_trim"], minute))[0]["dropped"])
        await self._database.write(_SQL["series_trim"], TRIM_ROWS)
        return dropped
