"""The homes of groups: the server process that serves the calls of a group, and forwarding to it.

Two servers that decide for one partition conflict with each other. Each (group, topic) therefore has a home among the
live servers, and a server that gets a call for it forwards the call, with a signed grant instead of the token. This
only affects speed: a server that cannot reach the home serves the call itself, and the commit detects what the home has
already done.

A topic with many partitions is divided into shards, at most one for each server, and each shard has a home. All calls
of one owner go to the same home, which delivers its shard and the partitions of the members that call it first.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from zlib import crc32

from lakelog.errors import LakelogError, first_line
from lakelog.model.levels import unsupported
from lakelog.model.shard import WHOLE, Shard, shard_count
from lakelog.model.topic import Scope
from lakelog.reporting import log_event
from lakelog.server.auth import Grant
from lakelog.server.calls import Call, Handler, Header, Response
from lakelog.server.drain import Drain
from lakelog.server.machine import machine_id, server_mark
from lakelog.server.metrics import Metrics
from lakelog.server.peers import Connection, PeerAddress, WrongCertificate, open_peer
from lakelog.server.server_grants import GRANT, ForwardedCall, ServerGrants
from lakelog.server.tls import ServerCertificate
from lakelog.storage.groups import GroupCatalog, ServerInfo

FORWARDED = b"x-lakelog-forwarded"
"""A header with the id of the home that the call is meant for, which only servers know. It prevents a second hop."""
CLIENT = b"x-lakelog-client"
HOME = b"lakelog-home"
"""A header of responses: the server that handled the call, by a name that does not contain its id."""
SERVER = b"lakelog-server"
"""A header of responses: the server that the client called."""
SEEN_EVERY_SECONDS = 2.0
MEMORY_SECONDS = 6.0
CONNECT_SECONDS = 1.0
ANSWER_SECONDS = 15.0
SHUN_SECONDS = 2.0
"""How long a home that failed is not tried again."""
IDLE_SECONDS = 30.0
MAX_IDLE = 64
_MAX_ANSWER_BYTES = 256 << 20
_REMEMBERED = 10_000
# Headers of the connection, not of the call; the length is set again.
_HOP = {b"connection", b"keep-alive", b"transfer-encoding", b"content-length", b"expect", b"x-request-id"}
# Secrets of the caller stay here; the grant replaces them.
_SECRET = {b"authorization", b"proxy-authorization", b"cookie"}
_OWN = {CLIENT, FORWARDED, GRANT, *_HOP, *_SECRET}
_PASSED_BACK = (b"content-type", b"retry-after", b"www-authenticate")
_log = logging.getLogger(__name__)


class GroupRouting:
    """Keeps the list of live servers, announces this one, and forwards calls."""

    def __init__(
        self,
        catalog: GroupCatalog,
        address: str,
        drain: Drain,
        metrics: Metrics,
        certificate: ServerCertificate | None = None,
    ) -> None:
        """Create the routing of a server that others reach at `address`, with TLS if it has a certificate."""
        self._catalog = catalog
        self._drain = drain
        self._metrics = metrics
        self._grants = ServerGrants(catalog)
        self._certificate = certificate
        if certificate is not None:
            address = _with_tls(address, certificate)
            certificate.changed.append(self._announce_certificate)
        self._me = ServerInfo(server_id=machine_id() + server_mark() + secrets.token_hex(8), address=address)
        self._servers: Sequence[ServerInfo] = (self._me,)
        self._known_until = 0.0
        self._routing: dict[tuple[int, str, str], Sequence[ServerInfo]] = {}
        self._shunned: dict[str, float] = {}
        self._idle: dict[str, list[tuple[float, Connection]]] = {}
        self._beating: asyncio.Task[None] | None = None
        self._announcing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._beat()
        self._beating = asyncio.create_task(self._keep_beating())

    async def stop(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
        for idle in self._idle.values():
            for _, (_, writer) in idle:
                writer.close()
        self._idle.clear()

    def elsewhere(
        self, call: Call, group: str, topic: str = "", *, owner: str = "", partitions: int = 1
    ) -> ServerInfo | None:
        """Return the home of these calls, if it is another reachable server. Calls of members have no topic.

        With an owner and the number of partitions of the topic, it is the home of the owner's shard.
        """
        if FORWARDED in call.headers or self._drain.begun or not self.has_others:
            return None
        homes = self._homes(call, group, topic)
        count = shard_count(partitions, len(homes))
        home = homes[crc32(owner.encode()) % count if owner else 0]
        if home.server_id == self._me.server_id or self._shunned.get(home.server_id, 0.0) > time.monotonic():
            return None
        return home

    @property
    def has_others(self) -> bool:
        """Return whether other servers are known to be alive."""
        return len(self._servers) > 1 and time.monotonic() <= self._known_until

    def shard(self, call: Call, group: str, topic: str, partitions: int) -> Shard:
        """Return the shard of the topic whose home is this server; the whole topic if it is the home of none."""
        if not self.has_others:
            return WHOLE
        homes = self._homes(call, group, topic)
        count = shard_count(partitions, len(homes))
        mine = [index for index, home in enumerate(homes[:count]) if home.server_id == self._me.server_id]
        return Shard(index=mine[0], count=count) if mine else WHOLE

    def reports(self, scope: Scope, group: str, topic: str) -> bool:
        """Return whether a process of this server is the home of a group in a topic, and so reports its figures."""
        if not self.has_others:
            return True
        return self._home(scope, group, topic).server_id.startswith(machine_id() + server_mark())

    def _homes(self, call: Call, group: str, topic: str) -> Sequence[ServerInfo]:
        key = (call.scope.environment_id, group, topic)
        homes = self._routing.get(key)
        if homes is None:
            if len(self._routing) >= _REMEMBERED:
                self._routing.clear()
            homes = self._routing[key] = homes_of(key, self._servers)
        return homes

    def _home(self, scope: Scope, group: str, topic: str) -> ServerInfo:
        """Return the home, which is not cached: a page of metrics asks for all groups."""
        return homes_of((scope.environment_id, group, topic), self._servers)[0]

    async def forward(self, call: Call, body: bytes, home: ServerInfo, *, seconds: float = 0.0) -> Response | None:
        """Return the home's response; None if it did not respond, and this server must serve the call."""
        client = ((call.asgi.get("client") or ("",))[0]).encode("latin-1", "replace")
        bound = _bound(call, client, home)
        signed = None if call.grant is None else self._grants.sign(call.grant, bound, body)
        if signed is None:
            return None
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                connection = await self._connect(home)
        except (OSError, TimeoutError, ValueError) as error:
            self._shun(home, error)
            return None
        reader, writer = connection
        finished = False
        try:
            async with asyncio.timeout(seconds + ANSWER_SECONDS):
                writer.write(_request(call, body, bound, signed))
                await writer.drain()
                answer, keep = await _answer(reader)
            finished = keep
        except (OSError, TimeoutError, ValueError, EOFError, asyncio.LimitOverrunError) as error:
            # The home may have handled the call; handling it again here is recognised as a repeat.
            self._shun(home, error)
            return None
        finally:
            if finished:
                self._keep(home.address, connection)
            else:
                writer.close()
        if answer.status == 401:
            # This server has checked the token, so the home refused the grant.
            self._shun(home, PermissionError(f"it refused the grant ({answer.body[:300].decode(errors='replace')})"))
            return None
        self._metrics.forwarded["busy" if answer.status == 503 else "answered",] += 1
        call.passed_on = answer.status != 503
        answer.headers = (*answer.headers, *self._names(home))
        return answer if call.passed_on else None

    def naming_home(self, handler: Handler) -> Handler:
        """Return a handler whose responses name the home, so that clients which know its address call it directly."""

        async def handle(call: Call) -> Response:
            response = await handler(call)
            if self.has_others and not self._drain.begun and not any(name == HOME for name, _ in response.headers):
                response.headers = (*response.headers, *self._names(self._me))
            return response

        return handle

    def _names(self, home: ServerInfo) -> tuple[Header, Header]:
        return (HOME, _public_name(home)), (SERVER, _public_name(self._me))

    async def accept(self, call: Call, signed: bytes) -> Grant:
        """Return the grant of a forwarded call. Raise `NotAuthenticated` unless it is valid for this call."""
        grant, call.body_hash = await self._grants.verify(signed, _bound(call, call.headers.get(CLIENT, b""), self._me))
        return grant

    def client_host(self, call: Call) -> str | None:
        """Return the caller of the server that forwarded this call; None if no server forwarded it."""
        if GRANT not in call.headers or call.headers.get(FORWARDED) != self._me.server_id.encode():
            return None
        return call.headers.get(CLIENT, b"").decode("latin-1")

    async def _keep_beating(self) -> None:
        while not self._drain.begun:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SEEN_EVERY_SECONDS):
                    await self._drain.wait()
            if not self._drain.begun:
                await self._beat()
        # Immediately, so that the other servers stop forwarding calls while this server still serves.
        with contextlib.suppress(LakelogError):
            await self._catalog.server_gone(self._me.server_id)

    async def _beat(self) -> None:
        at = time.monotonic()
        try:
            await self._grants.read_keys()
            seen = await self._catalog.server_seen(self._me, memory_seconds=MEMORY_SECONDS)
        except LakelogError as error:
            _log.debug("The list of servers could not be read: %s", error.detail)
            return
        self._check_level(seen.level)
        # A server of another version may not understand what this one forwards.
        servers = tuple(
            self._me if each.server_id == self._me.server_id else each
            for each in seen.servers
            if each.level == self._me.level and self._is_reachable(each)
        )
        if servers != self._servers:
            self._servers = servers
            self._routing.clear()
        self._known_until = at + MEMORY_SECONDS

    def _check_level(self, level: int) -> None:
        """End the process if the level of the installation was raised while this server was suspended."""
        if level > self._me.level and not self._drain.begun:
            log_event(_log, logging.ERROR, "level_unsupported", unsupported(level), level=level)
            signal.raise_signal(signal.SIGTERM)

    def _shun(self, home: ServerInfo, error: BaseException) -> None:
        reason = f"{type(error).__name__}: {first_line(error)}"
        message = f"The server at {home.address} could not be reached; its calls are served here: {reason}"
        log_event(_log, logging.INFO, "server_unreachable", message, address=home.address, reason=reason)
        self._metrics.forwarded["failed",] += 1
        now = time.monotonic()
        self._shunned = {each: until for each, until in self._shunned.items() if until > now}
        self._shunned[home.server_id] = now + SHUN_SECONDS
        for _, (_, writer) in self._idle.pop(home.address, []):
            writer.close()

    async def _connect(self, home: ServerInfo) -> Connection:
        try:
            return await self._connection(home.address)
        except WrongCertificate:
            # The home may have loaded another certificate a moment ago.
            await self._beat()
            known = next((each for each in self._servers if each.server_id == home.server_id), home)
            return await self._connection(known.address)

    async def _connection(self, address: str) -> Connection:
        idle = self._idle.get(address, [])
        while idle:
            since, (reader, writer) = idle.pop()
            if time.monotonic() - since < IDLE_SECONDS and not reader.at_eof() and not writer.is_closing():
                return reader, writer
            writer.close()
        return await open_peer(PeerAddress.parse(address))

    def _announce_certificate(self) -> None:
        """Tell other servers the certificate that was loaded."""
        assert self._certificate is not None
        self._me = replace(self._me, address=_with_tls(self._me.address, self._certificate))
        self._announcing = asyncio.get_running_loop().create_task(self._beat())

    def _is_reachable(self, server: ServerInfo) -> bool:
        """Return whether calls may go to this address: the loopback address of another machine is a stranger here.

        A server with TLS calls only servers with TLS.
        """
        try:
            address = PeerAddress.parse(server.address)
        except ValueError:
            return False
        if self._certificate is not None and not address.fingerprint:
            return False
        return not address.is_loopback or server.server_id.startswith(machine_id())

    def _keep(self, address: str, connection: Connection) -> None:
        idle = self._idle.setdefault(address, [])
        if len(idle) < MAX_IDLE:
            idle.append((time.monotonic(), connection))
        else:
            connection[1].close()


