"""Trims of the log on PostgreSQL: head rows, and what recognises repeats.

Keys and producers are in tables by period, which are emptied whole (see the migration `keys_by_period`). Rows are
deleted one by one only if a newer row of their producer replaces them, if they are remembered for longer than a period,
or if they are from before that migration.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import LiteralString

from lakelog.model.topic import IDEMPOTENCY_MEMORY
from lakelog.storage.postgres.connection import TRIM_ROWS, Database
from lakelog.storage.postgres.queries import load
from lakelog.storage.store import PRODUCER_MEMORY, RESERVATION_GRACE, Trimmed

_SQL = load("trimming")
_PARTITIONS = 1000
PERIOD_LENGTH = timedelta(hours=8)
"""Keys and producers are kept for at most this time after they have expired. A search looks at all periods of a day."""
PERIODS = 5


class LogTrimmer:
    """Implements `PartitionStore.trim`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def trim(self, incarnation_memory: Mapping[int, timedelta]) -> Trimmed:
        heads = await self._database.walk(_SQL["heads_trim"], _PARTITIONS, TRIM_ROWS)
        periods = await self._trim_periods()
        keys = await self._trim_long()
        producers = await self._database.walk(_SQL["producers_trim_superseded"], _PARTITIONS, TRIM_ROWS)
        if (await self._database.write(_SQL["unslotted_check"]))[0][0]:
            keys += await self._trim_unslotted_keys(incarnation_memory)
            producers += await self._database.walk(
                _SQL["producers_trim"], _PARTITIONS, TRIM_ROWS, leading=(PRODUCER_MEMORY,)
            )
        return Trimmed(heads=heads, producers=producers, keys=keys, periods=periods)

    async def _trim_periods(self) -> int:
        """Empty the tables of periods that have expired, and begin a new period if the active one is old."""
        emptied = 0
        while emptied < PERIODS:
            done = (await self._database.write(_SQL["period_empty"]))[0][0]
            if done is None:
                break
            emptied += done
        await self._database.write(_SQL["period_begin"], PERIOD_LENGTH)
        return emptied

    async def _trim_long(self) -> int:
        trimmed = 0
        while True:
            row = (await self._database.write(_SQL["keys_trim_long"], TRIM_ROWS))[0]
            trimmed += int(row["reservations"])
            if max(row) < TRIM_ROWS:
                return trimmed

    async def _trim_unslotted_keys(self, incarnation_memory: Mapping[int, timedelta]) -> int:
        trimmed = await self._trim_keys(_SQL["keys_trim"], IDEMPOTENCY_MEMORY, list(incarnation_memory))
        for incarnation, memory in incarnation_memory.items():
            trimmed += await self._trim_keys(_SQL["keys_trim_topic"], memory, incarnation)
        return trimmed

    async def _trim_keys(self, query: LiteralString, memory: timedelta, topics: object) -> int:
        trimmed = 0
        while True:
            row = (await self._database.write(query, memory, topics, TRIM_ROWS, RESERVATION_GRACE))[0]
            trimmed += int(row["reservations"])
            if max(row) < TRIM_ROWS:
                return trimmed
