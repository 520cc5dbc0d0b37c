"""An engine on fresh databases and an outbox beside it, for the tests of relays."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import asyncpg

from lakelog.engine import Engine
from lakelog.engine.outbox.relay import OutboxRelay
from lakelog.model.message import Message
from lakelog.model.topic import Scope, Topic
from lakelog.storage.postgres import PostgresOutbox, install_outbox, migrate, open_stores
from tests.acceptance.engines import Server


@dataclass(frozen=True, kw_only=True)
class OutboxLog:
    """A log with topics, an outbox in a database, and a connection to that database."""

    engine: Engine
    scope: Scope
    url: str
    caller: asyncpg.Connection
    relays: list[OutboxRelay] = field(default_factory=list)

    def relay(self) -> OutboxRelay:
        """Return a new relay, which is closed at the end of the test."""
        self.relays.append(self.engine.outbox_relay(PostgresOutbox(self.url)))
        return self.relays[-1]

    async def create(self, name: str = "orders", partitions: int = 1) -> Topic:
        return await self.engine.topics.create(self.scope, name, partitions)

    async def publish(self, topic: str, value: str, key: str | None = None, **others: object) -> str:
        """Publish in a transaction of its own, or in that of the caller, and return the id."""
        names = ["topic", "value", "key", *others]
        listed = ", ".join(f"{name} => ${place}" for place, name in enumerate(names, 1))
        found: str = await self.caller.fetchval(
            f"select lakelog_outbox.publish({listed}, content_type => 'text/plain')",
            topic,
            value,
            key,
            *others.values(),
        )
        return found

    async def messages(self, topic: Topic) -> list[Message]:
        """Return all messages of a topic, partition by partition."""
        reader = Server(engine=self.engine, scope=self.scope, name=topic.name)
        return [message for partition in range(topic.partitions) for message in await reader.messages(partition)]

    async def values(self, topic: Topic) -> list[str]:
        return [(message.value or b"").decode() for message in await self.messages(topic)]


@asynccontextmanager
async def opened(url: str, app: str, cells: Mapping[str, str] | None = None) -> AsyncIterator[OutboxLog]:
    """Migrate the databases of the log, install an outbox in `app`, and open both."""
    await migrate(url, cells)
    await install_outbox(app)
    catalog, stores = await open_stores(url, cells or {})
    engine = Engine(catalog, stores)
    await engine.start()
    caller = await asyncpg.connect(app)
    relays: list[OutboxRelay] = []
    try:
        scope = await catalog.scope_create("default", "default")
        yield OutboxLog(engine=engine, scope=scope, url=app, caller=caller, relays=relays)
    finally:
        for relay in relays:
            await relay.close()
        await caller.close()
        await engine.close()


async def poll_until_idle(relay: OutboxRelay) -> int:
    """Poll until nothing is left, and return how many messages were moved."""
    total = 0
    while count := await relay.poll():
        total += count
    return total


def by_key(messages: Sequence[Message]) -> dict[bytes, list[bytes]]:
    """Return the values of each key, in order."""
    found: dict[bytes, list[bytes]] = {}
    for message in messages:
        found.setdefault(message.key or b"", []).append(message.value or b"")
    return found
