"""The proxy's modes, against a server that counts what reached it: the count is the commit."""

from __future__ import annotations

import contextlib
import gc
import http.client
import http.server
import socket
import threading
import time
import warnings
from collections.abc import Iterator

import psycopg
import pytest

from tests.kit.postgres import Cluster
from tests.kit.proxy import FaultProxy
from tests.kit.waiting import eventually


class _Server(http.server.ThreadingHTTPServer):
    committed = 0


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        assert isinstance(self.server, _Server)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.committed += 1
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            super().handle()


@pytest.fixture
def server() -> Iterator[_Server]:
    with _Server(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def proxy(server: _Server) -> Iterator[FaultProxy]:
    with FaultProxy("127.0.0.1", server.server_address[1]) as proxy:
        yield proxy


@contextlib.contextmanager
def _client(proxy: FaultProxy, timeout: float = 10) -> Iterator[http.client.HTTPConnection]:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=timeout)) as client:
        yield client


def _post(client: http.client.HTTPConnection, body: bytes = b"hello", path: str = "/") -> bytes:
    client.request("POST", path, body)
    return client.getresponse().read()


def test_passes_everything_on_one_connection(proxy: FaultProxy) -> None:
    large = bytes(range(256)) * 8192
    with _client(proxy) as client:
        assert _post(client) == b"hello"
        assert _post(client, large) == large
    assert (proxy.connections, proxy.cut, proxy.dropped, proxy.swallowed) == (1, 0, 0, 0)


def test_cut_resets_what_is_open_and_refuses_what_is_new(proxy: FaultProxy, server: _Server) -> None:
    with _client(proxy) as client:
        _post(client)
        proxy.cut_off()
        assert client.sock is not None
        with pytest.raises(ConnectionResetError):
            client.sock.recv(1)
        with _client(proxy) as another, pytest.raises(ConnectionRefusedError):
            _post(another)
    assert (proxy.cut, server.committed) == (1, 1)
    proxy.pass_through()
    with _client(proxy) as client:
        assert _post(client) == b"hello"


def test_reset_connections_leaves_the_way_open(proxy: FaultProxy) -> None:
    with _client(proxy) as client:
        _post(client)
        proxy.reset_connections()
        with _client(proxy) as another:
            assert _post(another) == b"hello"
    assert proxy.cut == 1


@pytest.mark.parametrize("already_open", [True, False])
def test_half_open_accepts_and_never_answers(proxy: FaultProxy, server: _Server, already_open: bool) -> None:
    with _client(proxy) as client:
        if already_open:
            _post(client)
            assert client.sock is not None
            client.sock.settimeout(0.3)
        client.timeout = 0.3
        proxy.half_open()
        before = server.committed
        with pytest.raises(TimeoutError):
            _post(client)
        sock = client.sock
        eventually(lambda: proxy.swallowed >= 1)
        assert server.committed == before
        proxy.pass_through()
        # It lost bytes, and so must not come back to life.
        if sock is not None:
            with pytest.raises((ConnectionResetError, OSError)):
                eventually(lambda: sock.send(b"x") == 0, within=5)
    with _client(proxy) as client:
        assert _post(client) == b"hello"


def test_slow_delays_each_direction(proxy: FaultProxy) -> None:
    proxy.slow_down(0.1)
    with _client(proxy) as client:
        started = time.monotonic()
        assert _post(client) == b"hello"
        assert time.monotonic() - started >= 0.2
    assert proxy.slowed >= 2


def test_a_dropped_answer_was_committed_and_the_client_sees_a_reset(proxy: FaultProxy, server: _Server) -> None:
    proxy.drop_answers(2)
    for _ in range(2):
        with _client(proxy) as client, pytest.raises(ConnectionResetError):
            _post(client)
    assert (proxy.dropped, server.committed) == (2, 2)
    with _client(proxy) as client:
        assert _post(client) == b"hello"
    assert (proxy.dropped, server.committed) == (2, 3)


def _drops_of(proxy: FaultProxy, seed: int) -> list[bool]:
    proxy.drop_answers(probability=0.5, seed=seed)
    outcomes = []
    for _ in range(20):
        with _client(proxy) as client:
            try:
                _post(client)
                outcomes.append(False)
            except ConnectionResetError:
                outcomes.append(True)
    return outcomes


def test_drops_by_probability_are_seeded(proxy: FaultProxy, server: _Server) -> None:
    first, second, other = _drops_of(proxy, 1), _drops_of(proxy, 1), _drops_of(proxy, 2)
    assert first == second != other
    assert 0 < sum(first) < 20
    assert server.committed == 60
    assert proxy.dropped == sum(first + second + other)


def test_drops_only_answers_to_matching_requests(proxy: FaultProxy, server: _Server) -> None:
    proxy.drop_answers(1, matching=b"POST /publish")
    with _client(proxy) as client:
        assert _post(client, path="/other") == b"hello"
        with pytest.raises(ConnectionResetError):
            _post(client, path="/publish")
    assert (proxy.dropped, server.committed) == (1, 2)


def test_a_lost_commit_answer_of_postgresql_is_still_a_commit(cluster: Cluster, database: str) -> None:
    name = database.rpartition("/")[2]
    with FaultProxy("127.0.0.1", cluster.port) as proxy:
        connection = psycopg.connect(cluster.url(name, port=proxy.port))
        with contextlib.closing(connection):
            connection.execute("CREATE TABLE t (n int)")
            proxy.drop_answers(1, matching=b"COMMIT")
            with pytest.raises(psycopg.OperationalError):
                connection.commit()
    assert proxy.dropped == 1
    assert cluster.execute("SELECT to_regclass('t') IS NOT NULL", database=name) == [(True,)]


def test_an_unreachable_upstream_is_a_reset() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        unreachable = FaultProxy("127.0.0.1", closed.getsockname()[1])
        with unreachable as proxy, _client(proxy) as client, pytest.raises(ConnectionResetError):
            _post(client)


def test_what_is_accepted_as_it_ends_is_closed_too(server: _Server) -> None:
    """Nothing stays open of connections that come in its last moments; a warning about one fails a later test."""
    for _ in range(20):
        proxy = FaultProxy("127.0.0.1", server.server_address[1]).start()
        clients = [socket.create_connection((proxy.host, proxy.port)) for _ in range(20)]
        proxy.close()
        for client in clients:
            client.close()
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        gc.collect()
    assert not heard
