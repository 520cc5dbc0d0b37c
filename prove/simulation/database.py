"""The database of a run: stores in memory on one clock, and the cables between it and the servers.

What a server asks for takes time to arrive and to come back. On the way it may be refused (nothing was done), lost
before it was done, or lost after: the server hears the same of both. A call that is on its way is done also if its
server dies meanwhile.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import Any, cast

from lakelog.errors import OutcomeUnknown, Unavailable
from lakelog.storage.memory import MemoryCatalog, MemoryStore
from lakelog.storage.store import Catalog, PartitionStore
from prove.simulation.loop import Node, VirtualLoop

BIRTH = datetime(2026, 1, 1, tzinfo=UTC)
BIRTH_MS = round(BIRTH.timestamp() * 1000)
_READS = ("read", "find", "list", "count", "clock", "offset_at", "heads_read", "roll_active", "search", "durab", "at_")


class Trouble:
    """What happens to calls of one server, or of all, until a time."""

    def __init__(self, kind: str, until: float, share: float) -> None:
        self.kind, self.until, self.share = kind, until, share


class Database:
    """Catalog and cells. Its clock is the virtual one, ahead by what faults made of it."""

    def __init__(self, loop: VirtualLoop, chance: random.Random, cells: int) -> None:
        self.loop = loop
        self.chance = chance
        self.node = Node("database")
        self.ahead_ms = 0
        self.catalog = MemoryCatalog(self.now)
        self.cells = {cell: MemoryStore(self.now) for cell in range(cells)}
        self.troubles: dict[str, Trouble] = {}
        """By server; "" for all."""
        self.faults: Counter[str] = Counter()
        self.watchers: dict[str, Callable[[MemoryStore, Any, Any], None]] = {}
        """By verb: told the arguments and the answer of what was done."""
        self.log: Callable[[str], None] | None = None

    def now(self) -> datetime:
        return BIRTH + timedelta(seconds=self.loop.now, milliseconds=self.ahead_ms)

    def now_ms(self) -> int:
        return BIRTH_MS + int(self.loop.now * 1000) + self.ahead_ms

    def trouble(self, server: str) -> str | None:
        """What happens to this call, if anything."""
        for name in (server, ""):
            found = self.troubles.get(name)
            if found is None:
                continue
            if found.until <= self.loop.now:
                del self.troubles[name]
            elif self.chance.random() < found.share:
                return found.kind
        return None

    def cable(self, node: Node) -> tuple[Catalog, dict[int, PartitionStore]]:
        """The database as that server sees it."""
        catalog = _Catalog(self, node, self.catalog)
        cells = {cell: _Store(self, node, store) for cell, store in self.cells.items()}
        return cast("Catalog", catalog), cast("dict[int, PartitionStore]", cells)

    def delay(self) -> float:
        number = self.chance.random()
        if number < 0.8:
            return 0.0002 + 0.002 * number
        return 0.02 * (number - 0.75) if number < 0.98 else 4 * (number - 0.975)


def driven(coro: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that only ever yields to others: done here in one moment."""
    try:
        while True:
            coro.send(None)
    except StopIteration as end:
        return end.value


@cache
def _is_read(verb: str) -> bool:
    return verb.startswith(_READS) or "_find" in verb


class _Cable:
    """An object of the database, as a server sees it."""

    def __init__(self, database: Database, node: Node, there: Any) -> None:
        self._database = database
        self._node = node
        self._there = there

    def __getattr__(self, verb: str) -> Any:
        call = partial(self._call, verb, getattr(self._there, verb), _is_read(verb))
        self.__dict__[verb] = call
        return call

    async def _call(self, verb: str, method: Any, is_read: bool, *args: Any, **kwargs: Any) -> Any:
        database = self._database
        done = database.loop.create_future()
        kind = database.trouble(self._node.name) if database.troubles else None
        late = database.delay()
        if kind is not None:
            late = self._begin_trouble(kind, late)
        database.loop.call_later(
            late,
            self._arrive,
            (verb, method, args, kwargs),
            "refused" if is_read and kind in ("lost before", "lost after") else kind,
            done,
            context=database.node.context,
        )
        return await done

    def _begin_trouble(self, kind: str, late: float) -> float:
        self._database.faults[f"store: {kind}"] += 1
        return late + self._database.chance.random() if kind == "slow" else late

    def _arrive(self, asked: tuple[str, Any, Any, Any], kind: str | None, done: asyncio.Future[Any]) -> None:
        verb, method, args, kwargs = asked
        database = self._database
        if kind == "refused":
            self._answer(done, None, Unavailable("The database cannot be reached."))
        elif kind == "lost before":
            self._answer(done, None, OutcomeUnknown("The connection was lost."))
        else:
            result = error = None
            try:
                result = driven(method(*args, **kwargs))
            except Exception as refusal:
                error = refusal
            if database.log:
                database.log(f"{self._node.name} -> {verb} = {_short(result if error is None else error)}")
            watcher = database.watchers.get(verb)
            if watcher is not None and error is None:
                watcher(self._there, args, result)
            if kind == "lost after":
                error = OutcomeUnknown("The connection was lost.")
            if kind == "slow" or database.chance.random() < 0.3:
                context = database.node.context
                database.loop.call_later(database.delay(), self._answer, done, result, error, context=context)
            else:
                self._answer(done, result, error)

    def _answer(self, done: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)


class _Store(_Cable):
    def __init__(self, database: Database, node: Node, there: MemoryStore) -> None:
        super().__init__(database, node, there)
        self.groups = _Cable(database, node, there.groups)
        self.cold = _Cable(database, node, there.cold)
        self.staging = _Cable(database, node, there.staging)
        self.announcements = there.announcements

    async def close(self) -> None:
        """The database goes on."""


class _Catalog(_Cable):
    def __init__(self, database: Database, node: Node, there: MemoryCatalog) -> None:
        super().__init__(database, node, there)
        self.groups = _Cable(database, node, there.groups)
        self.orphans = _Cable(database, node, there.orphans)
        self.pipelines = _Cable(database, node, there.pipelines)
        self.writes = _Cable(database, node, there.writes)

    async def close(self) -> None:
        """The database goes on."""


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 160 else text[:157] + "..."
