"""A slow object store delays who reads history, and no other call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from lakelog.coordinator.leasing.operations import AcquireMessages
from lakelog.engine import Engine
from lakelog.engine.leasing import batch_cache
from lakelog.engine.leasing.consuming import Leased
from lakelog.errors import LakelogError
from lakelog.model.dead_letters import DeadLetterQuery
from lakelog.model.group import NewGroupSettings
from lakelog.model.lease import Answered, ConsumeRequest, LeaseAnswer, Verb
from lakelog.model.message import Message
from lakelog.model.topic import Scope, Topic
from lakelog.storage.groups import JournalRead, JournalRequest
from lakelog.storage.memory import MemoryCatalog, MemoryStore
from lakelog.storage.store import PartitionStore, ReadResult
from tests.kit.waiting import eventually_async


@dataclass(kw_only=True)
class Slow:
    """One engine. Reads of partitions in `held` do not return before `gate` is set."""

    engine: Engine
    store: MemoryStore
    scope: Scope
    held: set[int] = field(default_factory=set)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    group_topic: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when such a read begins."""

    async def topic(self, name: str, messages: int = 10) -> Topic:
        topic = await self.engine.topics.create(self.scope, name, 1)
        for number in range(messages):
            await self.engine.publisher.messages(self.scope, name, [Message(value=b"m%d" % number)])
        return topic

    async def consume(self, topic: str, owner: str = "ann", group: str = "") -> list[Leased]:
        ask = ConsumeRequest(topic=topic, group=group or f"g-{topic}", owner=owner, start_from="earliest")
        return list((await self.engine.leases.consume(self.scope, ask)).leases)

    async def say(self, topic: str, lease: Leased, verb: Verb, owner: str = "ann") -> Answered | LakelogError:
        answer = LeaseAnswer(
            verb=verb,
            partition=lease.partition,
            token=lease.token,
            offsets=() if verb is Verb.EXTEND else tuple(lease.offsets),
            reason="boom",
        )
        call = self.engine.leases.answer(self.scope, topic, f"g-{topic}", owner, [answer])
        (answered,) = await asyncio.wait_for(call, 2)
        return answered

    def make_cold(self, topic: Topic) -> None:
        """Its messages leave the batch cache, and come back slowly."""
        row = self.engine._batch_cache.row(topic.pid(0))
        self.engine._batch_cache._forget(row, 0, len(row.batches))
        self.held.add(topic.pid(0))

    async def begin_to_read(self, topic: Topic, owner: str = "bob", group: str = "") -> asyncio.Task[list[Leased]]:
        """A consume that waits for the object store."""
        self.make_cold(topic)
        self.group_topic.clear()
        task = asyncio.create_task(self.consume(topic.name, owner, group))
        await asyncio.wait_for(self.group_topic.wait(), 2)
        return task


@asynccontextmanager
async def slow() -> AsyncIterator[Slow]:
    catalog, store = MemoryCatalog(), MemoryStore()
    engine = Engine(catalog, {0: store})
    await engine.start()
    its = Slow(engine=engine, store=store, scope=await catalog.scope_create("p", "e"))
    read, read_many = engine.extents.read, engine.extents.read_many

    async def wait(pids: Sequence[int]) -> None:
        if its.held.intersection(pids):
            its.group_topic.set()
            await its.gate.wait()

    async def one(store: PartitionStore, pid: int, offset: int, **limits: int) -> ReadResult | None:
        await wait([pid])
        return await read(store, pid, offset, **limits)

    async def many(store: PartitionStore, asks: Sequence[tuple[int, int]], **limits: int) -> object:
        await wait([pid for pid, _ in asks])
        return await read_many(store, asks, **limits)

    engine.extents.read = one  # type: ignore[method-assign]
    engine.extents.read_many = many  # type: ignore[method-assign, assignment]
    try:
        yield its
    finally:
        its.gate.set()
        await engine.close()


async def test_S24_slow_reads_do_not_delay_the_answers_of_another_group() -> None:
    async with slow() as its:
        await its.topic("hot")
        (lease,) = await its.consume("hot")
        group_topic = [await its.begin_to_read(await its.topic(f"old{number}")) for number in range(5)]
        assert isinstance(await its.say("hot", lease, Verb.EXTEND), Answered)
        assert await its.say("hot", lease, Verb.ACK) == Answered()
        (again,) = await asyncio.wait_for(its.consume("hot"), 2)
        assert list(again.offsets) == [1]
        its.gate.set()
        assert [[list(lease.offsets) for lease in await task] for task in group_topic] == [[[0]]] * 5


