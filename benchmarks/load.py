"""The load generator: a separate process that keeps many connections busy, each with one request at a time.

It is light, so that it does not measure itself on a small machine: requests are encoded beforehand, and only status and
length of a response are read. `python -m benchmarks.load JSON` prints one JSON object; `generate` runs it.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import math
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from time import perf_counter
from typing import cast

import asyncpg
import msgspec
import uvloop

from benchmarks.corpus import PARTITIONS, Corpus, corpus
from benchmarks.harness import CI_DISTINCT, Measured
from lakelog.batches import encode, from_columns
from lakelog.wire.frames import MEDIA_TYPE, PublishFrame, write_publish

WARM_SECONDS = 1.0


class LoadSpec(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The load to generate. Responses of the first second are not counted."""

    connections: int
    seconds: float


class HttpSingle(LoadSpec, frozen=True, kw_only=True):
    """One message per request, as JSON; without a token if that is None."""

    port: int
    topic: str
    token: str | None


class HttpBatches(LoadSpec, frozen=True, kw_only=True):
    """Small numbered batches, one per partition in a request, as the SDK's producer sends them."""

    port: int
    topic: str
    epoch: int
    messages: int


class RedisSingle(LoadSpec, frozen=True, kw_only=True):
    """XADD of one message."""

    port: int


class InsertSingle(LoadSpec, frozen=True, kw_only=True):
    """INSERT and commit of one row."""

    database: str


AnyLoad = HttpSingle | HttpBatches | RedisSingle | InsertSingle


class LoadResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result. `requests` and `seconds` are of the measured time; `answered` also has the requests before it."""

    requests: int
    seconds: float
    answered: int
    p50_ms: float
    p99_ms: float
    max_ms: float


def generate(load: AnyLoad, *, messages: int = 1) -> Measured:
    """Run the load in a separate process. The figure is messages per second."""
    argv = [sys.executable, "-m", "benchmarks.load", msgspec.json.encode(load).decode()]
    done = subprocess.run(argv, stdout=subprocess.PIPE, timeout=load.seconds + 120, check=True)
    outcome = msgspec.json.decode(done.stdout, type=LoadResult)
    notes = {"p50_ms": outcome.p50_ms, "p99_ms": outcome.p99_ms, "max_ms": outcome.max_ms}
    rate = outcome.requests * messages / outcome.seconds
    return Measured(figure=rate, notes=notes, messages=outcome.answered * messages)


class _Tally:
    """Latencies of requests that were answered within the measured time."""

    def __init__(self, seconds: float) -> None:
        self._from = perf_counter() + WARM_SECONDS
        self._until = self._from + seconds
        self._last = self._from
        self._taken: list[float] = []
        self._answered = 0

    def answered(self, sent: float) -> float | None:
        """Return the current time, or None if there are enough requests."""
        now = perf_counter()
        self._answered += 1
        if sent >= self._from:
            self._taken.append(now - sent)
            self._last = now
        return now if now < self._until else None

    def outcome(self) -> LoadResult:
        taken = sorted(self._taken)

        def at(share: float) -> float:
            return taken[min(len(taken) - 1, math.ceil(len(taken) * share) - 1)] * 1000

        return LoadResult(
            requests=len(taken),
            seconds=self._last - self._from,
            answered=self._answered,
            p50_ms=at(0.5),
            p99_ms=at(0.99),
            max_ms=at(1.0),
        )


class _LoadConnection(asyncio.Protocol):
    """One request at a time, until the tally has enough."""

    def __init__(self, requests: Iterator[bytes], whole: Callable[[bytes], bool], tally: _Tally) -> None:
        self._requests = requests
        self._whole = whole
        self._tally = tally
        self._answer = b""
        self._sent = 0.0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio.Transport.
        self._transport = cast(asyncio.Transport, transport)
        self._send(perf_counter())

    def data_received(self, data: bytes) -> None:
        self._answer = self._answer + data if self._answer else data
        try:
            whole = self._whole(self._answer)
        except ValueError as exc:
            self.done.set_exception(exc)
            self._transport.abort()
            return
        if whole:
            self._answer = b""
            now = self._tally.answered(self._sent)
            if now is None:
                self._transport.close()
            else:
                self._send(now)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.done.done():
            return
        if exc is None and not self._answer and self._transport.is_closing():
            self.done.set_result(None)
        else:
            self.done.set_exception(exc or ConnectionError("the server closed a connection"))

    def _send(self, now: float) -> None:
        self._sent = now
        self._transport.write(next(self._requests))


def _http_whole(answer: bytes) -> bool:
    end = answer.find(b"\r\n\r\n")
    if end < 0:
        return False
    if not answer.startswith(b"HTTP/1.1 200"):
        raise ValueError(f"the server refused: {answer[:600]!r}")
    head = answer[:end].lower()
    at = head.find(b"content-length:") + 15
    line = head.find(b"\r\n", at)
    length = int(head[at : line if line >= 0 else None])
    return len(answer) >= end + 4 + length


def _redis_whole(answer: bytes) -> bool:
    if not answer.startswith(b"$"):
        raise ValueError(f"Redis refused: {answer[:200]!r}")
    return answer.count(b"\r\n") >= 2


def _post(topic: str, content_type: str, body: bytes, token: str | None = None) -> bytes:
    authorization = f"Authorization: Bearer {token}\r\n" if token else ""
    head = (
        f"POST /v1/topics/{topic}/messages HTTP/1.1\r\nHost: 127.0.0.1\r\n{authorization}"
        f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _single_requests(load: HttpSingle, made: Corpus) -> list[bytes]:
    bodies = [
        msgspec.json.encode({"messages": [{"key": key.decode(), "value": order}]})
        for key, order in zip(made.keys, made.objects, strict=True)
    ]
    return [_post(load.topic, "application/json", body, load.token) for body in bodies]


def _redis_requests(made: Corpus) -> list[bytes]:
    requests = []
    for number, (key, value) in enumerate(zip(made.keys, made.values, strict=True)):
        words = (b"XADD", b"topic-%d" % (number % PARTITIONS), b"*", b"key", key, b"value", value)
        requests.append(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
    return requests


def _batch_requests(load: HttpBatches, made: Corpus, start: int) -> Iterator[bytes]:
    """Yield requests endlessly: each connection is a producer that counts its batches."""
    share = load.messages // PARTITIONS
    producer = secrets.token_bytes(16)
    payloads = []
    for number in range(0, len(made) - share, share):
        until = number + share
        columns = {"key": made.keys[number:until], "value": made.values[number:until]}
        payloads.append(encode(from_columns(columns)))
    turning = itertools.islice(itertools.cycle(payloads), start, None)
    for sequence in itertools.count():
        frames = [
            PublishFrame(
                partition=partition,
                epoch=load.epoch,
                count=share,
                sequence=sequence,
                producer=producer,
                payload=next(turning),
            )
            for partition in range(PARTITIONS)
        ]
        yield _post(load.topic, MEDIA_TYPE, write_publish(frames))


async def _over_tcp(load: HttpSingle | HttpBatches | RedisSingle, made: Corpus) -> LoadResult:
    whole = _redis_whole if isinstance(load, RedisSingle) else _http_whole
    if isinstance(load, HttpBatches):
        sources = [_batch_requests(load, made, number) for number in range(load.connections)]
    else:
        requests = _single_requests(load, made) if isinstance(load, HttpSingle) else _redis_requests(made)
        shared = itertools.cycle(requests)
        sources = [shared] * load.connections
    gc.freeze()
    tally = _Tally(load.seconds)
    loop = asyncio.get_running_loop()
    protocols = []
    for source in sources:
        connection = partial(_LoadConnection, source, whole, tally)
        _, protocol = await loop.create_connection(connection, "127.0.0.1", load.port)
        protocols.append(protocol)
    await asyncio.gather(*(protocol.done for protocol in protocols))
    return tally.outcome()


async def _over_sql(load: InsertSingle, made: Corpus) -> LoadResult:
    rows = itertools.cycle(enumerate(zip(made.keys, made.values, strict=True)))
    now = datetime.now(UTC)
    connections = [await asyncpg.connect(load.database) for _ in range(load.connections)]
    gc.freeze()
    tally = _Tally(load.seconds)

    async def insert(connection: asyncpg.Connection) -> None:
        statement = await connection.prepare("insert into plain values ($1, $2, $3, $4)")
        sent: float | None = perf_counter()
        while sent is not None:
            number, (key, value) = next(rows)
            await statement.fetch(number % PARTITIONS, key, value, now)
            sent = tally.answered(sent)

    await asyncio.gather(*map(insert, connections))
    for connection in connections:
        await connection.close()
    return tally.outcome()


async def _run(load: AnyLoad) -> LoadResult:
    made = corpus(CI_DISTINCT)
    if isinstance(load, InsertSingle):
        return await _over_sql(load, made)
    return await _over_tcp(load, made)


if __name__ == "__main__":
    wanted: AnyLoad = msgspec.json.decode(sys.argv[1], type=AnyLoad)
    print(msgspec.json.encode(uvloop.run(_run(wanted))).decode())
