"""delivery-latency: 100 messages per second, from the publish at one server to the start of a handler at another."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from benchmarks import paced_publisher, redis_streams
from benchmarks.environment import Environment
from benchmarks.filled_topics import fresh_topic
from benchmarks.harness import OURS, Benchmark, BenchmarkPlan, Leg, Measured
from benchmarks.latency_receiver import ByHandler, FromRedis, measured, receiving
from benchmarks.lease_consumers import fresh_group
from tests.kit.size import Size

RATE = 100
WARM_SECONDS = 1.0
_GROUP = "bench"


@contextmanager
def _legs(environment: Environment, plan: BenchmarkPlan) -> Iterator[Mapping[str, Leg]]:
    environment.notes |= {"messages_a_second": RATE, "servers": 2}
    seconds = plan.seconds + WARM_SECONDS
    with environment.serve() as here, environment.serve_on(here.database) as there, environment.redis() as redis:

        def ours() -> Measured:
            with fresh_topic(here) as topic:
                what = ByHandler(groups=[fresh_group()], warm_seconds=WARM_SECONDS, url=there.url, topic=topic.name)
                with receiving(what) as receiver:
                    sent = paced_publisher.publish(here.url, topic.name, plan.corpus, RATE, seconds)
                    return measured(receiver.outcome(), sent, figure="p50_ms")

        legs: dict[str, Leg] = {OURS: ours}
        if redis is not None:
            port = redis
            legs["redis"] = lambda: redis_leg(port, plan, [_GROUP], RATE)
        yield legs


def redis_leg(port: int, plan: BenchmarkPlan, groups: list[str], rate: float) -> Measured:
    """Measure the same rate through a Redis stream: one group by handlers, several in batches, as in ours."""
    by_batch = len(groups) > 1
    what = FromRedis(groups=groups, warm_seconds=WARM_SECONDS, port=port, by_batch=by_batch)

    async def begin() -> None:
        async with redis_streams.Redis.open(port) as redis:
            await redis_streams.begin(redis, [group.encode() for group in groups])

    asyncio.run(begin())
    with receiving(what) as receiver:
        sent = paced_publisher.add_to_redis(port, plan.corpus, rate, plan.seconds + WARM_SECONDS)
        return measured(receiver.outcome(), sent * len(groups), figure="p99_ms" if by_batch else "p50_ms")


BENCHMARK = Benchmark(
    name="delivery-latency",
    about="publish to handler start, 100 messages/s, two servers",
    unit="ms (p50)",
    legs=_legs,
    plans={
        Size.CI: BenchmarkPlan(size=Size.CI, rounds=1, messages=0, seconds=1),
        Size.FULL: BenchmarkPlan(size=Size.FULL, rounds=3, messages=0, seconds=20),
    },
    targets={OURS: 5, "p99_ms": 20},
    less_is_better=True,
)
