"""The dispatcher of each group detects news without an announcement, not only the first one that reads."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lakelog.engine import Engine
from lakelog.engine.leasing import batch_cache, watcher
from lakelog.engine.leasing.consuming import ConsumeResult
from lakelog.errors import Unavailable
from lakelog.model.group import GroupKind, GroupTopic
from lakelog.model.lease import Answered, ConsumeRequest, LeaseAnswer, Verb
from lakelog.model.membership import JoinRequest
from lakelog.model.message import Message
from lakelog.model.topic import Scope
from lakelog.storage.memory import MemoryCatalog, MemoryStore
from lakelog.storage.store import Append
from tests.kit.waiting import eventually_async
from tests.unit.engine.group_support import commit_of
from tests.unit.engine.support import packed, publish, started, text

pytestmark = pytest.mark.usefixtures("soon")
FROM_THE_START: dict[str, Any] = {"start_from": "earliest"}


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "WATCH_SECONDS", 0.02)
    monkeypatch.setattr(batch_cache, "LOOK_EVERY_SECONDS", 0.02)


async def consume(engine: Engine, scope: Scope, group: str, seconds: float, max_messages: int = 1) -> ConsumeResult:
    ask = ConsumeRequest(
        topic="orders",
        group=group,
        owner=group,
        max_messages=max_messages,
        wait_ms=int(seconds * 1000),
        **FROM_THE_START,
    )
    return await engine.leases.consume(scope, ask)


async def append_unannounced(store: MemoryStore, pid: int) -> None:
    """Append like a server that lost the reply to its commit, and so notified no one."""
    await store.append([Append(pid=pid, epoch=0, payloads=[packed("one")])])


@pytest.mark.parametrize("seconds", [0.0, 2.0])
async def test_L1_what_one_group_has_noticed_is_news_to_the_other(seconds: float) -> None:
    store = MemoryStore()
    catalog = MemoryCatalog()
    async with started(catalog, store) as engine:
        scope = await catalog.scope_create("shop", "test")
        topic = await engine.topics.create(scope, "orders")
        for group in ("billing", "search"):
            assert not (await consume(engine, scope, group, 0)).leases
        await append_unannounced(store, topic.pid(0))

        first = await consume(engine, scope, "billing", seconds)
        second = await consume(engine, scope, "search", seconds)

        assert [len(each.leases) for each in (first, second)] == [1, 1]


async def test_L1_what_a_reader_with_a_position_has_seen_is_news_to_those_who_lease() -> None:
    store = MemoryStore()
    catalog = MemoryCatalog()
    async with started(catalog, store) as engine:
        scope = await catalog.scope_create("shop", "test")
        topic = await engine.topics.create(scope, "orders")
        assert not (await consume(engine, scope, "billing", 0)).leases
        wish: dict[str, Any] = {"kind": GroupKind.CURSOR, "start_from": "earliest"}
        joined = await engine.members.join(scope, JoinRequest(group="audit", topics=["orders"], **wish))
        await append_unannounced(store, topic.pid(0))

        member = {"member_id": joined.member_id, "generation": joined.generation}
        await engine.groups.commit(scope, commit_of("audit", "orders", {0: 1}, **member))

        assert (await consume(engine, scope, "billing", 2.0)).leases


async def test_a_pause_reaches_those_who_wait_already() -> None:
    """Nothing is delivered after the reply to the pause, not even to a consumer that asked before it."""
    store, catalog = MemoryStore(), MemoryCatalog()
    async with started(catalog, store) as engine:
        scope = await catalog.scope_create("shop", "test")
        await engine.topics.create(scope, "orders")
        assert not (await consume(engine, scope, "billing", 0)).leases
        waiting = asyncio.create_task(consume(engine, scope, "billing", 0.3))
        await asyncio.sleep(0.05)
        await engine.groups.pause(scope, "billing")
        await engine.publisher.messages(scope, "orders", [Message(value=b"x")])

        assert not (await waiting).leases


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_pause_reaches_a_call_that_has_just_come(elsewhere: bool) -> None:
    """It found the group before the pause, and waits after it."""
    store, catalog = MemoryStore(), MemoryCatalog()
    async with started(catalog, store) as engine, started(catalog, store) as other:
        scope = await catalog.scope_create("shop", "test")
        await engine.topics.create(scope, "orders")
        await engine.group_directory.resolve(scope, "billing", kind=GroupKind.LEASE, create=True)
        gate, find = asyncio.Event(), catalog.groups.group_topic_find

        async def slow(group_id: int, incarnation: int) -> GroupTopic | None:
            await gate.wait()
            return await find(group_id, incarnation)

        catalog.groups.group_topic_find = slow  # type: ignore[method-assign]
        waiting = asyncio.create_task(consume(engine, scope, "billing", 0.5))
        await asyncio.sleep(0.05)
        await (other if elsewhere else engine).groups.pause(scope, "billing")
        await asyncio.sleep(0.05)
        gate.set()
        await asyncio.sleep(0.1)
        await engine.publisher.messages(scope, "orders", [Message(value=b"x")])

        assert not (await waiting).leases


async def test_a_pause_that_nobody_announced_is_noticed() -> None:
    store, catalog = MemoryStore(), MemoryCatalog()
    async with started(catalog, store) as engine:
        scope = await catalog.scope_create("shop", "test")
        await engine.topics.create(scope, "orders")
        group = (await consume(engine, scope, "billing", 0)).group
        waiting = asyncio.create_task(consume(engine, scope, "billing", 0.5))
        await catalog.groups.group_alter(group, group.settings, frozenset({"*"}))
        read, reads = catalog.groups.versions_read, [0]

        async def counted(*given: Any) -> Any:
            reads[0] += 1
            return await read(*given)

        catalog.groups.versions_read = counted  # type: ignore[method-assign]
        # The first read finds the pause, and the next one begins when the first has ended.
        await eventually_async(lambda: reads[0] >= 3 or waiting.done(), what="the catalog was read")
        await engine.publisher.messages(scope, "orders", [Message(value=b"x")])

        assert not (await waiting).leases


async def test_of_two_changes_the_later_one_holds_whichever_is_heard_of_first() -> None:
    store, catalog = MemoryStore(), MemoryCatalog()
    async with started(catalog, store) as engine:
        scope = await catalog.scope_create("shop", "test")
        await engine.topics.create(scope, "orders")
        group = (await consume(engine, scope, "billing", 0)).group
        resumed = await catalog.groups.group_alter(group, group.settings, frozenset())
        paused = await catalog.groups.group_alter(resumed, group.settings, frozenset({"*"}))
        for heard in (paused, resumed):
            engine._journals.altered(heard)
        await engine.publisher.messages(scope, "orders", [Message(value=b"x")])

        assert not (await consume(engine, scope, "billing", 0)).leases


@pytest.mark.parametrize("verb", [Verb.RELEASE, Verb.NACK])
async def test_what_was_just_given_back_is_there_for_who_does_not_wait(verb: Verb) -> None:
    catalog = MemoryCatalog()
    async with started(catalog, MemoryStore()) as engine:
        scope = await catalog.scope_create("shop", "test")
        await engine.topics.create(scope, "orders", partitions=1)
        await publish(engine, scope, "orders", text("one", key=b"k"))
        for _ in range(3):
            lease = (await consume(engine, scope, "billing", 0.0)).leases[0]
            assert not (await consume(engine, scope, "billing", 0.0)).leases
            back = LeaseAnswer(verb=verb, partition=0, token=lease.token, offsets=(0,), delay_ms=0)
            (answered,) = await engine.leases.answer(scope, "orders", "billing", "billing", [back])
            assert isinstance(answered, Answered)


async def not_there(*_: object) -> object:
    raise Unavailable("The cell cannot be reached.")


@pytest.mark.parametrize("down", [0, 1])
async def test_L1_a_cell_that_does_not_answer_hides_no_message_of_the_others(
    down: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores, catalog = [MemoryStore(), MemoryStore()], MemoryCatalog()
    async with started(catalog, *stores) as engine:
        scope = await catalog.scope_create("shop", "test")
        topic = await engine.topics.create(scope, "orders", partitions=2)
        assert not (await consume(engine, scope, "billing", 0)).leases
        monkeypatch.setattr(stores[down], "heads_read", not_there)
        monkeypatch.setattr(stores[down], "changes_read", not_there)
        await append_unannounced(stores[1 - down], topic.pid(topic.cells.index(1 - down)))

        assert len((await consume(engine, scope, "billing", 2.0)).leases) == 1


@pytest.mark.parametrize("down", [0, 1])
async def test_L1_a_cell_that_does_not_answer_hides_nothing_that_was_given_back_in_others(
    down: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores, catalog = [MemoryStore(), MemoryStore()], MemoryCatalog()
    async with started(catalog, *stores) as engine, started(catalog, *stores) as other:
        scope = await catalog.scope_create("shop", "test")
        partition = (await engine.topics.create(scope, "orders", partitions=2)).cells.index(1 - down)
        await engine.publisher.messages(scope, "orders", [Message(value=b"x", partition=partition)])
        (lease,) = (await consume(other, scope, "billing", 1.0)).leases
        assert not (await consume(engine, scope, "billing", 0)).leases
        monkeypatch.setattr(stores[down].groups, "journals_read", not_there)
        back = LeaseAnswer(verb=Verb.RELEASE, partition=partition, token=lease.token, offsets=(0,))
        assert await other.leases.answer(scope, "orders", "billing", "billing", [back]) == [Answered()]

        assert len((await consume(engine, scope, "billing", 2.0)).leases) == 1


@pytest.mark.parametrize("down", [0, 1])
async def test_a_server_that_has_just_started_serves_the_cells_that_answer(
    down: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores, catalog = [MemoryStore(), MemoryStore()], MemoryCatalog()
    async with started(catalog, *stores) as engine, started(catalog, *stores) as new:
        scope = await catalog.scope_create("shop", "test")
        await engine.topics.create(scope, "orders", partitions=4)
        for partition in range(4):
            await engine.publisher.messages(scope, "orders", [Message(value=b"x", partition=partition)])
        monkeypatch.setattr(stores[down].groups, "journals_read", not_there)

        assert len((await consume(new, scope, "billing", 2.0, max_messages=100)).leases) == 2
