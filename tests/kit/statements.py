"""Records the SQL statements of calls in this process, and finds tables that they scan."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from lakelog.storage.postgres.connection import Database

_recorder: ContextVar[Statements | None] = ContextVar("statements", default=None)
_SCAN = re.compile(r"Seq Scan on (\w+)")


@dataclass
class Statements:
    """Statements of one call, without those of background work."""

    found: list[tuple[Database, Any, tuple[object, ...]]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.found)

    async def scanned(self) -> set[str]:
        """Return the tables that a statement reads from the beginning to the end."""
        tables: set[str] = set()
        for database, query, arguments in self.found:
            plan = await database.read(f"explain {query}", *arguments)  # type: ignore[arg-type]
            tables.update(_SCAN.findall("\n".join(row[0] for row in plan)))
        return tables


@contextmanager
def recorded(statements: Statements) -> Iterator[None]:
    """Record the statements of this task, and of the tasks that it starts."""
    token = _recorder.set(statements)
    run = Database._run

    async def noted(self: Database, query: Any, arguments: Any, then: Any = None) -> Any:
        if (recorder := _recorder.get()) is not None:
            recorder.found.append((self, query, tuple(arguments)))
        return await run(self, query, arguments, then)

    Database._run = noted  # type: ignore[method-assign]
    try:
        yield
    finally:
        Database._run = run  # type: ignore[method-assign]
        _recorder.reset(token)
