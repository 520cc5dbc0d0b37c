"""Group routing: all servers choose the same home, forward whole calls, and serve them when that fails."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from lakelog.engine.budget import Budget
from lakelog.errors import Unavailable
from lakelog.model.levels import SUPPORTED
from lakelog.model.shard import WHOLE, Shard
from lakelog.model.token import Right
from lakelog.model.topic import Scope
from lakelog.server import Drain, group_routing
from lakelog.server.auth import Grant
from lakelog.server.calls import Call
from lakelog.server.group_routing import CLIENT, FORWARDED, GroupRouting, homes_of
from lakelog.server.machine import advertised_host, machine_id
from lakelog.server.metrics import Metrics
from lakelog.server.server_grants import GRANT
from lakelog.storage.groups import ServerInfo
from lakelog.storage.memory import MemoryCatalog

SCOPE = Scope(project="default", environment="default", environment_id=1)
Serve = Callable[[bytes], Awaitable[bytes]]


def _servers(count: int) -> list[ServerInfo]:
    return [ServerInfo(server_id=f"s{n}", address=f"h:{n}") for n in range(count)]


def test_homes_are_spread_and_move_little() -> None:
    keys = [(1, f"g{n}", "orders") for n in range(2000)]
    four, five = _servers(4), _servers(5)
    before = {key: homes_of(key, four)[0].server_id for key in keys}
    assert all(400 < count < 600 for count in Counter(before.values()).values())
    assert before == {key: homes_of(key, four[::-1])[0].server_id for key in keys}
    after = {key: homes_of(key, five)[0].server_id for key in keys}
    assert {after[key] for key in keys if after[key] != before[key]} == {"s4"}


@pytest.mark.parametrize(
    ("host", "given", "expected"),
    [
        ("127.0.0.1", None, "127.0.0.1"),
        ("::1", None, "::1"),
        ("db.example.org", None, "db.example.org"),
        ("0.0.0.0", "10.1.2.3", "10.1.2.3"),
    ],
)
def test_the_advertised_host(host: str, given: str | None, expected: str) -> None:
    assert advertised_host(host, given) == expected


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_a_wildcard_is_never_advertised(host: str) -> None:
    assert advertised_host(host, None) not in ("", "0.0.0.0", "::")


def _call(*headers: tuple[bytes, bytes]) -> Call:
    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    asgi = {
        "method": "POST",
        "path": "/v1/ack",
        "raw_path": b"/v1/ack",
        "query_string": b"a=b",
        "headers": [(b"authorization", b"Bearer x"), (b"content-length", b"999"), (b"connection", b"close"), *headers],
        "client": ("10.0.0.5", 1234),
    }
    call = Call(asgi, receive, Budget(1 << 20))
    call.scope = SCOPE
    call.grant = Grant(scope=SCOPE, rights=frozenset({Right.READ}), token="t1", name="billing")
    call.request_id = b"r-1"
    return call


@asynccontextmanager
async def _listening(serve: Serve) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server of raw requests: each is answered with what `serve` makes of it."""
    requests: list[bytes] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                requests.append(head + await reader.readexactly(length))
                writer.write(await serve(requests[-1]))
                await writer.drain()
        except (EOFError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with server:
        yield "{}:{}".format(*server.sockets[0].getsockname()[:2]), requests


def _answer(status: int, body: bytes = b"", *headers: bytes) -> Serve:
    async def serve(request: bytes) -> bytes:
        head = b"HTTP/1.1 %d Whatever\r\nContent-Type: text/x\r\ncontent-length: %d\r\n" % (status, len(body))
        return head + b"".join(header + b"\r\n" for header in headers) + b"\r\n" + body

    return serve


@asynccontextmanager
async def _pair(address: str) -> AsyncIterator[tuple[GroupRouting, ServerInfo]]:
    """This server, and another that is at that address."""
    catalog = MemoryCatalog()
    other = ServerInfo(server_id=machine_id() + "other", address=address)
    await catalog.groups.server_seen(other, memory_seconds=6)
    here = GroupRouting(catalog.groups, "127.0.0.1:1", Drain(), Metrics())
    await here.start()
    try:
        yield here, other
    finally:
        await here.stop()


async def test_a_call_is_passed_on_whole() -> None:
    refusal = _answer(409, b"problem", b"retry-after: 7", b"x-inner: 1")
    async with _listening(refusal) as (address, requests), _pair(address) as (here, other):
        spoofed = (FORWARDED, b"1"), (CLIENT, b"6.6.6.6"), (GRANT, b"x"), (b"cookie", b"y")
        calls = [_call(*spoofed) for _ in range(3)]
        answers = [await here.forward(call, b'{"a": 1}', other) for call in calls]
        assert all(call.passed_on for call in calls)
        assert len(here._idle[address]) == 1
    for answer in answers:
        assert answer is not None
        assert (answer.status, answer.body) == (409, b"problem")
        headers = dict(answer.headers)
        assert headers.pop(b"lakelog-home") != headers.pop(b"lakelog-server")
        assert headers == {b"content-type": b"text/x", b"retry-after": b"7"}
    assert not any(b"Bearer" in request for request in requests), "the token stays here"
    head, _, body = requests[0].partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    assert (first, body) == (b"POST /v1/ack?a=b HTTP/1.1", b'{"a": 1}')
    assert sorted(lines) == [
        b"content-length: 8",
        b"x-lakelog-client: 10.0.0.5",
        b"x-lakelog-forwarded: %s" % other.server_id.encode(),
        *[line for line in lines if line.startswith(b"x-lakelog-grant: ")],
        b"x-request-id: r-1",
    ]


async def _cut(request: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nhalf"


async def _garbage(request: bytes) -> bytes:
    return b"garbage\r\n\r\n"


async def _silence(request: bytes) -> bytes:
    await asyncio.sleep(30)
    return b""


@pytest.mark.parametrize("serve", [_answer(200, b"x" * 9, b"content-length: -5"), _garbage, _silence])
async def test_what_fails_is_served_here(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_routing, "ANSWER_SECONDS", 0.05)
    async with _listening(serve) as (address, _), _pair(address) as (here, other):
        call = _call()
        group = next(name for name in map(str, range(99)) if here.elsewhere(call, name, "orders"))
        assert await here.forward(call, b"", other) is None
        # And is not tried again at once.
        assert here.elsewhere(call, group, "orders") is None


async def test_who_is_not_there_is_served_here() -> None:
    async with _listening(_cut) as (address, _):
        pass
    async with _pair(address) as (here, other):
        assert await here.forward(_call(), b"", other) is None


async def test_a_home_that_cannot_serve_is_no_home() -> None:
    async with _listening(_answer(503)) as (address, _), _pair(address) as (here, other):
        call = _call()
        assert await here.forward(call, b"", other) is None
        assert not call.passed_on, "its change is audited here"


async def test_a_home_that_refuses_the_grant_is_no_home() -> None:
    async with _listening(_answer(401, b"expired")) as (address, _), _pair(address) as (here, other):
        call = _call()
        assert await here.forward(call, b"", other) is None, "the caller has a valid token"
        assert not call.passed_on


async def test_a_call_is_passed_on_once() -> None:
    async with _pair("127.0.0.1:2") as (here, _):
        names = [str(number) for number in range(50)]
        assert any(here.elsewhere(_call(), name, "orders") for name in names)
        assert not any(here.elsewhere(_call((FORWARDED, b"1")), name, "orders") for name in names)


async def test_nothing_is_passed_on_by_a_server_that_drains() -> None:
    async with _pair("127.0.0.1:2") as (here, _):
        here._drain.begin()
        assert not any(here.elsewhere(_call(), str(number), "orders") for number in range(50))


async def test_a_server_that_drains_is_gone_for_the_others() -> None:
    catalog = MemoryCatalog()
    one, two = (GroupRouting(catalog.groups, f"127.0.0.1:{n}", Drain(), Metrics()) for n in (1, 2))
    await one.start()
    await two.start()
    two._drain.begin()
    assert two._beating is not None
    await asyncio.wait_for(two._beating, 2)
    await one._beat()
    assert [each.address for each in one._servers] == ["127.0.0.1:1"]
    await one.stop()
    await two.stop()


async def test_each_shard_of_a_large_topic_has_a_home_and_each_owner_one_of_them() -> None:
    catalog = MemoryCatalog()
    servers = [GroupRouting(catalog.groups, f"127.0.0.1:{n}", Drain(), Metrics()) for n in range(3)]
    for each in (*servers, *servers):
        await each._beat()
    owners = [f"w{number}" for number in range(200)]

    def homes(partitions: int) -> dict[str, set[str]]:
        """The homes of each owner, according to all servers. A server that names no other names itself."""
        found: dict[str, set[str]] = {owner: set() for owner in owners}
        for each in servers:
            for owner in owners:
                home = each.elsewhere(_call(), "billing", "orders", owner=owner, partitions=partitions)
                found[owner].add((home or each._me).server_id)
        return found

    def shards(partitions: int) -> list[Shard]:
        return sorted(
            (each.shard(_call(), "billing", "orders", partitions) for each in servers),
            key=lambda shard: (shard.count, shard.index),
        )

    assert all(len(found) == 1 for found in homes(10_000).values())
    spread = Counter(home for found in homes(10_000).values() for home in found)
    assert len(spread) == 3 and min(spread.values()) > 40
    assert shards(10_000) == [Shard(index=n, count=3) for n in range(3)]
    assert len(set().union(*homes(512).values())) == 2
    assert shards(512) == [WHOLE, Shard(index=0, count=2), Shard(index=1, count=2)]
    assert len(set().union(*homes(256).values())) == 1 and shards(256) == [WHOLE] * 3
    servers[0]._servers = servers[0]._servers[:1]
    assert servers[0].shard(_call(), "billing", "orders", 10_000) == WHOLE


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("partitions", [7, 256, 1000])
def test_each_partition_is_in_one_shard(partitions: int, count: int) -> None:
    shards = [Shard(index=index, count=count) for index in range(count)]
    held = [[n for n in range(partitions) if shard.holds(n, partitions)] for shard in shards]
    assert [n for each in held for n in each] == list(range(partitions)), "in ranges"
    assert max(map(len, held)) - min(map(len, held)) <= 1


async def test_old_knowledge_of_servers_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with _pair("127.0.0.1:2") as (here, _):
        name = next(each for each in map(str, range(99)) if here.elsewhere(_call(), each, "orders"))

        async def unavailable(*args: Any, **kwargs: Any) -> Any:
            raise Unavailable

        monkeypatch.setattr(here._catalog, "server_seen", unavailable)
        await here._beat()
        assert here.elsewhere(_call(), name, "orders") is not None
        here._known_until = 0.0
        assert here.elsewhere(_call(), name, "orders") is None


async def test_calls_do_not_go_to_a_server_of_another_level() -> None:
    catalog = MemoryCatalog()
    servers = [
        ServerInfo(server_id=machine_id() + str(level), address=f"127.0.0.1:{level}", level=level)
        for level in (SUPPORTED - 1, SUPPORTED, SUPPORTED + 1)
    ]
    for each in servers:
        await catalog.groups.server_seen(each, memory_seconds=6)
    here = GroupRouting(catalog.groups, "127.0.0.1:9", Drain(), Metrics())
    await here.start()
    try:
        homes = {here.elsewhere(_call(), f"g{number}", "orders") for number in range(100)}
    finally:
        await here.stop()
    assert homes == {None, servers[1]}


async def test_a_server_ends_itself_if_the_level_was_raised_without_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    signals: list[int] = []
    monkeypatch.setattr("signal.raise_signal", signals.append)
    catalog = MemoryCatalog()
    here = GroupRouting(catalog.groups, "127.0.0.1:9", Drain(), Metrics())
    await here._beat()
    assert signals == []
    catalog.groups.level = SUPPORTED + 1
    await here._beat()
    assert signals == [signal.SIGTERM]
    assert f"feature level {SUPPORTED + 1}" in caplog.text


async def test_only_a_server_of_ours_may_say_who_called() -> None:
    async with _pair("127.0.0.1:2") as (here, _):
        own = here._me.server_id.encode()
        assert here.client_host(_call((FORWARDED, own), (CLIENT, b"10.9.9.9"), (GRANT, b"x"))) == "10.9.9.9"
        assert here.client_host(_call((FORWARDED, own), (CLIENT, b"10.9.9.9"))) is None
        assert here.client_host(_call((FORWARDED, b"1"), (CLIENT, b"10.9.9.9"))) is None
        assert here.client_host(_call((CLIENT, b"10.9.9.9"))) is None


@pytest.mark.parametrize("address", ["127.0.0.1:9", "[::1]:9", "localhost:9"])
async def test_calls_do_not_go_to_the_loopback_address_of_another_machine(address: str) -> None:
    catalog = MemoryCatalog()
    foreign = ServerInfo(server_id="00000000" + "other", address=address)
    reachable = ServerInfo(server_id="00000000" + "third", address="10.0.0.7:9")
    for each in (foreign, reachable):
        await catalog.groups.server_seen(each, memory_seconds=6)
    here = GroupRouting(catalog.groups, "127.0.0.1:1", Drain(), Metrics())
    await here.start()
    try:
        call = _call()
        homes = {here.elsewhere(call, f"g{number}", "orders") for number in range(100)}
    finally:
        await here.stop()
    assert homes == {None, reachable}
