"""S24: what cannot be read or decided for one group and partition fails there, and nowhere else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from lakelog.engine import Engine
from lakelog.engine.leasing import partition_stop
from lakelog.engine.leasing.consuming import Leased
from lakelog.engine.leasing.decider import Decider
from lakelog.engine.leasing.journal import PendingCommit
from lakelog.engine.leasing.partition_stop import PartitionStop
from lakelog.errors import (
    LakelogError,
    ObjectStoreUnavailable,
    OutcomeUnknown,
    SegmentDamaged,
    Unavailable,
    UnsupportedFormat,
)
from lakelog.model.lease import Answered, ConsumeRequest, LeaseAnswer, Verb
from lakelog.model.message import Message
from lakelog.model.topic import Scope, Topic
from lakelog.storage.groups import CommitResult, JournalEntry, JournalRow
from lakelog.storage.memory import MemoryCatalog, MemoryStore
from lakelog.storage.store import PartitionStore, ReadResult
from tests.kit.waiting import eventually_async

DAMAGE = SegmentDamaged("The file e1/x is missing.", path="e1/x")


@dataclass(kw_only=True)
class World:
    """One engine over one store. Partitions in `broken` cannot be read from the log."""

    engine: Engine
    catalog: MemoryCatalog
    store: MemoryStore
    scope: Scope
    broken: dict[int, Exception] = field(default_factory=dict)
    sound_from: int = 1 << 62
    """From this offset on, they can be read."""
    reads: list[int] = field(default_factory=list)
    """Which partitions were read, in order."""

    async def topic(self, name: str, partitions: int = 1, messages: int = 2) -> Topic:
        topic = await self.engine.topics.create(self.scope, name, partitions)
        for partition in range(partitions):
            sent = [Message(value=b"m", partition=partition) for _ in range(messages)]
            await self.engine.publisher.messages(self.scope, name, sent)
        return topic

    async def consume(self, topic: str, owner: str = "ann", **options: object) -> list[Leased]:
        repeat = bool(options.pop("repeat", False))
        ask = ConsumeRequest(topic=topic, group=f"g-{topic}", owner=owner, start_from="earliest", **options)  # type: ignore[arg-type]
        return list((await self.engine.leases.consume(self.scope, ask, repeat=repeat)).leases)

    async def answer(self, topic: str, lease: Leased, verb: Verb, owner: str = "ann") -> Answered | LakelogError:
        answer = LeaseAnswer(
            verb=verb,
            partition=lease.partition,
            token=lease.token,
            offsets=tuple(lease.offsets),
            reason="boom",
        )
        return (await self.engine.leases.answer(self.scope, topic, f"g-{topic}", owner, [answer]))[0]

    async def stopped(self, topic: Topic, partition: int = 0) -> PartitionStop | None:
        group = await self.engine.group_directory.resolve(self.scope, f"g-{topic.name}", create=True)
        journal = self.engine._journals._journals.get((group.group_id, topic.pid(partition)))
        return journal.stop if journal is not None else None

    def forget_log(self) -> None:
        """As if other messages had taken its place in the batch cache."""
        batch_cache = self.engine._batch_cache
        for row in batch_cache._rows.values():
            batch_cache._forget(row, 0, len(row.batches))


@asynccontextmanager
async def other_engine(its: World) -> AsyncIterator[Engine]:
    """Another server over the same stores."""
    engine = Engine(its.catalog, {0: its.store})
    await engine.start()
    try:
        yield engine
    finally:
        await engine.close()


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    catalog, store = MemoryCatalog(), MemoryStore()
    engine = Engine(catalog, {0: store})
    await engine.start()
    found = World(engine=engine, catalog=catalog, store=store, scope=await catalog.scope_create("p", "e"))
    read, read_many = engine.extents.read, engine.extents.read_many

    async def one(store: PartitionStore, pid: int, offset: int, **limits: int) -> ReadResult | None:
        found.reads.append(pid)
        if pid in found.broken and offset < found.sound_from:
            raise found.broken[pid]
        return await read(store, pid, offset, **limits)

    async def many(store: PartitionStore, asks: Sequence[tuple[int, int]], **limits: int) -> object:
        found.reads.extend(pid for pid, _ in asks)
        for pid, offset in asks:
            if pid in found.broken and offset < found.sound_from:
                raise found.broken[pid]
        return await read_many(store, asks, **limits)

    engine.extents.read = one  # type: ignore[method-assign, assignment]
    engine.extents.read_many = many  # type: ignore[method-assign]
    try:
        yield found
    finally:
        await engine.close()


async def test_S24_a_dead_letter_whose_bytes_cannot_be_read_fails_its_own_group_only() -> None:
    async with world() as its:
        bad, good = await its.topic("bad"), await its.topic("good")
        (ours,), (theirs,) = await its.consume("bad"), await its.consume("good")
        its.forget_log()
        its.broken[bad.pid(0)] = DAMAGE
        failed, acked = await asyncio.gather(its.answer("bad", ours, Verb.FAIL), its.answer("good", theirs, Verb.ACK))
        assert failed is DAMAGE and acked == Answered()
        assert await its.stopped(good) is None
        stop = await its.stopped(bad)
        assert stop is not None and stop.error is DAMAGE and stop.at_ms > 0


async def test_S24_an_event_of_a_newer_version_fails_its_own_group_only() -> None:
    async with world() as its:
        await its.topic("bad"), await its.topic("good")
        (ours,), (theirs,) = await its.consume("bad"), await its.consume("good")
        other = Engine(its.engine.catalog, {0: its.store})
        bad = await other.topics.find(its.scope, "bad")
        for (_, pid), journal in its.store.groups._journals.items():
            if pid == bad.pid(0):
                last, at = journal.rows[-1]
                body = msgspec.msgpack.encode((1, 0, [[13, 1]]))
                journal.rows.append((JournalRow(version=last.version + 1, snapshot=False, body=body), at))
        its.engine._journals._journals.clear()
        failed, acked = await asyncio.gather(its.answer("bad", ours, Verb.ACK), its.answer("good", theirs, Verb.ACK))
        assert isinstance(failed, UnsupportedFormat) and acked == Answered()
        with pytest.raises(UnsupportedFormat):
            await its.consume("bad", "bob", wait_ms=20000)
        assert len(await its.consume("good", "bob")) == 1


async def test_S24_an_event_of_a_newer_version_is_noticed_while_reading_on() -> None:
    """The part of the rows that was applied before the unknown one must not stay."""
    async with world() as its:
        topic = await its.topic("bad")
        (lease,) = await its.consume("bad")
        assert await its.answer("bad", lease, Verb.ACK) == Answered()
        group = await its.engine.group_directory.resolve(its.scope, "g-bad", create=False)
        journal = its.engine._journals._journals[group.group_id, topic.pid(0)]
        stored = its.store.groups._journals[group.group_id, topic.pid(0)]
        last, at = stored.rows[-1]
        body = msgspec.msgpack.encode((1, 0, [[13, 1]]))
        stored.rows.append((JournalRow(version=last.version + 1, snapshot=False, body=body), at))
        await its.engine._journals.refresh([journal])
        assert journal.state is None and isinstance(journal.stop and journal.stop.error, UnsupportedFormat)


async def test_S24_a_defect_in_one_decision_fails_its_own_group_only(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as its:
        bad = await its.topic("bad")
        await its.topic("good")
        (ours,), (theirs,) = await its.consume("bad"), await its.consume("good")
        decide = Decider.decide

        def defect(decider: Decider, commit: PendingCommit) -> None:
            if commit.journal.pid == bad.pid(0):
                raise ZeroDivisionError("a defect")
            decide(decider, commit)

        monkeypatch.setattr(Decider, "decide", defect)
        failed, acked = await asyncio.gather(its.answer("bad", ours, Verb.ACK), its.answer("good", theirs, Verb.ACK))
        assert type(failed) is LakelogError and "a defect" in str(failed) and acked == Answered()


async def test_S24_an_entry_that_the_store_refuses_fails_its_own_group_only(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as its:
        bad = await its.topic("bad")
        await its.topic("good")
        (ours,), (theirs,) = await its.consume("bad"), await its.consume("good")
        commit = its.store.groups.journals_commit

        async def refuse(entries: Sequence[JournalEntry]) -> list[CommitResult]:
            if any(entry.pid == bad.pid(0) for entry in entries):
                raise ValueError("not an entry")
            return await commit(entries)

        monkeypatch.setattr(its.store.groups, "journals_commit", refuse)
        failed, acked = await asyncio.gather(its.answer("bad", ours, Verb.ACK), its.answer("good", theirs, Verb.ACK))
        assert type(failed) is LakelogError and "not an entry" in str(failed) and acked == Answered()


@pytest.mark.parametrize("error", [DAMAGE, ObjectStoreUnavailable("down"), ZeroDivisionError("a defect")])
async def test_S24_a_damaged_partition_does_not_stop_the_others_of_its_topic(error: Exception) -> None:
    async with world() as its:
        topic = await its.topic("orders", partitions=4, messages=5)
        its.broken[topic.pid(3)] = error
        got: list[tuple[int, int]] = []
        while len(got) < 15:
            for lease in await its.consume("orders", max_messages=50):
                got += [(lease.partition, offset) for offset in lease.offsets]
                assert await its.answer("orders", lease, Verb.ACK) == Answered()
        assert sorted(got) == [(partition, offset) for partition in range(3) for offset in range(5)]
        # Not refused: a worker that pauses after an error would be late for what comes in the sound partitions.
        assert await its.consume("orders", max_messages=50) == []
        assert await its.stopped(topic, 3) is not None


async def test_a_waiting_call_gets_what_comes_in_sound_partitions_and_is_not_refused() -> None:
    async with world() as its:
        topic = await its.topic("orders", partitions=2, messages=0)
        its.broken[topic.pid(1)] = DAMAGE
        await its.engine.publisher.messages(its.scope, "orders", [Message(value=b"m", partition=1)])
        waiting = asyncio.create_task(its.consume("orders", wait_ms=20000))

        async def is_stopped() -> bool:
            return await its.stopped(topic, 1) is not None

        await eventually_async(is_stopped)
        await its.engine.publisher.messages(its.scope, "orders", [Message(value=b"m", partition=0)])
        assert [lease.partition for lease in await waiting] == [0]


async def test_a_call_is_refused_at_once_when_all_of_its_partitions_are_damaged() -> None:
    async with world() as its:
        topic = await its.topic("orders", partitions=2)
        its.broken.update({topic.pid(partition): DAMAGE for partition in range(2)})
        with pytest.raises(SegmentDamaged):
            await its.consume("orders", wait_ms=20000)


async def test_a_damaged_partition_is_not_read_by_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as its:
        topic = await its.topic("orders", partitions=2)
        its.broken[topic.pid(1)] = DAMAGE
        await its.consume("orders", max_messages=1)
        while await its.consume("orders", max_messages=1):
            pass
        its.reads.clear()
        for _ in range(10):
            assert await its.consume("orders") == []
        assert topic.pid(1) not in its.reads


async def test_a_repaired_partition_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_stop, "PAUSE_SECONDS", 0.01)
    async with world() as its:
        topic = await its.topic("orders")
        its.broken[topic.pid(0)] = DAMAGE
        with pytest.raises(SegmentDamaged):
            await its.consume("orders")
        its.broken.clear()
        assert len(await its.consume("orders", wait_ms=20000)) == 1
        assert await its.stopped(topic) is None


async def test_a_skip_and_acks_do_not_need_what_cannot_be_read() -> None:
    """They are decided together with calls for messages, which fail."""
    async with world() as its:
        topic = await its.topic("orders", messages=4)
        (lease,) = await its.consume("orders")
        its.forget_log()
        its.broken[topic.pid(0)] = DAMAGE
        asks = [asyncio.create_task(its.consume("orders", f"w{n}", wait_ms=5000)) for n in range(3)]
        acked, skipped = await asyncio.gather(
            its.answer("orders", lease, Verb.ACK), its.engine.groups.skip(its.scope, "g-orders", "orders", 0, 3)
        )
        assert acked == Answered() and skipped.messages == 2
        for ask in asks:
            ask.cancel()
        await asyncio.gather(*asks, return_exceptions=True)


async def test_a_skip_ends_the_stop_at_once() -> None:
    async with world() as its:
        topic = await its.topic("orders", messages=4)
        its.broken[topic.pid(0)] = DAMAGE
        with pytest.raises(SegmentDamaged):
            await its.consume("orders")
        its.sound_from = 3
        assert (await its.engine.groups.skip(its.scope, "g-orders", "orders", 0, 3)).messages == 3
        assert await its.stopped(topic) is None
        (lease,) = await its.consume("orders")
        assert list(lease.offsets) == [3]


async def test_a_skip_during_the_read_that_fails_makes_its_error_obsolete() -> None:
    async with world() as its:
        topic = await its.topic("orders", messages=4)
        (lease,) = await its.consume("orders")
        its.forget_log()
        its.broken[topic.pid(0)], its.sound_from = DAMAGE, 3
        begun, go_on = asyncio.Event(), asyncio.Event()
        read_many = its.engine.extents.read_many

        async def slowly(*args: Any, **limits: Any) -> Any:
            begun.set()
            await go_on.wait()
            return await read_many(*args, **limits)

        its.engine.extents.read_many = slowly  # type: ignore[method-assign]
        ask = asyncio.create_task(its.consume("orders", "bob", wait_ms=4000))
        await asyncio.wait_for(begun.wait(), 5)
        assert (await its.engine.groups.skip(its.scope, "g-orders", "orders", 0, 3)).messages == 2
        go_on.set()
        (again,) = await ask
        assert list(again.offsets) == [3] and await its.stopped(topic) is None
        assert await its.answer("orders", lease, Verb.ACK) == Answered()


async def test_a_skip_by_another_server_is_noticed_after_the_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_stop, "PAUSE_SECONDS", 0.01)
    async with world() as its:
        topic = await its.topic("orders", messages=4)
        its.broken[topic.pid(0)] = DAMAGE
        with pytest.raises(SegmentDamaged):
            await its.consume("orders")
        async with other_engine(its) as other:
            await other.groups.skip(its.scope, "g-orders", "orders", 0, 3)
        its.sound_from = 3
        stop = await its.stopped(topic)
        assert stop is not None
        await eventually_async(stop.is_over)
        (lease,) = await its.consume("orders")
        assert list(lease.offsets) == [3]


async def test_consumers_get_the_way_past_the_damage_and_no_path() -> None:
    async with world() as its:
        topic = await its.topic("orders", messages=4)
        its.broken[topic.pid(0)] = SegmentDamaged("Offsets 0 to 2", partition=0, first_offset=0, end_offset=3)
        with pytest.raises(SegmentDamaged) as refused:
            await its.consume("orders")
        assert "Offsets 0 to 2 of topic 'orders', partition 0, cannot be read" in refused.value.detail
        assert "`lakelog groups skip g-orders orders --partition 0 --to 3`" in refused.value.detail
        assert refused.value.subject == {"topic": "orders", "partition": 0, "first_offset": 0, "end_offset": 3}


async def test_a_retry_whose_bytes_are_damaged_is_given_back_and_the_rest_is_handed_out() -> None:
    async with world() as its:
        topic = await its.topic("orders", partitions=2, messages=1)
        leases = await its.consume("orders", max_messages=2)
        for lease in leases:
            assert await its.answer("orders", lease, Verb.RELEASE) == Answered()
        its.forget_log()
        its.broken[topic.pid(1)] = DAMAGE
        (again,) = await its.consume("orders", "bob", max_messages=2)
        assert again.partition == 0
        stop = await its.stopped(topic, 1)
        assert stop is not None and stop.error is DAMAGE
        await its.engine._journals.drain()
        its.broken.clear()
        lag = await its.engine.groups.lag(its.scope, "g-orders")
        assert [each.leased for each in lag] == [1, 0]


async def test_a_database_that_is_away_is_not_damage() -> None:
    async with world() as its:
        topic = await its.topic("orders", partitions=2)
        its.broken[topic.pid(1)] = Unavailable("the database is away")
        with pytest.raises(Unavailable):
            await its.consume("orders", max_messages=10)
        assert await its.stopped(topic, 1) is None


async def test_S12_a_lost_answer_stays_unknown_when_the_journal_cannot_be_read_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The call must not end with the leases of other partitions only: its repeat gets all of them."""
    async with world() as its:
        topic = await its.topic("orders", partitions=2)
        commit = its.store.groups.journals_commit

        async def lose(entries: Sequence[JournalEntry]) -> list[CommitResult]:
            await commit(entries)
            for (_, pid), journal in its.store.groups._journals.items():
                if pid == topic.pid(1):
                    last, at = journal.rows[-1]
                    body = msgspec.msgpack.encode((1, 0, [[13, 1]]))
                    journal.rows.append((JournalRow(version=last.version + 1, snapshot=False, body=body), at))
            monkeypatch.setattr(its.store.groups, "journals_commit", commit)
            raise OutcomeUnknown("lost")

        monkeypatch.setattr(its.store.groups, "journals_commit", lose)
        with pytest.raises(OutcomeUnknown):
            await its.consume("orders", max_messages=10)


async def test_L8_a_repeat_finds_its_lease_where_later_messages_are_damaged() -> None:
    async with world() as its:
        topic = await its.topic("orders", partitions=2, messages=9)
        first = await its.consume("orders", max_messages=4, request_id="r1")
        assert {lease.partition for lease in first} == {0, 1}
        its.broken[topic.pid(0)] = DAMAGE
        its.forget_log()
        # Another worker is refused what comes next in this partition, and stops it.
        await its.consume("orders", owner="bob", max_messages=20)
        its.broken.clear()
        assert await its.stopped(topic, 0) is not None
        again = await its.consume("orders", max_messages=4, request_id="r1", repeat=True)
        assert {lease.partition: lease.token for lease in again} == {each.partition: each.token for each in first}
