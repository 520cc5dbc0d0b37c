"""The cold segments of a cell on PostgreSQL, and the orphans of the catalog.

A function (in migrations) registers segments under the partition's advisory lock, so it sees the newest head and batch.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

import asyncpg

from lakelog.errors import Unavailable
from lakelog.model.backup import BackupMark
from lakelog.model.lake import Registered, RegisterStatus, TierRange
from lakelog.model.load import Loaded, LoadStatus
from lakelog.model.message import partition_of_id
from lakelog.model.segment import Segment
from lakelog.storage.cold import MAX_RANGES, REASONS, ColdPlan, ColdPlanRequest, Placed, PlacedLoad, taken
from lakelog.storage.postgres.connection import Database
from lakelog.storage.postgres.queries import load
from lakelog.storage.postgres.rows import head_of, segment_of

_SQL = load("cold")
_TRIES = 20
_TRIM_PARTITIONS = 1000
_LAST_OFFSET = (1 << 63) - 1
_STATUS = (RegisterStatus.REGISTERED, RegisterStatus.KNOWN, RegisterStatus.TAKEN)
"""Statuses in the order of the numbers that the function returns."""
_LOAD_STATUS = (LoadStatus.LOADED, LoadStatus.KNOWN, LoadStatus.MOVED, LoadStatus.REFUSED)


class PostgresCold:
    """Implements `lakelog.storage.cold.ColdStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def plans(self, asks: Sequence[ColdPlanRequest], *, limit: int | None = None) -> list[ColdPlan]:
        rows = await self._database.read(
            _SQL["plans_read"],
            [ask.pid for ask in asks],
            [ask.start for ask in asks],
            [_LAST_OFFSET if ask.end is None else ask.end for ask in asks],
            limit,
        )
        found: dict[int, tuple[asyncpg.Record, list[Segment]]] = {}
        for row in rows:
            _, segments = found.setdefault(row["pid"], (row, []))
            if row["path"] is not None:
                segments.append(segment_of(row))
        return [ColdPlan(head=head_of(row), segments=segments) for row, segments in found.values()]

    async def search_time(self, pid: int, time: datetime) -> tuple[int, Segment | None]:
        row = (await self._search("offset_find_by_time", pid, time))[0]
        return row["found"], None if row["path"] is None else segment_of(row)

    async def tierable(
        self, pids: Sequence[int], *, segment_bytes: int, min_bytes: int, min_age: timedelta
    ) -> list[tuple[int, TierRange]]:
        rows = await self._search("tierable_list", list(pids), segment_bytes, min_bytes, min_age, MAX_RANGES)
        return [
            (
                row["pid"],
                TierRange(
                    partition=partition_of_id(row["pid"]),
                    first=row["first_offset"],
                    end=row["end_offset"],
                    bytes=row["bytes"],
                ),
            )
            for row in rows
        ]

    async def register(self, segments: Sequence[Placed]) -> list[Registered]:
        each = [segment for _, segment in segments]
        rows = await self._database.write(_SQL["segments_register"], *_places(segments), *_contents(each))
        answers = {row["part"]: row for row in rows}
        return [_registered(answers[part]) for part in range(len(segments))]

    async def replace(self, pid: int, old: Sequence[Segment], new: Sequence[Segment]) -> Registered:
        rows = await self._database.write(
            _SQL["segments_replace"],
            pid,
            *_ranges(old),
            [segment.content_hash for segment in old],
            *_ranges(new),
            *_contents(new),
        )
        return _registered(rows[0])

    async def verified(self, segments: Sequence[Placed]) -> list[bool]:
        return [row["done"] for row in await self._database.write(_SQL["segments_verify"], *_places(segments))]

    async def unregister(self, segments: Sequence[Placed]) -> list[bool]:
        return [row["done"] for row in await self._database.write(_SQL["segments_unregister"], *_places(segments))]

    async def unverified(self, pids: Sequence[int]) -> list[Placed]:
        rows = await self._database.read(_SQL["segments_list_unverified"], list(pids))
        return [(row["pid"], segment_of(row)) for row in rows]

    async def paths_known(self, paths: Collection[str]) -> set[str]:
        return {row["path"] for row in await self._database.read(_SQL["paths_find"], list(paths))}

    async def load(self, name: str, parts: Sequence[PlacedLoad]) -> list[Loaded]:
        segments = [(pid, segment) for pid, part in parts for segment in part.segments]
        rows = await self._database.write(
            _SQL["segments_load"],
            name,
            [pid for pid, _ in parts],
            [part.first for _, part in parts],
            [part.fingerprint for _, part in parts],
            *_places(segments),
            *_contents([segment for _, segment in segments]),
        )
        answers = {row["part"]: row for row in rows}
        return [_loaded(part.partition, answers[number]) for number, (_, part) in enumerate(parts)]

    async def loaded(self, name: str, pids: Sequence[int]) -> list[Loaded]:
        return [
            Loaded(
                partition=partition_of_id(row["pid"]),
                status=LoadStatus.KNOWN,
                first=row["first_offset"],
                end=row["end_offset"],
                fingerprint=row["fingerprint"],
            )
            for row in await self._database.read(_SQL["loaded_list"], name, list(pids))
        ]

    async def trim(self) -> int:
        return await self._database.walk(_SQL["segments_trim"], _TRIM_PARTITIONS)

    async def _search(self, query: str, *arguments: Any) -> list[asyncpg.Record]:
        for _ in range(_TRIES):
            try:
                return await self._database.read(_SQL[query], *arguments)
            except (asyncpg.UndefinedTableError, asyncpg.NoDataFoundError):
                continue  # A hot table was dropped during the search.
        raise Unavailable("Hot tables were dropped repeatedly during the search. Retry.")


class PostgresOrphans:
    """Implements `lakelog.storage.cold.OrphanCatalog`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def look(self, paths: Collection[str], *, min_age: timedelta) -> set[str]:
        return {row["path"] for row in await self._database.write(_SQL["orphans_record"], list(paths), min_age)}

    async def old(self, paths: Collection[str], *, age: timedelta) -> set[str]:
        return {row["path"] for row in await self._database.read(_SQL["orphans_list_old"], list(paths), age)}

    async def backup_mark(self, name: str, keep: timedelta) -> BackupMark | None:
        rows = await self._database.write(_SQL["backup_mark_create"], name, keep)
        return _mark(rows[0]) if rows else None

    async def backup_marks(self) -> list[BackupMark]:
        return [_mark(row) for row in await self._database.read(_SQL["backup_mark_list"])]

    async def backup_mark_end(self, name: str) -> bool:
        return bool(await self._database.write(_SQL["backup_mark_end"], name))

    async def forget(self, paths: Collection[str]) -> None:
        await self._database.write(_SQL["orphans_forget"], list(paths))


def _mark(row: asyncpg.Record) -> BackupMark:
    return BackupMark(name=row["name"], at=row["at"], until=row["until"])


def _places(segments: Sequence[Placed]) -> list[list[Any]]:
    return [[pid for pid, _ in segments], *_ranges([segment for _, segment in segments])]


def _ranges(segments: Sequence[Segment]) -> list[list[Any]]:
    return [
        [segment.first for segment in segments],
        [segment.end for segment in segments],
        [segment.path for segment in segments],
    ]


def _contents(segments: Sequence[Segment]) -> list[list[Any]]:
    return [
        [segment.bytes for segment in segments],
        [segment.file_hash for segment in segments],
        [segment.content_hash for segment in segments],
        [segment.first_at for segment in segments],
        [segment.last_at for segment in segments],
        [segment.epoch for segment in segments],
        # PostgreSQL has no arrays of arrays of different lengths.
        ["{" + ",".join(map(str, segment.groups)) + "}" for segment in segments],
    ]


def _loaded(partition: int, row: asyncpg.Record) -> Loaded:
    return Loaded(
        partition=partition,
        status=_LOAD_STATUS[row["status"]],
        first=row["base"] or 0,
        end=row["stop"] or 0,
        fingerprint=row["print"],
        reason=None if row["reason"] is None else REASONS[row["reason"]],
    )


def _registered(row: asyncpg.Record) -> Registered:
    return taken(row["reason"]) if row["reason"] is not None else Registered(status=_STATUS[row["status"]])
