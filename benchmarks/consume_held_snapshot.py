"""consume-held-snapshot: small leases and acks, with and without a snapshot that another session holds open.

Every lease and every ack is a commit in a journal whose old rows are trimmed; under a snapshot they stay. Each leg has
its own database and server, so that no leg inherits dead rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from time import perf_counter

from benchmarks.environment import Environment
from benchmarks.filled_topics import filled_topic
from benchmarks.harness import OURS, Benchmark, BenchmarkPlan, Leg, Measured
from benchmarks.held_snapshot import held_snapshot
from benchmarks.lease_consumers import Consumer, fresh_group, nothing, transport_to
from tests.kit.size import Size

OWNERS = 8
BATCH = 25
MESSAGES = 100_000
"""Messages in the topic. When a group has finished them, the next one begins."""
WARM_SECONDS = 1.0


@contextmanager
def _legs(environment: Environment, plan: BenchmarkPlan) -> Iterator[Mapping[str, Leg]]:
    environment.notes |= {"owners": OWNERS, "messages_a_lease": BATCH}

    def leg(*, held: bool) -> Measured:
        with (
            environment.serve() as served,
            filled_topic(served, plan.corpus, MESSAGES) as topic,
            held_snapshot(served.database) if held else nullcontext(),
        ):
            return asyncio.run(_consumed(served.url, topic.name, plan.seconds))

    yield {"undisturbed": lambda: leg(held=False), OURS: lambda: leg(held=True)}


class _SnapshotRound:
    """Owners of one group after another, until the time has passed."""

    def __init__(self, seconds: float) -> None:
        self.begin = perf_counter() + WARM_SECONDS
        self.end = self.begin + seconds
        self.group = fresh_group()
        self.acked = 0

    async def work(self, consumer: Consumer, group: str) -> None:
        """Consume until the group has nothing more for this owner."""
        while (now := perf_counter()) < self.end:
            consumed = await consumer.lease()
            if not consumed.leases:
                if group == self.group:
                    self.group = fresh_group()
                return
            await consumer.ack(consumed)
            if now >= self.begin:
                self.acked += nothing(consumed, consumer.topic)


async def _consumed(url: str, topic: str, seconds: float) -> Measured:
    turn = _SnapshotRound(seconds)

    async def own(number: int) -> None:
        async with transport_to(url) as transport:
            while perf_counter() < turn.end:
                group = turn.group
                consumer = Consumer(transport=transport, topic=topic, group=group, batch=BATCH, owner=f"owner-{number}")
                await turn.work(consumer, group)

    await asyncio.gather(*map(own, range(OWNERS)))
    return Measured(figure=turn.acked / (perf_counter() - turn.begin), messages=turn.acked)


BENCHMARK = Benchmark(
    name="consume-held-snapshot",
    about="small leases and acks while another session holds a snapshot, compared with no snapshot",
    unit="messages/s",
    legs=_legs,
    plans={
        Size.CI: BenchmarkPlan(size=Size.CI, rounds=1, messages=0, seconds=2),
        Size.FULL: BenchmarkPlan(size=Size.FULL, rounds=2, messages=0, seconds=60),
    },
    targets={"undisturbed": 0.85},
)
