"""The journals, members, heartbeats and dead letters of a cell on PostgreSQL.

The primary key of a journal makes a version unique, and `lakelog.journals_write` (in migrations) writes a version only
after the last one. This requires that no statement takes longer than `JOURNAL_GRACE_SECONDS`; the statement timeout is
a third of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any

import asyncpg

from lakelog.model.dead_letter_retention import DeadLetterRetention
from lakelog.model.kinds import DeadLetterState
from lakelog.storage.groups import (
    JOURNAL_GRACE_SECONDS,
    JOURNAL_READ_ROWS,
    CommitResult,
    CommitStatus,
    DeadLetterKey,
    JournalEntry,
    JournalRead,
    JournalRequest,
    JournalRow,
    MembersRead,
    StoredDeadLetter,
    storable,
)
from lakelog.storage.postgres.appending import Appender
from lakelog.storage.postgres.connection import Database
from lakelog.storage.postgres.incidents import PostgresIncidents, incident_arguments
from lakelog.storage.postgres.queries import load
from lakelog.storage.postgres.rows import DEAD_LETTER_STATES, dead_letter_of
from lakelog.storage.store import Append, Appended, Refused

_SQL = {**load("groups"), **load("incidents")}
_STATUS = tuple(CommitStatus)
_TRIM_ROWS = 50_000
_TRIM_JOURNALS = 2000
_LAST_ID = (1 << 63) - 1


class PostgresGroups:
    """Implements `lakelog.storage.groups.GroupStore`."""

    def __init__(self, database: Database, appender: Appender) -> None:
        self._database = database
        self._appender = appender
        self.incidents = PostgresIncidents(database)

    async def journals_read(self, asks: Sequence[JournalRequest]) -> list[JournalRead]:
        rows = await self._database.read(
            _SQL["journals_read"],
            [ask.group_id for ask in asks],
            [ask.pid for ask in asks],
            [ask.after for ask in asks],
            [ask.after_nonce for ask in asks],
            JOURNAL_READ_ROWS,
        )
        found: list[list[JournalRow]] = [[] for _ in asks]
        for part, version, nonce, snapshot, body, _ in rows:
            if version is not None:
                found[part - 1].append(JournalRow(version=version, nonce=nonce, snapshot=snapshot, body=body))
        return [JournalRead(rows=each, clock_ms=rows[0]["clock_ms"]) for each in found]

    async def journals_newest(self, places: Sequence[tuple[int, int]]) -> list[JournalRow | None]:
        groups, pids = [group_id for group_id, _ in places], [pid for _, pid in places]
        found: list[JournalRow | None] = [None] * len(places)
        for part, version, snapshot, body in await self._database.read(_SQL["journals_read_newest"], groups, pids):
            found[part - 1] = JournalRow(version=version, snapshot=snapshot, body=body)
        return found

    async def journals_commit(self, entries: Sequence[JournalEntry]) -> list[CommitResult]:
        order = sorted(range(len(entries)), key=lambda part: (entries[part].group_id, entries[part].pid))
        ordered = [entries[part] for part in order]
        arguments: list[list[Any]] = [
            [entry.group_id for entry in ordered],
            [entry.pid for entry in ordered],
            [entry.version for entry in ordered],
            [entry.nonce for entry in ordered],
            [entry.after_nonce for entry in ordered],
            [entry.snapshot for entry in ordered],
            [entry.body for entry in ordered],
            [entry.not_before_ms for entry in ordered],
            [entry.not_after_ms for entry in ordered],
        ]
        query = "journals_write"
        values = [(part, value) for part, entry in enumerate(ordered, 1) for value in entry.accepted_values]
        is_noted = any(entry.incidents or entry.dead_letters for entry in ordered)
        if values or is_noted:
            query = "journals_write_noted" if is_noted else "journals_write_once"
            *dead, fingerprints = _dead_arguments(ordered)
            arguments += [*dead, *_value_arguments(ordered, values)]
            arguments += [fingerprints, *incident_arguments(ordered)] if is_noted else []
        clock_ms, statuses, *rest = (await self._database.write(_SQL[query], *arguments))[0]
        taken: dict[int, set[bytes]] = {}
        for part, value in (values[place - 1] for each in rest for place in each):
            taken.setdefault(part, set()).add(value)
        answers = {
            place: CommitResult(
                status=_STATUS[status], clock_ms=clock_ms, taken=frozenset(taken.get(part, frozenset()))
            )
            for part, (place, status) in enumerate(zip(order, statuses or (), strict=True), 1)
        }
        return [answers[part] for part in range(len(entries))]

    async def once_find(self, group_id: int, incarnation: int, values: Collection[bytes]) -> frozenset[bytes]:
        rows = await self._database.read(_SQL["once_find"], group_id, incarnation, list(values))
        return frozenset(row[0] for row in rows)

    async def journals_trim(self, dropped_groups: Collection[int] = ()) -> int | None:
        grace = timedelta(seconds=JOURNAL_GRACE_SECONDS)
        trimmed = 0
        group: int | None = _LAST_ID
        pid = _LAST_ID
        while group is not None:
            # Bounded, so that each transaction is short and blocks no other.
            limits = (_TRIM_ROWS, _TRIM_JOURNALS)
            rows = await self._database.read(_SQL["journals_trim"], grace, list(dropped_groups), *limits, group, pid)
            found, group, pid = rows[0]
            if found is None:
                return None
            trimmed += found
        return trimmed

    async def members_read(self, group_id: int) -> MembersRead:
        return (await self.members_list([group_id]))[0]

    async def members_list(self, group_ids: Sequence[int]) -> list[MembersRead]:
        rows: dict[int, list[asyncpg.Record]] = {}
        for row in await self._database.read(_SQL["members_list"], list(group_ids)):
            rows.setdefault(row["part"], []).append(row)
        return [_members(rows[part]) for part in range(1, len(group_ids) + 1)]

    async def members_write(self, group_id: int, version: int, body: bytes) -> bool:
        return bool((await self._database.write(_SQL["members_write"], group_id, version, body))[0][0])

    async def heartbeats_write(self, seen: Collection[tuple[int, str]]) -> int:
        ordered = sorted(set(seen))
        groups, members = [group_id for group_id, _ in ordered], [member_id for _, member_id in ordered]
        # A heartbeat may be repeated, so a lost reply is reported as `Unavailable`.
        return int((await self._database.read(_SQL["heartbeats_write"], groups, members))[0][0])

    async def heartbeats_drop(self, group_id: int, member_ids: Collection[str]) -> None:
        await self._database.read(_SQL["heartbeats_drop"], group_id, list(member_ids))

    async def dead_list(
        self,
        group_id: int,
        pids: Sequence[int],
        *,
        state: DeadLetterState = DeadLetterState.DEAD,
        fingerprint: int | None = None,
        after: DeadLetterKey | None = None,
        limit: int = 100,
    ) -> list[StoredDeadLetter]:
        behind = (after.pid, after.offset, after.epoch) if after is not None else (-1, -1, -1)
        rows = await self._database.read(
            _SQL["dead_list" if fingerprint is None else "dead_list_cluster"],
            group_id,
            list(pids),
            DEAD_LETTER_STATES.index(state),
            *behind,
            max(0, limit),
            *([] if fingerprint is None else [fingerprint]),
        )
        return [dead_letter_of(row) for row in rows]

    async def dead_count(self, group_id: int, pids: Sequence[int]) -> int:
        return int((await self._database.read(_SQL["dead_count"], group_id, list(pids)))[0][0])

    async def dead_counts(self, pids: Mapping[int, Sequence[int]], *, limit: int | None = None) -> dict[int, int]:
        pairs = [(group_id, pid) for group_id, some in pids.items() for pid in some]
        groups, partitions = [group_id for group_id, _ in pairs], [pid for _, pid in pairs]
        rows = await self._database.read(_SQL["dead_counts"], groups, partitions, limit)
        return dict.fromkeys(pids, 0) | {row["group_id"]: row["dead"] for row in rows}

    async def dead_find(self, group_id: int, pid: int, offset: int) -> list[StoredDeadLetter]:
        return [dead_letter_of(row) for row in await self._database.read(_SQL["dead_find"], group_id, pid, offset)]

    async def dead_discard(self, group_id: int, keys: Sequence[DeadLetterKey]) -> int:
        ordered = sorted((key.pid, key.offset, key.epoch) for key in keys)
        pids, offsets, epochs = ([key[column] for key in ordered] for column in range(3))
        return int((await self._database.write(_SQL["dead_discard"], group_id, pids, offsets, epochs))[0][0])

    async def dead_purge(self, group_id: int, pids: Sequence[int], *, age: timedelta, limit: int) -> int:
        rows = await self._database.write(_SQL["dead_purge"], group_id, sorted(set(pids)), age, max(0, limit))
        return int(rows[0][0])

    async def dead_expire(
        self, group_id: int, pids: Sequence[int], retention: DeadLetterRetention, *, limit: int
    ) -> int:
        kept = (retention.max_age, retention.max_count)
        rows = await self._database.write(_SQL["dead_expire"], group_id, sorted(set(pids)), *kept, max(0, limit))
        return int(rows[0][0])

    async def dead_redrive(
        self, group_id: int, keys: Sequence[DeadLetterKey], append: Append
    ) -> tuple[Appended | Refused | None, list[bool]]:
        return await self._appender.redrive(group_id, [(key.offset, key.epoch) for key in keys], append)


def _members(rows: Sequence[asyncpg.Record]) -> MembersRead:
    """Return the membership of one group from its rows: one per member that was seen, and at least one."""
    newest = rows[0]
    return MembersRead(
        version=newest["version"] or 0,
        body=newest["body"] or b"",
        seen_ms={row["member_id"]: row["seen_ms"] for row in rows if row["member_id"] is not None},
        clock_ms=newest["clock_ms"],
    )


def _dead_arguments(entries: Sequence[JournalEntry]) -> list[list[Any]]:
    """Return the columns of the dead letters. The first column has the number of the entry, starting at 1."""
    letters = [(part, letter) for part, entry in enumerate(entries, 1) for letter in entry.dead_letters]
    return [
        [part for part, _ in letters],
        [letter.offset for _, letter in letters],
        [letter.epoch for _, letter in letters],
        [letter.deliveries for _, letter in letters],
        [letter.failures for _, letter in letters],
        [storable(letter.reason) for _, letter in letters],
        [storable(letter.owner) for _, letter in letters],
        [letter.payload for _, letter in letters],
        [None if letter.traceback is None else storable(letter.traceback) for _, letter in letters],
        [letter.fingerprint for _, letter in letters],
    ]


def _value_arguments(entries: Sequence[JournalEntry], values: Sequence[tuple[int, bytes]]) -> list[list[Any]]:
    """Return the columns of accepted values. The first column has the number of the entry, starting at 1."""
    parts = [part for part, _ in values]
    return [parts, [entries[part - 1].incarnation for part in parts], [value for _, value in values]]
