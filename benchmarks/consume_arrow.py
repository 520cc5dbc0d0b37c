"""consume-arrow: like consume-objects, but the client makes Arrow batches of leased messages instead of objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from benchmarks import postgres_jobs
from benchmarks.batch_consuming import BATCH, columns, consume
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
        consume(served.url, topic.name, columns, plan.messages)
        yield {
            OURS: lambda: consume(served.url, topic.name, columns, plan.messages),
            "jobs": lambda: postgres_jobs.consume(url, plan.corpus, plan.messages, postgres_jobs.columns, BATCH),
        }


BENCHMARK = Benchmark(
    name="consume-arrow",
    about="lease and ack in batches, Arrow in the client, one client, through HTTP",
    unit="messages/s",
    legs=_legs,
    plans={
        Size.CI: BenchmarkPlan(size=Size.CI, rounds=1, messages=30_000, seconds=0),
        Size.FULL: BenchmarkPlan(size=Size.FULL, rounds=5, messages=500_000, seconds=0),
    },
    targets={OURS: 500_000, "server_us": 1.6},
)
