"""HTTP by hand: what is read, what is refused, and which error each failure is."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import lakelog
from lakelog.client._async.connection import AsyncConnections
from lakelog.client._async.http import AsyncHttpTransport
from lakelog.client._runtime import AsyncStream, SocketAddress
from lakelog.client._sync.connection import Connections
from lakelog.client.connecting.servers import reason_of, servers_of
from lakelog.client.connecting.trust import TlsFiles
from lakelog.errors import (
    ConfigurationError,
    InvalidRequest,
    LakelogError,
    OutcomeUnknown,
    Overloaded,
    TopicNotFound,
    Unavailable,
)
from lakelog.model.topic_info import TopicQuery, TopicRequest
from lakelog.wire.operations.topics import DELETE_TOPIC, LIST_TOPICS
from tests.kit.certificates import Authority
from tests.kit.ports import free_port
from tests.kit.waiting import eventually

HEAD = "GET / HTTP/1.1\r\nhost: x\r\n"


class Script:
    """A server that answers each request with the next of its scripted answers; an empty one closes."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.connections = 0
        self.requests: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            with connection:
                self._serve(connection)

    def _serve(self, connection: socket.socket) -> None:
        while self.answers:
            try:
                request = connection.recv(65536)
            except OSError:
                return
            if not request:
                return
            self.requests.append(request)
            answer = self.answers.pop(0)
            if not answer:
                return
            connection.sendall(answer)


@contextmanager
def scripted(*answers: bytes) -> Iterator[Script]:
    script = Script(*answers)
    try:
        yield script
    finally:
        script.close()


async def _ask_async(script: Script, times: int, seconds: float) -> list[tuple[int, bytes]]:
    connections = AsyncConnections(SocketAddress(host="127.0.0.1", port=script.port, tls=False))
    try:
        answers = [await connections.request(HEAD, b"", seconds) for _ in range(times)]
        return [(answer.status, answer.body) for answer in answers]
    finally:
        connections.close()


def ask_async(script: Script, times: int = 1, seconds: float = 5.0) -> list[tuple[int, bytes]]:
    return asyncio.run(_ask_async(script, times, seconds))


def ask_sync(script: Script, times: int = 1, seconds: float = 5.0) -> list[tuple[int, bytes]]:
    connections = Connections(SocketAddress(host="127.0.0.1", port=script.port, tls=False))
    try:
        answers = [connections.request(HEAD, b"", seconds) for _ in range(times)]
        return [(answer.status, answer.body) for answer in answers]
    finally:
        connections.close()


Ask = Callable[..., list[tuple[int, bytes]]]


@pytest.fixture(params=["async", "sync"])
def ask(request: pytest.FixtureRequest) -> Ask:
    return ask_async if request.param == "async" else ask_sync


PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


def test_a_connection_is_used_again(ask: Ask) -> None:
    with scripted(PLAIN, PLAIN) as script:
        assert ask(script, 2) == [(200, b"hello")] * 2
        assert script.connections == 1
        assert script.requests[0].endswith(b"content-length: 0\r\n\r\n")


def test_a_connection_that_is_to_be_closed_is_not(ask: Ask) -> None:
    closing = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    with scripted(closing, b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n", PLAIN) as script:
        # Behind the first two answers the server would wait for the client to hang up.
        assert ask(script, 3) == [(200, b""), (200, b""), (200, b"hello")]
        assert script.connections == 3


def test_chunks_a_continue_and_no_content(ask: Ask) -> None:
    chunked = (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
        b"5;x=y\r\nhello\r\nA\r\n0123456789\r\n0\r\ntrailer: t\r\n\r\n"
    )
    with scripted(chunked, b"HTTP/1.1 204 No Content\r\n\r\n", PLAIN) as script:
        assert ask(script, 3) == [(200, b"hello0123456789"), (204, b""), (200, b"hello")]
        assert script.connections == 1


def test_a_large_body_in_pieces(ask: Ask) -> None:
    body = bytes(range(256)) * 20_000
    with scripted(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body) as script:
        assert ask(script) == [(200, body)]


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-le",
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
    ],
)
def test_a_lost_or_broken_answer_is_unknown(ask: Ask, answer: bytes) -> None:
    with scripted(answer) as script, pytest.raises(OutcomeUnknown):
        ask(script)


