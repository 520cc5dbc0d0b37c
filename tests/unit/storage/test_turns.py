"""Turns at the connections of a database: environments alternate, and a cancelled caller loses no place."""

from __future__ import annotations

import asyncio
from contextvars import copy_context

from lakelog.engine.coalescing import CoalescingPump
from lakelog.storage import turns
from lakelog.storage.postgres.connection import Database
from lakelog.storage.turns import FairSemaphore, current_environment


async def _queue(semaphore: FairSemaphore, names: list[tuple[int, str]], order: list[str]) -> list[asyncio.Task[None]]:
    async def use(name: str) -> None:
        await semaphore.acquire()
        order.append(name)
        semaphore.release()

    tasks = []
    for environment, name in names:
        context = copy_context()
        context.run(current_environment.set, environment)
        tasks.append(asyncio.get_running_loop().create_task(use(name), context=context))
    await asyncio.sleep(0)
    return tasks


async def test_one_call_of_an_environment_waits_for_one_of_another() -> None:
    semaphore, order = FairSemaphore(1), list[str]()
    await semaphore.acquire()
    tasks = await _queue(semaphore, [*((1, f"a{n}") for n in range(1000)), (2, "b0"), (2, "b1")], order)
    semaphore.release()
    await asyncio.gather(*tasks)
    assert order[:5] == ["a0", "b0", "a1", "b1", "a2"] and order[-1] == "a999"


async def test_a_cancelled_caller_gives_its_place_to_the_next() -> None:
    semaphore, order = FairSemaphore(1), list[str]()
    await semaphore.acquire()
    tasks = await _queue(semaphore, [(1, "first"), (1, "second"), (2, "third")], order)
    tasks[1].cancel()
    semaphore.release()
    # The first has the place now, and is cancelled before it runs.
    tasks[0].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == ["third"]
    await asyncio.wait_for(semaphore.acquire(), 1)
    assert not semaphore._waiting and not semaphore._free


async def test_free_places_are_taken_without_waiting() -> None:
    semaphore = FairSemaphore(2)
    await semaphore.acquire()
    await semaphore.acquire()
    semaphore.release()
    semaphore.release()
    assert semaphore._free == 2


async def test_a_shared_call_waits_in_no_environments_queue() -> None:
    seen: list[int] = []

    async def call() -> None:
        seen.append(current_environment.get())

    calls = [call()]
    pump = CoalescingPump(lambda: calls.pop() if calls else None)
    current_environment.set(7)
    pump.wake()
    await pump.drain()
    assert seen == [0]


async def test_connections_of_a_database_are_given_in_turns() -> None:
    database = Database("postgresql://lakelog@127.0.0.1:1/none", 1)
    assert isinstance(database._room._all, turns.FairSemaphore)
    await database.close()
