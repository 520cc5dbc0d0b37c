"""Answers and the next take in one call: one decision, one journal commit, and a repeat that changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from lakelog.engine import Engine
from lakelog.engine.leasing.consuming import ConsumeResult, Leased
from lakelog.errors import GroupNotFound, LakelogError, LeaseLost, OutcomeUnknown, StaleGeneration, Unavailable
from lakelog.model.group import Order
from lakelog.model.lease import Answered, ConsumeRequest, LeaseAnswer, Verb
from lakelog.model.message import Message
from lakelog.model.topic import Scope
from lakelog.storage.groups import CommitResult, JournalEntry
from lakelog.storage.memory import MemoryCatalog, MemoryStore
from tests.unit.engine.support import started

ASK = ConsumeRequest(topic="orders", group="billing", owner="ann", max_messages=2, start_from="earliest")


@dataclass
class Shop:
    engine: Engine
    scope: Scope
    commits: list[Sequence[JournalEntry]]

    async def publish(self, count: int, partition: int = 0, key: bytes | None = None) -> None:
        messages = [Message(value=b"x", partition=partition, key=key) for _ in range(count)]
        await self.engine.publisher.messages(self.scope, "orders", messages)

    async def consume(self, **more: object) -> ConsumeResult:
        repeat = bool(more.pop("repeat", False))
        return await self.engine.leases.consume(self.scope, replace(ASK, **more), repeat=repeat)

    async def lease(self, **more: object) -> Leased:
        (lease,) = (await self.consume(**more)).leases
        return lease

    async def acked(self) -> int:
        return sum(each.acked for each in await self.engine.groups.lag(self.scope, "billing"))


@asynccontextmanager
async def shop(partitions: int = 1) -> AsyncIterator[Shop]:
    catalog, store = MemoryCatalog(), MemoryStore()
    commits: list[Sequence[JournalEntry]] = []
    commit = store.groups.journals_commit

    async def watched(entries: Sequence[JournalEntry]) -> Sequence[CommitResult]:
        commits.append(entries)
        return await commit(entries)

    store.groups.journals_commit = watched  # type: ignore[method-assign, assignment]
    async with started(catalog, store) as engine:
        scope = await catalog.scope_create("shop", "test")
        await engine.topics.create(scope, "orders", partitions)
        yield Shop(engine, scope, commits)


def ack(lease: Leased, verb: Verb = Verb.ACK, **more: object) -> LeaseAnswer:
    return LeaseAnswer(
        verb=verb,
        partition=lease.partition,
        token=lease.token,
        offsets=tuple(lease.offsets),
        **more,
    )  # type: ignore[arg-type]


async def test_answers_and_the_next_take_are_one_commit() -> None:
    async with shop() as made:
        await made.publish(6)
        first = await made.lease()
        made.commits.clear()
        consumed = await made.consume(answers=[ack(first)])
        assert consumed.answered == [Answered()]
        assert [list(lease.offsets) for lease in consumed.leases] == [[2, 3]]
        assert [len(entries) for entries in made.commits] == [1]
        assert await made.acked() == 2


@pytest.mark.parametrize("wait_ms", [0, 20_000])
async def test_a_call_with_answers_does_not_wait_for_messages(wait_ms: int) -> None:
    async with shop() as made:
        await made.publish(2)
        first = await made.lease()
        made.commits.clear()
        consumed = await asyncio.wait_for(made.consume(answers=[ack(first)], wait_ms=wait_ms), 10.0)
        assert (consumed.answered, consumed.leases) == ([Answered()], [])
        assert len(made.commits) == 1 and await made.acked() == 2


@pytest.mark.parametrize("order", [Order.KEY, Order.PARTITION])
async def test_what_the_answers_free_is_taken_by_the_same_call(order: Order) -> None:
    """Messages behind an open one of their key were tried in vain: the partition has nothing until the ack."""
    wish: dict[str, Any] = {"start_from": "earliest", "order": order}
    async with shop() as made:
        await made.publish(4, key=b"k")
        first = await made.lease(**wish)
        assert not (await made.consume(**wish, owner="bob")).leases
        made.commits.clear()
        consumed = await made.consume(**wish, answers=[ack(first)])
        assert [list(lease.offsets) for lease in consumed.leases] == [[2, 3]]
        assert len(made.commits) == 1


async def test_a_full_window_is_freed_by_the_same_call() -> None:
    wish: dict[str, Any] = {"start_from": "earliest", "window": 2}
    async with shop() as made:
        await made.publish(4)
        first = await made.lease(**wish)
        assert not (await made.consume(**wish, owner="bob")).leases
        consumed = await made.consume(**wish, answers=[ack(first)])
        assert [list(lease.offsets) for lease in consumed.leases] == [[2, 3]]


async def test_each_answer_has_its_outcome() -> None:
    async with shop(partitions=2) as made:
        await made.publish(2)
        await made.publish(2, partition=1)
        told = (await made.consume(max_messages=4)).leases
        zero, one = sorted(told, key=lambda lease: lease.partition)
        unknown = LeaseAnswer(verb=Verb.ACK, partition=0, token=1, offsets=(0,))
        nowhere = LeaseAnswer(verb=Verb.ACK, partition=7, token=1, offsets=(0,))
        consumed = await made.consume(answers=[unknown, ack(zero), nowhere, ack(one, Verb.NACK, delay_ms=60_000)])
        lost, done, refused, nacked = consumed.answered or []
        assert isinstance(lost, LeaseLost) and done == Answered() and isinstance(refused, LakelogError)
        assert isinstance(nacked, Answered) and nacked.retry_in_ms == 60_000
        assert await made.acked() == 2


@pytest.mark.parametrize("repeat", [False, True])
async def test_S8_S10_a_repeat_gets_the_same_lease_and_the_same_outcomes(repeat: bool) -> None:
    async with shop() as made:
        await made.publish(6)
        first = await made.lease()
        more = {"answers": [ack(first)], "request_id": "r-2"}
        lost = await made.consume(**more)
        assert not (await made.consume(owner="bob", max_messages=100)).answered
        again = await made.consume(**more, repeat=repeat)
        assert again.answered == lost.answered == [Answered()]
        assert [lease.token for lease in again.leases] == [lease.token for lease in lost.leases]
        assert await made.acked() == 2


async def test_S10_a_repeat_at_another_server_counts_the_answers_once() -> None:
    catalog, store = MemoryCatalog(), MemoryStore()
    async with started(catalog, store) as one, started(catalog, store) as two:
        scope = await catalog.scope_create("shop", "test")
        await one.topics.create(scope, "orders", 4)
        here, there = Shop(one, scope, []), Shop(two, scope, [])
        await here.publish(6, partition=3)
        assert (await there.consume(owner="bob", max_messages=1)).leases
        first = await here.lease()
        more = {"answers": [ack(first)], "request_id": "r-2"}
        lost = await here.consume(**more)
        again = await there.consume(**more, repeat=True)
        assert again.answered == [Answered()]
        assert [lease.token for lease in again.leases] == [lease.token for lease in lost.leases]
        assert await there.acked() == len(first.offsets)


async def test_answers_count_although_the_take_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async with shop() as made:
        await made.publish(6)
        first = await made.lease()

        async def stale(*_: object, **__: object) -> object:
            raise StaleGeneration()

        monkeypatch.setattr(made.engine.leases._members, "membership", stale)
        consumed = await made.consume(answers=[ack(first)], member_id="ann")
        assert (consumed.answered, consumed.leases) == ([Answered()], [])
        assert isinstance(consumed.refusal, StaleGeneration)
        assert await made.acked() == 2


async def test_S12_a_lease_whose_messages_cannot_be_read_is_released_and_the_refusal_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with shop() as made:
        await made.publish(6)
        first = await made.lease()

        async def unreadable(*_: object) -> object:
            raise Unavailable()

        with monkeypatch.context() as broken:
            broken.setattr(made.engine.leases._context.batch_cache, "pieces", unreadable)
            consumed = await made.consume(answers=[ack(first)])
        assert (consumed.answered, consumed.leases) == ([Answered()], [])
        assert isinstance(consumed.refusal, Unavailable)
        again = await made.lease(wait_ms=1000)
        assert again.deliveries == dict.fromkeys(again.offsets, 2)


async def test_S12_a_take_of_unknown_outcome_is_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    async with shop() as made:
        await made.publish(6)
        first = await made.lease()

        async def unknown(*_: object) -> object:
            raise OutcomeUnknown()

        with monkeypatch.context() as broken:
            (dispatcher,) = made.engine.leases._dispatchers.values()
            broken.setattr(dispatcher, "lease", unknown)
            with pytest.raises(OutcomeUnknown):
                await made.consume(answers=[ack(first)], request_id="r-2")
        again = await made.consume(answers=[ack(first)], request_id="r-2", repeat=True)
        assert again.answered == [Answered()] and await made.acked() == 2


async def test_answers_to_a_group_that_is_gone_do_not_keep_the_call_from_messages() -> None:
    async with shop() as made:
        await made.publish(2)
        first = await made.lease()
        await made.engine.groups.delete(made.scope, "billing")
        consumed = await made.consume(answers=[ack(first)])
        (refused,) = consumed.answered or []
        assert isinstance(refused, GroupNotFound | LeaseLost)
        assert len(consumed.leases) == 1


async def test_both_are_refused_when_nothing_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    async with shop() as made:
        await made.publish(6)
        first = await made.lease()

        async def away(*_: object) -> object:
            raise Unavailable()

        monkeypatch.setattr(made.engine._journals, "submit", _refusing)
        monkeypatch.setattr(made.engine.catalog, "topic_find", away)
        consumed = await made.consume(answers=[ack(first)])
        (refused,) = consumed.answered or []
        assert isinstance(refused, Unavailable) and not consumed.leases


def _refusing(*_: object) -> asyncio.Future[object]:
    refused: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    refused.set_exception(Unavailable())
    return refused


async def test_a_call_divides_its_messages_evenly_between_the_partitions_that_it_answers() -> None:
    """Uneven shares leave gaps of blocked keys, and each message behind a gap is decided by itself."""
    async with shop(4) as each:
        for partition in range(4):
            await each.publish(1000, partition)
        first = await each.consume(max_messages=400, window=100)
        assert [len(lease.offsets) for lease in first.leases] == [100] * 4
        second = await each.consume(max_messages=400, answers=tuple(map(ack, first.leases)))
        assert [len(lease.offsets) for lease in second.leases] == [100] * 4
