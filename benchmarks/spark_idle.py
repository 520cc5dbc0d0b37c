"""spark-idle: the load of streams without new messages on PostgreSQL, each with a group, all in one session."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

from benchmarks.environment import Environment, Served
from benchmarks.filled_topics import fresh_topic
from benchmarks.harness import OURS, Benchmark, BenchmarkPlan, Leg, Measured
from benchmarks.spark_streams import session, streaming
from tests.kit.size import Size

STREAMS = 20
CI_STREAMS = 2
SETTLE_SECONDS = 5.0


@contextmanager
def _legs(environment: Environment, plan: BenchmarkPlan) -> Iterator[Mapping[str, Leg]]:
    streams = STREAMS if plan.size is Size.FULL else CI_STREAMS
    environment.notes["streams"] = streams
    with environment.serve() as served, session(configured=True) as spark, ExitStack() as stack:
        without = _rate(environment, served, plan)
        for number in range(streams):
            topic = stack.enter_context(fresh_topic(served))
            stack.enter_context(streaming(spark, served.url, topic.name, f"idle-{number}"))

        def ours() -> Measured:
            return Measured(figure=_rate(environment, served, plan), notes={"without_streams": without})

        yield {OURS: ours}


def _rate(environment: Environment, served: Served, plan: BenchmarkPlan) -> float:
    """Return the transactions per second in the server's database. PostgreSQL counts them about a second late."""
    if plan.size is Size.FULL:
        time.sleep(SETTLE_SECONDS)
    before, start = _transactions(environment, served), time.monotonic()
    time.sleep(plan.seconds)
    return (_transactions(environment, served) - before) / (time.monotonic() - start)


def _transactions(environment: Environment, served: Served) -> int:
    name = urlsplit(served.database).path.lstrip("/")
    statement = f"select xact_commit + xact_rollback from pg_stat_database where datname = '{name}'"
    [(count,)] = environment.cluster.execute(statement)
    return int(count)


BENCHMARK = Benchmark(
    name="spark-idle",
    about="transactions of PostgreSQL for 20 idle streams with groups, in one session",
    unit="transactions/s",
    legs=_legs,
    plans={
        Size.CI: BenchmarkPlan(size=Size.CI, rounds=1, messages=0, seconds=2),
        Size.FULL: BenchmarkPlan(size=Size.FULL, rounds=3, messages=0, seconds=20),
    },
    targets={OURS: 50},
    less_is_better=True,
)
