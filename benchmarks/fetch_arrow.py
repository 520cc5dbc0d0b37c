"""fetch-arrow: one client reads all partitions from the earliest message as Arrow tables over HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter

from benchmarks.corpus import PARTITIONS
from benchmarks.environment import Environment
from benchmarks.filled_topics import filled_topic
from benchmarks.harness import OURS, Benchmark, BenchmarkPlan, Leg, Measured
from benchmarks.postgres_table import PlainTable
from tests.kit.size import Size


@contextmanager
def _legs(environment: Environment, plan: BenchmarkPlan) -> Iterator[Mapping[str, Leg]]:
    corpus = plan.corpus
    with (
        environment.serve() as served,
        filled_topic(served, corpus, plan.messages) as topic,
        environment.peer_database() as url,
        PlainTable.open(url, corpus) as plain,
    ):
        plain.copy_in(plan.messages)

        def ours() -> Measured:
            count = 0
            start = perf_counter()
            for partition in range(PARTITIONS):
                offset = 0
                while (table := topic.fetch_arrow(partition, offset=offset)).num_rows:
                    count += table.num_rows
                    offset += table.num_rows
            seconds = perf_counter() - start
            assert count == plan.messages, f"read {count} of {plan.messages} messages"
            return Measured(figure=count / seconds)

        ours()
        yield {OURS: ours, "copy": plain.copy_out_arrow}


BENCHMARK = Benchmark(
    name="fetch-arrow",
    about="fetch_arrow over all partitions, one client, through HTTP",
    unit="messages/s",
    legs=_legs,
    plans={
        Size.CI: BenchmarkPlan(size=Size.CI, rounds=1, messages=100_000, seconds=0),
        Size.FULL: BenchmarkPlan(size=Size.FULL, rounds=5, messages=1_000_000, seconds=0),
    },
    targets={OURS: 800_000},
)
