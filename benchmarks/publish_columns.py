"""publish-columns: one client, `publish_columns` of Arrow tables in chunks, over HTTP, until the last response."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter

from benchmarks.environment import Environment
from benchmarks.filled_topics import fresh_topic, tables
from benchmarks.harness import OURS, Benchmark, BenchmarkPlan, Leg, Measured
from benchmarks.postgres_table import PlainTable
from tests.kit.size import Size

CHUNK = 50_000
_WARM = 5_000


@contextmanager
def _legs(environment: Environment, plan: BenchmarkPlan) -> Iterator[Mapping[str, Leg]]:
    corpus = plan.corpus
    chunk = min(CHUNK, len(corpus))
    environment.notes["chunk_messages"] = chunk
    with environment.serve() as served, environment.peer_database() as url, PlainTable.open(url, corpus) as plain:

        def ours(messages: int = plan.messages) -> Measured:
            with fresh_topic(served) as topic:
                start = perf_counter()
                for table in tables(corpus, messages, chunk):
                    topic.publish_columns(table)
                return Measured(figure=messages / (perf_counter() - start))

        ours(_WARM)
        plain.copy_in_encoded(_WARM)
        yield {OURS: ours, "copy": lambda: plain.copy_in_encoded(plan.messages)}


BENCHMARK = Benchmark(
    name="publish-columns",
    about="publish_columns of Arrow tables, one client, through HTTP",
    unit="messages/s",
    legs=_legs,
    plans={
        Size.CI: BenchmarkPlan(size=Size.CI, rounds=1, messages=100_000, seconds=0),
        Size.FULL: BenchmarkPlan(size=Size.FULL, rounds=5, messages=2_000_000, seconds=0),
    },
    targets={OURS: 500_000},
)
