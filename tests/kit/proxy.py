"""A TCP proxy with faults: cuts, half-open links, slowness, responses lost after the commit.

It runs in its own thread, so that sync and async tests can use it. It knows no protocol: a response is any data from
upstream after the client has sent data.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from enum import Enum
from types import TracebackType
from typing import TypeVar

from tests.kit.ports import free_port

T = TypeVar("T")
_CHUNK = 64 * 1024
_REMEMBERED = 64 * 1024


class Mode(Enum):
    PASS = "pass"
    CUT = "cut"
    HALF_OPEN = "half_open"
    SLOW = "slow"
    DROP_ANSWERS = "drop_answers"


@dataclass(frozen=True, kw_only=True)
class _Drops:
    """The responses to lose: the next `count`, or each with `probability`, of requests that contain `matching`."""

    count: int | None
    probability: float
    matching: bytes


class FaultProxy:
    """`with FaultProxy(host, port) as proxy: connect to proxy.port; proxy.cut_off(); proxy.pass_through()`.

    It counts its faults: `connections`, `cut` (connections reset), `swallowed` (chunks lost while half-open), `slowed`
    (chunks delayed), `dropped` (responses of upstream that were lost).
    """

    def __init__(self, upstream_host: str, upstream_port: int) -> None:
        self.upstream = (upstream_host, upstream_port)
        self.host = "127.0.0.1"
        self.port = free_port()
        self.mode = Mode.PASS
        self.connections = self.cut = self.swallowed = self.slowed = self.dropped = 0
        self._delay = 0.0
        self._drops = _Drops(count=0, probability=0.0, matching=b"")
        self._random = random.Random(0)
        self._links: set[Link] = set()
        self._listener: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)

    def pass_through(self) -> None:
        """Repair the link. Connections that lost bytes while half-open are reset, because their streams have gaps."""
        self._switch(Mode.PASS)

    def cut_off(self) -> None:
        """Refuse new connections and reset existing ones."""
        self._switch(Mode.CUT)

    def half_open(self) -> None:
        """Accept and read, but forward nothing in either direction."""
        self._switch(Mode.HALF_OPEN)

    def slow_down(self, seconds: float) -> None:
        """Delay each chunk, in both directions."""
        self._switch(Mode.SLOW, lambda: setattr(self, "_delay", seconds))

    def drop_answers(
        self, count: int | None = None, *, probability: float = 1.0, seed: int = 0, matching: bytes = b""
    ) -> None:
        """Forward requests, await the response of upstream, discard it and reset the client's connection.

        With `count`, forward everything again after that number of responses. Requests without the bytes `matching`,
        such as the start of a session, are not affected.
        """

        def arm() -> None:
            self._drops = _Drops(count=count, probability=probability, matching=matching)
            self._random = random.Random(seed)

        self._switch(Mode.DROP_ANSWERS, arm)

    def reset_connections(self) -> None:
        """Reset the existing connections once, in any mode."""
        self._call(self._reset(lambda link: True))

    def start(self) -> FaultProxy:
        self._thread.start()
        self._call(self._listen())
        return self

    def close(self) -> None:
        self._call(self._shut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)
        self._loop.close()

    def __enter__(self) -> FaultProxy:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _call(self, work: Coroutine[object, object, T]) -> T:
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result(timeout=10)

    def _switch(self, mode: Mode, prepare: Callable[[], None] = lambda: None) -> None:
        async def switch() -> None:
            prepare()
            self.mode = mode
            if mode is Mode.CUT:
                await self._unlisten()
                await self._reset(lambda link: True)
                return
            if mode is not Mode.HALF_OPEN:
                await self._reset(lambda link: link.spoiled)
            await self._listen()

        self._call(switch())

    async def _listen(self) -> None:
        if self._listener is None:
            self._listener = await asyncio.start_server(self._accepted, self.host, self.port)

    async def _unlisten(self) -> None:
        if self._listener is not None:
            # Accepted sockets become connections first: otherwise asyncio does not close them.
            for listening in self._listener.sockets:
                self._loop.remove_reader(listening.fileno())
            await asyncio.sleep(0)
            self._listener.close()
            self._listener = None

    async def _reset(self, chosen: Callable[[Link], bool]) -> None:
        for link in [link for link in self._links if chosen(link)]:
            self.cut += 1
            link.reset()

    async def _shut(self) -> None:
        await self._unlisten()
        # Repeatedly, because a socket that was just accepted becomes a link at the same time.
        while self._links or len(asyncio.all_tasks()) > 1:
            for link in list(self._links):
                link.stop()
            await asyncio.sleep(0)
        # A transport closes its socket one iteration of the event loop after close() was called.
        await asyncio.sleep(0)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Create the link immediately, so that every connection has an owner that closes it."""
        self.connections += 1
        link = self.link(writer)
        self._links.add(link)
        link.start(reader, self._links.discard)

    def link(self, client: asyncio.StreamWriter) -> Link:
        """Return the object that carries one connection; a subclass of the proxy has another kind of link."""
        return Link(self, client)

    def _loses(self, request: bytes) -> bool:
        """Decide once per response."""
        drops = self._drops
        if self.mode is not Mode.DROP_ANSWERS or drops.matching not in request:
            return False
        if drops.count is not None and drops.count <= 0:
            return False
        if self._random.random() >= drops.probability:
            return False
        if drops.count is not None:
            self._drops = replace(drops, count=drops.count - 1)
        self.dropped += 1
        return True


