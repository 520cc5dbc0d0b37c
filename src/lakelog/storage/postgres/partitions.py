"""The partition store on PostgreSQL: one cell.

The function `lakelog.append` (in migrations) allocates offsets under the partition's advisory lock, in the same
statement that inserts the batches; see `appending`. Groups are in `groups`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import LiteralString, TypeVar

import asyncpg

from lakelog import failpoints
from lakelog.errors import OffsetOutOfRange, Unavailable
from lakelog.storage.compaction import ROLL_BYTES, ActiveRoll, Compaction, RollCounts, is_mostly_retired
from lakelog.storage.failover import Durability
from lakelog.storage.postgres.announcing import PostgresChanges
from lakelog.storage.postgres.appending import Appender, on_roll
from lakelog.storage.postgres.cold import PostgresCold
from lakelog.storage.postgres.connection import Database
from lakelog.storage.postgres.elections import PostgresElections
from lakelog.storage.postgres.groups import PostgresGroups
from lakelog.storage.postgres.queries import load
from lakelog.storage.postgres.relays import PostgresRelays
from lakelog.storage.postgres.rows import head_of, segment_of
from lakelog.storage.postgres.scheduled import PostgresScheduled
from lakelog.storage.postgres.staging import PostgresStaging
from lakelog.storage.postgres.timelines import PostgresTimelines
from lakelog.storage.postgres.trimming import LogTrimmer
from lakelog.storage.store import (
    DELETED_MEMORY,
    RESERVATION_GRACE,
    TIER_GRACE,
    Append,
    Appended,
    Head,
    HeadState,
    HotBatch,
    ReadResult,
    Refused,
    Reservation,
    Trimmed,
)

_SQL = load("partitions")
LOCKED_PARTITIONS = 256
"""Maximum number of partitions that one statement locks. PostgreSQL has 6,400 lock slots by default."""
_READ_TRIES = 20
_COMPACT_TABLES = 8
_COMPACT_BYTES = 4 << 20
"""Bytes that one statement copies. Publishers to these partitions wait for it."""
_COMPACT_STATEMENTS = 100
_REMOVE_PARTITIONS = 1000
_REMOVE_STATEMENTS = 20

Item = TypeVar("Item")


class PostgresStore(PostgresChanges):
    """Implements `lakelog.storage.store.PartitionStore`."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._database = database
        self._appender = Appender(database)
        database.on_replaced(self._appender.drop)
        self._groups = PostgresGroups(database, self._appender)
        self._cold = PostgresCold(database)
        self._elections = PostgresElections(database)
        self._staging = PostgresStaging(database, self._appender)
        self.relays = PostgresRelays(database, self._appender)
        self._scheduled = PostgresScheduled(database, self._appender)
        self.timelines = PostgresTimelines(database)
        self._trimmer = LogTrimmer(database)

    @property
    def groups(self) -> PostgresGroups:
        return self._groups

    @property
    def cold(self) -> PostgresCold:
        return self._cold

    @property
    def staging(self) -> PostgresStaging:
        return self._staging

    @property
    def scheduled(self) -> PostgresScheduled:
        return self._scheduled

    @property
    def elections(self) -> PostgresElections:
        return self._elections

    async def heads_create(self, pids: Sequence[int], epoch: int) -> None:
        await self._database.write(_SQL["heads_create"], list(pids), epoch)

    async def heads_read(self, pids: Sequence[int]) -> list[Head]:
        return [head_of(row) for row in await self._database.read(_SQL["heads_read"], list(pids))]

    async def heads_close(self, pids: Sequence[int], state: HeadState) -> None:
        for some in _chunks(sorted(pids)):
            await self._database.write(_SQL["heads_close"], some, int(state))

    async def epoch_raise(self, pids: Sequence[int], epoch: int) -> None:
        for some in _chunks(sorted(pids)):
            await self._database.write(_SQL["epoch_raise"], some, epoch)

    async def log_start_raise(self, starts: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        removed: list[tuple[int, int]] = []
        for some in _chunks(sorted(starts)):
            pids, offsets = [pid for pid, _ in some], [offset for _, offset in some]
            rows = await self._database.write(_SQL["log_start_raise"], pids, offsets)
            removed += [(row["pid"], row["removed"]) for row in rows]
        return removed

    async def append(self, appends: Sequence[Append]) -> list[Appended | Refused]:
        return await self._appender.append(appends)

    async def reserve(self, reservations: Sequence[Reservation], *, durable: bool) -> list[Reservation]:
        rows = await self._database.write(
            _SQL["keys_reserve"],
            durable,
            [reservation.incarnation for reservation in reservations],
            [reservation.key_hash for reservation in reservations],
            [reservation.body_hash for reservation in reservations],
            [reservation.partition for reservation in reservations],
            [reservation.memory + RESERVATION_GRACE for reservation in reservations],
        )
        if len(rows) != len(reservations):
            raise Unavailable("An idempotency key was trimmed while it was reserved. Retry.")
        return [
            replace(mine, body_hash=row["body_hash"], partition=row["partition"])
            for mine, row in zip(reservations, rows, strict=True)
        ]

    async def read(self, pid: int, offset: int, *, max_messages: int, max_bytes: int) -> ReadResult | None:
        (found,) = await self.read_many([(pid, offset)], max_messages=max_messages, max_bytes=max_bytes)
        if isinstance(found, OffsetOutOfRange):
            raise found
        return found

    async def read_many(
        self, asks: Sequence[tuple[int, int]], *, max_messages: int, max_bytes: int
    ) -> list[ReadResult | OffsetOutOfRange | None]:
        found: dict[int, ReadResult | OffsetOutOfRange | None] = {pid: None for pid, _ in asks}
        left = await self._read_tail(dict(asks), found, max_messages, max_bytes)
        for _ in range(_READ_TRIES if left else 0):
            plans = await self._database.read(_SQL["plans_read"], list(left), list(left.values()))
            by_roll = _by_roll(plans, left, found)
            self._appender.saw(max(by_roll, default=0))
            rolls = await asyncio.gather(
                *(self._read_roll(roll, planned, max_messages, max_bytes) for roll, planned in by_roll.items())
            )
            for planned, batches in zip(by_roll.values(), rolls, strict=True):
                for plan in planned:
                    mine = batches.get(plan.head.pid, [])
                    if mine and mine[0].base <= plan.offset:
                        found[plan.head.pid] = ReadResult(head=plan.head, batches=mine)
                        del left[plan.head.pid]
            left = {plan.head.pid: plan.offset for each in by_roll.values() for plan in each if plan.head.pid in left}
            if not left:
                break
            # A short result is never the end: the table was dropped between the two statements. Plan again.
        if left:
            raise Unavailable("Hot tables were dropped repeatedly during the read. Retry.")
        return [found[pid] for pid, _ in asks]

    async def _read_tail(
        self,
        asks: dict[int, int],
        found: dict[int, ReadResult | OffsetOutOfRange | None],
        max_messages: int,
        max_bytes: int,
    ) -> dict[int, int]:
        """Read from the newest hot table, and return the positions that must be read from older ones."""
        arguments = (list(asks), list(asks.values()), max(1, max_messages), max(1, max_bytes))
        try:
            rows = await self._database.read(on_roll("tail_read", await self._appender.roll()), *arguments)
        except asyncpg.UndefinedTableError:
            return asks
        batches: dict[int, list[HotBatch]] = {}
        for row in rows:
            mine = batches.setdefault(row["pid"], [])
            # If this roll is not active any more, it may be a kept table now, which has gaps.
            if row["end_offset"] is not None and (not mine or mine[-1].end == row["end_offset"] - row["batch_count"]):
                mine.append(_batch(row, "batch_"))
        firsts = {row["pid"]: row for row in reversed(rows)}
        older = _by_roll(list(firsts.values()), asks, found)
        left = {plan.pid: plan for plans in older.values() for plan in plans}
        for pid, plan in list(left.items()):
            if batches[pid] and batches[pid][0].base <= plan.offset:
                found[pid] = ReadResult(head=plan.head, batches=batches[pid])
                del left[pid]
        return {pid: plan.offset for pid, plan in left.items()}

    async def _read_roll(
        self, roll: int, plans: Sequence[_ReadPlan], max_messages: int, max_bytes: int
    ) -> dict[int, list[HotBatch]]:
        pids, offsets, ends = ([getattr(plan, name) for plan in plans] for name in ("pid", "offset", "until"))
        arguments = (pids, offsets, ends, max(1, max_messages), max(1, max_bytes))
        try:
            rows = await self._database.read(on_roll("batches_read", roll), *arguments)
        except asyncpg.UndefinedTableError:
            return {}
        found: dict[int, list[HotBatch]] = {}
        for row in rows:
            found.setdefault(row["pid"], []).append(_batch(row))
        return found

    async def append_times(self, asks: Sequence[tuple[int, int]]) -> list[datetime | None]:
        pids, offsets = [pid for pid, _ in asks], [offset for _, offset in asks]
        found: list[datetime | None] = [None] * len(asks)
        parts: dict[int, list[int]] = {}
        for part, roll, first_at in await self._database.read(_SQL["append_times_plan"], pids, offsets):
            found[part - 1] = first_at
            if first_at is None and roll is not None:
                parts.setdefault(roll, []).append(part - 1)
        for roll, mine in parts.items():
            arguments = ([pids[part] for part in mine], [offsets[part] for part in mine], mine)
            # If a table was dropped between the two statements, its times are unknown until the next call.
            with contextlib.suppress(asyncpg.UndefinedTableError):
                for part, appended_at in await self._database.read(on_roll("append_times_read", roll), *arguments):
                    found[part] = appended_at
        return found

    async def offset_at_time(self, pid: int, time: datetime) -> int:
        return await self._search(_SQL["offset_find_by_time"], pid, time)

    async def offset_at_bytes(self, pid: int, max_bytes: int) -> int:
        return await self._search(_SQL["offset_find_by_bytes"], pid, max_bytes)

    async def _search(self, query: LiteralString, pid: int, argument: datetime | int) -> int:
        for _ in range(_READ_TRIES):
            try:
                rows = await self._database.read(query, pid, argument)
            except (asyncpg.UndefinedTableError, asyncpg.NoDataFoundError):
                continue  # A hot table was dropped during the search.
            return int(rows[0][0] or 0)
        raise Unavailable("Hot tables were dropped repeatedly during the search. Retry.")

    async def roll(self, expected: int | None = None) -> int:
        rows = await self._database.write(_SQL["roll_begin"], expected)
        return int(rows[0][0])

    async def roll_active(self) -> ActiveRoll:
        row = (await self._database.read(_SQL["roll_find_active"]))[0]
        return ActiveRoll(roll=row["roll"], bytes=row["bytes"], created_at=row["created_at"])

    async def rolls_drop(self, *, grace: timedelta = TIER_GRACE) -> list[int]:
        dropped = []
        for row in await self._database.read(_SQL["roll_list_retired"], grace):
            if failpoints.armed:
                failpoints.hit("rolls.before_drop")
            if (await self._database.write(_SQL["roll_drop"], row["roll"], grace))[0][0]:
                dropped.append(row["roll"])
        return dropped

    async def rolls_count(self, *, grace: timedelta = TIER_GRACE) -> RollCounts:
        return RollCounts(**(await self._database.read(_SQL["roll_count"], grace))[0])

    async def rolls_compact(
        self, after: int = 0, *, table_bytes: int = ROLL_BYTES, grace: timedelta = TIER_GRACE
    ) -> Compaction:
        copied = 0
        rolls = await self._database.read(_SQL["roll_list_old"], after, _COMPACT_TABLES)
        for roll, is_kept, size in rolls:
            # A table that is dropped during the call needs no compaction.
            with contextlib.suppress(asyncpg.UndefinedTableError):
                survives = (await self._database.read(_SQL["roll_surviving_bytes"], roll, grace))[0][0]
                if is_mostly_retired(survives, size, table_bytes, is_kept=is_kept):
                    copied += await self._compact(roll, table_bytes, grace)
        return Compaction(last=rolls[-1]["roll"] if len(rolls) == _COMPACT_TABLES else None, bytes=copied)

    async def _compact(self, roll: int, table_bytes: int, grace: timedelta) -> int:
        copied = 0
        for _ in range(_COMPACT_STATEMENTS):
            found = (await self._database.write(_SQL["roll_keep"], roll, grace, _COMPACT_BYTES, table_bytes))[0][0]
            copied += found
            if not found:
                break
        return copied

    async def trim(self, incarnation_memory: dict[int, timedelta]) -> Trimmed:
        return await self._trimmer.trim(incarnation_memory)

    async def partitions_remove(self, *, memory: timedelta = DELETED_MEMORY) -> int:
        removed = 0
        for _ in range(_REMOVE_STATEMENTS):
            found = (await self._database.write(_SQL["partitions_remove"], memory, _REMOVE_PARTITIONS))[0][0]
            removed += found
            if found < _REMOVE_PARTITIONS:
                break
        return removed

    async def clock(self) -> datetime:
        now: datetime = (await self._database.read(_SQL["clock_read"]))[0][0]
        return now

    async def durability(self) -> Durability:
        row = (await self._database.read(_SQL["durability_read"]))[0]
        weak = [f"{name}=off" for name in ("fsync", "full_page_writes", "synchronous_commit") if row[name] == "off"]
        waits = row["synchronous_commit"] not in ("off", "local")
        return Durability(
            weak=weak,
            synchronous_standby=waits and bool(row["standbys"]),
            timeline=self._database.timeline.number,
        )

    @property
    def timeline(self) -> int:
        return self._database.timeline.number

    def on_replaced(self, call: Callable[[], None]) -> None:
        self._database.on_replaced(call)

    async def check(self) -> None:
        await self._database.check()

    async def close(self) -> None:
        await self._database.close()


def _chunks(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Yield parts of at most `LOCKED_PARTITIONS` items: a statement holds a lock for each of its partitions."""
    return (items[start : start + LOCKED_PARTITIONS] for start in range(0, len(items), LOCKED_PARTITIONS))


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReadPlan:
    """A read of a partition in one roll, from `offset` up to, not including, `until`."""

    head: Head
    offset: int
    until: int

    @property
    def pid(self) -> int:
        return self.head.pid


def _by_roll(
    rows: Sequence[asyncpg.Record], offsets: Mapping[int, int], found: dict[int, ReadResult | OffsetOutOfRange | None]
) -> dict[int, list[_ReadPlan]]:
    """Return the reads by roll. Results that need no read are added to `found`."""
    planned: dict[int, list[_ReadPlan]] = {}
    for row in rows:
        head = head_of(row)
        offset = offsets[head.pid]
        if (refusal := head.out_of_range(offset)) is not None:
            found[head.pid] = refusal
        elif offset == head.next_offset:
            found[head.pid] = ReadResult(head=head, batches=())
        elif row.get("path") is not None:
            # The span may name an older roll, if that of the offset was dropped.
            found[head.pid] = ReadResult(head=head, batches=(), segment=segment_of(row))
        else:
            span_end, roll = row.get("span_end"), row.get("span_roll")
            until = head.next_offset if span_end is None else min(span_end, head.next_offset)
            planned.setdefault(roll or 0, []).append(_ReadPlan(head=head, offset=offset, until=until))
    return planned


def _batch(row: asyncpg.Record, prefix: str = "") -> HotBatch:
    """Return the batch of a row. Its columns have a prefix if the row also has the columns of a head."""
    count = row[f"{prefix}count"]
    return HotBatch(
        base=row["end_offset"] - count,
        count=count,
        appended_at=row[f"{prefix}appended_at"],
        epoch=row[f"{prefix}epoch"],
        bytes_end=row["bytes_end"],
        payload=row["payload"],
    )
