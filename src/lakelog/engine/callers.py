"""The caller of an operation, and the functions that run operations by their names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from lakelog.model.topic import Scope
from lakelog.wire.operations.operation import Operation

Asked = TypeVar("Asked")
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The caller of an operation: the environment that it may use, and the address of its machine, if known.

    `token` is the id of its token; empty for an embedded client, and on a server without authentication.
    """

    scope: Scope
    host: str = ""
    token: str = ""


class Verbs:
    """Functions by the name of their operation."""

    def __init__(self) -> None:
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
        found: Found = await self._verbs[operation.alias_of or operation.name](caller, request)
        return found
