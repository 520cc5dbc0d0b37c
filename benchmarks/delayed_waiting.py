"""delayed-waiting: publish and consume while a million delayed messages wait for next week, compared with none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from time import perf_counter

import psycopg

import lakelog
from benchmarks.batch_consuming import consume, objects
from benchmarks.environment import Environment, Served
from benchmarks.filled_topics import fresh_topic, produce
from benchmarks.harness import OURS, Benchmark, BenchmarkPlan, Leg, Measured
from tests.kit.size import Size

WAITING = 1_000_000
CI_WAITING = 1_000
_COPY = """
    insert into lakelog.scheduled (pid, mark, due_at, scheduled_at, number, memory, expires_ms, payload)
    select s.pid, decode(md5(n::text), 'hex'), s.due_at + n * interval '1 millisecond', s.scheduled_at, n, s.memory,
           s.expires_ms, s.payload
    from lakelog.scheduled s cross join generate_series(1, %s) n
"""


@contextmanager
def _legs(environment: Environment, plan: BenchmarkPlan) -> Iterator[Mapping[str, Leg]]:
    waiting = WAITING if plan.size is Size.FULL else CI_WAITING
    environment.notes["waiting"] = waiting
    with environment.serve() as served, environment.serve() as undisturbed:
        _schedule(served, plan, waiting)
        yield {"undisturbed": lambda: _leg(undisturbed, plan), OURS: lambda: _leg(served, plan)}


def _schedule(served: Served, plan: BenchmarkPlan, count: int) -> None:
    """Schedule one message, and copy it: the copies differ in their marks and times."""
    with lakelog.connect(served.url) as log:
        topic = log.topic("next-week")
        topic.create()
        topic.publish(plan.corpus.objects[0], key="k", delay=timedelta(days=7))
    with psycopg.connect(served.database, autocommit=True) as connection:
        connection.execute(_COPY, [count - 1])
        connection.execute("vacuum analyze lakelog.scheduled")
        found = connection.execute("select count(*) from lakelog.scheduled").fetchone()
        assert found == (count,)


def _leg(served: Served, plan: BenchmarkPlan) -> Measured:
    with fresh_topic(served) as topic:
        began = perf_counter()
        produce(topic, plan.corpus, plan.messages)
        published = perf_counter() - began
        consumed = consume(served.url, topic.name, objects, plan.messages)
        notes = {"published_a_second": plan.messages / published, "consumed_a_second": consumed.figure}
        return Measured(figure=plan.messages / (perf_counter() - began), notes=notes)


BENCHMARK = Benchmark(
    name="delayed-waiting",
    about="publish and consume while a million delayed messages wait, compared with none",
    unit="messages/s",
    legs=_legs,
    plans={
        Size.CI: BenchmarkPlan(size=Size.CI, rounds=1, messages=20_000, seconds=0),
        Size.FULL: BenchmarkPlan(size=Size.FULL, rounds=7, messages=100_000, seconds=0),
    },
    targets={"undisturbed": 0.97},
)
