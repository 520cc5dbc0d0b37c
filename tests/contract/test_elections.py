"""Elections: one runner per task at a time, until its lease ends or it resigns."""

from __future__ import annotations

import asyncio
import secrets
from datetime import timedelta

from tests.contract.stores import Backing

LONG, NONE = timedelta(minutes=1), timedelta(0)


async def test_the_first_runner_keeps_a_task_until_it_resigns(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        task = secrets.token_hex(4)
        assert await one.elections.elect(task, "a", LONG)
        assert not await other.elections.elect(task, "b", LONG)
        assert await other.elections.elect(f"{task}-2", "b", LONG), "another task"
        assert await one.elections.elect(task, "a", LONG)
        await other.elections.resign(task, "b")
        assert not await other.elections.elect(task, "b", LONG)
        await one.elections.resign(task, "a")
        assert await other.elections.elect(task, "b", LONG)
        assert not await one.elections.elect(task, "a", LONG)


async def test_a_task_is_free_when_the_lease_has_ended(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        task = secrets.token_hex(4)
        assert await one.elections.elect(task, "a", NONE)
        assert await other.elections.elect(task, "b", LONG)
        assert not await one.elections.elect(task, "a", LONG)


async def test_one_of_many_runners_that_ask_together_is_elected(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        task = secrets.token_hex(4)
        for lease in (NONE, LONG):
            won = await asyncio.gather(
                *((one, other)[number % 2].elections.elect(task, f"{lease}-{number}", lease) for number in range(8))
            )
            assert any(won)
        assert won.count(True) == 1
