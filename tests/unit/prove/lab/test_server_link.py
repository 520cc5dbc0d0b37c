"""Held requests arrive later and complete; their senders see a reset, or no response."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from prove.lab.server_link import ServerLink


class Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen: ClassVar[list[bytes]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.append(body)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def upstream() -> Iterator[int]:
    Echo.seen = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


def post(port: int, path: str, body: object, timeout: float = 5.0) -> object:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def test_a_held_request_breaks_off_and_arrives_whole_when_it_is_delivered(upstream: int) -> None:
    large = {"owner": "w-1", "values": ["x" * 1000] * 300}
    with ServerLink("127.0.0.1", upstream) as wire:
        wire.hold(1, b"/answers ")
        assert post(wire.port, "/v1/consume", {"other": 1}) == {"other": 1}
        with pytest.raises((OSError, http.client.HTTPException)):
            post(wire.port, "/v1/topics/t/groups/g/answers", large)
        (held,) = wire.held(1, within=5)
        assert held.path == "/v1/topics/t/groups/g/answers" and held.body == large
        assert len(Echo.seen) == 1
        assert held.deliver(upstream) == (200, large)
        assert json.loads(Echo.seen[1]) == large
        # Only that many are held.
        assert post(wire.port, "/v1/topics/t/groups/g/answers", {"next": 1}) == {"next": 1}


def test_a_request_that_hangs_says_nothing_to_its_sender(upstream: int) -> None:
    with ServerLink("127.0.0.1", upstream) as wire:
        wire.hold(1, b"/answers ", hangs=True)
        with pytest.raises(TimeoutError):
            post(wire.port, "/answers", {"a": 1}, timeout=0.3)
        assert len(wire.held(1, within=10)) == 1 and not Echo.seen


def test_nothing_is_held_where_nothing_came(upstream: int) -> None:
    with ServerLink("127.0.0.1", upstream) as wire:
        wire.hold(2, b"/messages ")
        assert wire.held(1, within=0.01) == []
        assert post(wire.port, "/v1/topics/t/messages", {"late": 1}) == {"late": 1}
