"""The receiving process of the latency benchmarks, which notes the age of each message on arrival.

`python -m benchmarks.latency_receiver JSON` prints "ready", receives until its input ends, and prints one JSON object.
Messages carry their publish time, by the clock that all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import gc
import math
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import Any

import msgspec

import lakelog
from benchmarks import redis_streams
from benchmarks.harness import Measured
from benchmarks.lease_consumers import Consumer, transport_to
from lakelog.client.publishing.codec import Codec
from lakelog.client.reading.decoding import leased_messages
from lakelog.client.values import Consumed

CONCURRENCY = 32
BATCH = 500
_CODEC: Codec[Any] = Codec(None)


class Receive(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The kind of receiver. Messages of the first seconds are not counted."""

    groups: list[str]
    warm_seconds: float


class ByHandler(Receive, frozen=True, kw_only=True):
    """An SDK worker: a message has arrived when its handler begins."""

    url: str
    topic: str


class ByBatch(Receive, frozen=True, kw_only=True):
    """Leases in batches: a message has arrived when it is decoded."""

    url: str
    topic: str


class FromRedis(Receive, frozen=True, kw_only=True):
    """XREADGROUP: a message has arrived when its handler begins, or in batches when it is decoded."""

    port: int
    by_batch: bool


AnyReceive = ByHandler | ByBatch | FromRedis


class ReceivedLatencies(msgspec.Struct, frozen=True, kw_only=True):
    count: int
    p50_ms: float
    p99_ms: float
    max_ms: float


class Receiving:
    """A running receiver; `outcome` ends it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def outcome(self) -> ReceivedLatencies:
        output, _ = self._process.communicate(timeout=60)
        return msgspec.json.decode(output, type=ReceivedLatencies)


@contextmanager
def receiving(what: AnyReceive) -> Iterator[Receiving]:
    argv = [sys.executable, "-m", "benchmarks.latency_receiver", msgspec.json.encode(what).decode()]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != b"ready\n":
                raise RuntimeError("the receiver did not start")
            yield Receiving(process)
        finally:
            if process.poll() is None:
                process.kill()


def measured(outcome: ReceivedLatencies, expected: int, *, figure: str) -> Measured:
    """Return the named figure. No message may be missing."""
    assert outcome.count == expected, f"{outcome.count} of {expected} messages came"
    notes = {"p50_ms": outcome.p50_ms, "p99_ms": outcome.p99_ms, "max_ms": outcome.max_ms}
    return Measured(figure=notes[figure], notes=notes, messages=expected)


class _Ages:
    """The ages of messages."""

    def __init__(self, warm_seconds: float) -> None:
        self._warm_ns = warm_seconds * 1e9
        self._first = 0
        self._taken: list[int] = []
        self.count = 0

    def add(self, order: Any) -> None:
        now, sent = time.monotonic_ns(), order["sent"]
        self.count += 1
        self._first = self._first or sent
        if sent - self._first >= self._warm_ns:
            self._taken.append(now - sent)

    def outcome(self) -> ReceivedLatencies:
        taken = sorted(self._taken)

        def at(share: float) -> float:
            return taken[math.ceil(len(taken) * share) - 1] / 1e6

        return ReceivedLatencies(count=self.count, p50_ms=at(0.5), p99_ms=at(0.99), max_ms=at(1.0))


async def _receive(what: AnyReceive) -> ReceivedLatencies:
    ages = _Ages(what.warm_seconds)
    async with AsyncExitStack() as stack:
        if isinstance(what, ByHandler):
            await _by_handler(what, ages, stack)
        elif isinstance(what, ByBatch):
            await _by_batch(what, ages, stack)
        else:
            await _from_redis(what, ages, stack)
        gc.collect()
        gc.freeze()
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        await _rested(ages)
    return ages.outcome()


async def _rested(ages: _Ages) -> None:
    """Wait until no message has arrived for half a second."""
    seen = -1
    while seen != ages.count:
        seen = ages.count
        await asyncio.sleep(0.5)


async def _by_handler(what: ByHandler, ages: _Ages, stack: AsyncExitStack) -> None:
    log = await stack.enter_async_context(lakelog.connect_async(what.url))

    async def handle(order: Any) -> None:
        ages.add(order)

    for group in what.groups:
        log.topic(what.topic).subscribe(handle, group=group, concurrency=CONCURRENCY, start_from="earliest")
    await log.start()


async def _by_batch(what: ByBatch, ages: _Ages, stack: AsyncExitStack) -> None:
    transport = await stack.enter_async_context(transport_to(what.url))

    def look(consumed: Consumed, topic: str) -> int:
        payloads = iter(consumed.payloads)
        before = ages.count
        for lease in consumed.leases:
            pieces: Sequence[Any] = [next(payloads) for _ in lease.pieces]
            for message in leased_messages(topic, _CODEC, consumed.head.incarnation, lease, pieces):
                ages.add(message.value)
        return ages.count - before

    for group in what.groups:
        consumer = Consumer(transport=transport, topic=what.topic, group=group, batch=BATCH, wait_seconds=10.0)
        await consumer.begin()
        _run_beside(stack, consumer.run(look, sys.maxsize))


async def _from_redis(what: FromRedis, ages: _Ages, stack: AsyncExitStack) -> None:
    async def handle(order: Any) -> None:
        ages.add(order)

    for group in what.groups:
        reading = await stack.enter_async_context(redis_streams.Redis.open(what.port))
        if what.by_batch:
            _run_beside(stack, redis_streams.consume(reading, group.encode(), ages.add, BATCH))
            continue
        acking = await stack.enter_async_context(redis_streams.Redis.open(what.port))
        _run_beside(stack, redis_streams.RedisWorker(reading, acking, group.encode(), handle, CONCURRENCY).run())


def _run_beside(stack: AsyncExitStack, work: Any) -> None:
    task = asyncio.create_task(work)
    task.add_done_callback(_complain)
    stack.callback(task.cancel)


def _complain(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        print(f"a receiver failed: {error!r}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    wanted: AnyReceive = msgspec.json.decode(sys.argv[1], type=AnyReceive)
    print(msgspec.json.encode(asyncio.run(_receive(wanted))).decode())
