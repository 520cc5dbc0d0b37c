"""Audit records on PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, LiteralString

import asyncpg
import msgspec

from lakelog.model.audit import ActorKind, AuditEntry, AuditOutcome, AuditQuery, AuditRecord, State
from lakelog.model.mark import MARKED, MarkQuery
from lakelog.model.topic import Scope
from lakelog.storage.audit import pending_change
from lakelog.storage.groups import storable
from lakelog.storage.postgres.connection import TRIM_ROWS, Database
from lakelog.storage.postgres.queries import load

_SQL = load("audit")
_TEXTS = msgspec.json.Decoder(dict[str, str])
_STATE = msgspec.json.Decoder(dict[str, Any])


class PostgresAudit:
    """Implements `lakelog.storage.audit.AuditStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def audit_add(self, scope: Scope, entry: AuditEntry) -> AuditRecord:
        return _record_of((await self._database.write(_SQL["audit_add"], *_values(scope, entry)))[0])

    async def audit_finish(self, number: int, outcome: AuditOutcome, after: State | None) -> None:
        await self._database.write(_SQL["audit_finish"], number, outcome.value, _text(after))

    async def audit_list(self, scope: Scope, query: AuditQuery) -> list[AuditRecord]:
        given = (query.since, query.until, query.after, query.operation, query.group, query.topic, query.actor)
        rows = await self._database.read(_SQL["audit_list"], scope.environment_id, *given, query.limit)
        return [_record_of(row) for row in rows]

    async def mark_list(self, scope: Scope, query: MarkQuery) -> list[AuditRecord]:
        given = (query.since, query.until, query.after, list(MARKED), query.group, query.topic)
        rows = await self._database.read(_SQL["mark_list"], scope.environment_id, *given, query.limit)
        return [_record_of(row) for row in rows]

    async def audit_trim(self) -> int:
        trimmed: int = (await self._database.write(_SQL["audit_trim"], TRIM_ROWS))[0]["trimmed"]
        return trimmed


async def write_change(database: Database, query: LiteralString, *arguments: object) -> list[asyncpg.Record]:
    """Run a statement that makes a change if it returns a row.

    If the running call is audited, the record is written in the same transaction.
    """
    change = pending_change()
    if change is None:
        return await database.write(query, *arguments)
    rows = await database.write_both(query, arguments, _SQL["audit_add"], _values(change.scope, change.entry))
    if rows:
        change.is_over = True
    return rows


def _values(scope: Scope, entry: AuditEntry) -> tuple[object, ...]:
    return (
        scope.environment_id,
        entry.operation,
        storable(entry.text),
        entry.outcome.value,
        entry.actor.kind.value,
        entry.actor.id,
        storable(entry.actor.name),
        storable(entry.address),
        storable(entry.request_id),
        _text(entry.objects),
        _text(entry.given),
        _text(entry.before),
        _text(entry.after),
    )


def _text(values: Mapping[str, object] | None) -> str | None:
    # jsonb cannot store the character 0, which JSON writes as an escape.
    return None if values is None else msgspec.json.encode(values).decode().replace("\\u0000", "\\ufffd")


def _record_of(row: asyncpg.Record) -> AuditRecord:
    return AuditRecord(
        number=row["number"],
        at=row["at"],
        operation=row["operation"],
        text=row["summary"],
        outcome=AuditOutcome(row["outcome"]),
        actor_kind=ActorKind(row["actor_kind"]),
        actor=row["actor"],
        actor_name=row["actor_name"],
        address=row["address"],
        request_id=row["request_id"],
        objects=_TEXTS.decode(row["objects"]),
        given=_TEXTS.decode(row["given"]),
        before=None if row["before"] is None else _STATE.decode(row["before"]),
        after=None if row["after"] is None else _STATE.decode(row["after"]),
    )
