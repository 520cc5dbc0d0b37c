"""Staged messages: invisible to readers, one decision counts, a second promotion changes nothing (S20)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from lakelog.model.message import PARTITION_BITS
from lakelog.model.topic import Topic, TopicSettings
from lakelog.model.write import WriteKind, attempts_hash
from lakelog.storage.staging import Promoted, PromoteStatus, StagedBatch, WriteDecision
from lakelog.storage.store import Catalog, HeadState, PartitionStore
from tests.contract.stores import Backing
from tests.contract.values import (
    append_one,
    appended,
    batch,
    create,
    create_one,
    head_of,
    new_incarnation,
    new_pids,
    plain,
    read_all,
)

NOW = timedelta(0)


def staged(pid: int, number: int = 0, count: int = 2, *, write: str = "w", attempt: str = "a") -> StagedBatch:
    payload = batch(count, 5000)
    return StagedBatch(pid=pid, write_id=write, attempt=attempt, number=number, epoch=0, payload=payload)


def payloads(batches: Sequence[StagedBatch]) -> list[bytes]:
    return [each.payload.data for each in batches]


async def log_of(store: PartitionStore, pid: int) -> list[bytes]:
    found = await read_all(store, pid)
    assert [each.base for each in found[1:]] == [each.end for each in found[:-1]]
    return [each.payload for each in found]


def decided(topic: Topic, write: str, *attempts: str, count: int = 1) -> WriteDecision:
    return WriteDecision(
        incarnation=topic.incarnation,
        write_id=write,
        attempts=attempts,
        attempts_hash=attempts_hash(attempts),
        count=count,
    )


async def new_topic(catalog: Catalog) -> Topic:
    scope = await catalog.scope_create("shop", f"e{new_incarnation()}")
    return await catalog.topic_create(scope, "orders", TopicSettings(), [0, 0])


async def test_staged_messages_are_not_in_the_log(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        pid = await create_one(one)
        await one.staging.stage([staged(pid, 0), staged(pid, 1)])
        assert (await head_of(other, pid)).next_offset == 0
        assert (await appended(other, plain(pid, 3))).base == 0
        assert len(await read_all(other, pid)) == 1
        assert await other.staging.staged_count([pid], "w", ["a"]) == 4
        assert await other.staging.staged_pids(pid >> PARTITION_BITS, "w") == [pid]


async def test_promoting_appends_in_the_order_of_attempts_and_numbers(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        pid = await create_one(one)
        before = await appended(one, plain(pid, 3))
        second = [staged(pid, number, attempt="second", count=number + 1) for number in range(12)]
        first = [staged(pid, number, attempt="first") for number in range(2)]
        await one.staging.stage([second[3], *first, *second[4:], *second[:3]])
        done = await other.staging.promote(pid, "w", ["first", "second", "silent"])
        assert (done.status, done.base, done.count) == (PromoteStatus.DONE, 3, 4 + 78)
        assert done.appended_at is not None and done.appended_at >= before.appended_at
        assert (await log_of(one, pid))[1:] == payloads([*first, *second])
        found = await read_all(other, pid)
        assert [each.count for each in found] == [3, 2, 2, *range(1, 13)]
        assert {each.appended_at for each in found[1:]} == {done.appended_at}
        assert found[-1].bytes_end == (await head_of(one, pid)).total_bytes == 16 + 14 * 5000
        assert (await appended(one, plain(pid, 1))).base == 85


async def test_a_batch_staged_twice_is_staged_once(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        pid = await create_one(one)
        first = staged(pid)
        await asyncio.gather(one.staging.stage([first]), other.staging.stage([first]))
        await one.staging.stage([first, staged(pid, 1)])
        assert (await one.staging.promote(pid, "w", ["a"])).count == 4


async def test_s20_promoting_twice_is_promoting_once(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        pid = await create_one(one)
        await one.staging.stage([staged(pid)])
        results = await asyncio.gather(*(store.staging.promote(pid, "w", ["a"]) for store in (one, other) * 3))
        assert set(results) == {results[0]}
        # A call that was delayed all the time, and arrives only now.
        await one.staging.stage([staged(pid)])
        assert await other.staging.promote(pid, "w", ["a"]) == results[0]
        assert (await head_of(one, pid)).next_offset == 2
        assert await one.staging.staged_pids(pid >> PARTITION_BITS, "w") == []


async def test_staged_batches_are_counted_by_attempt_and_read_in_order_also_after_a_roll(backing: Backing) -> None:
    async with backing.empty_store_pair() as (one, other):
        first, second = await create(one, 2)
        batches = [staged(first, number, count=number + 1) for number in range(4)]
        await one.staging.stage([batches[2], batches[0], staged(second), staged(first, attempt="b")])
        await other.roll()
        await other.staging.stage([batches[1], batches[3], staged(first, write="x")])
        found = await one.staging.staged_parts(first >> PARTITION_BITS, "w")
        parts = [(part.pid, part.attempt, part.count) for part in found if part.pid == first]
        assert parts == [(first, "a", 10), (first, "b", 2)]
        assert await one.staging.staged_parts(first >> PARTITION_BITS, "none") == []

        async def read(after: int, limit: int) -> list[StagedBatch]:
            return await other.staging.staged_read(first, "w", "a", after=after, limit_bytes=limit)

        size = len(batches[0].payload.data)
        assert await read(-1, 100 * size) == batches
        assert await read(-1, 2 * size) == batches[:2]
        assert await read(1, 1) == [batches[2]]
        assert await read(3, 100 * size) == []


async def test_messages_of_other_attempts_are_removed(backing: Backing) -> None:
    async with backing.store() as store:
        pid = await create_one(store)
        winner, loser, other_write = staged(pid), staged(pid, attempt="b"), staged(pid, write="x", attempt="a")
        await store.staging.stage([winner, loser, other_write])
        await store.staging.promote(pid, "w", ["a"])
        assert await log_of(store, pid) == payloads([winner])
        assert await store.staging.staged_count([pid], "w", ["a", "b"]) == 0
        await store.staging.promote(pid, "x", ["a"])
        assert await log_of(store, pid) == payloads([winner, other_write])


async def test_a_decision_without_attempts_removes_everything(backing: Backing) -> None:
    async with backing.store() as store:
        pid = await create_one(store)
        await store.staging.stage([staged(pid)])
        assert await store.staging.promote(pid, "w", []) == Promoted(status=PromoteStatus.DONE)
        assert await store.staging.staged_count([pid], "w", ["a"]) == 0
        assert (await head_of(store, pid)).next_offset == 0


async def test_messages_staged_before_a_roll_are_promoted_after_it(backing: Backing) -> None:
    async with backing.empty_store_pair() as (one, other):
        pid = await create_one(one)
        old = staged(pid, 0)
        await one.staging.stage([old])
        await other.roll()
        await one.rolls_drop()
        new = staged(pid, 1)
        await other.staging.stage([new])
        lost = staged(pid, 0, attempt="b")
        await one.staging.stage([lost])
        await appended(one, plain(pid, 1))
        await one.staging.promote(pid, "w", ["a"])
        assert (await log_of(other, pid))[1:] == payloads([old, new])
        await other.rolls_drop()
        assert (await log_of(other, pid))[1:] == payloads([old, new])


async def test_one_that_slept_through_rolls_and_drops_can_stage(backing: Backing) -> None:
    async with backing.empty_store_pair() as (one, other):
        pid = await create_one(one)
        await one.staging.stage([staged(pid, 0, write="early")])
        await one.staging.promote(pid, "early", [])
        for _ in range(2):
            await other.roll()
        await other.rolls_drop()
        await one.staging.stage([staged(pid)])
        assert (await one.staging.promote(pid, "w", ["a"])).count == 2


async def test_promoting_continues_after_the_epoch_increased(backing: Backing) -> None:
    """The decision is final; the epoch of the head is written, because epochs never decrease within a partition."""
    async with backing.store() as store:
        pid = await create_one(store)
        await store.staging.stage([staged(pid)])
        await store.epoch_raise([pid], 4)
        assert (await store.staging.promote(pid, "w", ["a"])).count == 2
        assert [each.epoch for each in await read_all(store, pid)] == [4]
        assert (await head_of(store, pid)).epoch == 4


async def test_partitions_that_are_missing_sealed_or_deleted(backing: Backing) -> None:
    async with backing.store() as store:
        (missing,) = new_pids(1)
        sealed, deleted = await create(store, 2)
        await store.staging.stage([staged(pid) for pid in (missing, sealed, deleted)])
        await store.heads_close([sealed], HeadState.SEALED)
        await store.heads_close([deleted], HeadState.DELETED)
        found = [(await store.staging.promote(pid, "w", ["a"])).status for pid in (missing, sealed, deleted)]
        assert found == [PromoteStatus.MISSING, PromoteStatus.SEALED, PromoteStatus.DELETED]
        counts = [await store.staging.staged_count([pid], "w", ["a"]) for pid in (missing, sealed, deleted)]
        assert counts == [2, 2, 0]
        await store.heads_create([missing], 0)
        assert (await store.staging.promote(missing, "w", ["a"])).base == 0


async def test_what_is_staged_for_a_removed_partition_goes(backing: Backing) -> None:
    async with backing.empty_store_pair() as (store, other):
        pid = await create_one(store)
        await store.heads_close([pid], HeadState.DELETED)
        await other.partitions_remove(memory=NOW)
        await store.staging.stage([staged(pid)])
        assert (await store.staging.promote(pid, "w", ["a"])).status is PromoteStatus.DELETED
        assert await store.staging.staged_count([pid], "w", ["a"]) == 0


async def test_offsets_are_dense_when_promotions_meet_appends_and_rolls(backing: Backing) -> None:
    async with backing.empty_store_pair() as handles:
        pids = await create(handles[0], 3)
        writes = [f"w{number}" for number in range(8)]
        expected: dict[int, list[tuple[int, list[bytes]]]] = {pid: [] for pid in pids}

        async def publish(store: PartitionStore, pid: int) -> None:
            for _ in range(10):
                append = plain(pid, 2)
                answer = await append_one(store, append)
                expected[pid].append((answer.base, [append.payloads[0].data]))  # type: ignore[union-attr]

        async def write(store: PartitionStore, name: str, pid: int) -> None:
            batches = [staged(pid, number, write=name) for number in range(3)]
            for each in batches:
                await store.staging.stage([each])
            done = await asyncio.gather(*(handle.staging.promote(pid, name, ["a"]) for handle in handles))
            assert done[0] == done[1] and done[0].base is not None
            expected[pid].append((done[0].base, payloads(batches)))

        async def roll() -> None:
            for _ in range(4):
                await handles[0].roll()
                await handles[1].rolls_drop()

        await asyncio.gather(
            roll(),
            *(publish(handles[number % 2], pid) for number, pid in enumerate(pids)),
            *(write(handles[number % 2], name, pid) for number, name in enumerate(writes) for pid in pids),
        )
        for pid in pids:
            placed = [data for _, batches in sorted(expected[pid]) for data in batches]
            assert await log_of(handles[1], pid) == placed


async def test_writes_that_wait_are_listed_by_age(backing: Backing) -> None:
    async with backing.empty_store_pair() as (store, _):
        pids = await create(store, 2)
        (other,) = await create(store, 1)
        await store.staging.stage([staged(pid, write="old") for pid in pids])
        await store.staging.stage([staged(other, write="new")])
        found = await store.staging.staged_writes(NOW)
        assert [(each.incarnation, each.write_id) for each in found] == [
            (pids[0] >> PARTITION_BITS, "old"),
            (other >> PARTITION_BITS, "new"),
        ]
        assert await store.staging.staged_writes(timedelta(hours=1)) == []
        assert len(await store.staging.staged_writes(NOW, limit=1)) == 1


async def test_marks_are_forgotten_after_their_time(backing: Backing) -> None:
    async with backing.empty_store_pair() as (store, _):
        pid = await create_one(store)
        await store.staging.stage([staged(pid)])
        await store.staging.promote(pid, "w", ["a"])
        assert await store.staging.promoted_trim() == 0
        assert await store.staging.promoted_trim(timedelta(seconds=-1)) == 1


async def test_s20_the_first_decision_is_final(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        topic = await new_topic(one)
        choices = [decided(topic, "w", f"a{number}", count=number) for number in range(6)]
        found = await asyncio.gather(
            *(catalog.writes.decide(choice, 0) for catalog, choice in zip((one, other) * 3, choices, strict=True))
        )
        assert all(each == found[0] for each in found)
        assert found[0] in choices
        assert await other.writes.abandon(topic.incarnation, "w") == found[0]
        assert await one.writes.find(topic.incarnation, "w") == found[0]
        assert await one.writes.find(topic.incarnation, "other") is None


async def test_nothing_is_decided_for_a_topic_that_changed(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        topic = await new_topic(one)
        made = await one.writes.decide(decided(topic, "before", "a"), 0)
        altered = await one.topic_alter(topic, TopicSettings(), [0])
        assert await other.writes.decide(decided(topic, "w", "a"), 0) is None
        assert await other.writes.decide(decided(topic, "before", "b"), 0) == made
        assert await other.writes.decide(decided(topic, "w", "a"), altered.epoch) is not None
        await one.topic_delete(altered)
        assert await other.writes.decide(decided(topic, "x", "a"), altered.epoch) is None


async def test_a_write_that_was_given_up_cannot_be_decided(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        topic = await new_topic(one)
        nobody = await one.writes.abandon(topic.incarnation, "w")
        assert nobody.is_abandoned and not nobody.attempts
        assert await other.writes.decide(decided(topic, "w", "a"), 0) == nobody


@pytest.mark.parametrize("repeats", [1, 2])
async def test_a_finished_decision_forgets_its_attempts_and_nothing_else(backing: Backing, repeats: int) -> None:
    async with backing.catalog_pair() as (one, other):
        topic = await new_topic(one)
        made = decided(topic, "w", "a", "b", count=7)
        await one.writes.decide(made, 0)
        for _ in range(repeats):
            await other.writes.finish(topic.incarnation, "w")
        found = await one.writes.decide(decided(topic, "w", "c"), 0)
        assert found is not None and found.finished and not found.attempts and not found.is_abandoned
        assert (found.count, found.attempts_hash) == (7, made.attempts_hash)


async def test_a_writers_newest_decision_is_kept_while_its_topic_is(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        topic = await new_topic(one)
        soon = timedelta(seconds=-1)
        batches = ("once", "nightly/9", "nightly/10")
        for name in ("query/8", "query/9", "query/10", *batches):
            kind = WriteKind.BATCH if name in batches else WriteKind.STREAM
            await one.writes.decide(decided(topic, name, "a"), 0, kind)
            if name != "query/8":
                await one.writes.finish(topic.incarnation, name)
        await other.writes.trim()
        await other.writes.trim(soon)
        names = ("query/8", "query/9", "query/10", *batches)
        kept = [name for name in names if await one.writes.find(topic.incarnation, name)]
        assert kept == ["query/8", "query/10", *batches]
        await other.writes.trim(soon, timedelta(hours=1))
        assert await one.writes.find(topic.incarnation, "query/10")
        await other.writes.trim(soon, soon)
        assert [name for name in names if await one.writes.find(topic.incarnation, name)] == ["query/8"]
        for name in ("query/9", "query/10"):
            await one.writes.decide(decided(topic, name, "a"), 0, WriteKind.STREAM)
            await one.writes.finish(topic.incarnation, name)
        await one.topic_delete(topic)
        await one.topic_forget(topic)
        await other.writes.trim(soon)
        assert [name for name in names if await one.writes.find(topic.incarnation, name)] == ["query/8"]
