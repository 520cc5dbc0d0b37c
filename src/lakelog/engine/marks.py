"""Marks on the timeline of topics and groups. They are audit records, so that each event is stored once."""

from __future__ import annotations

from lakelog.engine.callers import Caller
from lakelog.model.audit import AuditEntry, AuditOutcome, AuditRecord
from lakelog.model.mark import DEPLOY, CreateMarkRequest, Mark, MarkPage, MarkQuery
from lakelog.model.topic import Scope
from lakelog.storage.store import Catalog


class Marks:
    """The marks of an installation; one per engine."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def create(self, caller: Caller, asked: CreateMarkRequest) -> Mark:
        """Mark the present time."""
        objects = {"group": asked.group, "topic": asked.topic}
        entry = AuditEntry(
            operation=DEPLOY,
            text=asked.text,
            outcome=AuditOutcome.DONE,
            actor=caller.actor,
            address=caller.host,
            request_id=caller.request_id,
            objects={name: text for name, text in objects.items() if text is not None},
        )
        return _mark_of(await self._catalog.audit.audit_add(caller.scope, entry))

    async def list(self, scope: Scope, asked: MarkQuery) -> MarkPage:
        """Return marks and changes, the newest first."""
        found = [_mark_of(each) for each in await self._catalog.audit.mark_list(scope, asked)]
        return MarkPage(marks=found, next=found[-1].number if len(found) == asked.limit else None)


def _mark_of(record: AuditRecord) -> Mark:
    return Mark(
        number=record.number,
        at=record.at,
        kind=record.operation,
        text=record.text,
        group=record.objects.get("group"),
        topic=record.objects.get("topic"),
        actor=record.actor_name or record.actor,
    )
