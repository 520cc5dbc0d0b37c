"""Rolls of a cell with many partitions, most of them deleted, while a publisher measures how long it waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass

from lakelog.model.message import partition_id
from lakelog.storage.postgres import migrate, open_store
from lakelog.storage.store import Append, Appended, HeadState, PartitionStore, Payload

ROLLS = 3
MAX_ROLL_SECONDS = 1.0
MAX_WAIT_SECONDS = 0.1
_PARTITIONS_PER_TOPIC = 10_000


@dataclass(kw_only=True)
class RollsReport:
    """The measured values of a run."""

    partitions: int
    roll_seconds: list[float]
    waits: list[float]
    """Seconds of each publish during the rolls."""
    usual_waits: list[float]
    """Seconds of each publish before the rolls."""

    def problems(self) -> list[str]:
        found = []
        if max(self.roll_seconds) >= MAX_ROLL_SECONDS:
            found.append(f"a roll took {max(self.roll_seconds):.3f} s")
        if max(self.waits) >= MAX_WAIT_SECONDS:
            found.append(f"a publisher waited {1000 * max(self.waits):.0f} ms")
        return found

    def lines(self) -> list[str]:
        return [
            f"{self.partitions:,} partitions, 90 % of them deleted",
            f"slowest of {len(self.roll_seconds)} rolls {max(self.roll_seconds):.3f} s",
            f"longest of {len(self.waits)} publishes {1000 * max(self.waits):.0f} ms; "
            f"before the rolls {1000 * max(self.usual_waits):.0f} ms",
        ]


async def run_rolls(url: str, *, topics: int) -> RollsReport:
    """Create 10,000 partitions per topic, delete nine of ten, and roll under load."""
    await migrate(url)
    store = await open_store(url)
    try:
        for number in range(1, topics + 1):
            pids = [partition_id(number, partition) for partition in range(_PARTITIONS_PER_TOPIC)]
            await store.heads_create(pids, 0)
            await store.heads_close(pids[_PARTITIONS_PER_TOPIC // 10 :], HeadState.DELETED)
        pid = partition_id(1, 0)
        usual = await _publish_during(store, pid, asyncio.sleep(3))
        rolls: list[float] = []
        waits = await _publish_during(store, pid, _roll(store, rolls))
        partitions = topics * _PARTITIONS_PER_TOPIC
        return RollsReport(partitions=partitions, roll_seconds=rolls, waits=waits, usual_waits=usual)
    finally:
        await store.close()


async def _roll(store: PartitionStore, seconds: list[float]) -> None:
    for _ in range(ROLLS):
        began = time.perf_counter()
        await store.roll()
        seconds.append(time.perf_counter() - began)
        await asyncio.sleep(1)


async def _publish_during(store: PartitionStore, pid: int, work: Coroutine[object, object, None]) -> list[float]:
    """Publish one message after the other while the work runs, and return how long each took."""
    running = asyncio.create_task(work)
    waits: list[float] = []
    append = Append(pid=pid, epoch=0, payloads=[Payload(data=b"x" * 100, count=1)])
    while not running.done():
        began = time.perf_counter()
        (answer,) = await store.append([append])
        waits.append(time.perf_counter() - began)
        assert isinstance(answer, Appended)
    await running
    return waits
