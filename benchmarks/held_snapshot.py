"""held-snapshot: publishes of small batches, with and without a snapshot that another session holds open.

A snapshot keeps PostgreSQL from vacuuming: a design that updates rows in place gets slower under it. Each leg has its
own database and server, so that no leg inherits dead rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext

import psycopg

from benchmarks.environment import Environment
from benchmarks.filled_topics import fresh_topic
from benchmarks.harness import OURS, Benchmark, BenchmarkPlan, Leg, Measured
from benchmarks.load import HttpBatches, generate
from tests.kit.size import Size

CONNECTIONS = 8
MESSAGES = 100
"""Messages per request: a batch of 25 for each partition."""


@contextmanager
def _legs(environment: Environment, plan: BenchmarkPlan) -> Iterator[Mapping[str, Leg]]:
    environment.notes |= {"connections": CONNECTIONS, "messages_a_request": MESSAGES}

    def publish(*, held: bool) -> Measured:
        with environment.serve() as served, fresh_topic(served) as topic:
            load = HttpBatches(
                connections=CONNECTIONS,
                seconds=plan.seconds,
                port=served.port,
                topic=topic.name,
                epoch=topic.describe().epoch,
                messages=MESSAGES,
            )
            with held_snapshot(served.database) if held else nullcontext():
                return generate(load, messages=MESSAGES)

    yield {"undisturbed": lambda: publish(held=False), OURS: lambda: publish(held=True)}


@contextmanager
def held_snapshot(database: str) -> Iterator[None]:
    """Hold a session that has read our tables and keeps its transaction open."""
    with psycopg.connect(database) as connection:
        connection.execute("set idle_in_transaction_session_timeout = 0")
        connection.commit()
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("select count(*) from lakelog.head")
        yield
        # Fails if the session was ended before the end of the leg, which would spoil the figure.
        connection.execute("select count(*) from lakelog.head")
        connection.rollback()


BENCHMARK = Benchmark(
    name="held-snapshot",
    about="small batches while another session holds a snapshot, compared with no snapshot",
    unit="messages/s",
    legs=_legs,
    plans={
        Size.CI: BenchmarkPlan(size=Size.CI, rounds=1, messages=0, seconds=2),
        Size.FULL: BenchmarkPlan(size=Size.FULL, rounds=2, messages=0, seconds=60),
    },
    targets={"undisturbed": 0.85},
)
