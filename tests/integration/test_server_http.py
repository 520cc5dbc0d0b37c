"""The server over real HTTP: behaviour that a unit test of the app cannot show."""

from __future__ import annotations

import asyncio
import importlib.util
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from lakelog.model.limits import MAX_BODY_BYTES
from lakelog.wire.frames import ARROW_MEDIA_TYPE
from tests.integration.servers import OTHER_TOKEN, TOKEN, Running, running
from tests.kit.waiting import eventually


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(memory_bytes=64 << 20) as server:
        with server.client() as client:
            assert client.post("/v1/topics", json={"name": "orders", "partitions": 4}).status_code == 201
        yield server


def _metric(server: Running, name: str) -> float:
    with server.client(None) as client:
        for line in client.get("/metrics").text.splitlines():
            if line.startswith(name + " "):
                return float(line.split()[-1])
    raise AssertionError(f"no metric {name}")


def _exchange(server: Running, *sends: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        for data in sends:
            try:
                connection.sendall(data)
            except (BrokenPipeError, ConnectionResetError):
                break
        received = b""
        try:
            while data := connection.recv(65536):
                received += data
        except ConnectionResetError:
            pass
        return received


def test_publish_and_fetch(server: Running) -> None:
    with server.client() as client:
        published = client.post("/v1/topics/orders/messages", json={"messages": [{"value": {"a": 1}, "partition": 1}]})
        offset = published.json()["results"][0]["offset"]
        fetched = client.get("/v1/topics/orders/partitions/1/messages", params={"offset": offset})
        arrow = client.get(
            "/v1/topics/orders/partitions/1/messages", params={"offset": offset}, headers={"accept": ARROW_MEDIA_TYPE}
        )
    assert (published.status_code, published.http_version) == (200, "HTTP/1.1")
    assert "server" not in published.headers
    assert fetched.json()["messages"][0]["value"] == {"a": 1}
    assert pa.ipc.open_stream(arrow.content).read_all().column("value").to_pylist() == [b'{"a":1}']


def test_a_publish_does_not_wait_for_pandas(server: Running) -> None:
    """Arrow would import it, if it is installed, during the first publish after a start."""
    assert importlib.util.find_spec("pandas")
    with server.client() as client:
        messages = [{"value": number, "partition": 1} for number in range(2)]
        assert client.post("/v1/topics/orders/messages", json={"messages": messages}).status_code == 200
    assert "/pandas/" not in Path(f"/proc/{server.process.pid}/maps").read_text()


def test_one_connection_serves_many_calls(server: Running) -> None:
    with server.client() as client:
        for _ in range(50):
            assert client.post("/v1/topics/orders/messages", json={"messages": [{"value": 1}]}).status_code == 200
            assert client.get("/v1/topics/missing").status_code == 404
            assert client.post("/v1/topics/orders/messages", content=b"{").status_code == 415
        pool = client._transport._pool  # type: ignore[attr-defined]
        assert len(pool.connections) == 1


def test_other_tenants_see_nothing(server: Running) -> None:
    with server.client(OTHER_TOKEN) as other, server.client(None) as nobody:
        assert other.get("/v1/topics").json()["topics"] == []
        assert other.get("/v1/topics/orders/partitions/0/messages").status_code == 404
        assert nobody.get("/v1/topics").status_code == 401


@pytest.mark.parametrize("declared", [True, False])
def test_a_body_over_the_limit_is_a_413(server: Running, declared: bool) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(10):
            yield bytes(1 << 20)

    body = bytes(MAX_BODY_BYTES + 1) if declared else pieces()
    with server.client() as client:
        reply = client.post("/v1/topics/orders/messages", content=body, headers={"content-type": "application/json"})
        assert client.get("/healthz").status_code == 200
    assert (reply.status_code, reply.json()["code"]) == (413, "too_large")


def test_a_refused_caller_cannot_make_the_server_hold_its_body(server: Running) -> None:
    before = server.process.rss()
    with server.client(None) as client:
        for _ in range(20):
            reply = client.post("/v1/topics/orders/messages", content=bytes(8 << 20))
            assert reply.status_code == 401
    assert server.process.rss() - before < 64 << 20
    assert _metric(server, "lakelog_memory_used_bytes") == 0


def test_a_caller_that_hangs_up_ends_its_long_poll(server: Running) -> None:
    head = (
        f"GET /v1/topics/orders/partitions/3/messages?offset=latest&wait_ms=30000 HTTP/1.1\r\nhost: x\r\n"
        f"authorization: Bearer {TOKEN}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(head.encode())
        eventually(lambda: _metric(server, "lakelog_http_in_flight") == 2, what="the poll is in flight")
    eventually(lambda: _metric(server, "lakelog_http_in_flight") == 1, what="the poll has ended")


async def test_a_long_poll_wakes_up(server: Running) -> None:
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(
        base_url=server.url, headers=headers, timeout=30, trust_env=False, verify=False
    ) as client:
        path = "/v1/topics/orders/partitions/2/messages"
        poll = asyncio.create_task(client.get(path, params={"offset": "latest", "wait_ms": 30000}))
        while not poll.done():
            # Until one of them arrives after the poll has begun.
            await client.post("/v1/topics/orders/messages", json={"messages": [{"value": "wake", "partition": 2}]})
        assert {message["value"] for message in (await poll).json()["messages"]} == {"wake"}


def test_a_request_that_is_not_http_is_a_problem(server: Running) -> None:
    reply = _exchange(server, b"NONSENSE\r\n\r\n")
    assert reply.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"content-type: application/problem+json" in reply
    assert b'"status":400' in reply


@pytest.mark.parametrize("head", [b"x-large: ", b"x-many: 1\r\nx-many: "])
def test_an_endless_head_is_cut_off(server: Running, head: bytes) -> None:
    chunk = b"a" * 8000 if head == b"x-large: " else b"1\r\nx-many: " * 800
    reply = _exchange(server, b"GET /healthz HTTP/1.1\r\n" + head, *([chunk] * 200))
    assert reply.startswith(b"HTTP/1.1 400 ")


def test_pipelined_calls_are_answered_in_order(server: Running) -> None:
    call = b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-request-id: n%d\r\n%s\r\n"
    reply = _exchange(server, b"".join(call % (n, b"connection: close\r\n" if n == 4 else b"") for n in range(5)))
    assert [reply.index(b"x-request-id: n%d" % n) for n in range(5)] == sorted(
        reply.index(b"x-request-id: n%d" % n) for n in range(5)
    )


def test_an_upgrade_is_ignored(server: Running) -> None:
    call = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(call)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_slow_bodies_do_not_hold_up_others(server: Running) -> None:
    head = (
        f"POST /v1/topics/orders/messages HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n"
        f"content-type: application/json\r\ncontent-length: 8000000\r\n\r\n"
    )
    slow = []
    try:
        for _ in range(8):
            connection = socket.create_connection(("127.0.0.1", server.port))
            connection.sendall(head.encode() + b"{")
            slow.append(connection)
        eventually(lambda: _metric(server, "lakelog_memory_used_bytes") >= 56_000_000, what="bodies are reserved")
        with server.client() as client:
            body = b" " * 8_000_000
            full = client.post("/v1/topics/orders/messages", content=body, headers={"content-type": "application/json"})
            assert client.post("/v1/topics/orders/messages", json={"messages": [{"value": 1}]}).status_code == 200
        assert (full.status_code, full.headers["retry-after"]) == (429, "1")
    finally:
        for connection in slow:
            connection.close()
    eventually(lambda: _metric(server, "lakelog_memory_used_bytes") == 0, what="all is given back")