async def test_a_slow_read_does_not_delay_the_answers_of_the_same_group_and_partition() -> None:
    async with slow() as its:
        topic = await its.topic("old")
        (first,), (second,) = await its.consume("old"), await its.consume("old")
        group_topic = await its.begin_to_read(topic)
        assert isinstance(await its.say("old", first, Verb.EXTEND), Answered)
        assert await its.say("old", first, Verb.ACK) == Answered()
        assert isinstance(await its.say("old", second, Verb.NACK), Answered)
        assert not group_topic.done()
        its.gate.set()
        assert [list(lease.offsets) for lease in await group_topic] == [[2]]


async def test_a_dead_letter_that_is_read_slowly_delays_no_other_group() -> None:
    async with slow() as its:
        topic = await its.topic("old")
        await its.topic("hot")
        (dead,), (lease,) = await its.consume("old"), await its.consume("hot")
        its.make_cold(topic)
        fail = LeaseAnswer(verb=Verb.FAIL, partition=0, token=dead.token, offsets=(0,))
        failing = asyncio.create_task(its.engine.leases.answer(its.scope, "old", "g-old", "ann", [fail]))
        await asyncio.wait_for(its.group_topic.wait(), 2)
        assert await its.say("hot", lease, Verb.ACK) == Answered()
        its.gate.set()
        (failed,) = await failing
        assert isinstance(failed, Answered) and failed.dead == [0]
        (letter,) = (await its.engine.dead_letters.list(its.scope, DeadLetterQuery(group="g-old"))).letters
        assert letter.raw == b"m0"


async def test_a_slow_journal_delays_no_ledger_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    async with slow() as its:
        await its.topic("hot")
        (lease,) = await its.consume("hot")
        for number in range(5):
            await its.topic(f"new{number}")
        read, gate = its.store.groups.journals_read, asyncio.Event()

        async def wait(asks: Sequence[JournalRequest]) -> list[JournalRead]:
            await gate.wait()
            return await read(asks)

        monkeypatch.setattr(its.store.groups, "journals_read", wait)
        loading = []
        for number in range(5):
            loading.append(asyncio.create_task(its.consume(f"new{number}")))
            await asyncio.sleep(0.01)
        assert await its.say("hot", lease, Verb.ACK) == Answered()
        gate.set()
        assert [len(await task) for task in loading] == [1] * 5


async def test_takes_of_one_ledger_share_a_read() -> None:
    async with slow() as its:
        topic = await its.topic("old")
        (lease,) = await its.consume("old")
        assert await its.say("old", lease, Verb.ACK) == Answered()
        first = await its.begin_to_read(topic)
        group = await its.engine.group_directory.resolve(its.scope, "g-old", create=False)
        journal = its.engine._journals._journals[group.group_id, topic.pid(0)]
        its.group_topic.clear()
        others = [asyncio.create_task(its.consume("old", f"w{number}")) for number in range(3)]
        await eventually_async(lambda: len(journal.awaiting_log) == 4)
        assert not its.group_topic.is_set()
        its.gate.set()
        found = [lease.offsets[0] for task in (first, *others) for lease in await task]
        assert sorted(found) == [1, 2, 3, 4]


async def test_a_take_that_is_cancelled_during_its_read_is_never_decided() -> None:
    async with slow() as its:
        topic = await its.topic("old")
        group = await its.engine.group_directory.resolve(
            its.scope, "g-old", NewGroupSettings(start_from="earliest"), create=True
        )
        group_topic = await its.engine.group_directory.group_topic(
            group, topic, NewGroupSettings(start_from="earliest")
        )
        its.make_cold(topic)
        take = AcquireMessages(owner="bob", max_messages=1, lease_ms=60_000)
        asking = asyncio.create_task(its.engine._journals.run(group, group_topic, topic, 0, take))
        await asyncio.wait_for(its.group_topic.wait(), 2)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        its.gate.set()
        (lease,) = await its.consume("old")
        assert list(lease.offsets) == [0] and lease.deliveries == {}


async def test_L2_messages_that_left_the_batch_cache_before_the_decision_are_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the partition would be taken for empty."""
    async with slow() as its:
        topic = await its.topic("old")
        fill, fills = batch_cache.BatchCache.fill, [0]

        async def evicted(
            self: batch_cache.BatchCache, topic: Topic, offsets: dict[int, int]
        ) -> dict[int, LakelogError]:
            found = await fill(self, topic, offsets)
            fills[0] += 1
            if fills[0] == 1:
                row = self.row(topic.pid(0))
                self._forget(row, 0, len(row.batches))
            return found

        monkeypatch.setattr(batch_cache.BatchCache, "fill", evicted)
        assert [list(lease.offsets) for lease in await its.consume(topic.name)] == [[0]]
