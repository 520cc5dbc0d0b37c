"""A call of a group that reads many partitions visits only the partitions that it needs."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from lakelog.coordinator.leasing.state import DeliveryState, Lease
from lakelog.engine import Engine
from lakelog.engine.leasing import journals
from lakelog.engine.leasing.journal import Journal
from lakelog.engine.leasing.partition_view import PartitionView
from lakelog.model.group import Order
from lakelog.model.lease import ConsumeRequest, LeaseAnswer, Verb
from lakelog.model.membership import JoinRequest
from lakelog.model.message import Message
from lakelog.model.topic import Scope
from lakelog.storage.memory import MemoryCatalog, MemoryStore
from tests.unit.engine.support import started

PARTITIONS = 1000
ASK = ConsumeRequest(topic="orders", group="billing", owner="ann", max_messages=5, start_from="earliest")


@pytest.fixture
def visits(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each step visited a partition."""
    counts: Counter[str] = Counter()

    def counted(owner: Any, name: str) -> None:
        given = getattr(owner, name)
        get = given.fget if isinstance(given, property) else given

        def count(*arguments: Any) -> Any:
            counts[name] += 1
            return get(*arguments)

        monkeypatch.setattr(owner, name, property(count) if isinstance(given, property) else count)

    for name in ("free_count", "has_lease_of", "due_in_ms"):
        counted(PartitionView, name)
    counted(Journal, "is_stopped")
    return counts


async def fill(engine: Engine, scope: Scope) -> None:
    await engine.topics.create(scope, "orders", PARTITIONS)
    for partition in range(PARTITIONS):
        await engine.publisher.messages(scope, "orders", [Message(value=b"x", partition=partition)])


@pytest.mark.parametrize("order", [Order.KEY, Order.PARTITION])
@pytest.mark.parametrize("is_member", [False, True])
async def test_a_consume_with_answers_visits_few_partitions(
    visits: Counter[str], order: Order, is_member: bool
) -> None:
    catalog = MemoryCatalog()
    async with started(catalog, MemoryStore()) as engine:
        scope = await catalog.scope_create("shop", "test")
        await fill(engine, scope)
        settings: dict[str, Any] = {"order": order}
        if is_member:
            joined = await engine.members.join(
                scope,
                JoinRequest(group="billing", topics=("orders",), member_id="ann", start_from="earliest", order=order),
            )
            settings |= {"member_id": "ann", "generation": joined.generation}
        answers: tuple[LeaseAnswer, ...] = ()
        seen: set[int] = set()
        for _ in range(10):
            visits.clear()
            ask = ConsumeRequest(
                topic="orders",
                group="billing",
                owner="ann",
                max_messages=5,
                start_from="earliest",
                isolates=True,
                answers=answers,
                **settings,
            )
            consumed = await engine.leases.consume(scope, ask)
            assert len(consumed.leases) == 5
            seen |= {lease.partition for lease in consumed.leases}
            answers = tuple(
                LeaseAnswer(verb=Verb.ACK, partition=each.partition, token=each.token, offsets=tuple(each.offsets))
                for each in consumed.leases
            )
        assert len(seen) == 50, "partitions take turns"
        assert max(visits.values()) < 100, dict(visits)


async def test_an_owner_of_many_leases_does_not_count_them_for_each_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: Counter[str] = Counter()
    held_by = DeliveryState.held_by

    def counted(state: DeliveryState, owner: str) -> list[Lease]:
        counts[owner] += 1
        return held_by(state, owner)

    monkeypatch.setattr(DeliveryState, "held_by", counted)
    catalog = MemoryCatalog()
    async with started(catalog, MemoryStore()) as engine:
        scope = await catalog.scope_create("shop", "test")
        await engine.topics.create(scope, "orders", 300)
        for partition in range(300):
            await engine.publisher.messages(scope, "orders", [Message(value=b"x", partition=partition)])
        for number in range(2):
            assert len((await engine.leases.consume(scope, replace(ASK, max_messages=1000))).leases) == 128, number
    # Each consume tries 128 partitions, and the second one holds 128 others.
    assert counts["ann"] < 4000


async def test_journals_in_use_are_not_searched_for_room_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """More journals are in use than the cache holds: the search for one that is not in use is repeated rarely."""
    monkeypatch.setattr(journals, "MAX_JOURNALS", 100)
    looked: Counter[Journal] = Counter()
    is_idle = journals._is_idle

    def counted(journal: Journal) -> bool:
        looked[journal] += 1
        return is_idle(journal)

    monkeypatch.setattr(journals, "_is_idle", counted)
    catalog = MemoryCatalog()
    async with started(catalog, MemoryStore()) as engine:
        scope = await catalog.scope_create("shop", "test")
        await fill(engine, scope)
        assert (await engine.leases.consume(scope, ASK)).leases
    assert max(looked.values(), default=0) <= PARTITIONS // 10


async def test_consumers_that_begin_together_share_the_lookup_of_their_group(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = MemoryCatalog()
    async with started(catalog, MemoryStore()) as engine:
        scope = await catalog.scope_create("shop", "test")
        await engine.topics.create(scope, "orders", 1)
        await engine.leases.consume(scope, replace(ASK, group="other"))
        lookups: Counter[str] = Counter()
        given = catalog.groups.group_topic_find

        async def count(*arguments: Any) -> Any:
            lookups["find"] += 1
            await asyncio.sleep(0.01)
            return await given(*arguments)

        monkeypatch.setattr(catalog.groups, "group_topic_find", count)
        asks = [replace(ASK, owner=f"owner-{number}") for number in range(100)]
        await asyncio.gather(*(engine.leases.consume(scope, ask) for ask in asks))
        assert lookups["find"] <= 2
