"""Delayed messages while servers are killed: none early, none lost, none twice, and either cancelled or published.

Full size: 200,000 messages delayed by 1 to 60 seconds, 2,000 of them cancelled, two servers of which one is killed
every 5 seconds; and 10,000 races of a cancellation and a delivery. 2026-11-19, 2 cores shared with other work (load 5):
1,506 cancelled, 12 kills, none early, lost or twice, late by 0.02 s (median) and 1.06 s (99 %), which is above the
limit of 1 s; 10,000 races: 1,838 cancelled, 8,162 published.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

import lakelog
from tests.kit.fleet import Fleet
from tests.kit.postgres import Cluster
from tests.kit.size import Size
from tests.kit.waiting import eventually

THREADS = 8
Scheduled = dict[int, lakelog.ScheduledReceipt]


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with Cluster() as cluster, Fleet(cluster, servers=2) as fleet:
        yield fleet


@pytest.mark.timeout(1800)
def test_each_delayed_message_is_published_once_and_in_time(fleet: Fleet, size: Size) -> None:
    count, cancels, longest = size.pick(ci=(3000, 100, 3.0), full=(200_000, 2000, 60.0))
    chance = random.Random(11)
    delays = [chance.uniform(1.0, longest) for _ in range(count)]
    with connect(fleet) as log:
        topic = log.topic("delays")
        topic.create(partitions=8)
        with kills(fleet, every=size.pick(ci=1.0, full=5.0)) as killed:
            scheduled = schedule(topic, delays)
            chosen = chance.sample(sorted(scheduled), cancels)
            is_cancelled = dict(zip(chosen, cancel(topic, [scheduled[number] for number in chosen]), strict=True))
            last = max(receipt.due_at for receipt in scheduled.values())
            time.sleep(max(0.0, (last - datetime.now(UTC)).total_seconds()))
        eventually(lambda: not topic.scheduled(1), within=60)
        found = [(int(message.value), message.appended_at) for message in topic.read()]
    published = dict(found)
    assert len(found) == len(published), "none twice"
    assert set(published) == {number for number in range(count) if not is_cancelled.get(number)}, "none lost"
    # A repeated call that finds its message published does not know when it was due.
    known = [(scheduled[number].due_at, at) for number, at in found if scheduled[number].offset is None]
    late = sorted((at - due_at).total_seconds() for due_at, at in known)
    assert len(known) > 0.5 * len(found)
    assert late[0] >= 0, "none early"
    shares = {share: late[int(len(late) * share)] for share in (0.5, 0.99)}
    print(
        f"{count} messages, {sum(is_cancelled.values())} of {cancels} cancelled, {len(killed)} kills of servers; "
        f"late by {shares[0.5]:.3f} s (median), {shares[0.99]:.3f} s (99 %), {late[-1]:.3f} s (most)"
    )
    assert shares[0.99] <= size.pick(ci=20.0, full=1.0)


@pytest.mark.timeout(1800)
def test_a_message_is_either_cancelled_or_published(fleet: Fleet, size: Size) -> None:
    races = size.pick(ci=500, full=10_000)
    chance = random.Random(13)
    with connect(fleet) as log:
        topic = log.topic("races")
        topic.create(partitions=4)
        is_cancelled: list[bool] = []
        # A slow machine may cancel none of a round: then there is another one.
        while len(is_cancelled) < races or (not any(is_cancelled) and len(is_cancelled) < 5 * races):
            scheduled = schedule(topic, [chance.uniform(0.5, 1.5) for _ in range(500)], first=len(is_cancelled))
            is_cancelled += cancel(topic, list(scheduled.values()), when_due=chance)
        eventually(lambda: not topic.scheduled(1), within=60)
        found = [int(message.value) for message in topic.read()]
    assert len(found) == len(set(found))
    assert set(found) == {number for number, was_cancelled in enumerate(is_cancelled) if not was_cancelled}
    print(f"{races} races: {sum(is_cancelled)} cancelled, {len(found)} published")
    assert min(sum(is_cancelled), len(found)) > size.pick(ci=0, full=races // 20), "both sides win some of the races"


def connect(fleet: Fleet) -> lakelog.Lakelog:
    return lakelog.connect("http://" + ",".join(f"127.0.0.1:{port}" for port in fleet.ports), timeout=60.0)


@contextmanager
def kills(fleet: Fleet, every: float) -> Iterator[list[int]]:
    """Kill a server at intervals, each in turn, and start it again."""
    ended, killed = threading.Event(), list[int]()

    def run() -> None:
        while not ended.wait(every):
            number = len(killed) % len(fleet.servers)
            fleet.servers[number].kill9()
            killed.append(number)
            fleet.servers[number].restart()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield killed
    finally:
        ended.set()
        thread.join()


def schedule(topic: lakelog.Topic[int], delays: Sequence[float], first: int = 0) -> Scheduled:
    """Schedule one message for each delay; its value is its number."""

    def some(start: int) -> list[lakelog.Receipt]:
        part = delays[start : start + 500]
        return topic.publish_many(
            [lakelog.Outgoing(first + start + n, key=str(n), delay=delay) for n, delay in enumerate(part)]
        )

    starts = range(0, len(delays), 500)
    found: Scheduled = {}
    with ThreadPoolExecutor(THREADS) as pool:
        for start, receipts in zip(starts, pool.map(some, starts), strict=True):
            for number, receipt in enumerate(receipts, first + start):
                assert isinstance(receipt, lakelog.ScheduledReceipt)
                found[number] = receipt
    return found


def cancel(
    topic: lakelog.Topic[int], receipts: Sequence[lakelog.ScheduledReceipt], when_due: random.Random | None = None
) -> list[bool]:
    """Cancel messages, at once or at about the times at which they are due. Return which are cancelled."""
    # Most calls begin earlier, because on a busy machine those at the due time arrive too late.
    aims = [
        0.0 if when_due is None else when_due.choice((0.0, -0.3, -0.6)) + when_due.uniform(-0.02, 0.02)
        for _ in receipts
    ]

    def one(place: int) -> bool:
        if when_due is not None:
            at = receipts[place].due_at + timedelta(seconds=aims[place])
            time.sleep(max(0.0, (at - datetime.now(UTC)).total_seconds()))
        return topic.cancel(receipts[place].id)

    order = sorted(range(len(receipts)), key=lambda place: receipts[place].due_at)
    with ThreadPoolExecutor(THREADS * (1 if when_due is None else 4)) as pool:
        done = dict(zip(order, pool.map(one, order), strict=True))
    return [done[place] for place in range(len(receipts))]
