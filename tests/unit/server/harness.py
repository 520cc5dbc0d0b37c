"""An app over stores in memory, and calls to it without HTTP in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any

import msgspec

from lakelog.engine import Engine, EngineSettings
from lakelog.model.token import Right, Token, hash_secret, new_secret
from lakelog.model.topic import Scope
from lakelog.server import App, Drain, HealthSource, ServerSettings, create_app
from lakelog.storage.memory import MemoryCatalog, MemoryStore

ALL = frozenset(Right)
_numbers = count(1)


@dataclass(frozen=True, kw_only=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


@dataclass(kw_only=True)
class World:
    """An engine and its app. `token` has all rights in `default`."""

    engine: Engine
    app: App
    drain: Drain
    scope: Scope
    token: str
    sent: list[dict[str, Any]] = field(default_factory=list)

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: str = "",
        body: bytes | Sequence[bytes] = b"",
        json: object = None,
        headers: Mapping[str, str] | None = None,
        token: str | None = "",
        gone: asyncio.Event | None = None,
        sent: list[dict[str, Any]] | None = None,
        client: tuple[str, int] | None = None,
        scope: Mapping[str, Any] | None = None,
    ) -> Reply:
        """One call. `token=None` sends none; several pieces of body come without a length; `gone` hangs up.

        `sent` has everything that the app has sent so far. `scope` has further keys of the ASGI scope.
        """
        given = {name.lower(): value for name, value in (headers or {}).items()}
        if json is not None:
            body = msgspec.json.encode(json)
            given.setdefault("content-type", "application/json")
        if token is not None:
            given.setdefault("authorization", f"Bearer {token or self.token}")
        pieces = [body] if isinstance(body, bytes) else list(body)
        if isinstance(body, bytes):
            given.setdefault("content-length", str(len(body)))
        else:
            given.setdefault("transfer-encoding", "chunked")
        asgi: dict[str, Any] = {
            **(scope or {}),
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in given.items()],
        }
        if client is not None:
            asgi["client"] = client
        return await self._exchange(asgi, pieces, gone or asyncio.Event(), [] if sent is None else sent)

    async def _exchange(
        self, asgi: dict[str, Any], pieces: list[bytes], gone: asyncio.Event, sent: list[dict[str, Any]]
    ) -> Reply:

        async def receive() -> dict[str, Any]:
            if pieces:
                return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(asgi, receive, send)
        self.unread = pieces
        if not sent:
            return Reply(status=0, headers={}, body=b"")
        headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Reply(status=sent[0]["status"], headers=headers, body=b"".join(part["body"] for part in sent[1:]))

    async def publish(self, topic: str, *messages: object, **given: Any) -> Reply:
        return await self.call("POST", f"/v1/topics/{topic}/messages", json={"messages": list(messages)}, **given)

    async def fetch(self, topic: str, partition: int = 0, query: str = "", **given: Any) -> Reply:
        return await self.call("GET", f"/v1/topics/{topic}/partitions/{partition}/messages", query=query, **given)

    async def make_token(
        self, rights: frozenset[Right] = ALL, *, scope: Scope | None = None, expires_at: datetime | None = None
    ) -> str:
        secret = new_secret()
        token = Token(
            id=f"t{next(_numbers)}",
            name="test",
            rights=tuple(rights),
            created_at=datetime.now(UTC),
            expires_at=expires_at,
        )
        await self.engine.catalog.token_create(scope or self.scope, token, hash_secret(secret))
        return secret

    async def other_scope(self, project: str, environment: str) -> Scope:
        return await self.engine.catalog.scope_create(project, environment)


@asynccontextmanager
async def world(
    *,
    store: MemoryStore | None = None,
    catalog: MemoryCatalog | None = None,
    memory_bytes: int = 256 << 20,
    authenticate: bool = True,
    weak: Sequence[str] = (),
    address: str | None = None,
) -> AsyncIterator[World]:
    """A started engine with the topic `orders` (4 partitions), and its app."""
    engine = Engine(catalog or MemoryCatalog(), {0: store or MemoryStore()}, EngineSettings(memory_bytes=memory_bytes))
    await engine.start()
    scope = await engine.catalog.scope_create("default", "default")
    await engine.topics.create(scope, "orders", 4)
    drain = Drain()
    app = create_app(
        engine,
        ServerSettings(authenticate=authenticate),
        drain=drain,
        health=HealthSource(engine, drain, weak),
        everyone=None if authenticate else scope,
        address=address,
    )
    made = World(engine=engine, app=app, drain=drain, scope=scope, token="")
    made.token = await made.make_token()
    try:
        yield made
    finally:
        await engine.close()


@asynccontextmanager
async def working(*, memory_bytes: int = 256 << 20) -> AsyncIterator[World]:
    """The same with the topic `jobs`, of one partition, for tests of consuming."""
    async with world(memory_bytes=memory_bytes) as made:
        await made.engine.topics.create(made.scope, "jobs", 1)
        yield made


def waits(made: World) -> bool:
    """Return whether a consumer waits for messages: none were available when it arrived."""
    dispatchers = made.engine.leases._dispatchers.values()
    return any(waiting.has_waited and not waiting.is_last for each in dispatchers for waiting in each._waiting)
