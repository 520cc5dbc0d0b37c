"""Audit records in memory."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import count

from lakelog.model.audit import AUDIT_MEMORY, ActorKind, AuditEntry, AuditOutcome, AuditQuery, AuditRecord, State
from lakelog.model.mark import MARKED, MarkQuery
from lakelog.model.topic import Scope
from lakelog.storage.audit import pending_change
from lakelog.storage.memory.clock import Clock

USER = "memory"
"""The user of a database in memory."""


class MemoryAudit:
    """An `AuditStore` in memory."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._numbers = count(1)
        self._records: dict[int, tuple[int, AuditRecord]] = {}
        """Records with their environment by number."""

    def changed(self) -> None:
        """Store the record of the running call, if it is audited."""
        if (change := pending_change()) is not None:
            self._add(change.scope, change.entry)
            change.is_over = True

    async def audit_add(self, scope: Scope, entry: AuditEntry) -> AuditRecord:
        await asyncio.sleep(0)
        return self._add(scope, entry)

    async def audit_finish(self, number: int, outcome: AuditOutcome, after: State | None) -> None:
        await asyncio.sleep(0)
        environment, record = self._records[number]
        values = {name: getattr(record, name) for name in record.__struct_fields__}
        values |= {"outcome": outcome, "after": record.after if after is None else after}
        self._records[number] = (environment, AuditRecord(**values))

    async def audit_list(self, scope: Scope, query: AuditQuery) -> list[AuditRecord]:
        await asyncio.sleep(0)
        return [each for each in self._behind(scope, query) if _fits(each, query)][: query.limit]

    async def mark_list(self, scope: Scope, query: MarkQuery) -> list[AuditRecord]:
        await asyncio.sleep(0)
        return [each for each in self._behind(scope, query) if _is_mark(each, query)][: query.limit]

    async def audit_trim(self) -> int:
        await asyncio.sleep(0)
        over = self._clock() - AUDIT_MEMORY
        old = [number for number, (_, record) in self._records.items() if record.at < over]
        for number in old:
            del self._records[number]
        return len(old)

    def _behind(self, scope: Scope, query: AuditQuery | MarkQuery) -> list[AuditRecord]:
        """Return the records of a scope and a time, the newest first, from the page that the query asks for."""
        found = [record for environment, record in self._records.values() if environment == scope.environment_id]
        found.sort(key=lambda each: (each.at, each.number), reverse=True)
        if query.after in self._records:
            last = self._records[query.after][1]
            found = [each for each in found if (each.at, each.number) < (last.at, last.number)]
        if query.since is not None:
            found = [each for each in found if each.at >= query.since]
        return [each for each in found if query.until is None or each.at < query.until]

    def _add(self, scope: Scope, entry: AuditEntry) -> AuditRecord:
        number = next(self._numbers)
        actor = entry.actor if entry.actor.kind is not ActorKind.DATABASE else replace(entry.actor, id=USER)
        record = AuditRecord(
            number=number,
            at=self._clock(),
            operation=entry.operation,
            text=entry.text,
            outcome=entry.outcome,
            actor_kind=actor.kind,
            actor=actor.id,
            actor_name=actor.name,
            address=entry.address,
            request_id=entry.request_id,
            objects=entry.objects,
            given=entry.given,
            before=entry.before,
            after=entry.after,
        )
        self._records[number] = (scope.environment_id, record)
        return record


def _fits(record: AuditRecord, query: AuditQuery) -> bool:
    return (
        query.operation in (None, record.operation)
        and query.group in (None, record.objects.get("group"))
        and query.topic in (None, record.objects.get("topic"))
        and query.actor in (None, record.actor)
    )


def _is_mark(record: AuditRecord, query: MarkQuery) -> bool:
    group, topic = record.objects.get("group"), record.objects.get("topic")
    if record.operation not in MARKED or record.outcome is not AuditOutcome.DONE:
        return False
    fits_group = query.group in (None, group) or (group is None and (query.topic is not None or topic is None))
    return fits_group and (query.topic is None or topic in (None, query.topic))
