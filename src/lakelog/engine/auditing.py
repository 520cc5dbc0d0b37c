"""Audit: records who changes what, and lists the records. The table of operations says what is recorded.

The record of a change in the catalog is written in its transaction. A change in cells has no such transaction, so its
record is written as begun, and finished at the end: a change without a record is not possible.
"""

from __future__ import annotations

import logging
import string
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, TypeVar

import msgspec
from msgspec import NODEFAULT, UNSET, Struct

from lakelog.engine.callers import Caller
from lakelog.errors import LakelogError, OutcomeUnknown
from lakelog.model.audit import AuditEntry, AuditOutcome, AuditPage, AuditQuery, State
from lakelog.model.topic import Scope
from lakelog.reporting import log_event
from lakelog.storage.audit import Change, note_change, recording
from lakelog.storage.store import Catalog
from lakelog.wire.operations.operation import Operation

Found = TypeVar("Found")
REFUSAL_SECONDS = 60.0
"""Refusals of one operation to one token are stored once in this time: a caller must not fill the table."""
_MAX_REFUSALS = 10_000
_MAX_TEXT = 200

_log = logging.getLogger(__name__)
_caller: ContextVar[Callable[[], Caller] | None] = ContextVar("caller", default=None)


class AuditTrail:
    """The audit records of an installation; one per engine."""

    def __init__(self, catalog: Catalog, now: Callable[[], float] = time.monotonic) -> None:
        self._catalog = catalog
        self._now = now
        self._refused: dict[tuple[str, str], float] = {}

    async def list(self, scope: Scope, asked: AuditQuery) -> AuditPage:
        """Return records of the environment, the newest first."""
        found = await self._catalog.audit.audit_list(scope, asked)
        return AuditPage(records=found, next=found[-1].number if len(found) == asked.limit else None)

    async def run(
        self, operation: Operation[Any, Any], caller: Caller, request: Any, work: Callable[[], Awaitable[Found]]
    ) -> Found:
        """Run an operation, and record what it changes."""
        audit = operation.audit
        if audit is None or _changes_nothing(operation, request):
            return await work()
        entry = _entry(operation, caller, request)
        if not audit.in_cells:
            with recording(Change(caller.scope, entry)):
                return await work()
        begun = await self._catalog.audit.audit_add(caller.scope, replace(entry, outcome=AuditOutcome.BEGUN))
        try:
            reply = await work()
        except OutcomeUnknown:
            raise
        except LakelogError as error:
            await self._finish(begun.number, AuditOutcome.FAILED, {"error": error.detail[:_MAX_TEXT]})
            raise
        result = None if audit.result is None else {audit.result: getattr(reply, audit.result)}
        await self._finish(begun.number, AuditOutcome.DONE, result)
        return reply

    async def refused(self, caller: Caller, operation: str, needed: str, objects: Mapping[str, str]) -> None:
        """Record that the caller lacks a right. A failure is logged: the call is refused in any case."""
        key, now = (caller.actor.id, operation), self._now()
        if self._refused.get(key, float("-inf")) > now - REFUSAL_SECONDS:
            return
        if len(self._refused) >= _MAX_REFUSALS:
            self._refused.clear()
        self._refused[key] = now
        entry = AuditEntry(
            operation=operation,
            text=f"lacked the right {needed}",
            outcome=AuditOutcome.REFUSED,
            actor=caller.actor,
            address=caller.host,
            request_id=caller.request_id,
            objects=objects,
        )
        try:
            await self._catalog.audit.audit_add(caller.scope, entry)
        except LakelogError as error:
            self._refused.pop(key, None)
            _log_failure(error)

    async def _finish(self, number: int, outcome: AuditOutcome, after: State | None) -> None:
        """Write the outcome of a record. If that fails, the record stays begun, and the call has its own outcome."""
        try:
            await self._catalog.audit.audit_finish(number, outcome, after)
        except LakelogError as error:
            _log_failure(error)


@contextmanager
def calling(caller: Callable[[], Caller]) -> Iterator[None]:
    """Name the caller of calls that are not audited themselves, and may create a group."""
    token = _caller.set(caller)
    try:
        yield
    finally:
        _caller.reset(token)


@contextmanager
def creating_group(scope: Scope, name: str, settings: object) -> Iterator[None]:
    """Record that the running call creates a group within the block."""
    known = _caller.get()
    caller = Caller(scope=scope) if known is None else known()
    entry = AuditEntry(
        operation="create_group",
        text=f"created group {name}",
        outcome=AuditOutcome.DONE,
        actor=caller.actor,
        address=caller.host,
        request_id=caller.request_id,
        objects={"group": name},
        after=msgspec.to_builtins(settings),
    )
    with recording(Change(scope, entry)):
        yield


def note_settings(before: object, after: object) -> None:
    """Add to the record of the running call those settings that differ."""
    old, new = msgspec.to_builtins(before), msgspec.to_builtins(after)
    changed = [name for name in new if old.get(name) != new[name]]
    note_change({name: old.get(name) for name in changed}, {name: new[name] for name in changed})


def given(shape: Struct, *left_out: str) -> dict[str, str]:
    """Return the fields of a request that differ from their defaults, as short texts."""
    found = {}
    for field in msgspec.structs.fields(shape):
        value = getattr(shape, field.name)
        default = field.default if field.default_factory is NODEFAULT else field.default_factory()
        if value is not UNSET and value != default and field.name not in left_out:
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            found[field.name] = text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"
    return found


def named_objects(operation: Operation[Any, Any], request: Struct) -> dict[str, str]:
    """Return the fields of the request that name what is changed: those of the path and of the text of the record."""
    assert operation.audit is not None
    named = {name for _, name, _, _ in string.Formatter().parse(operation.audit.text) if name}
    names = [*operation.path_fields, *sorted(named - {*operation.path_fields})]
    return {name: str(getattr(request, name)) for name in names}


def _entry(operation: Operation[Any, Any], caller: Caller, request: Struct) -> AuditEntry:
    audit = operation.audit
    assert audit is not None
    objects = named_objects(operation, request)
    text = audit.text.format(**objects)
    if getattr(request, "topic", None) is not None:
        objects["topic"] = request.topic  # type: ignore[attr-defined]
    counts = {name: str(len(getattr(request, name))) for name in audit.counted}
    return AuditEntry(
        operation=operation.alias_of or operation.name,
        text=text,
        outcome=AuditOutcome.DONE,
        actor=caller.actor,
        address=caller.host,
        request_id=caller.request_id,
        objects=objects,
        given={**given(request, *objects, *audit.hidden, *audit.counted), **counts},
    )


def _changes_nothing(operation: Operation[Any, Any], request: Struct) -> bool:
    """Return whether the request is a dry run, or lacks the field without which the operation is not audited."""
    audit = operation.audit
    assert audit is not None
    return getattr(request, "dry_run", False) or (audit.only_with is not None and not getattr(request, audit.only_with))


def _log_failure(error: LakelogError) -> None:
    log_event(_log, logging.WARNING, "audit_failed", f"An audit record could not be written: {error.detail}")
