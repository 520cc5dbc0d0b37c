"""A small publish that takes the fast path is answered, counted and stored as on the normal path."""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from lakelog.errors import LakelogError, OutcomeUnknown, Unavailable
from lakelog.model.token import Right, hash_secret
from lakelog.server import traffic
from lakelog.server.fast_publish import MAX_BYTES, FastPublish, topic_of
from lakelog.storage.memory import MemoryStore
from tests.unit.server.harness import World, world
from tests.unit.server.wires import Wire, until

PRODUCER = "0" * 31 + "1"
PLAIN = {"value": {"a": 1}, "partition": 0}
MESSAGES: list[dict[str, Any]] = [
    PLAIN,
    *({"value": value, "partition": 1} for value in (1, -2.5, True, None, "text", "", "ünï", [], [1, {"b": None}], "")),
    {"value": "text", "content_type": "application/json", "partition": 0},
    {"value": 1, "content_type": "text/csv", "partition": 0},
    {"value_base64": "AP8=", "key": "customer-7"},
    {"value_base64": "no base64!", "key": "customer-7"},
    {"value": 1, "value_base64": "AA==", "key": "k"},
    {"value": 1, "key_base64": "AP8="},
    {"value": 1, "key": "k", "key_base64": "AP8="},
    {"value": 1, "key": "k" * 5000},
    {"value": 1, "key": None, "partition": 3},
    {"value": 1, "partition": 4},
    {"value": 1, "partition": -1},
    {"value": 1, "partition": 1 << 40},
    {"value": 1, "key": "ключ", "headers": {"trace": "a", "b": "ü"}, "correlation_id": "c-1"},
    {"value": 1, "key": "k", "headers": {"x": "y" * 40_000}},
    {"value": 1, "key": "k", "headers": {}},
    {"value": 1, "key": "k", "headers": {"x": 1}},
    {"value": 1, "key": "k", "content_type": "x" * 3000},
    {"value": 1, "key": "k", "created_at": "2026-02-03T04:05:06+01:00"},
    {"value": 1, "key": "k", "created_at": "2026-02-03T04:05:06"},
    {"value": 1, "key": "k", "created_at": "0001-01-01T00:00:00+14:00"},
    {"value": 1, "key": "k", "expires_ms": 0},
    {"value": 1, "key": "k", "expires_ms": 10**17},
    {"value": 1, "key": "k", "idempotency_key": "once"},
    {"value": 1, "key": "k", "idempotency_key": "once"},
    {"value": 2, "key": "k", "idempotency_key": "once"},
    {"value": 1, "key": "k", "idempotency_key": ""},
    {"value": "x" * MAX_BYTES, "key": "k"},
    {"key": "no value"},
    {"value": 1, "key": "k", "unknown": 1},
    {},
]
PUBLISHES: list[object] = [
    *({"messages": [message]} for message in MESSAGES),
    {"messages": [PLAIN, PLAIN]},
    {"messages": [PLAIN, {"value": 1, "partition": 9}]},
    *({"messages": [PLAIN], "producer": PRODUCER, "sequence": n} for n in (0, 0, 1, 7)),
    {"messages": [{"value": 1}], "producer": PRODUCER, "sequence": 2},
    {"messages": [PLAIN], "producer": PRODUCER},
    *({"messages": [PLAIN], "epoch": n} for n in (0, 1, 2, 1 << 40)),
    {"messages": []},
    {"messages": PLAIN},
    {},
    [],
    None,
]
RAW = [b"", b"{", b"nonsense", b'{"messages":[{"value":"\xff","partition":0}]}', b'{"messages":[{"value":1}]} x']
RAW += [b'{"messages":[{"value":' + b"[" * 3000 + b"]" * 3000 + b',"partition":0}]}', b" " * 70_000]
HEADERS: list[dict[str, str]] = [
    {"content-type": "application/json; charset=utf-8"},
    {"content-type": "Application/JSON"},
    {"content-type": "text/plain"},
    {"content-type": ""},
    {"Content-Type": "application/json", "X-Request-Id": "mine-7"},
    {"x-request-id": "not sane!"},
    {"x-request-id": "x" * 200},
    {"content-encoding": "identity"},
    {"content-encoding": "gzip"},
    {"connection": "close"},
    {"connection": "keep-alive"},
    {"expect": "100-continue"},
    {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
    {"accept": "text/html", "user-agent": "curl/8"},
    {"authorization": ""},
    {"authorization": "Bearer wrong"},
    {"authorization": "Basic dXNlcjpwYXNz"},
    {"authorization": "Bearer"},
]
TARGETS = ["/v1/topics/missing/messages", "/v1/topics/%6frders/messages", "/v1/topics/orders/messages?x=1"]
TARGETS += ["/v1/topics/orders/messages/", "/v1/topics//messages", "/v1/topics/a b/messages", "/v1/topics/../messages"]
TARGETS += ["/v1/topics/orders/messages#x", "//v1/topics/orders/messages", "/v1/topics/orders%2Fmessages", "/v1/topics"]


def request(
    made: World,
    body: bytes,
    headers: Mapping[str, str] | None = None,
    *,
    method: str = "POST",
    target: str = "/v1/topics/orders/messages",
    version: str = "1.1",
) -> bytes:
    """A request as a client sends it; `headers` replace those that it has by default."""
    given = {"authorization": f"Bearer {made.token}", "content-type": "application/json"}
    given |= {"content-length": str(len(body)), **(headers or {})}
    lines = [f"{method} {target} HTTP/{version}", *(f"{name}: {text}" for name, text in given.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


def varied(made: World, tokens: Sequence[str]) -> Iterator[tuple[bytes, ...]]:
    """Requests in one or several pieces, as the network may deliver them."""
    plain = msgspec.json.encode({"messages": [PLAIN]})
    bodies = [*map(msgspec.json.encode, PUBLISHES), *RAW]
    for body in bodies:
        whole = request(made, body)
        yield (whole,)
        head = whole.index(b"\r\n\r\n") + 4
        for cut in {10, head - 2, head, head + len(body) // 2}:
            yield (whole[:cut], whole[cut:])
    for headers, body in itertools.product(HEADERS, (plain, RAW[2])):
        yield (request(made, body, headers),)
    for token in tokens:
        yield (request(made, plain, {"authorization": f"Bearer {token}"}),)
        yield (request(made, plain, {"authorization": f"bearer  {token} "}),)
    for target in TARGETS:
        yield (request(made, plain, target=target),)
    for method in ("GET", "PUT", "DELETE", "HEAD"):
        yield (request(made, plain, method=method),)
    yield (request(made, plain, version="1.0"),)
    yield (request(made, plain, {"connection": "keep-alive"}, version="1.0"),)
    chunked = request(made, b"", {"transfer-encoding": "chunked"}).replace(b"content-length: 0\r\n", b"")
    yield (chunked + b"%x\r\n%s\r\n0\r\n\r\n" % (len(plain), plain),)
    yield (request(made, plain, {"content-length": "99999999"}),)
    yield (request(made, plain, {"content-length": "+7"}),)
    yield (request(made, plain).replace(b"content-type", b"content-type: text/plain\r\ncontent-type"),)


class Counted(FastPublish):
    """Counts the requests that took the fast path."""

    taken = 0

    def begin(self, *args: Any) -> Any:
        found = super().begin(*args)
        self.taken += found is not None
        return found


@asynccontextmanager
async def both(monkeypatch: pytest.MonkeyPatch, **given: Any) -> AsyncIterator[tuple[World, World]]:
    """Two worlds that answer the same; the second has no fast path."""
    monkeypatch.setattr("lakelog.server.logs.secrets.token_hex", lambda size: "ab" * size)
    monkeypatch.setattr("lakelog.engine.log.publish.secrets.randbelow", lambda limit: 0)
    monkeypatch.setattr("lakelog.server.app.FastPublish", Counted)
    store = given.pop("store", MemoryStore)
    async with world(store=store(), **given) as fast, world(store=store(), **given) as normal:
        normal.app.fast_publish = None
        normal.token = fast.token = await normal.make_token()
        await _same_token(normal, fast, normal.token)
        yield fast, normal


async def _same_token(source: World, to: World, secret: str) -> None:
    found = await source.engine.catalog.token_find(hash_secret(secret))
    assert found is not None
    await to.engine.catalog.token_create(to.scope, found[1], hash_secret(secret))


async def ask(made: World, *pieces: bytes) -> tuple[bytes, bool]:
    """Return the response on a separate connection, and whether that connection is closed."""
    wire = Wire(made.app)
    said, closed = await wire.answers(*pieces), wire.closed
    wire.hang_up()
    await asyncio.gather(*wire.state.tasks)
    return said, closed


async def stored(made: World) -> list[Any]:
    found = []
    for partition in range(4):
        messages = (await made.fetch("orders", partition, "offset=0")).json["messages"]
        found += [{**message, "appended_at": None} for message in messages]
    return found


_TIMED = re.compile("_seconds_(sum|bucket|total)|lakelog_(trim|connection_wait|loop_delay)")
"""Durations, and work that agents of the process start by the clock."""


def counted(made: World) -> list[str]:
    """Return the metrics that depend on calls alone."""
    return [line for line in made.app._metrics.render().decode().splitlines() if not _TIMED.search(line)]


async def test_several_hundred_requests_are_answered_as_on_the_normal_path(monkeypatch: pytest.MonkeyPatch) -> None:
    async with both(monkeypatch) as (fast, normal):
        tokens = [await normal.make_token(frozenset({right})) for right in Right]
        tokens.append(await normal.make_token(expires_at=datetime.now(UTC) - timedelta(hours=1)))
        for token in tokens:
            await _same_token(normal, fast, token)
        # Twice, because the first call of each token fills the cache.
        requests = [*varied(fast, tokens), *varied(fast, tokens)]
        for pieces in requests:
            assert await ask(fast, *pieces) == await ask(normal, *pieces), pieces
        assert await stored(fast) == await stored(normal)
        for made in (fast, normal):
            made.app._sample()
            assert made.app.traffic.in_flight == 0 and made.engine.budget.used == 0
        assert counted(fast) == counted(normal)
        assert isinstance(fast.app.fast_publish, Counted)
        assert len(requests) > 500 and fast.app.fast_publish.taken > 150


class _Failing(MemoryStore):
    error: LakelogError | None = None

    async def append(self, appends: Any) -> Any:
        if self.error is not None:
            raise self.error
        return await super().append(appends)


@pytest.mark.parametrize("error", [Unavailable("gone"), OutcomeUnknown("maybe"), LakelogError("odd")])
async def test_a_failed_commit_is_answered_as_on_the_normal_path(
    monkeypatch: pytest.MonkeyPatch, error: LakelogError
) -> None:
    async with both(monkeypatch, store=_Failing) as (fast, normal):
        body = msgspec.json.encode({"messages": [PLAIN]})
        await ask(fast, request(fast, body)), await ask(normal, request(normal, body))
        monkeypatch.setattr(_Failing, "error", error)
        assert await ask(fast, request(fast, body)) == await ask(normal, request(normal, body))
        assert fast.app.fast_publish.taken == 1  # type: ignore[union-attr]
        assert fast.app.traffic.in_flight == 0 and fast.engine.budget.used == 0


async def test_a_topic_that_was_recreated_or_grew_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with both(monkeypatch) as (fast, normal):
        said = []
        for made in (fast, normal):
            body = msgspec.json.encode({"messages": [PLAIN], "epoch": 1})
            found = [await ask(made, request(made, body))]
            # By another server: this one has the topic as it was in its cache.
            topic = await made.engine.topics.find(made.scope, "orders")
            await made.engine.topics.delete(made.scope, "orders")
            await made.engine.topics.create(made.scope, "orders", 4)
            made.engine.topics._remember(topic, time.monotonic())
            found.append(await ask(made, request(made, msgspec.json.encode({"messages": [PLAIN]}))))
            said.append(found)
        assert said[0] == said[1] and b'"offset":0' in said[0][1][0]
        assert fast.app.fast_publish.taken == 1  # type: ignore[union-attr]


@pytest.mark.parametrize("limit", ["memory", "calls"])
async def test_limits_are_those_of_the_normal_path(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    async with both(monkeypatch, memory_bytes=1000) as (fast, normal):
        body = msgspec.json.encode({"messages": [{"value": "x" * 100, "partition": 0}]})
        for made in (fast, normal):
            await ask(made, request(made, body))
            if limit == "memory":
                made.engine.budget.take(950)
        if limit == "calls":
            monkeypatch.setattr(traffic, "MAX_IN_FLIGHT", 0)
        said = await ask(fast, request(fast, body))
        assert said == await ask(normal, request(normal, body))
        assert said[0].startswith(b"HTTP/1.1 429 ")


async def test_a_token_is_looked_up_again_when_its_time_in_the_cache_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async with both(monkeypatch) as (fast, _):
        body = msgspec.json.encode({"messages": [PLAIN]})
        await ask(fast, request(fast, body))
        for token in await fast.engine.catalog.token_list(fast.scope):
            await fast.engine.catalog.token_revoke(fast.scope, token.id)
        known = fast.app._authenticator._known
        assert (await ask(fast, request(fast, body)))[0].startswith(b"HTTP/1.1 200 ")
        for hashed, entry in known.items():
            known[hashed] = entry._replace(until=0.0)
        assert (await ask(fast, request(fast, body)))[0].startswith(b"HTTP/1.1 401 ")


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with world() as made:
        wire = Wire(made.app)
        bodies = [msgspec.json.encode({"messages": [{"value": n, "partition": 0}]}) for n in range(4)]
        await wire.answers(request(made, bodies[0]))
        others = [request(made, b"", method="GET", target="/v1/topics"), *(request(made, each) for each in bodies[1:])]
        said = await wire.answers(b"".join(others), count=4)
        places = [said.index(text) for text in (b'"offset":0', b'"topics"', b'"offset":1', b'"offset":2')]
        assert places == sorted(places) and said.count(b"HTTP/1.1 200 OK\r\n") == 5
        wire.hang_up()


class _Waiting(MemoryStore):
    """Commits when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()
        self.go.set()
        self.asked = 0

    async def append(self, appends: Any) -> Any:
        self.asked += 1
        await self.go.wait()
        return await super().append(appends)


@asynccontextmanager
async def _publishing() -> AsyncIterator[tuple[World, Wire, _Waiting]]:
    """A connection whose publish waits for its commit."""
    store = _Waiting()
    async with world(store=store) as made:
        wire = Wire(made.app)
        body = msgspec.json.encode({"messages": [PLAIN]})
        await wire.answers(request(made, body))
        wire.writes.clear()
        store.go.clear()
        wire.feed(request(made, body))
        await until(lambda: store.asked == 2)
        assert made.app.traffic.in_flight == 1 and made.engine.budget.used == len(body)
        try:
            yield made, wire, store
        finally:
            store.go.set()
            await until(lambda: not made.app.traffic.in_flight)
            assert made.engine.budget.used == 0


async def test_an_answer_during_the_drain_closes_its_connection() -> None:
    async with _publishing() as (made, wire, store):
        made.drain.begin()
        store.go.set()
        await until(lambda: wire.closed)
        assert b"\r\nconnection: close\r\n" in b"".join(wire.writes)


async def test_a_server_that_stops_waits_for_the_answer() -> None:
    async with _publishing() as (_, wire, store):
        wire.protocol.shutdown()
        assert not wire.closed
        store.go.set()
        await until(lambda: wire.closed)
        assert b"".join(wire.writes).startswith(b"HTTP/1.1 200 ")


async def test_nothing_is_written_to_a_client_that_hung_up() -> None:
    async with _publishing() as (made, wire, store):
        wire.hang_up()
        store.go.set()
        await until(lambda: not made.app.traffic.in_flight)
        assert wire.writes == []


async def test_a_plain_publish_takes_the_fast_path_and_one_write() -> None:
    async with world() as made:
        body = msgspec.json.encode({"messages": [PLAIN]})
        wire = Wire(made.app)
        await wire.answers(request(made, body))
        before = len(wire.writes)
        await wire.answers(request(made, body))
        assert len(wire.writes) == before + 1
        assert wire.state.tasks == set()
        wire.hang_up()


@pytest.mark.parametrize(
    ("target", "topic"),
    [
        (b"/v1/topics/orders/messages", "orders"),
        (b"/v1/topics/a.b-c_D9/messages", "a.b-c_D9"),
        (b"/v1/topics/" + b"a" * 120 + b"/messages", "a" * 120),
        (b"/v1/topics/" + b"a" * 121 + b"/messages", None),
        (b"/v1/topics//messages", None),
        (b"/v1/topics/messages", None),
        (b"/v1/topics/a/b/messages", None),
        (b"/v1/topics/%61/messages", None),
        (b"/v1/topics/a?/messages", None),
        (b"/v1/topics/\xc3\xa9/messages", None),
        (b"/v1/topics/a/messages?x", None),
        (b"http://x/v1/topics/a/messages", None),
    ],
)
def test_the_topic_of_a_target(target: bytes, topic: str | None) -> None:
    assert topic_of(target) == topic
