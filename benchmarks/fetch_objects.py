"""fetch-objects: one client reads all partitions from the earliest message over HTTP, each value decoded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter

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
            count = total = 0
            start = perf_counter()
            for message in topic.read():
                count += 1
                total += message.value["cents"]
            seconds = perf_counter() - start
            assert count == plan.messages, f"read {count} of {plan.messages} messages"
            return Measured(figure=count / seconds)

        ours()
        yield {OURS: ours, "copy": plain.copy_out_objects}


BENCHMARK = Benchmark(
    name="fetch-objects",
    about="read over all partitions, values decoded, one client, through HTTP",
    unit="messages/s",
    legs=_legs,
    plans={
        Size.CI: BenchmarkPlan(size=Size.CI, rounds=1, messages=100_000, seconds=0),
        Size.FULL: BenchmarkPlan(size=Size.FULL, rounds=5, messages=1_000_000, seconds=0),
    },
    targets={OURS: 300_000},
)
