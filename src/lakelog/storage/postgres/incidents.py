"""Incidents and clusters of dead letters on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg

from lakelog.model.incident import Incident, IncidentKind
from lakelog.model.message import PARTITION_BITS
from lakelog.storage.groups import JournalEntry, StoredDeadLetter, storable
from lakelog.storage.incidents import MAX_CHAIN, StoredCluster, StoredIncident
from lakelog.storage.postgres.connection import Database
from lakelog.storage.postgres.queries import load
from lakelog.storage.postgres.rows import dead_letter_of

SQL = load("incidents")


class PostgresIncidents:
    """Implements `lakelog.storage.incidents.IncidentStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def incidents_read(self, pid: int, offsets: Sequence[int], *, limit: int) -> list[StoredIncident]:
        rows = await self._database.read(SQL["incidents_read"], pid, list(offsets), limit)
        return [_incident(row) for row in rows]

    async def failures_count(
        self, group_ids: Sequence[int], since_ms: int, until_ms: int
    ) -> dict[tuple[int, int], int]:
        rows = await self._database.read(SQL["failures_count"], list(group_ids), since_ms, until_ms, PARTITION_BITS)
        return {(row["group_id"], row["incarnation"]): row["failed"] for row in rows}

    async def incidents_trim(self) -> int:
        return int((await self._database.write(SQL["incidents_trim"]))[0]["dropped"])

    async def dead_clusters(
        self, group_id: int, pids: Sequence[int], *, fingerprint: int | None = None, limit: int
    ) -> list[StoredCluster]:
        # Two statements, because an optional condition would keep the index from finding one cluster.
        is_all = fingerprint is None
        query: Any = SQL["dead_clusters"].replace("{chosen}", "" if is_all else "and d.fingerprint = $5::bigint")
        values = (group_id, list(pids), limit, PARTITION_BITS)
        rows = await self._database.read(query, *values, *([] if is_all else [fingerprint]))
        return [
            StoredCluster(
                fingerprint=row["fingerprint"],
                count=row["letters"],
                first_ms=row["first_ms"],
                last_ms=row["last_ms"],
                pid=row["pid"],
                offset=row["message_offset"],
                reason=row["reason"],
                traceback=row["traceback"],
            )
            for row in rows
        ]

    async def dead_chain(self, group_ids: Sequence[int], pid: int, offsets: Sequence[int]) -> list[StoredDeadLetter]:
        rows = await self._database.read(SQL["dead_chain"], list(group_ids), pid, list(offsets), MAX_CHAIN)
        return [dead_letter_of(row) for row in rows]


def incident_arguments(entries: Sequence[JournalEntry]) -> list[list[Any]]:
    """Return the columns of the incidents. The first column has the number of the entry, starting at 1."""
    found = [each for entry in entries for each in entry.incidents]
    return [
        [part for part, entry in enumerate(entries, 1) for _ in entry.incidents],
        [each.offset for each in found],
        [each.epoch for each in found],
        [int(each.kind) for each in found],
        [each.deliveries for each in found],
        [each.failures for each in found],
        [storable(each.owner) for each in found],
        [each.leased_ms for each in found],
        [each.due_ms for each in found],
        [each.fingerprint for each in found],
        [each.left_out for each in found],
        [storable(each.reason) for each in found],
        [None if each.traceback is None else storable(each.traceback) for each in found],
    ]


def _incident(row: asyncpg.Record) -> StoredIncident:
    incident = Incident(
        kind=IncidentKind(row["kind"]),
        offset=row["message_offset"],
        epoch=row["epoch"],
        deliveries=row["deliveries"],
        failures=row["failures"],
        owner=row["owner"],
        leased_ms=row["leased_ms"],
        due_ms=row["due_ms"],
        reason=row["reason"],
        traceback=row["traceback"],
        fingerprint=row["fingerprint"],
        left_out=row["left_out"],
    )
    return StoredIncident(group_id=row["group_id"], pid=row["pid"], at_ms=row["at_ms"], incident=incident)
