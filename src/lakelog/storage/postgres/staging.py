"""Staged messages on PostgreSQL. The function `lakelog.promote` (in migrations) promotes them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any, LiteralString

import asyncpg

from lakelog.model.write import WriteKind, writer_of
from lakelog.storage.postgres.appending import Appender
from lakelog.storage.postgres.connection import TRIM_ROWS, Database
from lakelog.storage.postgres.queries import load
from lakelog.storage.staging import (
    DECISION_MEMORY,
    MARK_MEMORY,
    NEWEST_DECISION_MEMORY,
    Promoted,
    PromoteStatus,
    StagedBatch,
    StagedPart,
    StagedWrite,
    WriteDecision,
)
from lakelog.storage.store import Payload

_SQL = load("staging")
_TRIES = 5
_READ_BATCHES = 1000
"""Batches that one call reads at most."""
_DISCARD_BYTES = 64 << 20
"""Bytes of payloads that one statement deletes, after the promotion has released the partition's lock."""


class PostgresWriteCatalog:
    """Implements `lakelog.storage.staging.WriteCatalog`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def decide(
        self, decision: WriteDecision, epoch: int, kind: WriteKind = WriteKind.BATCH
    ) -> WriteDecision | None:
        writer, number = writer_of(decision.write_id, kind)
        await self._database.write(
            _SQL["decision_create"],
            decision.incarnation,
            decision.write_id,
            writer,
            number,
            list(decision.attempts),
            decision.attempts_hash,
            decision.count,
            epoch,
        )
        return await self.find(decision.incarnation, decision.write_id)

    async def abandon(self, incarnation: int, write_id: str) -> WriteDecision:
        await self._database.write(_SQL["decision_abandon"], incarnation, write_id, write_id, 0)
        found = await self.find(incarnation, write_id)
        assert found is not None, "only finished decisions are forgotten, long after"
        return found

    async def find(self, incarnation: int, write_id: str) -> WriteDecision | None:
        rows = await self._database.read(_SQL["decision_find"], incarnation, write_id)
        return _decision(rows[0]) if rows else None

    async def finish(self, incarnation: int, write_id: str) -> None:
        # The call may be repeated, so a lost reply is reported as `Unavailable`.
        await self._database.read(_SQL["decision_finish"], incarnation, write_id)

    async def trim(self, memory: timedelta = DECISION_MEMORY, newest_memory: timedelta = NEWEST_DECISION_MEMORY) -> int:
        trimmed, found = 0, TRIM_ROWS
        while found == TRIM_ROWS:
            found = int((await self._database.read(_SQL["decision_trim"], memory, TRIM_ROWS, newest_memory))[0][0])
            trimmed += found
        return trimmed


class PostgresStaging:
    """Implements `lakelog.storage.staging.StagingStore`."""

    def __init__(self, database: Database, appender: Appender) -> None:
        self._database = database
        self._appender = appender

    async def stage(self, batches: Sequence[StagedBatch]) -> None:
        columns = (
            [batch.pid for batch in batches],
            [batch.write_id for batch in batches],
            [batch.attempt for batch in batches],
            [batch.number for batch in batches],
            [batch.payload.count for batch in batches],
            [batch.epoch for batch in batches],
            [batch.payload.data for batch in batches],
        )
        roll = await self._appender.roll()
        for left in reversed(range(_TRIES)):
            try:
                rows = await self._database.write(_stage_on(roll), *columns)
                # A process that only stages learns of a new roll only here.
                self._appender.saw(rows[0]["roll"])
                return
            except asyncpg.UndefinedTableError:
                # The hot table was dropped while this process was suspended. It held nothing of this write.
                if not left:
                    raise
                roll = (await self._database.read(_SQL["roll_find_newest"]))[0]["roll"]
                self._appender.saw(roll)

    async def staged_count(self, pids: Sequence[int], write_id: str, attempts: Sequence[str]) -> int:
        rows = await self._database.read(_SQL["staged_count"], list(pids), write_id, list(attempts))
        return int(rows[0][0])

    async def staged_pids(self, incarnation: int, write_id: str) -> list[int]:
        return [row["pid"] for row in await self._database.read(_SQL["staged_pids"], incarnation, write_id)]

    async def staged_parts(self, incarnation: int, write_id: str) -> list[StagedPart]:
        rows = await self._database.read(_SQL["staged_parts"], incarnation, write_id)
        return [StagedPart(pid=row["pid"], attempt=row["attempt"], count=row["count"]) for row in rows]

    async def staged_read(
        self, pid: int, write_id: str, attempt: str, *, after: int, limit_bytes: int
    ) -> list[StagedBatch]:
        rows = await self._database.read(_SQL["staged_read"], pid, write_id, attempt, after, limit_bytes, _READ_BATCHES)
        payloads: dict[int, bytes] = {}
        for roll in {row["roll"] for row in rows}:
            slots = [-row["slot"] for row in rows if row["roll"] == roll]
            try:
                stored = await self._database.read(_read_from(roll), slots)
            except asyncpg.UndefinedTableError:
                # The write was promoted, and the hot table was dropped.
                continue
            payloads.update({-row["pid"]: row["payload"] for row in stored})
        return [
            StagedBatch(
                pid=pid,
                write_id=write_id,
                attempt=attempt,
                number=row["number"],
                epoch=row["epoch"],
                payload=Payload(data=payloads[row["slot"]], count=row["count"]),
            )
            for row in rows
            if row["slot"] in payloads
        ]

    async def promote(self, pid: int, write_id: str, attempts: Sequence[str]) -> Promoted:
        row = await self._promoted(pid, write_id, attempts)
        if row["status"] in (PromoteStatus.DONE, PromoteStatus.DELETED):
            while (await self._database.read(_SQL["staged_discard"], pid, write_id, _DISCARD_BYTES))[0][0]:
                pass
        return Promoted(
            status=PromoteStatus(row["status"]),
            base=row["base"],
            count=row["count"] or 0,
            appended_at=row["appended_at"],
        )

    async def _promoted(self, pid: int, write_id: str, attempts: Sequence[str]) -> asyncpg.Record:
        for left in reversed(range(_TRIES)):
            try:
                # The function detects an earlier call, so a lost reply is reported as `Unavailable`.
                return (await self._database.read(_SQL["write_promote"], pid, write_id, list(attempts)))[0]
            except asyncpg.UndefinedTableError:
                # Another roll began during the call, and the hot table was dropped. Nothing is done.
                if not left:
                    raise
        raise AssertionError("the last try returns or raises")

    async def staged_writes(self, older_than: timedelta, *, limit: int = 1000) -> list[StagedWrite]:
        rows = await self._database.read(_SQL["staged_list"], older_than, limit)
        return [
            StagedWrite(incarnation=row["incarnation"], write_id=row["write_id"], age=max(timedelta(0), row["age"]))
            for row in rows
        ]

    async def promoted_trim(self, memory: timedelta = MARK_MEMORY) -> int:
        return int((await self._database.read(_SQL["promoted_trim"], memory, TRIM_ROWS))[0][0])


@lru_cache(maxsize=100)
def _stage_on(roll: int) -> LiteralString:
    return _of_roll("batches_stage", roll)


@lru_cache(maxsize=100)
def _read_from(roll: int) -> LiteralString:
    return _of_roll("staged_payloads", roll)


def _of_roll(name: str, roll: int) -> LiteralString:
    """Return the statement for the hot table of a roll. The roll is a number from the database, never user input."""
    text: Any = _SQL[name].replace("{roll}", str(int(roll)))
    found: LiteralString = text
    return found


def _decision(row: asyncpg.Record) -> WriteDecision:
    return WriteDecision(
        incarnation=row["incarnation"],
        write_id=row["write_id"],
        attempts=tuple(row["attempts"]),
        attempts_hash=row["attempts_hash"],
        count=row["count"],
        finished=row["finished_at"] is not None,
    )
