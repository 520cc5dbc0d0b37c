"""Wake-ups: at once within a process, by announcement between processes, few announcements whatever the rate."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection

import pytest

from lakelog.engine.waiters import Announcer, Waiters
from lakelog.errors import Unavailable
from tests.kit.waiting import eventually_async
from tests.unit.engine.support import WatchedStore


class AnnouncingStore(WatchedStore):
    def __init__(self) -> None:
        super().__init__()
        self.announced: list[set[int]] = []
        self.others = 0

    @property
    def senders(self) -> int:
        return self.others

    async def announce(self, pids: Collection[int]) -> None:
        self.announced.append(set(pids))
        if len(self.announced) == 1 and self.failures:
            raise self.failures.pop()
        await super().announce(pids)


def test_only_those_who_wait_for_the_partition_are_woken() -> None:
    waiters = Waiters()
    with waiters.waiting(1) as one, waiters.waiting(1) as another, waiters.waiting(2) as other:
        waiters.wake(1)
        assert (one.is_set(), another.is_set(), other.is_set()) == (True, True, False)
        waiters.wake_all()
        assert other.is_set()


def test_who_waits_no_longer_is_forgotten() -> None:
    waiters = Waiters()
    with waiters.waiting(1) as gone, waiters.waiting(1):
        pass
    waiters.wake(1)
    waiters.wake_all()
    assert not gone.is_set()
    assert not waiters._waiting


async def test_growth_wakes_this_process_at_once_and_others_by_announcement() -> None:
    store = AnnouncingStore()
    here, there = Waiters(), Waiters()
    mine, theirs = Announcer(store, here), Announcer(store, there)
    mine.start()
    theirs.start()
    await asyncio.sleep(0)
    with here.waiting(7) as near, there.waiting(7) as far, there.waiting(8) as other:
        mine.grew(7)
        assert near.is_set()
        async with asyncio.timeout(5):
            await far.wait()
        assert not other.is_set()
    await mine.stop()
    await theirs.stop()


async def test_many_growths_share_few_announcements() -> None:
    store = AnnouncingStore()
    announcer = Announcer(store, Waiters())
    announcer.start()
    for n in range(1000):
        announcer.grew(n % 10)
    await eventually_async(lambda: store.announced)
    for n in range(1000):
        announcer.grew(n % 10 + 100)
    await eventually_async(lambda: len(store.announced) == 2)
    assert store.announced == [set(range(10)), set(range(100, 110))]
    await announcer.stop()


async def test_an_announcement_that_failed_is_sent_again() -> None:
    store = AnnouncingStore()
    store.failures.append(Unavailable())
    announcer = Announcer(store, Waiters())
    announcer.start()
    announcer.grew(1)
    await eventually_async(lambda: len(store.announced) == 1)
    announcer.grew(2)
    await eventually_async(lambda: store.announced == [{1}, {1, 2}])
    await announcer.stop()


@pytest.mark.parametrize(("senders", "most"), [(0, 70), (9, 12), (500, 8)])
async def test_processes_that_announce_at_the_same_time_announce_less_often(senders: int, most: int) -> None:
    """Each process hears all others: without this, their work grows with the square of their number."""
    store = AnnouncingStore()
    store.others = senders
    announcer = Announcer(store, Waiters())
    announcer.start()
    until = time.monotonic() + 0.3
    while time.monotonic() < until or len(store.announced) < 2:
        announcer.grew(1)
        await asyncio.sleep(0.001)
    assert 2 <= len(store.announced) <= most
    await announcer.stop()


async def test_an_empty_announcement_wakes_everybody() -> None:
    store, waiters = AnnouncingStore(), Waiters()
    announcer = Announcer(store, waiters)
    announcer.start()
    await asyncio.sleep(0)
    with waiters.waiting(1) as one, waiters.waiting(2) as two:
        await store.announce(set())
        async with asyncio.timeout(5):
            await one.wait()
            await two.wait()
    await announcer.stop()
