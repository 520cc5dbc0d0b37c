"""fan-out: 3,000 messages per second are published, and each of five groups gets all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from benchmarks import paced_publisher
from benchmarks.delivery_latency import WARM_SECONDS, redis_leg
from benchmarks.environment import Environment
from benchmarks.filled_topics import fresh_topic
from benchmarks.harness import OURS, Benchmark, BenchmarkPlan, Leg, Measured
from benchmarks.latency_receiver import ByBatch, measured, receiving
from benchmarks.lease_consumers import fresh_group
from tests.kit.size import Size

GROUPS = 5
RATE = 3000


@contextmanager
def _legs(environment: Environment, plan: BenchmarkPlan) -> Iterator[Mapping[str, Leg]]:
    environment.notes |= {"messages_a_second": RATE, "groups": GROUPS}
    seconds = plan.seconds + WARM_SECONDS
    with environment.serve() as served, environment.redis() as redis:

        def ours() -> Measured:
            groups = [fresh_group() for _ in range(GROUPS)]
            with fresh_topic(served) as topic:
                what = ByBatch(groups=groups, warm_seconds=WARM_SECONDS, url=served.url, topic=topic.name)
                with receiving(what) as receiver:
                    sent = paced_publisher.produce(served.url, topic.name, plan.corpus, RATE, seconds)
                    return measured(receiver.outcome(), sent * GROUPS, figure="p99_ms")

        legs: dict[str, Leg] = {OURS: ours}
        if redis is not None:
            port = redis
            names = [f"bench-{number}" for number in range(GROUPS)]
            legs["redis"] = lambda: redis_leg(port, plan, names, RATE)
        yield legs


BENCHMARK = Benchmark(
    name="fan-out",
    about="publish to delivery, 3,000 messages/s in, five groups",
    unit="ms (p99)",
    legs=_legs,
    plans={
        Size.CI: BenchmarkPlan(size=Size.CI, rounds=1, messages=0, seconds=1),
        Size.FULL: BenchmarkPlan(size=Size.FULL, rounds=3, messages=0, seconds=20),
    },
    targets={OURS: 60},
    less_is_better=True,
)
