"""The functions that run operations, by the names of the operations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from lakelog.engine.auditing import AuditTrail
from lakelog.engine.callers import Caller
from lakelog.model.topic import Scope
from lakelog.wire.operations.operation import Operation

Asked = TypeVar("Asked")
Found = TypeVar("Found")


class Verbs:
    """Functions by the name of their operation."""

    def __init__(self, audit: AuditTrail | None = None) -> None:
        """Create it without functions. Operations that change something are recorded in `audit`."""
        self._audit = audit
        self._verbs: dict[str, Callable[[Caller, Any], Awaitable[Any]]] = {}

    def bind(self, operation: Operation[Asked, Found], verb: Callable[[Caller, Asked], Awaitable[Found]]) -> None:
        """Bind the function to the operation, so that `call` runs it."""
        self._verbs[operation.name] = verb

    def bind_scoped(self, operation: Operation[Asked, Found], verb: Callable[[Scope, Asked], Awaitable[Found]]) -> None:
        """Bind a function to the operation that gets only the scope of the caller."""
        self.bind(operation, lambda caller, asked: verb(caller.scope, asked))

    def has(self, operation: Operation[Any, Any]) -> bool:
        """Return whether a function is bound to the operation. Operations with their own handler have none."""
        return (operation.alias_of or operation.name) in self._verbs

    async def call(self, operation: Operation[Asked, Found], caller: Caller, request: Asked) -> Found:
        """Run the operation, and return its reply."""
        verb = self._verbs[operation.alias_of or operation.name]
        if operation.audit is None or self._audit is None:
            found: Found = await verb(caller, request)
            return found
        audited: Found = await self._audit.run(operation, caller, request, lambda: verb(caller, request))
        return audited