def homes_of(key: tuple[int, str, str], servers: Sequence[ServerInfo]) -> Sequence[ServerInfo]:
    """Return the homes of the shards by rendezvous hashing: if a server joins or leaves, few groups and shards move."""
    text = "{}\0{}\0{}\0".format(*key)
    return sorted(
        servers, key=lambda each: blake2b((text + each.server_id).encode(), digest_size=8).digest(), reverse=True
    )


def _public_name(server: ServerInfo) -> bytes:
    """Return a name for clients. They must not learn the id, which protects calls between servers."""
    return blake2b(server.server_id.encode(), digest_size=8, person=b"home").hexdigest().encode()


def _with_tls(address: str, certificate: ServerCertificate) -> str:
    return str(replace(PeerAddress.parse(address), fingerprint=certificate.fingerprint))


def _bound(call: Call, client: bytes, home: ServerInfo) -> ForwardedCall:
    asgi = call.asgi
    query: bytes = asgi.get("query_string", b"")
    path: bytes = (asgi.get("raw_path") or asgi["path"].encode()).partition(b"?")[0]
    target = path + (b"?" + query if query else b"")
    return ForwardedCall(method=asgi["method"], target=target, client=client, home=home.server_id)


def _request(call: Call, body: bytes, bound: ForwardedCall, signed: bytes) -> bytes:
    headers: list[Header] = [header for header in call.asgi["headers"] if header[0] not in _OWN]
    headers += (
        (b"x-request-id", call.request_id),
        (FORWARDED, bound.home.encode()),
        (CLIENT, bound.client),
        (GRANT, signed),
        (b"content-length", b"%d" % len(body)),
    )
    head = b"".join(b"%s: %s\r\n" % header for header in headers)
    return b"%s %s HTTP/1.1\r\n%s\r\n%s" % (bound.method.encode(), bound.target, head, body)


async def _answer(reader: asyncio.StreamReader) -> tuple[Response, bool]:
    """Return the response of a server, and whether the connection stays open."""
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head[:-4].split(b"\r\n")
    _, code, *_ = first.split(b" ", 2)
    status = int(code)
    headers = {name.lower(): text.strip() for name, _, text in (line.partition(b":") for line in lines)}
    length = 0 if status == 204 else int(headers.get(b"content-length", b"-1"))
    if not 0 <= length <= _MAX_ANSWER_BYTES:
        raise ValueError("an answer without a length")
    body = await reader.readexactly(length) if length else b""
    passed = [(name, headers[name]) for name in _PASSED_BACK if name in headers]
    return Response(status, body, *passed), headers.get(b"connection", b"").lower() != b"close"
