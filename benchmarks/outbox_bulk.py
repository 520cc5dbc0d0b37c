"""outbox-bulk: messages published in transactions of 1,000, from the first call until the log has the last one."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
import psycopg

import lakelog
from benchmarks.environment import Environment
from benchmarks.filled_topics import fresh_topic
from benchmarks.harness import OURS, Benchmark, BenchmarkPlan, Leg, Measured
from lakelog.storage.postgres import install_outbox
from tests.kit.size import Size
from tests.kit.waiting import eventually

MESSAGES = 1000
"""Messages per transaction."""


@contextmanager
def _legs(environment: Environment, plan: BenchmarkPlan) -> Iterator[Mapping[str, Leg]]:
    environment.notes["messages_a_transaction"] = MESSAGES
    with environment.peer_database() as url:
        asyncio.run(install_outbox(url))
        with environment.serve({"LAKELOG_OUTBOX_URLS": msgspec.json.encode([url]).decode()}) as served:

            def ours() -> Measured:
                made = plan.corpus
                pairs = itertools.islice(itertools.cycle(zip(made.keys, made.objects, strict=True)), plan.messages)
                with fresh_topic(served) as topic, psycopg.connect(url) as connection:
                    began = time.perf_counter()
                    while some := [
                        lakelog.Outgoing(order, key=key) for key, order in itertools.islice(pairs, MESSAGES)
                    ]:
                        topic.publish_many(some, transaction=connection)
                        connection.commit()
                    inserted = time.perf_counter() - began
                    eventually(lambda: _count(topic) == plan.messages, within=120, every=0.02)
                    taken = time.perf_counter() - began
                return Measured(figure=plan.messages / taken, notes={"insert_seconds": inserted})

            yield {OURS: ours}


def _count(topic: Any) -> int:
    return sum(each.high_watermark for each in topic.describe().partition_list)


BENCHMARK = Benchmark(
    name="outbox-bulk",
    about="transactions of 1,000 messages through an outbox, one client, until the log has them",
    unit="messages/s",
    legs=_legs,
    plans={
        Size.CI: BenchmarkPlan(size=Size.CI, rounds=1, messages=10_000, seconds=0),
        Size.FULL: BenchmarkPlan(size=Size.FULL, rounds=3, messages=200_000, seconds=0),
    },
    targets={OURS: 20_000},
)
