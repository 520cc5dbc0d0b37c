"""publish-single: 64 connections, one message per request, with a token, one server process; requests and latency."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from benchmarks.environment import Environment
from benchmarks.filled_topics import fresh_topic
from benchmarks.harness import OURS, Benchmark, BenchmarkPlan, Leg, Measured
from benchmarks.load import HttpSingle, InsertSingle, RedisSingle, generate
from benchmarks.postgres_table import PlainTable
from tests.kit.size import Size

CONNECTIONS = 64


@contextmanager
def _legs(environment: Environment, plan: BenchmarkPlan) -> Iterator[Mapping[str, Leg]]:
    environment.notes["connections"] = CONNECTIONS
    seconds = plan.seconds
    with (
        environment.serve(authenticate=True) as served,
        environment.peer_database() as url,
        PlainTable.open(url, plan.corpus) as plain,
        environment.redis() as redis,
    ):

        def ours() -> Measured:
            with fresh_topic(served) as topic:
                port, token = served.port, served.token
                load = HttpSingle(connections=CONNECTIONS, seconds=seconds, port=port, topic=topic.name, token=token)
                return generate(load)

        def insert() -> Measured:
            plain.empty()
            return generate(InsertSingle(connections=CONNECTIONS, seconds=seconds, database=url))

        legs: dict[str, Leg] = {OURS: ours, "insert": insert}
        if redis is not None:
            legs["redis"] = lambda: generate(RedisSingle(connections=CONNECTIONS, seconds=seconds, port=redis))
        yield legs


BENCHMARK = Benchmark(
    name="publish-single",
    about="one message per request, 64 connections, with a token, one server process",
    unit="requests/s",
    legs=_legs,
    plans={
        Size.CI: BenchmarkPlan(size=Size.CI, rounds=1, messages=0, seconds=1),
        Size.FULL: BenchmarkPlan(size=Size.FULL, rounds=3, messages=0, seconds=10),
    },
    targets={OURS: 10_000, "insert": 0.8, "p99_ms": 10},
)
