"""disk: bytes on disk per message, all tables with indexes and TOAST, compared with a plain table of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import psycopg

from benchmarks.environment import Environment
from benchmarks.filled_topics import fresh_topic, produce
from benchmarks.harness import OURS, Benchmark, BenchmarkPlan, Leg, Measured
from benchmarks.postgres_table import PlainTable
from tests.kit.size import Size

# Everything in the schema: hot tables, heads, producers, and the few pages of the catalog.
_SIZE = """
select sum(pg_total_relation_size(c.oid)) from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = 'lakelog' and c.relkind in ('r', 'm')
"""


@contextmanager
def _legs(environment: Environment, plan: BenchmarkPlan) -> Iterator[Mapping[str, Leg]]:
    messages = plan.messages

    def ours() -> Measured:
        with (
            environment.serve() as served,
            fresh_topic(served) as topic,
            psycopg.connect(served.database) as connection,
        ):
            empty = _bytes(connection)
            produce(topic, plan.corpus, messages)
            return Measured(figure=_bytes(connection) / messages, notes={"empty_bytes": empty})

    def insert() -> Measured:
        with environment.peer_database() as url, PlainTable.open(url, plan.corpus) as plain:
            plain.insert(messages)
            return Measured(figure=plain.bytes_on_disk() / messages, notes={"empty_bytes": 0})

    yield {OURS: ours, "insert": insert}


def _bytes(connection: psycopg.Connection[tuple[int]]) -> int:
    row = connection.execute(_SIZE).fetchone()
    connection.rollback()
    assert row is not None
    return int(row[0])


BENCHMARK = Benchmark(
    name="disk",
    about="bytes on disk per message: tables, indexes, TOAST",
    unit="bytes/message",
    legs=_legs,
    plans={
        Size.CI: BenchmarkPlan(size=Size.CI, rounds=1, messages=50_000, seconds=0),
        Size.FULL: BenchmarkPlan(size=Size.FULL, rounds=1, messages=1_000_000, seconds=0),
    },
    targets={OURS: 100},
    less_is_better=True,
)
