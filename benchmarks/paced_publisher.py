"""The publisher of the latency benchmarks: a fixed number of messages per second, each with its send time.

A slow message does not delay those after it, so a slow response is not hidden by a late request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import msgspec

import lakelog
from benchmarks import redis_streams
from benchmarks.corpus import Corpus

TICK_SECONDS = 0.005
"""Above one message per tick, several are sent together."""

Send = Callable[[bytes, dict[str, object]], Awaitable[object] | None]


def publish(url: str, topic: str, corpus: Corpus, rate: float, seconds: float) -> int:
    """Publish one message per request, and return the number sent."""

    async def run() -> int:
        async with lakelog.connect_async(url) as log:
            target = log.topic(topic)
            return await paced(lambda key, order: target.publish(order, key=key), corpus, rate, seconds)

    return asyncio.run(run())


def produce(url: str, topic: str, corpus: Corpus, rate: float, seconds: float) -> int:
    """Publish with a producer, which gathers for 5 ms; that is part of the latency."""

    async def run() -> int:
        async with lakelog.connect_async(url) as log, log.topic(topic).producer() as producer:

            async def send(key: bytes, order: dict[str, object]) -> None:
                await producer.send(order, key=key)

            return await paced(send, corpus, rate, seconds)

    return asyncio.run(run())


def add_to_redis(port: int, corpus: Corpus, rate: float, seconds: float) -> int:
    async def run() -> int:
        async with redis_streams.Redis.open(port) as redis:
            encode = msgspec.json.encode
            return await paced(lambda key, order: redis_streams.add(redis, key, encode(order)), corpus, rate, seconds)

    return asyncio.run(run())


async def paced(send: Send, corpus: Corpus, rate: float, seconds: float) -> int:
    total = int(rate * seconds)
    at_once = max(1, round(rate * TICK_SECONDS))
    tasks: set[asyncio.Future[object]] = set()
    start = time.monotonic()
    for number in range(total):
        if number % at_once == 0 and (pause := start + number / rate - time.monotonic()) > 0:
            await asyncio.sleep(pause)
        place = number % len(corpus)
        order = {**corpus.objects[place], "sent": time.monotonic_ns()}
        sending = send(corpus.keys[place], order)
        if sending is not None:
            task: asyncio.Future[object] = asyncio.ensure_future(sending)
            tasks.add(task)
            task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    return total