class Link:
    """One client's connection and its connection to upstream."""

    def __init__(self, proxy: FaultProxy, client: asyncio.StreamWriter) -> None:
        self.proxy = proxy
        self.client = client
        self.upstream: asyncio.StreamWriter | None = None
        self.spoiled = False
        self._request = b""
        self._task: asyncio.Task[None] | None = None

    def start(self, from_client: asyncio.StreamReader, ended: Callable[[Link], None]) -> None:
        def close(task: asyncio.Task[None]) -> None:
            self.close()
            ended(self)

        self._task = asyncio.create_task(self.run(from_client))
        self._task.add_done_callback(close)

    def stop(self) -> None:
        self.reset()
        if self._task is not None:
            self._task.cancel()

    async def run(self, from_client: asyncio.StreamReader) -> None:
        try:
            # A half-open link looks connected to the client, even if upstream could not be reached.
            if self.proxy.mode is Mode.HALF_OPEN:
                self.spoiled = True
                await self._swallow(from_client)
                return
            from_upstream, self.upstream = await asyncio.open_connection(*self.proxy.upstream)
        except OSError:
            self.reset()
            return
        pumps = {
            asyncio.create_task(self._forward(from_client)),
            asyncio.create_task(self._answer(from_upstream)),
        }
        try:
            await asyncio.wait(pumps, return_when=asyncio.ALL_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()

    async def _swallow(self, reader: asyncio.StreamReader) -> None:
        while await reader.read(_CHUNK):
            self.proxy.swallowed += 1

    async def _forward(self, reader: asyncio.StreamReader) -> None:
        assert self.upstream is not None
        with _reset_by_peer(self):
            while chunk := await reader.read(_CHUNK):
                if await self._lost():
                    continue
                self._request = (self._request + chunk)[-_REMEMBERED:]
                self.upstream.write(chunk)
                await self.upstream.drain()
            self._end(self.upstream)

    async def _answer(self, reader: asyncio.StreamReader) -> None:
        with _reset_by_peer(self):
            while chunk := await reader.read(_CHUNK):
                if await self._lost():
                    continue
                if self._request:
                    request, self._request = self._request, b""
                    if self.proxy._loses(request):
                        self.reset()
                        return
                self.client.write(chunk)
                await self.client.drain()
            self._end(self.client)

    def _end(self, writer: asyncio.StreamWriter) -> None:
        """Forward an orderly close, unless the link loses it."""
        self.spoiled = self.spoiled or self.proxy.mode is Mode.HALF_OPEN
        if not self.spoiled:
            writer.write_eof()

    async def _lost(self) -> bool:
        if self.proxy.mode is Mode.SLOW:
            self.proxy.slowed += 1
            await asyncio.sleep(self.proxy._delay)
        # Checked after the delay: the link may be half-open now.
        if self.spoiled or self.proxy.mode is Mode.HALF_OPEN:
            self.spoiled = True
            self.proxy.swallowed += 1
            return True
        return False

    def reset(self) -> None:
        """End both sides immediately; the client sees a reset, not an orderly close."""
        for writer in (self.client, self.upstream):
            if writer is None or writer.is_closing():
                continue
            sock: socket.socket | None = writer.get_extra_info("socket")
            if sock is not None:
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    def close(self) -> None:
        for writer in (self.client, self.upstream):
            if writer is not None:
                writer.close()


@contextlib.contextmanager
def _reset_by_peer(link: Link) -> Iterator[None]:
    """Reset the other side after one side disappeared."""
    try:
        yield
    except (ConnectionError, OSError):
        link.reset()
