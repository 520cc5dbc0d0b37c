"""publish-latency: one client that publishes one message after another, each until it is durable.

Nothing shares a commit, so the figure is the time of a whole path: client, server, one commit of PostgreSQL.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter
from typing import Any

import lakelog
from benchmarks.corpus import PARTITIONS, Corpus
from benchmarks.environment import Environment
from benchmarks.filled_topics import fresh_topic
from benchmarks.harness import OURS, Benchmark, BenchmarkPlan, Leg, Measured
from benchmarks.load import WARM_SECONDS, InsertSingle, generate
from benchmarks.postgres_table import PlainTable
from tests.kit.size import Size


@contextmanager
def _legs(environment: Environment, plan: BenchmarkPlan) -> Iterator[Mapping[str, Leg]]:
    with (
        environment.serve() as served,
        environment.peer_database() as url,
        PlainTable.open(url, plan.corpus) as plain,
        lakelog.connect(served.database) as embedded,
    ):
        embedded.topic("embedded").create(partitions=PARTITIONS)

        def ours() -> Measured:
            with fresh_topic(served) as topic:
                return _sequential(topic, plan.corpus, plan.seconds)

        def insert() -> Measured:
            plain.empty()
            taken = generate(InsertSingle(connections=1, seconds=plan.seconds, database=url))
            return replace(taken, figure=taken.notes["p50_ms"])

        def without_server() -> Measured:
            return _sequential(embedded.topic("embedded"), plan.corpus, plan.seconds)

        yield {OURS: ours, "insert": insert, "ours_without_server": without_server}


def _sequential(topic: Any, corpus: Corpus, seconds: float) -> Measured:
    """Measure `publish` for that time, one call after another. The first second is not counted."""
    taken: list[float] = []
    pairs = itertools.cycle(zip(corpus.keys, corpus.objects, strict=True))
    count = 0
    now = start = perf_counter()
    while now < start + WARM_SECONDS + seconds:
        key, order = next(pairs)
        before = perf_counter()
        topic.publish(order, key=key)
        now = perf_counter()
        count += 1
        if before >= start + WARM_SECONDS:
            taken.append((now - before) * 1000)
    hundredths = statistics.quantiles(taken, n=100)
    notes = {"p50_ms": hundredths[49], "p99_ms": hundredths[98], "max_ms": max(taken)}
    return Measured(figure=hundredths[49], notes=notes, messages=count)


BENCHMARK = Benchmark(
    name="publish-latency",
    about="one client, one publish after another; its peer: INSERT and commit of one row by asyncpg",
    unit="ms (p50)",
    legs=_legs,
    plans={
        Size.CI: BenchmarkPlan(size=Size.CI, rounds=1, messages=0, seconds=1),
        Size.FULL: BenchmarkPlan(size=Size.FULL, rounds=9, messages=0, seconds=5),
    },
    # At most 1.5 times as long.
    targets={"insert": 0.667},
    less_is_better=True,
)
