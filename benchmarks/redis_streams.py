"""The Redis baseline for publishing, workers and latencies: Redis Streams with XADD, XREADGROUP and XACK.

The client is as light as ours: commands are pipelined, responses are parsed from the received bytes, and acks during an
XACK form the next one. Workers and latencies use one stream, where ours has four partitions.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from itertools import cycle, islice
from time import perf_counter
from typing import Any, cast

import msgspec

from benchmarks.corpus import PARTITIONS, Corpus
from benchmarks.harness import Measured

STREAM = b"orders"
_CHUNK = 10_000

Handler = Callable[[Any], Awaitable[None]]


class Redis(asyncio.Protocol):
    """One connection. Responses arrive in the order of the calls."""

    def __init__(self) -> None:
        self._received = b""
        self._waiting: deque[asyncio.Future[Any]] = deque()

    @classmethod
    @asynccontextmanager
    async def open(cls, port: int) -> AsyncIterator[Redis]:
        transport, redis = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        try:
            yield redis
        finally:
            transport.close()

    def call(self, *words: bytes | int) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        texts = [word if isinstance(word, bytes) else b"%d" % word for word in words]
        self._transport.write(b"*%d\r\n" % len(texts) + b"".join(b"$%d\r\n%s\r\n" % (len(t), t) for t in texts))
        return answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        received = self._received + data if self._received else data
        at = 0
        while self._waiting and at < len(received):
            try:
                answer, at = _parse(received, at)
            except IndexError:
                break
            waiting = self._waiting.popleft()
            if waiting.done():
                continue
            if isinstance(answer, Exception):
                waiting.set_exception(answer)
            else:
                waiting.set_result(answer)
        self._received = received[at:]

    def connection_lost(self, exc: Exception | None) -> None:
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(exc or ConnectionError("Redis closed the connection"))


def _parse(data: bytes, at: int) -> tuple[Any, int]:
    """Return the response at this position, and the position of the next; IndexError if it is incomplete."""
    end = data.find(b"\r\n", at)
    if end < 0:
        raise IndexError
    kind, text = data[at : at + 1], data[at + 1 : end]
    at = end + 2
    if kind == b"$":
        size = int(text)
        if size < 0:
            return None, at
        if len(data) < at + size + 2:
            raise IndexError
        return data[at : at + size], at + size + 2
    if kind == b"*":
        found = []
        for _ in range(int(text)):
            each, at = _parse(data, at)
            found.append(each)
        return found, at
    if kind == b"-":
        return RuntimeError(f"Redis refused: {text.decode()}"), at
    return (int(text) if kind == b":" else text), at


async def begin(redis: Redis, groups: Iterable[bytes]) -> None:
    """Create an empty stream with these groups."""
    await redis.call(b"DEL", STREAM)
    for group in groups:
        await redis.call(b"XGROUP", b"CREATE", STREAM, group, b"0", b"MKSTREAM")


async def fill(redis: Redis, corpus: Corpus, messages: int) -> None:
    for start in range(0, messages, _CHUNK):
        numbers = (number % len(corpus) for number in range(start, min(messages, start + _CHUNK)))
        await asyncio.gather(*(add(redis, corpus.keys[number], corpus.values[number]) for number in numbers))


def add(redis: Redis, key: bytes, value: bytes) -> asyncio.Future[Any]:
    return redis.call(b"XADD", STREAM, b"*", b"key", key, b"value", value)


async def read(redis: Redis, group: bytes, count: int) -> list[Any]:
    """Return new messages for the group: pairs of an id and the fields. Waits for a second."""
    words = (b"GROUP", group, b"bench", b"COUNT", count, b"BLOCK", 1000, b"STREAMS", STREAM, b">")
    found = await redis.call(b"XREADGROUP", *words)
    return found[0][1] if found else []


async def consume(redis: Redis, group: bytes, look: Callable[[Any], None], batch: int) -> None:
    """Read and ack in batches until cancelled."""
    decode = msgspec.json.decode
    while True:
        found = await read(redis, group, batch)
        for _, fields in found:
            look(decode(fields[3]))
        if found:
            # Not awaited: the next read follows at once.
            redis.call(b"XACK", STREAM, group, *(identity for identity, _ in found))


class _Pipeline(asyncio.Protocol):
    """Sends XADD commands in chunks, and counts their responses without parsing them."""

    def __init__(self) -> None:
        self._unanswered = 0
        self._below = 0
        self._waiting: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    async def send(self, commands: list[bytes]) -> None:
        """Send a chunk when at most one other is unanswered."""
        await self.unanswered(len(commands))
        self._unanswered += len(commands)
        self._transport.write(b"".join(commands))

    async def unanswered(self, most: int) -> None:
        """Wait until at most this number of commands has no response."""
        if self._unanswered > most:
            self._below = most
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting

    def data_received(self, data: bytes) -> None:
        # The id of an entry has no `$`, so each one begins a response.
        self._unanswered -= data.count(b"$")
        if self._waiting is None or self._waiting.done():
            return
        if b"-ERR" in data:
            self._waiting.set_exception(RuntimeError(f"Redis refused: {data[:200]!r}"))
        elif self._unanswered <= self._below:
            self._waiting.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(exc or ConnectionError("Redis closed the connection"))


def publish(port: int, corpus: Corpus, messages: int) -> Measured:
    """Measure XADD of objects, pipelined by one client into as many streams as ours has partitions.

    Each stream has its own connection: Redis reads 16 KiB of a connection between two flushes.
    """
    return asyncio.run(_publish(port, corpus, messages))


async def _publish(port: int, corpus: Corpus, messages: int) -> Measured:
    async with Redis.open(port) as redis:
        await redis.call(b"DEL", *(_stream(number) for number in range(PARTITIONS)))
    loop = asyncio.get_running_loop()
    opened = [await loop.create_connection(_Pipeline, "127.0.0.1", port) for _ in range(PARTITIONS)]
    pairs = islice(cycle(zip(corpus.keys, corpus.objects, strict=True)), messages)
    encode = msgspec.json.encode
    heads = [b"*7\r\n$4\r\nXADD\r\n%b$1\r\n*\r\n$3\r\nkey\r\n" % _word(_stream(n)) for n in range(PARTITIONS)]
    start = perf_counter()
    while chunk := list(islice(pairs, _CHUNK)):
        for number, (_, pipeline) in enumerate(opened):
            values = ((key, encode(order)) for key, order in chunk[number::PARTITIONS])
            await pipeline.send(
                [
                    b"%b$%d\r\n%b\r\n$5\r\nvalue\r\n$%d\r\n%b\r\n" % (heads[number], len(key), key, len(value), value)
                    for key, value in values
                ]
            )
    for transport, pipeline in opened:
        await pipeline.unanswered(0)
        transport.close()
    return Measured(figure=messages / (perf_counter() - start))


def _stream(number: int) -> bytes:
    return b"orders-%d" % number


def _word(text: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(text), text)


class RedisWorker:
    """Gives each message of the stream to a handler with limited concurrency. A slot is free when its XACK is
    answered."""

    def __init__(self, reading: Redis, acking: Redis, group: bytes, handler: Handler, concurrency: int) -> None:
        self._reading = reading
        self._acking = acking
        self._group = group
        self._handler = handler
        self._room = concurrency
        self._said: list[bytes] = []
        self._freed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._answers: asyncio.Task[None] | None = None
        self.acked = 0

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            self._freed.clear()
            if not self._room:
                await self._freed.wait()
                continue
            for identity, fields in await read(self._reading, self._group, self._room):
                self._room -= 1
                task = asyncio.create_task(self._run_one(identity, fields[3]))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _run_one(self, identity: bytes, value: bytes) -> None:
        await self._handler(msgspec.json.decode(value))
        self._said.append(identity)
        if self._answers is None or self._answers.done():
            self._answers = asyncio.create_task(self._ack_all())

    async def _ack_all(self) -> None:
        await asyncio.sleep(0)
        while self._said:
            said, self._said = self._said, []
            await self._acking.call(b"XACK", STREAM, self._group, *said)
            self._room += len(said)
            self.acked += len(said)
            self._freed.set()
