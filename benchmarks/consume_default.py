"""consume-default: an SDK worker with an empty async handler and only its group as option: one message at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from benchmarks.consume_handler import worked
from benchmarks.environment import Environment
from benchmarks.filled_topics import filled_topic
from benchmarks.harness import OURS, Benchmark, BenchmarkPlan, Leg
from tests.kit.size import Size


@contextmanager
def _legs(environment: Environment, plan: BenchmarkPlan) -> Iterator[Mapping[str, Leg]]:
    with environment.serve() as served, filled_topic(served, plan.corpus, plan.messages) as topic:
        yield {OURS: lambda: asyncio.run(worked(served.url, topic.name, plan.messages, {}))}


BENCHMARK = Benchmark(
    name="consume-default",
    about="a worker with an empty async handler and only its group as option",
    unit="messages/s",
    legs=_legs,
    plans={
        Size.CI: BenchmarkPlan(size=Size.CI, rounds=1, messages=2_000, seconds=0),
        Size.FULL: BenchmarkPlan(size=Size.FULL, rounds=3, messages=20_000, seconds=0),
    },
    targets={OURS: 5_000},
)