def test_an_answer_that_does_not_come_is_unknown(ask: Ask) -> None:
    silent = pytest.raises(OutcomeUnknown, match=r"did not answer within 0\.1 s\.")
    with scripted(b"HTTP/1.1 200 OK\r\n", b"never") as script, silent:
        ask(script, 1, 0.1)


def test_a_server_that_is_not_there_is_unavailable(ask: Ask) -> None:
    with scripted() as script:
        script.port = free_port()
        with pytest.raises(Unavailable, match=r"Cannot connect to http://127.0.0.1:\d+: connection refused\."):
            ask(script)


def test_a_connection_that_the_server_closed_meanwhile_is_not_tried() -> None:
    with scripted(PLAIN) as script:
        connections = Connections(SocketAddress(host="127.0.0.1", port=script.port, tls=False))
        connections.request(HEAD, b"", 5.0)
        stream = connections._idle[0]
        # With no answer left the script hangs up; that arrives a little later.
        eventually(lambda: not stream.usable)
        script.answers.append(PLAIN)
        assert connections.request(HEAD, b"", 5.0).body == b"hello"
        assert script.connections == 2
        connections.close()


def _answer(status: int, body: bytes, kind: str = "application/problem+json", extra: str = "") -> bytes:
    head = f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\n{extra}content-length: {len(body)}\r\n\r\n"
    return head.encode() + body


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (_answer(404, b'{"code":"topic_not_found","detail":"d","topic":"t"}'), TopicNotFound),
        (_answer(429, b'{"code":"overloaded","detail":"d"}', extra="retry-after: 3\r\n"), Overloaded),
        (_answer(503, b'{"code":"closed","detail":"d"}'), Unavailable),
        (_answer(503, b'{"code":"unavailable","detail":"d"}'), Unavailable),
        (_answer(500, b'{"code":"internal","detail":"d"}'), LakelogError),
        (_answer(409, b'{"code":"new_one","detail":"d"}'), LakelogError),
        (_answer(409, b"{"), OutcomeUnknown),
        (_answer(502, b"bad gateway", "text/html"), OutcomeUnknown),
        (_answer(404, b"nothing here", "text/html"), ConfigurationError),
        (_answer(204, b""), None),
    ],
)
async def test_problems_become_errors(answer: bytes, kind: type[LakelogError] | None) -> None:
    with scripted(answer) as script:
        transport = AsyncHttpTransport(servers_of(f"http://127.0.0.1:{script.port}"), "secret")
        if kind is None:
            await transport.call(DELETE_TOPIC, TopicRequest(topic="t"), 5.0)
        else:
            with pytest.raises(kind) as caught:
                await transport.call(DELETE_TOPIC, TopicRequest(topic="t"), 5.0)
            assert type(caught.value) is kind
            if kind is Overloaded:
                assert caught.value.subject["retry_after"] == 3
        await transport.close()
        assert b"\r\nauthorization: Bearer secret\r\n" in script.requests[0]
        assert script.requests[0].startswith(b"DELETE /v1/topics/t HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            _answer(404, b"nothing here", "text/html"),
            "returned 404, but the response is not from Lakelog. Check the URL",
        ),
        (_answer(200, b"<html>", "text/html"), "returned 200, but the response is not from Lakelog. Check the URL"),
        (_answer(404, b'{"code":"not_found","detail":"d"}'), "has no API below /v1. Check the path of the URL"),
    ],
)
async def test_a_wrong_url_is_told_at_once(answer: bytes, said: str) -> None:
    with scripted(answer) as script:
        log = lakelog.connect_async(f"http://127.0.0.1:{script.port}/v1")
        with pytest.raises(ConfigurationError, match=re.escape(f"The server at http://127.0.0.1:{script.port} {said}")):
            await log.topics()
        await log.close()


