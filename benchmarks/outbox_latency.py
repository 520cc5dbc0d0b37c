"""outbox-latency: transactions that publish through an outbox, from the call to a consumer at a fixed rate.

Each transaction has one message. The rate is `messages` in `seconds`, by default 2,000 per second. The latency includes
the commit, which is also noted on its own. Other legs disturb the relay: messages that the log refuses (one of ten),
and a database on another cluster.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import asyncpg
import msgspec

from benchmarks import paced_publisher
from benchmarks.environment import Environment, Served
from benchmarks.filled_topics import fresh_topic
from benchmarks.harness import OURS, Benchmark, BenchmarkPlan, Leg, Measured
from benchmarks.latency_receiver import ByBatch, measured, receiving
from benchmarks.lease_consumers import fresh_group
from lakelog.storage.postgres import install_outbox
from tests.kit.postgres import Cluster
from tests.kit.size import Size

CONNECTIONS = 16
WARM_SECONDS = 1.0
MISSING = "missing"
"""A topic that does not exist: the log refuses its messages."""
REFUSED_EVERY = 10
_PUBLISH = "select lakelog_outbox.publish($1, $2::bytea, $3::bytea, content_type => 'application/json')"


@contextmanager
def _legs(environment: Environment, plan: BenchmarkPlan) -> Iterator[Mapping[str, Leg]]:
    environment.notes |= {"transactions_a_second": plan.messages / plan.seconds, "connections": CONNECTIONS}
    with environment.peer_database() as near, Cluster(settings=environment.settings, own_identity=True) as other:
        far = other.create_database()
        for url in (near, far):
            asyncio.run(install_outbox(url))
        with environment.serve({"LAKELOG_OUTBOX_URLS": msgspec.json.encode([near, far]).decode()}) as served:
            yield {
                OURS: lambda: relayed(served, near, plan),
                "refused": lambda: relayed(served, near, plan, refused_every=REFUSED_EVERY),
                "other-cluster": lambda: relayed(served, far, plan),
            }


def relayed(served: Served, url: str, plan: BenchmarkPlan, *, refused_every: int = 0) -> Measured:
    """Publish through the outbox of a database, and measure when a consumer has the messages."""
    with fresh_topic(served) as topic:
        what = ByBatch(groups=[fresh_group()], warm_seconds=WARM_SECONDS, url=served.url, topic=topic.name)
        with receiving(what) as receiver:
            callers = _Callers(topic.name, refused_every)
            asyncio.run(callers.publish(url, plan))
            found = measured(receiver.outcome(), callers.good, figure="p50_ms")
        commits = {"commit_p50_ms": callers.percentile(0.5), "commit_p99_ms": callers.percentile(0.99)}
        return Measured(figure=found.figure, notes={**found.notes, **commits}, messages=found.messages)


class _Callers:
    """Transactions of several connections at a fixed rate. One of `refused_every` messages is refused by the log."""

    def __init__(self, topic: str, refused_every: int) -> None:
        self._topic = topic
        self._refused_every = refused_every
        self._taken: list[float] = []
        self._sent = 0
        self.good = 0

    async def publish(self, url: str, plan: BenchmarkPlan) -> None:
        connections = [await asyncpg.connect(url) for _ in range(CONNECTIONS)]
        idle: asyncio.Queue[asyncpg.prepared_stmt.PreparedStatement] = asyncio.Queue()
        for connection in connections:
            idle.put_nowait(await connection.prepare(_PUBLISH))

        async def send(key: bytes, order: dict[str, object]) -> None:
            self._sent += 1
            is_refused = self._refused_every and self._sent % self._refused_every == 0
            self.good += not is_refused
            statement = await idle.get()
            began = time.perf_counter()
            await statement.fetchval(MISSING if is_refused else self._topic, msgspec.json.encode(order), key)
            self._taken.append(time.perf_counter() - began)
            idle.put_nowait(statement)

        rate = plan.messages / plan.seconds
        await paced_publisher.paced(send, plan.corpus, rate, plan.seconds + WARM_SECONDS)
        for connection in connections:
            await connection.close()

    def percentile(self, share: float) -> float:
        """Return a percentile of the times of transactions, in milliseconds."""
        taken = sorted(self._taken)
        return taken[math.ceil(len(taken) * share) - 1] * 1000


BENCHMARK = Benchmark(
    name="outbox-latency",
    about="transactions that publish through an outbox at 2,000/s, call to consumer",
    unit="ms (p50)",
    legs=_legs,
    plans={
        Size.CI: BenchmarkPlan(size=Size.CI, rounds=1, messages=200, seconds=1),
        Size.FULL: BenchmarkPlan(size=Size.FULL, rounds=3, messages=40_000, seconds=20),
    },
    targets={OURS: 50, "p99_ms": 100},
    less_is_better=True,
)
