"""consume-objects: one client leases and acks in batches over HTTP, each message an object with its value decoded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from benchmarks import postgres_jobs
from benchmarks.batch_consuming import BATCH, consume, objects
from benchmarks.environment import Environment
from benchmarks.filled_topics import filled_topic
from benchmarks.harness import OURS, Benchmark, BenchmarkPlan, Leg
from tests.kit.size import Size


@contextmanager
def _legs(environment: Environment, plan: BenchmarkPlan) -> Iterator[Mapping[str, Leg]]:
    environment.notes["messages_a_batch"] = BATCH
    with (
        environment.serve() as served,
        filled_topic(served, plan.corpus, plan.messages) as topic,
        environment.peer_database() as url,
    ):
        consume(served.url, topic.name, objects, plan.messages)
        yield {
            OURS: lambda: consume(served.url, topic.name, objects, plan.messages),
            "jobs": lambda: postgres_jobs.consume(url, plan.corpus, plan.messages, postgres_jobs.objects, BATCH),
        }


BENCHMARK = Benchmark(
    name="consume-objects",
    about="lease and ack in batches, values decoded, one client, through HTTP",
    unit="messages/s",
    legs=_legs,
    plans={
        Size.CI: BenchmarkPlan(size=Size.CI, rounds=1, messages=30_000, seconds=0),
        Size.FULL: BenchmarkPlan(size=Size.FULL, rounds=5, messages=500_000, seconds=0),
    },
    targets={OURS: 200_000, "client_us": 5},
)
