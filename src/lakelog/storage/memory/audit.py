"""Audit records in memory."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import count

from lakelog.model.audit import AUDIT_MEMORY, ActorKind, AuditEntry, AuditOutcome, AuditQuery, AuditRecord, State
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

    async def audit_add(self, scope: Scope, entry: AuditEntry) -> int:
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
        found = [record for environment, record in self._records.values() if environment == scope.environment_id]
        found.sort(key=lambda each: (each.at, each.number), reverse=True)
        if query.after in self._records:
            last = self._records[query.after][1]
            found = [each for each in found if (each.at, each.number) < (last.at, last.number)]
        return [each for each in found if _fits(each, query)][: query.limit]

    async def audit_trim(self) -> int:
        await asyncio.sleep(0)
        over = self._clock() - AUDIT_MEMORY
        old = [number for number, (_, record) in self._records.items() if record.at < over]
        for number in old:
            del self._records[number]
        return len(old)

    def _add(self, scope: Scope, entry: AuditEntry) -> int:
        number = next(self._numbers)
        actor = entry.actor if entry.actor.kind is not ActorKind.DATABASE else replace(entry.actor, id=USER)
        self._records[number] = (
            scope.environment_id,
            AuditRecord(
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
            ),
        )
        return number


def _fits(record: AuditRecord, query: AuditQuery) -> bool:
    return (
        query.operation in (None, record.operation)
        and query.group in (None, record.objects.get("group"))
        and query.topic in (None, record.objects.get("topic"))
        and query.actor in (None, record.actor)
        and (query.since is None or record.at >= query.since)
        and (query.until is None or record.at < query.until)
    )
