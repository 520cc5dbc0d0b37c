"""consume-objects: one client leases and acks in batches, each message an object with its value decoded, over HTTP."""

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
        consume(served.url, topic.name, consumers.objects, plan.messages)
        yield {
            OURS: lambda: consume(served.url, topic.name, consumers.objects, plan.messages),
            "jobs": lambda: jobs.consume(url, plan.corpus, plan.messages, jobs.objects, BATCH),
        }


BENCHMARK = Benchmark(
    name="consume-objects",
    about="lease and ack in batches, values decoded, one client, through HTTP",
    unit="messages/s",
    legs=_legs,
    plans={
        Size.CI: Plan(size=Size.CI, rounds=1, messages=30_000, seconds=0),
        Size.FULL: Plan(size=Size.FULL, rounds=5, messages=500_000, seconds=0),
    },
    targets={OURS: 200_000, "client_us": 5},
)
