"""The database of a run: in-memory stores with one clock, and the connections from the servers.

A call takes time to arrive and to return. It may be refused (nothing was done), lost before it was done, or lost
afterwards: the server cannot tell the last two apart. A call in transit is done even if its server dies.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import Any, cast

from lakelog.errors import OutcomeUnknown, Unavailable
from lakelog.storage.memory import MemoryCatalog, MemoryStore
from lakelog.storage.store import Catalog, PartitionStore
from prove.simulation.cold_files import ColdFiles
from prove.simulation.loop import Node, VirtualLoop, driven

START = datetime(2026, 1, 1, tzinfo=UTC)
START_MS = round(START.timestamp() * 1000)
_REPLACED = "The database was replaced by a promoted standby during the call."
_READS = (
    "read",
    "find",
    "list",
    "count",
    "clock",
    "offset_at",
    "heads_read",
    "changes_read",
    "versions_read",
    "roll_active",
    "search",
    "durab",
    "at_",
)


class DatabaseFault:
    """A fault that affects calls of one server, or of all servers, until a time."""

    def __init__(self, kind: str, until: float, share: float) -> None:
        self.kind, self.until, self.share = kind, until, share

    def of(self, verb: str, now: float) -> str | None:
        """Return the effect on the call, if the fault affects it."""
        return self.kind


class LostThenLate(DatabaseFault):
    """A fault that loses the response to one written commit of leases.

    Later reads of journals return only at its end.
    """

    def __init__(self, until: float, seconds: float) -> None:
        super().__init__("commit lost, journal late", until, 1.0)
        self._seconds = seconds
        self._has_lost = False

    def of(self, verb: str, now: float) -> str | None:
        if verb == "journals_commit" and not self._has_lost:
            self._has_lost = True
            self.until = now + self._seconds
            return "lost after"
        return self.kind if verb == "journals_read" and self._has_lost else None


class SimulatedDatabase:
    """The catalog and the cells. Their clock is the virtual clock plus the jumps that faults caused."""

    def __init__(self, loop: VirtualLoop, chance: random.Random, cells: int) -> None:
        self.loop = loop
        self.chance = chance
        self.node = Node("database")
        self.ahead_ms = 0
        self.catalog = MemoryCatalog(self.now)
        self.cells = {cell: MemoryStore(self.now) for cell in range(cells)}
        self.cold = ColdFiles(chance)
        self.call_faults: dict[str, DatabaseFault] = {}
        """The faults, by server; "" for all servers."""
        self.faults: Counter[str] = Counter()
        self.watchers: dict[str, Callable[[MemoryStore, Any, Any], None]] = {}
        """Functions by verb, each called with the arguments and the result of a performed call."""
        self.log: Callable[[str], None] | None = None

    def now(self) -> datetime:
        return START + timedelta(seconds=self.loop.now, milliseconds=self.ahead_ms)

    def now_ms(self) -> int:
        return START_MS + int(self.loop.now * 1000) + self.ahead_ms

    def fault(self, server: str, verb: str) -> tuple[str | None, float]:
        """Return the effect on this call, if any, and when the fault ends."""
        for name in (server, ""):
            found = self.call_faults.get(name)
            if found is None:
                continue
            if found.until <= self.loop.now:
                del self.call_faults[name]
            elif self.chance.random() < found.share and (kind := found.of(verb, self.loop.now)):
                return kind, found.until
        return None, 0.0

    def connection(self, node: Node, *, seals: bool = True) -> tuple[Catalog, dict[int, PartitionStore]]:
        """Return the database for that server. Without `seals`, no partition is cold."""
        catalog = _Catalog(self, node, self.catalog)
        cells = {
            cell: (_Sealing if seals else _StoreConnection)(self, node, store) for cell, store in self.cells.items()
        }
        return cast("Catalog", catalog), cast("dict[int, PartitionStore]", cells)

    def delay(self) -> float:
        number = self.chance.random()
        if number < 0.8:
            return 0.0002 + 0.002 * number
        return 0.02 * (number - 0.75) if number < 0.98 else 4 * (number - 0.975)


@cache
def _is_read(verb: str) -> bool:
    return verb.startswith(_READS) or "_find" in verb


class _Connection:
    """A store of the database, called through the connection of a server.

    `home` has the timeline of the store. Calls that were sent on an earlier timeline fail.
    """

    def __init__(
        self, database: SimulatedDatabase, node: Node, there: Any, home: _StoreConnection | None = None
    ) -> None:
        self._database = database
        self._node = node
        self._there = there
        self._home = home

    def __getattr__(self, name: str) -> Any:
        """Return a verb of the store, or the connection to a part of it, such as its groups."""
        there = getattr(self._there, name)
        if callable(there):
            here: Any = partial(self._call, name, there, _is_read(name))
        else:
            here = _Connection(self._database, self._node, there, self._home)
        self.__dict__[name] = here
        return here

    async def _call(self, verb: str, method: Any, is_read: bool, *args: Any, **kwargs: Any) -> Any:
        database = self._database
        home = self._home
        if home is not None:
            home.notice()
        timeline = 0 if home is None else home.timeline
        done = database.loop.create_future()
        kind, until = database.fault(self._node.name, verb) if database.call_faults else (None, 0.0)
        late = database.delay()
        if kind is not None:
            late = self._begin_trouble(kind, late, until)
        database.loop.call_later(
            late,
            self._arrive,
            (verb, method, args, kwargs, timeline),
            "refused" if is_read and kind in ("lost before", "lost after") else kind,
            done,
            context=database.node.context,
        )
        result = await done
        if home is not None and home.newest != timeline:
            # Another session may have found the new timeline first.
            home.notice()
            raise Unavailable(_REPLACED) if is_read else OutcomeUnknown(_REPLACED)
        return result

    def _begin_trouble(self, kind: str, late: float, until: float) -> float:
        self._database.faults[f"store: {kind}"] += 1
        if kind == "commit lost, journal late":
            return until - self._database.loop.now
        return late + self._database.chance.random() if kind == "slow" else late

    def _arrive(self, asked: tuple[str, Any, Any, Any, int], kind: str | None, done: asyncio.Future[Any]) -> None:
        verb, method, args, kwargs, timeline = asked
        database = self._database
        if self._home is not None and self._home.newest != timeline:
            # The session was open on the replaced node.
            self._answer(done, None, OutcomeUnknown(_REPLACED) if not _is_read(verb) else Unavailable(_REPLACED))
        elif kind == "refused":
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


class _StoreConnection(_Connection):
    def __init__(self, database: SimulatedDatabase, node: Node, there: MemoryStore) -> None:
        super().__init__(database, node, there, self)
        # Without faults: the clients of the simulation delay no message and have no outbox.
        self.scheduled = there.scheduled
        self.relays = there.relays
        self.timelines = there.timelines
        self.announcements = there.announcements
        self.timeline: int = there.timeline
        """The highest timeline that this server knows."""
        self._followers: list[Callable[[], None]] = []
        there.on_replaced(self._ping)

    @property
    def newest(self) -> int:
        return cast("int", self._there.timeline)

    def on_replaced(self, call: Callable[[], None]) -> None:
        self._followers.append(call)

    def notice(self) -> None:
        """Tell the followers about a new timeline. A server does that with its first session on it."""
        if self.timeline < self.newest:
            self.timeline = self.newest
            for call in self._followers:
                call()

    def _ping(self) -> None:
        """Let the server find out within a second, even if it makes no call."""
        loop = self._database.loop
        loop.call_later(self._database.chance.random(), self.notice, context=self._node.context)

    @property
    def is_listening(self) -> bool:
        return cast("bool", self._there.is_listening)

    @property
    def senders(self) -> int:
        return cast("int", self._there.senders)

    async def close(self) -> None:
        """Do nothing: the database keeps running."""


class _Sealing(_StoreConnection):
    """A store with cold partitions."""

    async def read(self, pid: int, offset: int, **limits: int) -> Any:
        read = await self._call("read", self._there.read, True, pid, offset, **limits)
        return self._database.cold.sealed(pid, read)

    async def read_many(self, asks: Sequence[tuple[int, int]], **limits: int) -> Any:
        reads = await self._call("read_many", self._there.read_many, True, asks, **limits)
        return [self._database.cold.sealed(pid, read) for (pid, _), read in zip(asks, reads, strict=True)]


class _Catalog(_Connection):
    def __init__(self, database: SimulatedDatabase, node: Node, there: MemoryCatalog) -> None:
        super().__init__(database, node, there)
        self.on_replaced = there.on_replaced
        self.level = there.level

    async def close(self) -> None:
        """Do nothing: the database keeps running."""


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 160 else text[:157] + "..."
