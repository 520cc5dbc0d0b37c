"""The primitives in which async and sync code differ: `AsyncName` for asyncio, `Name` for threads.

`scripts/unasync.py` turns the first into the second. The async forms belong to one event loop and need no lock, but
they support the same `with` statements, so that one source serves both.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

from lakelog.client import processes
from lakelog.client.connecting.trust import NO_FILES, TlsFiles, tls_context
from lakelog.errors import InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa

R = TypeVar("R")
P = ParamSpec("P")

_READ_BYTES = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketAddress:
    """The address at which a server listens."""

    host: str
    port: int
    tls: bool
    tls_files: TlsFiles = NO_FILES

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"


class StreamEnded(Exception):
    """The peer closed the connection, or sent more than expected."""


# Waiting and waking ---------------------------------------------------------------------------------------------------


class AsyncMutex:
    """A lock that does nothing: code between two awaits runs alone."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


Mutex = threading.Lock


class AsyncCondition:
    """A condition that waits for a notification. Wake-ups may be spurious, so callers check again."""

    def __init__(self, mutex: AsyncMutex) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self, timeout: float | None = None) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            async with asyncio.timeout(timeout):
                await future
        except TimeoutError:
            pass
        finally:
            with contextlib.suppress(ValueError):
                self._waiting.remove(future)

    def notify_all(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for future in waiting:
            if not future.done():
                future.set_result(None)


Condition = threading.Condition


async def async_sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


def sleep(seconds: float) -> None:
    time.sleep(seconds)


# Work beside the caller -----------------------------------------------------------------------------------------------


class AsyncBackgroundTask:
    """Runs a coroutine function in the background."""

    def __init__(self, name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._task = asyncio.get_running_loop().create_task(run(), name=name)

    async def join(self, timeout: float | None = None) -> None:
        await asyncio.wait([self._task], timeout=timeout)

    def cancel(self) -> None:
        self._task.cancel()

    @property
    def alive(self) -> bool:
        return not self._task.done() and not self._task.get_loop().is_closed()


class BackgroundTask:
    """Runs a function in a thread that does not keep the process alive."""

    def __init__(self, name: str, run: Callable[[], None]) -> None:
        self._thread = threading.Thread(target=run, name=name, daemon=True)
        self._thread.start()

    def join(self, timeout: float | None = None) -> None:
        self._thread.join(timeout)

    def cancel(self) -> None:
        """Do nothing: a thread cannot be cancelled. The function checks for the end itself."""

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()


class _ThreadPool:
    """Threads for work that releases the interpreter's lock, shared by the process."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None
        processes.after_fork(self)

    def submit(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(2, thread_name_prefix="lakelog-encode")
        return self._executor.submit(work, *args, **kwargs)

    def reset_after_fork(self) -> None:
        self._executor = None


_pool = _ThreadPool()


class AsyncComputation:
    """A computation in another thread."""

    def __init__(self, work: Callable[..., R], *args: Any) -> None:
        self._future: asyncio.Future[Any] = asyncio.wrap_future(_pool.submit(work, *args))

    async def result(self) -> Any:
        return await self._future


class Computation:
    """A computation in another thread."""

    def __init__(self, work: Callable[..., R], *args: Any) -> None:
        self._future: Future[Any] = _pool.submit(work, *args)

    def result(self) -> Any:
        return self._future.result()


async def async_offload(work: Callable[..., R], *args: Any) -> R:
    """Run the work in another thread, so that it does not block the event loop."""
    return await asyncio.wrap_future(_pool.submit(work, *args))


def offload(work: Callable[..., R], *args: Any) -> R:
    return work(*args)


AsyncRecordBatches: TypeAlias = "AsyncIterator[pa.RecordBatch]"
RecordBatches: TypeAlias = "pa.RecordBatchReader"


def async_record_batches(schema: pa.Schema, batches: AsyncIterator[pa.RecordBatch]) -> AsyncIterator[pa.RecordBatch]:
    return batches


def record_batches(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatchReader:
    """Return the batches as a reader, which other libraries for columns accept."""
    import pyarrow as pa

    return pa.RecordBatchReader.from_batches(schema, batches)


# Streams --------------------------------------------------------------------------------------------------------------


class AsyncStream:
    """A TCP connection. Each operation ends at the deadline that `within` has set."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._deadline = 0.0
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def open(cls, address: SocketAddress, seconds: float) -> AsyncStream:
        tls = tls_context(address.tls_files) if address.tls else None
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection(address.host, address.port, ssl=tls, limit=_READ_BYTES)
        _no_delay(writer.get_extra_info("socket"))
        return cls(reader, writer)

    def within(self, seconds: float) -> None:
        self._deadline = self._loop.time() + seconds

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        if len(data) > _READ_BYTES:
            async with asyncio.timeout_at(self._deadline):
                await self._writer.drain()

    async def read_until(self, mark: bytes) -> bytes:
        try:
            async with asyncio.timeout_at(self._deadline):
                return await self._reader.readuntil(mark)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as exc:
            raise StreamEnded("the connection was closed") from exc

    async def read_exactly(self, size: int) -> bytes:
        try:
            if self._received >= size:
                # The data has arrived: starting a timer costs more than the rest of a small read.
                return await self._reader.readexactly(size)
            async with asyncio.timeout_at(self._deadline):
                return await self._reader.readexactly(size)
        except asyncio.IncompleteReadError as exc:
            raise StreamEnded("the connection was closed") from exc

    @property
    def usable(self) -> bool:
        """True if the connection can be used again: same loop, not closed, and nothing unread."""
        mine = self._loop is asyncio.get_running_loop()
        return mine and not self._writer.is_closing() and not self._reader.at_eof() and not self._received

    @property
    def _received(self) -> int:
        """The number of bytes that have arrived and were not read. asyncio has no public attribute for it."""
        return len(self._reader._buffer)  # type: ignore[attr-defined]

    def close(self) -> None:
        if not self._loop.is_closed():
            # With TLS, `close` would wait for the server, and leave the socket open if the event loop ends earlier.
            has_tls = self._writer.get_extra_info("ssl_object") is not None
            close = self._writer.transport.abort if has_tls else self._writer.close
            close()


class Stream:
    """A TCP connection. Each operation ends at the deadline that `within` has set."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._deadline = 0.0
        self._buffer = bytearray()

    @classmethod
    def open(cls, address: SocketAddress, seconds: float) -> Stream:
        sock = socket.create_connection((address.host, address.port), timeout=seconds)
        try:
            _no_delay(sock)
            if address.tls:
                return cls(tls_context(address.tls_files).wrap_socket(sock, server_hostname=address.host))
            return cls(sock)
        except BaseException:
            sock.close()
            raise

    def within(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds

    def write(self, data: bytes) -> None:
        self._arm()
        self._socket.sendall(data)

    def read_until(self, mark: bytes) -> bytes:
        searched = 0
        while (end := self._buffer.find(mark, searched)) < 0:
            if len(self._buffer) > _READ_BYTES:
                raise StreamEnded("the answer's head is too long")
            searched = max(0, len(self._buffer) - len(mark) + 1)
            self._receive()
        end += len(mark)
        found = bytes(self._buffer[:end])
        del self._buffer[:end]
        return found

    def read_exactly(self, size: int) -> bytes:
        if len(self._buffer) < size:
            # The rest is read into its final place: bodies have megabytes.
            whole = bytearray(size)
            at = len(self._buffer)
            whole[:at] = self._buffer
            self._buffer.clear()
            view = memoryview(whole)
            while at < size:
                self._arm()
                received = self._socket.recv_into(view[at:])
                if not received:
                    raise StreamEnded("the connection was closed")
                at += received
            view.release()
            return bytes(whole)
        found = bytes(self._buffer[:size])
        del self._buffer[:size]
        return found

    @property
    def usable(self) -> bool:
        """True if the connection can be used again: the peer has neither closed it nor sent more."""
        if self._buffer:
            return False
        try:
            self._socket.setblocking(False)
            if isinstance(self._socket, ssl.SSLSocket):
                self._socket.read(1)
            else:
                self._socket.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False
        return False

    def close(self) -> None:
        self._socket.close()

    def _receive(self) -> None:
        self._arm()
        received = self._socket.recv(_READ_BYTES)
        if not received:
            raise StreamEnded("the connection was closed")
        self._buffer += received

    def _arm(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("no time is left")
        self._socket.settimeout(left)


def _no_delay(sock: socket.socket | None) -> None:
    if sock is not None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


# The end of the process -----------------------------------------------------------------------------------------------


def async_wait_at_exit(call: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Do nothing: the event loop ends before the process does."""


def wait_at_exit(call: Callable[[], None]) -> None:
    call()


# The worker's event loop ----------------------------------------------------------------------------------------------


async def async_within(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, R]) -> R:
    """Run the work in the worker's event loop, which is the caller's own."""
    if asyncio.get_running_loop() is loop:
        return await work
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))


def within(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, R]) -> R:
    """Run the work in the worker's event loop, which is in another thread."""
    if asyncio._get_running_loop() is loop:
        work.close()
        raise InvalidRequest(
            "A Delivery blocks, and this handler runs in the event loop. "
            "Write the handler as `async def`: it then gets an AsyncDelivery."
        )
    return asyncio.run_coroutine_threadsafe(work, loop).result()
