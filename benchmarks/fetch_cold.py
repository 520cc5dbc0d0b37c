"""fetch-cold: one fetch at a random offset of history that is only on an S3 server with 30 ms per request.

The server reads a whole row group for it, unless it still has that group: there are more groups than it keeps.
"""

from __future__ import annotations

import asyncio
import random
import statistics
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from time import perf_counter

import lakelog
from benchmarks.corpus import PARTITIONS
from benchmarks.environment import Environment
from benchmarks.filled_topics import filled_topic
from benchmarks.harness import OURS, Benchmark, BenchmarkPlan, Leg, Measured
from lakelog.storage.postgres import open_cells
from tests.kit.cold import tier_by_hand
from tests.kit.s3 import S3Server
from tests.kit.s3_faults import S3FaultProxy, S3Faults
from tests.kit.size import Size

DELAY_SECONDS = 0.03
FETCHED = 100


@contextmanager
def _legs(environment: Environment, plan: BenchmarkPlan) -> Iterator[Mapping[str, Leg]]:
    with S3Server() as s3, S3FaultProxy(s3.port) as proxy:
        s3.endpoint = proxy.endpoint
        with (
            environment.serve({"LAKELOG_OBJECT_STORE": s3.url, **s3.env}) as served,
            filled_topic(served, plan.corpus, plan.messages) as topic,
            lakelog.connect(served.url) as log,
        ):
            environment.notes["row_groups"] = sum(
                len(segment.groups) for segment in tier_by_hand(log, topic.name, options=s3.options)
            )
            environment.notes["dropped_tables"] = asyncio.run(_drop_hot_tables(served.database))
            ends = {info.partition: info.high_watermark for info in topic.describe().partition_list}
            assert len(ends) == PARTITIONS
            chosen = random.Random(7)
            proxy.faults = S3Faults(delay_seconds=DELAY_SECONDS)

            def ours() -> Measured:
                taken: list[float] = []
                requests, start = proxy.requests.total(), perf_counter()
                while perf_counter() < start + plan.seconds:
                    partition = chosen.choice(list(ends))
                    offset = chosen.randrange(ends[partition] - FETCHED)
                    before = perf_counter()
                    messages = topic.fetch(partition, offset=offset, limit=FETCHED).messages
                    taken.append((perf_counter() - before) * 1000)
                    assert messages[0].offset == offset
                hundredths = statistics.quantiles(taken, n=100)
                requested = (proxy.requests.total() - requests) / len(taken)
                notes = {"p50_ms": hundredths[49], "p99_ms": hundredths[98], "max_ms": max(taken)}
                return Measured(
                    figure=hundredths[98], notes={**notes, "requests_per_fetch": requested}, messages=len(taken)
                )

            yield {OURS: ours}


async def _drop_hot_tables(database: str) -> int:
    """Drop the tables of all messages that are in files, and return their number."""
    cells = await open_cells(database)
    try:
        await cells[0].roll()
        return len(await cells[0].rolls_drop(grace=timedelta(0)))
    finally:
        for cell in cells.values():
            await cell.close()


BENCHMARK = Benchmark(
    name="fetch-cold",
    about="one fetch of 100 messages of history that is only on an S3 server with 30 ms per request",
    unit="ms (p99)",
    legs=_legs,
    plans={
        Size.CI: BenchmarkPlan(size=Size.CI, rounds=1, messages=40_000, seconds=2),
        Size.FULL: BenchmarkPlan(size=Size.FULL, rounds=3, messages=2_000_000, seconds=20),
    },
    targets={OURS: 300},
    less_is_better=True,
)
