"""Storage protocol of audit records, and the record of the change that the running call makes.

The catalog writes the record in the transaction of the change, which the call sets with `recording`. No method of the
catalog has a parameter for it, because most calls of most methods are not audited.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Protocol

from lakelog.model.audit import AuditEntry, AuditOutcome, AuditQuery, AuditRecord, State, bounded
from lakelog.model.mark import MarkQuery
from lakelog.model.topic import Scope


class AuditStore(Protocol):
    """The audit records of the installation. They are in the catalog."""

    async def audit_add(self, scope: Scope, entry: AuditEntry) -> AuditRecord:
        """Store a record in a transaction of its own, and return it."""
        ...

    async def audit_finish(self, number: int, outcome: AuditOutcome, after: State | None) -> None:
        """Write the outcome of a record that was stored as begun. `after` is kept if it is None."""
        ...

    async def audit_list(self, scope: Scope, query: AuditQuery) -> list[AuditRecord]:
        """Return records, the newest first. `query.after` is the number of the last record of the previous page."""
        ...

    async def mark_list(self, scope: Scope, query: MarkQuery) -> list[AuditRecord]:
        """Return records of changes that were made and are marks, the newest first.

        Records that name neither a group nor a topic fit every query. With a group, and without a topic, records of
        topics that name no group are left out.
        """
        ...

    async def audit_trim(self) -> int:
        """Delete some of the records that are older than `AUDIT_MEMORY`, and return how many were deleted."""
        ...


class Change:
    """The change that a call makes. The first statement of the catalog that makes it writes its record."""

    def __init__(self, scope: Scope, entry: AuditEntry) -> None:
        self.scope = scope
        self.entry = entry
        self.is_over = False
        """Whether the record is written, or the call has ended. A task that the call started may run for longer."""

    def note(self, before: State | None, after: State | None) -> None:
        """Add what the object was before the change, and what it is after it."""
        self.entry = replace(self.entry, before=bounded(before), after=bounded(after))


_change: ContextVar[Change | None] = ContextVar("change", default=None)


@contextmanager
def recording(change: Change) -> Iterator[None]:
    """Let the next change of the catalog within the block write the record."""
    token = _change.set(change)
    try:
        yield
    finally:
        change.is_over = True
        _change.reset(token)


def pending_change() -> Change | None:
    """Return the change whose record is to be written; None if the running call is not audited."""
    change = _change.get()
    return None if change is None or change.is_over else change


def note_change(before: State | None, after: State | None) -> None:
    """Add to the record of the running call what is changed. It does nothing if the call is not audited."""
    if (change := pending_change()) is not None:
        change.note(before, after)
