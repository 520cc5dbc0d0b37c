"""Redrives and discards of large dead letters: few of them are in memory at a time, and the budget counts them."""

from __future__ import annotations

from typing import Any

import pytest

from lakelog.engine.budget import Budget
from lakelog.engine.groups import dead_letters as module
from lakelog.engine.groups.dead_letters import DeadLetters, ReadResources
from lakelog.errors import Overloaded
from lakelog.model.message import Message
from tests.unit.engine.groups.test_dead_letters import Morgue

LETTERS = 40
SIZE = 10_000


async def open_morgue(limit: int) -> tuple[Morgue, Budget, list[str]]:
    world, budget = Morgue(), Budget(limit)
    await world.open()
    world.dead = DeadLetters(
        world.catalog,
        world.cells,
        world.topics,
        world.group_directory,
        lambda *_: None,
        ReadResources(budget=budget),
    )
    ids = await world.die(0, *(Message(value=bytes([n]) * SIZE) for n in range(LETTERS)))
    return world, budget, ids


def watch(world: Morgue, budget: Budget, monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], list[int]]:
    """Return the numbers of dead letters that are read between two writes, and the memory in use at the writes."""
    read, used = [0], list[int]()
    groups = world.cells[world.topic_.cells[0]].groups
    find = groups.dead_find

    async def found(*args: Any) -> Any:
        read[-1] += 1
        return await find(*args)

    def watched(call: Any) -> Any:
        async def written(*args: Any) -> Any:
            read.append(0)
            used.append(budget.used)
            return await call(*args)

        return written

    monkeypatch.setattr(groups, "dead_find", found)
    monkeypatch.setattr(groups, "dead_redrive", watched(groups.dead_redrive))
    monkeypatch.setattr(groups, "dead_discard", watched(groups.dead_discard))
    return read, used


@pytest.mark.parametrize("verb", ["redrive", "discard"])
async def test_dead_letters_with_given_ids_are_read_in_parts(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE_BYTES", 5 * SIZE)
    world, budget, ids = await open_morgue(1 << 20)
    read, used = watch(world, budget, monkeypatch)
    done = await getattr(world, verb)(message_ids=tuple(ids))
    assert (done if verb == "discard" else done.redriven) == LETTERS
    assert max(read) <= 2 * module.READ_AT_ONCE
    assert min(used) >= SIZE and budget.used == 0


@pytest.mark.parametrize("verb", ["redrive", "discard"])
@pytest.mark.parametrize("by_ids", [True, False])
async def test_a_call_without_memory_is_refused(verb: str, by_ids: bool) -> None:
    world, budget, ids = await open_morgue(SIZE)
    chosen: dict[str, Any] = {"message_ids": tuple(ids)} if by_ids else {"topic": "orders"}
    with pytest.raises(Overloaded):
        await getattr(world, verb)(**chosen)
    assert budget.used == 0
