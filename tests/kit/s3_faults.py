"""An HTTP proxy in front of an S3 server, with faults drawn from a seed: errors, lost responses, damaged bodies.

Requests are forwarded unchanged, including the Host header, so that signatures stay valid. It runs in its own threads
and knows only that GET returns bodies and PUT stores them.
"""

from __future__ import annotations

import http.client
import random
import re
import socket
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

from tests.kit.ports import free_port

_HOP = {"connection", "keep-alive", "transfer-encoding", "expect", "content-length"}
_REMEMBERED = 16


@dataclass(frozen=True, kw_only=True)
class S3Faults:
    """The share of requests for each fault, 0 to 1; the first fault that is drawn happens.

    Only requests with one of `methods` whose path contains `matching` are affected, by at most `times` faults. Damage
    affects GET with a body, independent of `methods`.
    """

    delay_seconds: float = 0
    """Delay of every request before the server sees it; not a share, and not limited by `times`."""
    refused: float = 0
    """A response of 503 or 500; the server never sees the request."""
    lost: float = 0
    """The request is served, and the connection closed without a response."""
    stalled: float = 0
    """The request is served without a response: the client has to time out."""
    truncated: float = 0
    """The body ends before its length."""
    shortened: float = 0
    """The body is shortened, and so is its length in the headers."""
    flipped: float = 0
    """One bit is flipped."""
    swapped: float = 0
    """The body is that of another object that was put through this proxy."""
    methods: tuple[str, ...] = ("GET", "PUT", "HEAD", "DELETE", "POST")
    matching: str = ""
    times: int | None = None


_BEFORE = ("refused",)
_AFTER = ("lost", "stalled")
_DAMAGE = ("truncated", "shortened", "flipped", "swapped")


@dataclass(frozen=True, kw_only=True)
class _Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)


class S3FaultProxy:
    """`with S3FaultProxy(s3.port) as proxy: s3.endpoint = proxy.endpoint; proxy.faults = S3Faults(refused=0.2)`.

    `happened` counts the faults by kind, `requests` the requests by method.
    """

    def __init__(self, upstream_port: int, *, seed: int = 0) -> None:
        self.upstream_port = upstream_port
        self.port = free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.happened: Counter[str] = Counter()
        self.requests: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._guard = threading.Lock()
        self._faults = S3Faults()
        self._left: int | None = None
        self._stored: dict[str, bytes] = {}
        self._closing = threading.Event()
        self._server = _Server(("127.0.0.1", self.port), self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="s3-faults", daemon=True)

    @property
    def faults(self) -> S3Faults:
        return self._faults

    @faults.setter
    def faults(self, faults: S3Faults) -> None:
        with self._guard:
            self._faults, self._left = faults, faults.times

    def draw(self, kinds: tuple[str, ...], method: str, path: str) -> str | None:
        """Return the fault of the request, or None."""
        with self._guard:
            faults = self._faults
            if method not in faults.methods or faults.matching not in path or self._left == 0:
                return None
            kind = next((kind for kind in kinds if self._random.random() < getattr(faults, kind)), None)
            if kind == "swapped" and self._other(path) is None:
                return None
            if kind is not None:
                self.happened[kind] += 1
                self._left = None if self._left is None else self._left - 1
            return kind

    def delay(self, method: str, path: str) -> None:
        """Delay the request if delays are on."""
        faults = self._faults
        if faults.delay_seconds and method in faults.methods and faults.matching in path:
            self.happened["delayed"] += 1
            self._closing.wait(faults.delay_seconds)

    def remember(self, method: str, path: str, body: bytes) -> None:
        with self._guard:
            self.requests[method] += 1
            if method == "PUT" and body:
                self._stored[path] = body
                while len(self._stored) > _REMEMBERED:
                    del self._stored[next(iter(self._stored))]

    def damaged(self, kind: str, path: str, body: bytes, wanted: str | None) -> bytes:
        with self._guard:
            if kind == "flipped":
                changed = bytearray(body)
                changed[self._random.randrange(len(body))] ^= 1 << self._random.randrange(8)
                return bytes(changed)
            if kind == "swapped":
                other = self._other(path) or b""
                match = re.fullmatch(r"bytes=(\d+)-(\d+)", wanted or "")
                return other[int(match[1]) : int(match[2]) + 1] if match else other
            return body[: self._random.randrange(len(body))]

    def refusal(self) -> tuple[int, str]:
        with self._guard:
            return self._random.choice(((503, "SlowDown"), (500, "InternalError")))

    def stall(self) -> None:
        self._closing.wait()

    def close(self) -> None:
        self._closing.set()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> S3FaultProxy:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _other(self, path: str) -> bytes | None:
        return next((body for other, body in reversed(self._stored.items()) if other != path), None)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], proxy: S3FaultProxy) -> None:
        super().__init__(address, _Handler)
        self.proxy = proxy

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that disconnect in the middle of a response: the faults cause that."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def _serve(self) -> None:
        proxy, method = self.server.proxy, self.command
        path = self.path.partition("?")[0]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        proxy.remember(method, path, body)
        proxy.delay(method, path)
        if proxy.draw(_BEFORE, method, path):
            self._refuse()
            return
        answer = self._ask(body)
        lost = proxy.draw(_AFTER, method, path)
        if lost is not None:
            if lost == "stalled":
                proxy.stall()
            self._hang_up()
            return
        damage = proxy.draw(_DAMAGE, method, path) if method == "GET" and answer.status < 300 and answer.body else None
        self._answer(answer, path, damage)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _serve

    def _ask(self, body: bytes) -> _Answer:
        upstream = http.client.HTTPConnection("127.0.0.1", self.server.proxy.upstream_port, timeout=60)
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, text in self.headers.items():
                if name.lower() not in _HOP:
                    upstream.putheader(name, text)
            if body or self.command in ("PUT", "POST"):
                upstream.putheader("Content-Length", str(len(body)))
            upstream.endheaders(body or None)
            answer = upstream.getresponse()
            return _Answer(status=answer.status, headers=dict(answer.getheaders()), body=answer.read())
        finally:
            upstream.close()

    def _answer(self, answer: _Answer, path: str, damage: str | None) -> None:
        body = answer.body
        if damage is not None:
            body = self.server.proxy.damaged(damage, path, body, self.headers.get("Range"))
        length = len(answer.body) if damage == "truncated" else len(body)
        self.send_response_only(answer.status)
        for name, text in answer.headers.items():
            if name.lower() not in _HOP or (name.lower() == "content-length" and self.command == "HEAD"):
                self.send_header(name, text)
        if self.command != "HEAD" and answer.status not in (204, 304):
            self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(body)
        if damage == "truncated":
            self._hang_up()

    def _refuse(self) -> None:
        status, code = self.server.proxy.refusal()
        body = f"<Error><Code>{code}</Code><Message>A fault that was asked for.</Message></Error>".encode()
        self.send_response_only(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _hang_up(self) -> None:
        self.close_connection = True
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: faults are counted."""
