"""Where the console sends its calls: to the server in its own process, or to servers over the network.

Each viewer gets a client with the viewer's own token. Calls within the process pass the viewer's address on, so that
audit records name it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import unquote

import msgspec

from lakelog.client._async.connection import AsyncConnections, HttpResponse
from lakelog.client._async.http import AsyncHttpTransport
from lakelog.client._async.lakelog import AsyncLakelog
from lakelog.client._runtime import SocketAddress
from lakelog.client.connecting.connect import policy_of
from lakelog.client.connecting.servers import ServerUrl, servers_of
from lakelog.client.connecting.target import Target
from lakelog.errors import OutcomeUnknown, Unavailable
from lakelog.wire.shapes import Health

AsgiScope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApp = Callable[[AsgiScope, Receive, Send], Awaitable[None]]

CALL_SECONDS = 5.0
"""How long a page waits for a call, with all retries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewerAddress:
    """Where a request of a browser came from, and the name by which it calls the console."""

    host: str
    client: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReport:
    """The report of one server about itself.

    Attributes:
        place: The URL of the server.
        health: The result of its readiness check; None if the server does not respond.
        failure: Why there is no report; empty if there is one.
        metrics: Its metrics, as Prometheus reads them; empty if there are none.
    """

    place: str
    health: Health | None = None
    failure: str = ""
    metrics: str = ""

    @property
    def cells_unreachable(self) -> bool:
        """Return whether a cell does not respond to the server."""
        return self.health is not None and self.health.status in ("degraded", "unavailable")


class Servers(Protocol):
    """The servers of one installation."""

    def log(self, secret: str | None, address: ViewerAddress) -> AsyncLakelog:
        """Return a client with this token, or without a token. The caller closes it."""
        ...

    async def health(self) -> Health:
        """Return what the readiness check reports, also if the server is not ready."""
        ...

    async def reports(self) -> list[ServerReport]:
        """Return what each server reports about itself."""
        ...


class LocalServer:
    """The server in this process."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    def log(self, secret: str | None, address: ViewerAddress) -> AsyncLakelog:
        """Return a client whose calls never leave the process."""

        def connections(at: SocketAddress) -> AsyncConnections:
            return _LocalConnections(at, self._app, address.client)

        # A server without authentication checks the name by which it is called.
        server = ServerUrl(address=_HERE, prefix="", host_header=address.host)
        return AsyncLakelog(AsyncHttpTransport([server], secret, None, connections), policy_of(CALL_SECONDS))

    async def health(self) -> Health:
        """Return what `/readyz` of this server reports."""
        return await _health(self._connections(), "", "localhost")

    async def reports(self) -> list[ServerReport]:
        """Return the report of this server."""
        return [await _report("This server", self._connections(), "", "localhost")]

    def _connections(self) -> AsyncConnections:
        return _LocalConnections(_HERE, self._app, None)


class RemoteServers:
    """Servers at a URL. All viewers share the connections."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._servers = servers_of(target.url, target.tls_files)
        self._connections = {each.address: _SharedConnections(each.address) for each in self._servers}

    def log(self, secret: str | None, address: ViewerAddress) -> AsyncLakelog:
        """Return a client of these servers."""
        transport = AsyncHttpTransport(self._servers, secret, None, self._connections.__getitem__)
        return AsyncLakelog(transport, policy_of(CALL_SECONDS), place=self._target.place)

    async def health(self) -> Health:
        """Return what `/readyz` of the first server that responds reports."""
        failure: Exception | None = None
        for each in self._servers:
            try:
                return await _health(self._connections[each.address], each.prefix, each.host_header)
            except (Unavailable, OutcomeUnknown) as error:
                failure = error
        raise failure or Unavailable("The URL names no server.")

    async def reports(self) -> list[ServerReport]:
        """Return the reports of all servers of the URL."""
        asked = (
            _report(str(each.address), self._connections[each.address], each.prefix, each.host_header)
            for each in self._servers
        )
        return list(await asyncio.gather(*asked))


_HERE = SocketAddress(host="localhost", port=80, tls=False)


class _SharedConnections(AsyncConnections):
    """Connections that outlive the clients which use them."""

    def close(self) -> None:
        """Keep the connections for the next client."""


class _LocalConnections(AsyncConnections):
    """Passes calls to an app in this process, as HTTP would."""

    def __init__(self, address: SocketAddress, app: AsgiApp, client: tuple[str, int] | None) -> None:
        super().__init__(address)
        self._app = app
        self._client = client

    async def request(self, head: str, body: bytes, seconds: float) -> HttpResponse:
        """Call the app, and return its response."""
        pieces = [{"type": "http.request", "body": body, "more_body": False}]
        sent: list[MutableMapping[str, Any]] = []

        async def receive() -> MutableMapping[str, Any]:
            if pieces:
                return pieces.pop()
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        try:
            async with asyncio.timeout(seconds):
                await self._app(_scope(head, body, self._client), receive, send)
        except TimeoutError:
            raise OutcomeUnknown(f"The server did not answer within {seconds:.1f} s.") from None
        if not sent:
            raise OutcomeUnknown("The server ended the call without an answer.")
        headers = {name.decode("latin-1").lower(): text.decode("latin-1") for name, text in sent[0]["headers"]}
        return HttpResponse(sent[0]["status"], headers, b"".join(each["body"] for each in sent[1:]))


def _scope(head: str, body: bytes, client: tuple[str, int] | None) -> AsgiScope:
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ")
    path, _, query = target.partition("?")
    headers = [(name.lower().encode(), text.strip().encode("latin-1")) for name, _, text in _split(lines)]
    return {
        "type": "http",
        "method": method,
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [*headers, (b"content-length", b"%d" % len(body))],
        "client": client,
    }


def _split(lines: list[str]) -> list[tuple[str, str, str]]:
    return [line.partition(":") for line in lines]


async def _get(connections: AsyncConnections, target: str, host: str) -> HttpResponse:
    head = f"GET {target} HTTP/1.1\r\nhost: {host}\r\naccept: */*\r\n"
    return await connections.request(head, b"", CALL_SECONDS)


async def _report(place: str, connections: AsyncConnections, prefix: str, host: str) -> ServerReport:
    try:
        health = await _health(connections, prefix, host)
        metrics = (await _get(connections, f"{prefix}/metrics", host)).body.decode("utf-8", "replace")
    except (Unavailable, OutcomeUnknown) as error:
        return ServerReport(place=place, failure=error.detail)
    return ServerReport(place=place, health=health, metrics=metrics)


async def _health(connections: AsyncConnections, prefix: str, host: str) -> Health:
    answer = await _get(connections, f"{prefix}/readyz", host)
    try:
        return msgspec.json.decode(answer.body, type=Health)
    except msgspec.MsgspecError as error:
        raise Unavailable(f"The server returned {answer.status}, but no health report.") from error
