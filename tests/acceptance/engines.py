"""Engines for the tests of the log: in memory, with one cell, and with two cells on two clusters.

A test gets one or several servers over the same data from `log`. Databases are migrated once and shared, so each test
has its own environment.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

import pytest

from lakelog.engine import Engine, Frame, FrameReceipt, Numbered
from lakelog.errors import LakelogError
from lakelog.model.fetch import FetchedBatches, FetchLimits
from lakelog.model.message import Message
from lakelog.model.position import AtOffset, Position, Receipt
from lakelog.model.topic import Retention, Scope, Topic, TopicSettings
from lakelog.storage.memory import MemoryCatalog, MemoryStore
from lakelog.storage.store import Head
from tests.kit.postgres import Cluster
from tests.unit.engine.support import stored

NAMES = ("memory", "one-cell", "two-cells")


@dataclass(frozen=True, kw_only=True)
class Server:
    """An engine, with short forms for one topic in the test's own environment."""

    engine: Engine
    scope: Scope
    name: str = "orders"

    async def create(self, partitions: int = 1, retention: Retention | None = None) -> Topic:
        settings = TopicSettings(retention=retention or Retention())
        return await self.engine.topics.create(self.scope, self.name, partitions, settings)

    async def answers(
        self, *messages: Message, numbered: Numbered | None = None, epoch: int | None = None
    ) -> list[Receipt | LakelogError]:
        return await self.engine.publisher.messages(self.scope, self.name, messages, numbered=numbered, epoch=epoch)

    async def publish(self, *messages: Message, numbered: Numbered | None = None) -> list[Receipt]:
        """Return the receipts of messages that must all be accepted."""
        answers = await self.answers(*messages, numbered=numbered)
        assert all(isinstance(answer, Receipt) for answer in answers), answers
        return answers  # type: ignore[return-value]

    async def frames(self, *frames: Frame) -> list[FrameReceipt | LakelogError]:
        return await self.engine.publisher.frames(self.scope, self.name, frames)

    async def fetch(self, position: Position, partition: int = 0, **limits: float) -> FetchedBatches:
        return await self.engine.fetcher.fetch(
            self.scope,
            self.name,
            partition,
            position,
            FetchLimits(**limits),  # type: ignore[arg-type]
        )

    async def heads(self) -> list[Head]:
        return list((await self.engine.topics.describe(self.scope, self.name)).heads)

    async def messages(self, partition: int = 0) -> list[Message]:
        """Return all messages from the log start to the high watermark, as a reader with repeated fetches gets them."""
        head = (await self.heads())[partition]
        at, found = head.log_start, list[Message]()
        while at < head.next_offset:
            fetched = await self.fetch(AtOffset(at), partition, max_messages=1000)
            assert fetched.until > at
            found += stored(fetched)
            at = fetched.until
        assert len(found) == head.next_offset - head.log_start
        return found

    async def values(self, partition: int = 0) -> list[str]:
        return [(message.value or b"").decode() for message in await self.messages(partition)]


class Installation(Protocol):
    cells: int

    async def opened(self) -> Engine:
        """Return an engine that is not yet started."""
        ...


class InMemory:
    cells = 1

    def __init__(self) -> None:
        self._catalog, self._store = MemoryCatalog(), MemoryStore()

    async def opened(self) -> Engine:
        return Engine(self._catalog, {0: self._store})


class OnPostgres:
    def __init__(self, url: str, others: dict[str, str]) -> None:
        self.cells = 1 + len(others)
        self._url = url
        self._others = others

    async def opened(self) -> Engine:
        from lakelog.storage.postgres import open_catalog, open_cells

        catalog = await open_catalog(self._url)
        return Engine(catalog, await open_cells(self._url, self._others))


class Log:
    """One of the installations that every test of the log uses."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self.cells = installation.cells

    @asynccontextmanager
    async def servers(self, count: int = 2) -> AsyncIterator[Sequence[Server]]:
        """Several engines over the same data, each with its own connections, caches and commits."""
        async with AsyncExitStack() as stack:
            engines = []
            for _ in range(count):
                engine = await self._installation.opened()
                stack.push_async_callback(engine.close)
                await engine.start()
                engines.append(engine)
            scope = await engines[0].catalog.scope_create(f"p{uuid.uuid4().hex}", "test")
            yield [Server(engine=engine, scope=scope) for engine in engines]

    @asynccontextmanager
    async def server(self) -> AsyncIterator[Server]:
        async with self.servers(1) as (server,):
            yield server


def open_log(request: pytest.FixtureRequest) -> Log:
    """Return the installation that the parameter names; its clusters start at the first request."""
    if request.param == "memory":
        return Log(InMemory())
    from lakelog.storage.postgres import migrate

    cluster: Cluster = request.getfixturevalue("cluster")
    others: dict[str, str] = {}
    if request.param == "two-cells":
        second: Cluster = request.getfixturevalue("second_cluster")
        others = {"b": second.create_database()}
    url = cluster.create_database()
    asyncio.run(migrate(url, others))
    return Log(OnPostgres(url, others))
