"""Stores in memory that can be watched, held up and made to fail, a clock set by hand, and engines over them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from lakelog.batches import decode, encode, from_messages, to_messages
from lakelog.engine import Engine, EngineSettings
from lakelog.errors import LakelogError
from lakelog.model.fetch import FetchedBatches, FetchLimits
from lakelog.model.message import Message
from lakelog.model.position import AtOffset, Receipt
from lakelog.model.topic import Scope
from lakelog.storage.memory import MemoryCatalog, MemoryStore
from lakelog.storage.store import Append, Appended, Payload, Refused, Reservation


class Clock:
    """A clock that moves only when a test moves it."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def pass_by(self, **time: float) -> None:
        self.now += timedelta(**time)


class WatchedStore(MemoryStore):
    """Records appends and reservations, waits where a test closed a gate, raises what a test put in `failures`."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(clock or Clock())
        self.appends: list[list[Append]] = []
        self.reserved: list[list[Reservation]] = []
        self.failures: list[Exception] = []
        """For the next appends and reservations, in order."""
        self._gates: dict[int, asyncio.Event] = {}
        self._all = asyncio.Event()
        self._all.set()
        self._in_flight: set[int] = set()

    def hold(self, pid: int | None = None) -> asyncio.Event:
        """From now on appends (to that partition) and reservations wait until the event is set."""
        gate = asyncio.Event()
        if pid is None:
            self._all = gate
        else:
            self._gates[pid] = gate
        return gate

    async def append(self, appends: Sequence[Append]) -> list[Appended | Refused]:
        pids = {append.pid for append in appends}
        assert len(pids) == len(appends), "a partition occurs twice in one commit"
        assert not pids & self._in_flight, "a partition is in two commits at once"
        self.appends.append(list(appends))
        self._in_flight |= pids
        try:
            for gate in [self._all, *(self._gates[pid] for pid in pids if pid in self._gates)]:
                await gate.wait()
            if self.failures:
                raise self.failures.pop(0)
            return await super().append(appends)
        finally:
            self._in_flight -= pids

    async def reserve(self, reservations: Sequence[Reservation], *, durable: bool) -> list[Reservation]:
        self.reserved.append(list(reservations))
        await self._all.wait()
        if self.failures:
            raise self.failures.pop(0)
        return await super().reserve(reservations, durable=durable)


@asynccontextmanager
async def started(
    catalog: MemoryCatalog, *stores: MemoryStore, settings: EngineSettings | None = None
) -> AsyncIterator[Engine]:
    """A running engine with a cell per store. Two over the same objects are two servers."""
    engine = Engine(catalog, dict(enumerate(stores)), settings)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.close()


@asynccontextmanager
async def one_engine(*stores: MemoryStore) -> AsyncIterator[tuple[Engine, Scope]]:
    catalog = MemoryCatalog()
    async with started(catalog, *(stores or (WatchedStore(),))) as engine:
        yield engine, await catalog.scope_create("shop", "test")


def text(value: str, **fields: object) -> Message:
    return Message(value=value.encode(), **fields)  # type: ignore[arg-type]


def packed(*values: str) -> Payload:
    batch = from_messages([text(value) for value in values])
    return Payload(data=encode(batch), count=len(values))


def stored(fetched: FetchedBatches) -> list[Message]:
    """The messages between `start` and `until`: what a reader takes from whole batches."""
    found: list[Message] = []
    for batch in fetched.batches:
        messages = to_messages(decode(batch.payload))
        found += [m for at, m in enumerate(messages, batch.base) if fetched.start <= at < fetched.until]
    return found


async def values(engine: Engine, scope: Scope, name: str, partition: int = 0) -> list[str]:
    """Everything in a partition from its log start, by as many fetches as it takes."""
    (head, *_) = [h for h in (await engine.topics.describe(scope, name)).heads if h.pid & 0xFFFF == partition]
    at, found = head.log_start, list[str]()
    while at < head.next_offset:
        fetched = await engine.fetcher.fetch(scope, name, partition, AtOffset(at), FetchLimits(max_messages=100))
        assert fetched.until > at
        found += [(message.value or b"").decode() for message in stored(fetched)]
        at = fetched.until
    return found


async def publish(engine: Engine, scope: Scope, name: str, *messages: Message) -> list[Receipt]:
    """The receipts, where all are expected to go in."""
    answers = await engine.publisher.messages(scope, name, messages)
    for answer in answers:
        if isinstance(answer, LakelogError):
            raise answer
    return answers  # type: ignore[return-value]
