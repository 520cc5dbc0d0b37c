"""consume-arrow: as consume-objects, but the client makes Arrow batches of what it leased, and no objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from benchmarks import consumers, jobs
from benchmarks.batch_consuming import BATCH, consume
from benchmarks.environment import Stage
from benchmarks.filled_topics import filled_topic
from benchmarks.harness import OURS, Benchmark, Leg, Plan
from tests.kit.size import Size


@contextmanager
def _legs(stage: Stage, plan: Plan) -> Iterator[Mapping[str, Leg]]:
    stage.notes["messages_a_batch"] = BATCH
    with (
        stage.serve() as served,
        filled_topic(served, plan.corpus, plan.messages) as topic,
        stage.peer_database() as url,
    ):
        consume(served.url, topic.name, consumers.columns, plan.messages)
        yield {
            OURS: lambda: consume(served.url, topic.name, consumers.columns, plan.messages),
            "jobs": lambda: jobs.consume(url, plan.corpus, plan.messages, jobs.columns, BATCH),
        }


BENCHMARK = Benchmark(
    name="consume-arrow",
    about="lease and ack in batches, Arrow in the client, one client, through HTTP",
    unit="messages/s",
    legs=_legs,
    plans={
        Size.CI: Plan(size=Size.CI, rounds=1, messages=30_000, seconds=0),
        Size.FULL: Plan(size=Size.FULL, rounds=5, messages=500_000, seconds=0),
    },
    targets={OURS: 500_000, "server_us": 1.6},
)
