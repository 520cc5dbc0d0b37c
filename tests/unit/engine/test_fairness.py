"""Fairness between environments: turns in a queue, and shares of a limit."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from lakelog.engine.budget import Budget
from lakelog.engine.fairness import CALLS_PER_TURN, WAITING_SECONDS, FairQueue, LoopTurns, Shares
from lakelog.engine.log.committer import MAX_PARTITIONS_PER_COMMIT, Committer, PendingAppend
from lakelog.errors import Overloaded
from lakelog.model.message import Message
from tests.unit.engine.support import WatchedStore


def _drained(queue: FairQueue[str]) -> list[str]:
    found = []
    while queue:
        found.append(queue.pop())
    return found


def test_environments_take_turns_and_keep_their_order() -> None:
    queue: FairQueue[str] = FairQueue()
    for environment, item in [(1, "a1"), (1, "a2"), (1, "a3"), (1, "a4"), (2, "b1"), (1, "a1"), (3, "c1"), (2, "b2")]:
        queue.add(environment, item)
    assert _drained(queue) == ["a1", "b1", "c1", "a2", "b2", "a3", "a4"]


def test_one_environment_is_first_in_first_out() -> None:
    queue: FairQueue[str] = FairQueue()
    for item in "abcabc":
        queue.add(7, item)
    assert queue.pop() == "a"
    queue.add(7, "a")
    assert _drained(queue) == ["b", "c", "a"]
    assert not queue


def test_an_environment_alone_has_the_whole_limit() -> None:
    budget = Budget(100)
    budget.take(100, 1)
    budget.give(100, 1)
    assert budget.used == 0


def test_no_environment_gets_more_than_half_while_another_waits() -> None:
    now = 0.0
    shares = Shares(lambda: now)

    def take(environment: int, size: int) -> bool:
        free = 100 - sum(shares._held.values())
        if not shares.may_take(environment, size, free, 100):
            return False
        shares.take(environment, size)
        return True

    assert take(1, 90) and not take(2, 20)
    shares.give(1, 10)
    # The second environment was refused a moment ago: what is freed is for it.
    assert not take(1, 1)
    assert take(2, 20)
    shares.give(1, 40)
    assert take(1, 10) and not take(1, 1)
    now += WAITING_SECONDS + 1
    assert take(1, 1)


def test_two_environments_that_wait_do_not_block_each_other() -> None:
    budget = Budget(100)
    budget.take(60, 1)
    budget.take(40, 2)
    for environment in (1, 2):
        with pytest.raises(Overloaded):
            budget.take(10, environment)
    budget.give(20, 1)
    with pytest.raises(Overloaded):
        budget.take(15, 1)
    budget.take(10, 2)
    budget.take(10, 1)


async def test_an_environment_with_many_partitions_does_not_delay_the_commits_of_another() -> None:
    store = WatchedStore()
    pids = list(range(1, 20 * MAX_PARTITIONS_PER_COMMIT))
    await store.heads_create([*pids, 100_000], 0)
    committer = Committer(store, lambda pid: None)
    gate = store.hold()

    def part(pid: int, environment: int) -> PendingAppend:
        return PendingAppend(pid=pid, epoch=0, size=1, messages=[Message(value=b"v")], environment=environment)

    many = [committer.submit(part(pid, 1)) for pid in pids]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    done = committer.submit(part(100_000, 2))
    gate.set()
    await done
    # Two commits were running; the third has it.
    assert len(store.appends) <= 4
    await asyncio.gather(*many)
    await committer.drain()


async def test_a_burst_of_one_environment_does_not_delay_the_call_of_another() -> None:
    """Without turns, the other call would go on after all calls of the burst."""
    turns, went_on = LoopTurns(), []

    async def call(environment: int) -> None:
        await turns.take(environment)
        went_on.append(environment)

    burst = [asyncio.create_task(call(1)) for _ in range(1000)]
    other = asyncio.create_task(call(2))
    await other
    assert len(went_on) <= 2 * CALLS_PER_TURN
    await asyncio.gather(*burst)
    assert Counter(went_on) == {1: 1000, 2: 1}


async def test_a_call_that_is_cancelled_gives_its_turn_to_the_next_one() -> None:
    turns = LoopTurns()
    calls = [asyncio.create_task(turns.take(1)) for _ in range(5 * CALLS_PER_TURN)]
    await asyncio.sleep(0)
    for each in calls[2 * CALLS_PER_TURN : 4 * CALLS_PER_TURN]:
        each.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert sum(each.cancelled() for each in calls) == 2 * CALLS_PER_TURN
