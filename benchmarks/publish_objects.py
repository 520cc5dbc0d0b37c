"""publish-objects: one client, `producer.send` of one object after another, over HTTP, until the last response."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter

from benchmarks import redis_streams
from benchmarks.environment import Environment
from benchmarks.filled_topics import fresh_topic, produce
from benchmarks.harness import OURS, Benchmark, BenchmarkPlan, Leg, Measured
from benchmarks.postgres_table import PlainTable
from tests.kit.size import Size

_WARM = 5_000


@contextmanager
def _legs(environment: Environment, plan: BenchmarkPlan) -> Iterator[Mapping[str, Leg]]:
    corpus = plan.corpus
    with (
        environment.serve() as served,
        environment.peer_database() as url,
        PlainTable.open(url, corpus) as plain,
        environment.redis(wanted=plan.with_peers) as redis,
        environment.kafka(wanted=plan.with_peers, fetch=plan.size is Size.FULL) as kafka,
    ):

        def ours(messages: int = plan.messages) -> Measured:
            with fresh_topic(served) as topic:
                start = perf_counter()
                produce(topic, corpus, messages)
                return Measured(figure=messages / (perf_counter() - start))

        ours(_WARM)
        plain.copy_in(_WARM)
        plain.insert(_WARM)
        legs: dict[str, Leg] = {
            OURS: ours,
            "copy": lambda: plain.copy_in(plan.messages),
            "insert": lambda: plain.insert(plan.messages),
        }
        if redis is not None:
            legs["redis"] = lambda: redis_streams.publish(redis, corpus, plan.messages)
        if kafka is not None:
            legs["kafka"] = lambda: kafka.publish(corpus, plan.messages)
            if plan.size is Size.FULL:
                # Warm up: otherwise the JVM's compilation would be measured.
                legs["kafka"]()
        yield legs


BENCHMARK = Benchmark(
    name="publish-objects",
    about="producer.send of objects, one client, through HTTP",
    unit="messages/s",
    legs=_legs,
    plans={
        Size.CI: BenchmarkPlan(size=Size.CI, rounds=1, messages=50_000, seconds=0),
        Size.FULL: BenchmarkPlan(size=Size.FULL, rounds=5, messages=1_000_000, seconds=0),
    },
    targets={OURS: 250_000, "copy": 1.0},
)