async def test_what_a_server_cannot_reach_is_told_as_the_servers_words() -> None:
    problem = b'{"code":"unavailable","detail":"PostgreSQL cannot be reached: why.","unreachable":"database"}'
    with scripted(_answer(503, problem)) as script:
        transport = AsyncHttpTransport(servers_of(f"http://127.0.0.1:{script.port}"), None)
        with pytest.raises(Unavailable) as caught:
            await transport.call(LIST_TOPICS, TopicQuery(), 5.0)
        await transport.close()
    where = f"The server at http://127.0.0.1:{script.port}"
    assert caught.value.detail == f"{where} is not available: PostgreSQL cannot be reached: why."
    assert caught.value.unreachable == "database"


@pytest.mark.parametrize("connect", [lakelog.connect, lakelog.connect_async])
async def test_https_to_a_server_without_tls_is_told_at_once(connect: Callable[[str], Any]) -> None:
    with scripted(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n" * 2) as script:
        log = connect(f"https://127.0.0.1:{script.port}")
        with pytest.raises(ConfigurationError, match=r"does not use TLS\. Use http:// instead of https://"):
            await asyncio.to_thread(log.topics) if connect is lakelog.connect else await log.topics()
        closing = log.close()
        if closing is not None:
            await closing


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 1)"), "connection refused"),
        (
            OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1', 1), [Errno 111] x"),
            "connection refused",
        ),
        (socket.gaierror(-2, "Name or service not known"), "name or service not known"),
        (TimeoutError(), "it timed out"),
        (OSError(), "OSError"),
    ],
)
def test_reasons_are_short(failure: OSError, said: str) -> None:
    assert reason_of(failure) == said


async def test_after_a_failure_the_next_server_is_asked() -> None:
    with scripted(_answer(204, b""), _answer(204, b"")) as good:
        url = f"http://127.0.0.1:{free_port()},127.0.0.1:{good.port}"
        transport = AsyncHttpTransport(servers_of(url), None)
        with pytest.raises(Unavailable):
            await transport.call(DELETE_TOPIC, TopicRequest(topic="t"), 5.0)
        await transport.call(DELETE_TOPIC, TopicRequest(topic="t"), 5.0)
        await transport.call(DELETE_TOPIC, TopicRequest(topic="t"), 5.0)
        await transport.close()


def test_urls() -> None:
    [one] = servers_of("https://example.org/lakelog/")
    assert (one.address, one.prefix) == (SocketAddress(host="example.org", port=443, tls=True), "/lakelog")
    several = servers_of("http://a:1, b:2,http://[::1]:3")
    assert [(server.address.host, server.address.port) for server in several] == [("a", 1), ("b", 2), ("::1", 3)]
    for wrong in ("http://", "http://a:x", "http://user@a", "ftp://a", "http://a?x=1"):
        with pytest.raises(InvalidRequest):
            servers_of(wrong)


def test_a_call_that_outlives_its_client_leaves_no_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connections = Connections(SocketAddress(host="127.0.0.1", port=listener.getsockname()[1], tls=False))
        call = threading.Thread(target=connections.request, args=(HEAD, b"", 5.0))
        call.start()
        served, _ = listener.accept()
        with served:
            served.recv(65536)
            connections.close()
            served.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            call.join(5)
            served.settimeout(5)
            assert served.recv(1) == b""


def test_a_connection_with_tls_does_not_outlive_its_event_loop(tmp_path: Path) -> None:
    """It is closed without an answer of the server, which may come too late."""
    authority = Authority(tmp_path)
    issued = authority.issue("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.certificate, issued.key)
    over = threading.Event()

    def serve() -> None:
        accepted, _ = listener.accept()
        with context.wrap_socket(accepted, server_side=True):
            over.wait(20)

    async def connect(port: int) -> Any:
        files = TlsFiles(ca=str(authority.certificate))
        stream = await AsyncStream.open(SocketAddress(host="127.0.0.1", port=port, tls=True, tls_files=files), 20.0)
        stream.close()
        return stream._writer.get_extra_info("socket")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve, daemon=True)
        server.start()
        used = asyncio.run(connect(listener.getsockname()[1]))
        over.set()
        server.join(20)
    assert used.fileno() == -1
