"""consume-handler: an SDK worker with an empty async handler and concurrency 256."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from time import perf_counter
from typing import Any

import lakelog
from benchmarks import redis_streams
from benchmarks.corpus import Corpus
from benchmarks.environment import Environment
from benchmarks.filled_topics import filled_topic
from benchmarks.harness import OURS, Benchmark, BenchmarkPlan, Leg, Measured
from benchmarks.lease_consumers import fresh_group
from tests.kit.size import Size

CONCURRENCY = 256
OPTIONS = {"concurrency": CONCURRENCY, "batch_size": CONCURRENCY}
_LIMIT_SECONDS = 300.0

LegsOf = Callable[[Environment, BenchmarkPlan], AbstractContextManager[Mapping[str, Leg]]]


@contextmanager
def _legs(environment: Environment, plan: BenchmarkPlan) -> Iterator[Mapping[str, Leg]]:
    environment.notes["concurrency"] = CONCURRENCY
    with (
        environment.serve() as served,
        filled_topic(served, plan.corpus, plan.messages) as topic,
        environment.redis() as redis,
    ):

        def ours() -> Measured:
            return asyncio.run(worked(served.url, topic.name, plan.messages, OPTIONS))

        legs: dict[str, Leg] = {OURS: ours}
        if redis is not None:
            port = redis
            legs["redis"] = lambda: asyncio.run(_worked_redis(port, plan.corpus, plan.messages))
        yield legs


async def _nothing(order: Any) -> None:
    """Do nothing, as the handler."""


def alone(handler: Callable[..., Any]) -> LegsOf:
    """Return the leg of a worker with this handler and concurrency 256, without a peer."""

    @contextmanager
    def legs(environment: Environment, plan: BenchmarkPlan) -> Iterator[Mapping[str, Leg]]:
        environment.notes["concurrency"] = CONCURRENCY
        with environment.serve() as served, filled_topic(served, plan.corpus, plan.messages) as topic:
            yield {OURS: lambda: asyncio.run(worked(served.url, topic.name, plan.messages, OPTIONS, handler))}

    return legs


async def worked(
    url: str, topic: str, messages: int, options: Mapping[str, Any], handler: Callable[..., Any] = _nothing
) -> Measured:
    """Measure from the start of the worker, which has joined its group by then, to the response to the last ack."""
    group = fresh_group()
    async with lakelog.connect_async(url) as log:
        log.topic(topic).subscribe(handler, group=group, start_from="earliest", **options)
        await log.start()
        counts = log.counts[f"{topic}/{group}"]
        start = perf_counter()
        await _until(lambda: counts.acked >= messages)
        seconds = perf_counter() - start
        assert counts.acked == messages and not counts.lost, f"{counts} of {messages} messages"
    return Measured(figure=messages / seconds)


async def _worked_redis(port: int, corpus: Corpus, messages: int) -> Measured:
    async with redis_streams.Redis.open(port) as reading, redis_streams.Redis.open(port) as acking:
        await redis_streams.begin(acking, [b"bench"])
        await redis_streams.fill(acking, corpus, messages)
        worker = redis_streams.RedisWorker(reading, acking, b"bench", _nothing, CONCURRENCY)
        start = perf_counter()
        running = asyncio.create_task(worker.run())
        await _until(lambda: worker.acked >= messages)
        seconds = perf_counter() - start
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
    return Measured(figure=messages / seconds)


async def _until(reached: Callable[[], bool]) -> None:
    """Poll a hundred times a second, which leaves the processor to the worker."""
    async with asyncio.timeout(_LIMIT_SECONDS):
        while not reached():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


PLANS = {
    Size.CI: BenchmarkPlan(size=Size.CI, rounds=1, messages=5_000, seconds=0),
    Size.FULL: BenchmarkPlan(size=Size.FULL, rounds=3, messages=100_000, seconds=0),
}

BENCHMARK = Benchmark(
    name="consume-handler",
    about="a worker with an empty async handler, concurrency 256, one process",
    unit="messages/s",
    legs=_legs,
    plans=PLANS,
    targets={OURS: 14_000, "redis": 0.5},
)
