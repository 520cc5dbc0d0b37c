"""Owners that hold messages of several partitions are alone with none of them (S12)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from lakelog.coordinator.leasing import acquiring as taking
from lakelog.engine import Engine
from lakelog.engine.leasing.consuming import Leased
from lakelog.model.group import Fixed
from lakelog.model.lease import ConsumeRequest
from lakelog.model.message import Message
from lakelog.model.topic import Scope
from lakelog.storage.memory import MemoryCatalog, MemoryStore
from tests.kit.waiting import eventually_async
from tests.unit.engine.support import started

WISH: dict[str, Any] = {"start_from": "earliest", "retries": Fixed(max=0, seconds=0.0)}


async def begin(partitions: int = 3, each: int = 1) -> tuple[Engine, Scope]:
    """Publish `count` messages to each partition."""
    engine = Engine(MemoryCatalog(), {0: MemoryStore()})
    await engine.start()
    scope = await engine.catalog.scope_create("default", "default")
    await engine.topics.create(scope, "t", partitions)
    for partition in range(partitions):
        await engine.publisher.messages(scope, "t", [Message(value=b"x", partition=partition)] * each)
    return engine, scope


async def consume(engine: Engine, scope: Scope, owner: str, lease_ms: int, max_messages: int = 3) -> Sequence[Leased]:
    ask = ConsumeRequest(
        topic="t", group="g", owner=owner, max_messages=max_messages, lease_ms=lease_ms, wait_ms=5000, **WISH
    )
    return (await engine.leases.consume(scope, ask)).leases


async def test_what_is_leased_together_from_several_partitions_does_not_fail_together() -> None:
    """S12: with no retries, a failure would make dead letters of them."""
    engine, scope = await begin()
    assert len(await consume(engine, scope, "lost", 100)) == 3
    found = [lease for number in range(3) for lease in await consume(engine, scope, f"next-{number}", 60_000)]
    assert [lease.failures for lease in found] == [{}] * 3
    await engine.close()


async def test_suspects_of_several_partitions_are_handed_out_one_at_a_time() -> None:
    engine, scope = await begin()
    await consume(engine, scope, "lost", 100)
    for number in range(3):
        leases = await consume(engine, scope, f"next-{number}", 60_000)
        assert [(len(lease.offsets), lease.suspect) for lease in leases] == [(1, True)]
    assert (await engine.groups.lag(scope, "g"))[0].dead == 0
    await engine.close()


async def test_what_a_lost_owner_held_comes_before_the_turns_of_other_partitions() -> None:
    """L5: with a backlog everywhere, a partition's turn may come late."""
    engine, scope = await begin(partitions=12, each=20)
    (lost,) = await consume(engine, scope, "lost", 100, max_messages=1)
    await eventually_async(lambda: time.time() * 1000 > lost.expires_ms + 20, what="the lease expired")
    found = [lease for number in range(3) for lease in await consume(engine, scope, f"n{number}", 60_000, 1)]
    suspects = [lease.suspect for lease in found]
    assert True in suspects[:2], suspects
    await engine.close()


async def test_L5_an_owner_that_always_has_something_gets_what_a_lost_one_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no other consumer, and it always holds a message: it would wait forever."""
    monkeypatch.setattr(taking, "ALONE_WITHIN_MS", 200)
    engine, scope = await begin(partitions=2)
    (held,) = await consume(engine, scope, "busy", 60_000, max_messages=1)
    (lost,) = await consume(engine, scope, "lost", 100, max_messages=1)
    assert lost.partition != held.partition
    (again,) = await consume(engine, scope, "busy", 60_000)
    assert (again.partition, again.suspect, dict(again.deliveries)) == (lost.partition, False, {0: 2})
    await engine.close()


@pytest.mark.parametrize("max_messages", [1, 3, 100])
async def test_L5_a_server_that_has_just_started_hands_out_first_what_a_lost_owner_had(max_messages: int) -> None:
    """It knows no lease yet: a consumer would get messages of other partitions first, and this one later."""
    catalog, store = MemoryCatalog(), MemoryStore()
    async with started(catalog, store) as before:
        scope = await catalog.scope_create("default", "default")
        await before.topics.create(scope, "t", 12)
        await before.publisher.messages(scope, "t", [Message(value=b"x", partition=7)])
        (lost,) = await consume(before, scope, "lost", 100)
        for partition in range(12):
            await before.publisher.messages(scope, "t", [Message(value=b"x", partition=partition)] * 5)
    await eventually_async(lambda: time.time() * 1000 > lost.expires_ms + 20, what="the lease expired")
    async with started(catalog, store) as after:
        leases = await consume(after, scope, "next", 60_000, max_messages)
    assert [(each.partition, list(each.offsets), each.suspect) for each in leases] == [(7, [0], True)]
