"""Loads: segments that are appended to partitions without hot batches (S5, S20, S22)."""

from __future__ import annotations

import asyncio
import secrets
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from lakelog.model.load import Loaded, LoadStatus, PartitionLoad
from lakelog.model.message import partition_of_id
from lakelog.model.segment import Segment
from lakelog.storage.cold import REASONS, ColdPlanRequest
from lakelog.storage.store import HeadState, PartitionStore
from tests.contract.stores import Backing
from tests.contract.test_cold import ranges, segment, tiered
from tests.contract.values import appended, create, create_one, head_of, new_pids, plain

NO_TIME = timedelta(0)
OLD = datetime(2020, 3, 1, 12, tzinfo=UTC)


def files(pid: int, *ends: int, first: int = 0, at: datetime = OLD, step: timedelta = NO_TIME) -> tuple[Segment, ...]:
    """Return segments of 1,000 bytes with these ends; each has messages of one moment."""
    made = []
    for end in ends:
        made.append(
            Segment(
                partition=partition_of_id(pid),
                first=first,
                end=end,
                path=f"p{pid}/{first}-{end}-{secrets.token_hex(4)}",
                bytes=1000,
                file_hash="ab",
                content_hash="cd",
                first_at=at,
                last_at=at,
                epoch=0,
                groups=(first,),
            )
        )
        first, at = end, at + step
    return tuple(made)


def part_of(pid: int, segments: tuple[Segment, ...] = (), *, first: int = 0, fingerprint: str = "f0") -> PartitionLoad:
    first = segments[0].first if segments else first
    return PartitionLoad(partition=partition_of_id(pid), first=first, segments=segments, fingerprint=fingerprint)


async def load(store: PartitionStore, pid: int, *segments: Segment, name: str = "history") -> Loaded:
    (answer,) = await store.cold.load(name, [(pid, part_of(pid, segments))])
    return answer


async def refusal(store: PartitionStore, pid: int, *segments: Segment) -> str:
    before = await store.heads_read([pid])
    answer = await load(store, pid, *segments)
    assert answer.status in (LoadStatus.REFUSED, LoadStatus.MOVED)
    assert await store.heads_read([pid]) == before, "a refused part changes nothing"
    assert await store.cold.loaded("history", [pid]) == []
    return next(code for code, text in REASONS.items() if text == answer.reason)


async def test_a_load_appends_verified_segments(backing: Backing) -> None:
    async with backing.store_pair() as (store, other):
        pid = await create_one(store)
        before = await head_of(store, pid)
        made = files(pid, 10, 25, step=timedelta(days=1))
        answer = await load(store, pid, *made)
        assert (answer.status, answer.first, answer.end, answer.reason) == (LoadStatus.LOADED, 0, 25, None)
        head = await head_of(other, pid)
        assert (head.next_offset, head.log_start, head.total_bytes) == (25, 0, 2000)
        assert head.version > before.version and head.appended_at == before.appended_at
        (plan,) = await other.cold.plans([ColdPlanRequest(pid=pid)])
        assert tuple(plan.segments) == made
        assert await other.cold.unverified([pid]) == []
        for offset, expected in ((0, made[0]), (9, made[0]), (10, made[1]), (24, made[1])):
            read = await other.read(pid, offset, max_messages=1, max_bytes=1)
            assert read is not None and (read.segment, list(read.batches)) == (expected, [])
        assert await other.append_times([(pid, 12)]) == [OLD + timedelta(days=1)]


async def test_the_log_continues_behind_a_load(backing: Backing) -> None:
    """Hot, cold, hot in one hot table: reads of hot batches end at the segments, and tiering fills both sides (S22)."""
    async with backing.store() as store:
        pid = await create_one(store)
        await appended(store, plain(pid, 3))
        at = (await head_of(store, pid)).appended_at
        (cold,) = files(pid, 100, first=3, at=at)
        assert (await load(store, pid, cold)).status is LoadStatus.LOADED
        last = await appended(store, plain(pid, 4))
        assert last.base == 100 and last.appended_at >= at
        await appended(store, plain(pid, 2))
        read = await store.read(pid, 0, max_messages=1000, max_bytes=1 << 20)
        assert read is not None and [each.end for each in read.batches] == [3]
        read = await store.read(pid, 3, max_messages=1000, max_bytes=1 << 20)
        assert read is not None and read.segment == cold
        read = await store.read(pid, 100, max_messages=1000, max_bytes=1 << 20)
        assert read is not None and [each.end for each in read.batches] == [104, 106]
        assert await ranges(store, pid, 1 << 20) == [(0, 3, 16)]
        await tiered(store, pid, 3)
        assert await ranges(store, pid, 1 << 20) == [(100, 106, 32)]
        await tiered(store, pid, 106, first=100)
        (plan,) = await store.cold.plans([ColdPlanRequest(pid=pid)])
        assert [each.first for each in plan.segments] == [0, 3, 100]


async def test_hot_tables_beside_a_load_are_dropped(backing: Backing) -> None:
    async with backing.empty_store_pair() as (store, _):
        pid = await create_one(store)
        await appended(store, plain(pid, 3))
        await load(store, pid, *files(pid, 50, first=3, at=(await head_of(store, pid)).appended_at))
        await appended(store, plain(pid, 3))
        await store.roll()
        await tiered(store, pid, 3)
        assert await store.rolls_drop(grace=NO_TIME) == [], "the messages behind the load are hot only"
        await tiered(store, pid, 53, first=50)
        assert len(await store.rolls_drop(grace=NO_TIME)) == 1
        await appended(store, plain(pid, 1))
        read = await store.read(pid, 53, max_messages=10, max_bytes=100)
        assert read is not None and [each.end for each in read.batches] == [54]


async def test_the_first_decision_about_a_name_is_final(backing: Backing) -> None:
    async with backing.store_pair() as (store, other):
        pid, empty, later = await create(store, 3)
        answers = await asyncio.gather(
            store.cold.load("history", [(pid, part_of(pid, files(pid, 10), fingerprint="aa"))]),
            other.cold.load("history", [(pid, part_of(pid, files(pid, 10), fingerprint="bb"))]),
        )
        statuses = {answer.status: answer for (answer,) in answers}
        assert set(statuses) == {LoadStatus.LOADED, LoadStatus.KNOWN}
        won = statuses[LoadStatus.LOADED]
        assert statuses[LoadStatus.KNOWN].fingerprint == won.fingerprint
        assert (await head_of(store, pid)).next_offset == 10
        # A part without messages is decided too.
        (answer,) = await store.cold.load("history", [(empty, part_of(empty, fingerprint="cc"))])
        assert (answer.status, answer.first, answer.end) == (LoadStatus.LOADED, 0, 0)
        assert (await load(store, empty, *files(empty, 5))).status is LoadStatus.KNOWN
        found = await other.cold.loaded("history", [later, empty, pid])
        assert [(each.partition, each.end, each.fingerprint) for each in found] == [
            (partition_of_id(pid), 10, won.fingerprint),
            (partition_of_id(empty), 0, "cc"),
        ]
        assert await other.cold.loaded("other", [pid]) == []
        # Another name continues, because its messages are not older.
        assert (await load(store, pid, *files(pid, 20, first=10), name="other")).status is LoadStatus.LOADED


async def test_a_load_is_refused_as_a_whole(backing: Backing) -> None:
    async with backing.store() as store:
        empty, filled, sealed, deleted, grown = await create(store, 5)
        await appended(store, plain(filled, 3))
        now = (await head_of(store, filled)).appended_at
        moved = await load(store, filled, *files(filled, 10, first=2, at=now))
        assert (moved.status, moved.first) == (LoadStatus.MOVED, 3)
        assert await refusal(store, filled, *files(filled, 10, first=2, at=now)) == "moved"
        assert await refusal(store, filled, *files(filled, 10, 20, first=3, step=timedelta(days=1))) == "earlier"
        assert await refusal(store, empty, *files(empty, 10, at=now + timedelta(hours=1))) == "later"
        await store.heads_close([sealed], HeadState.SEALED)
        assert await refusal(store, sealed, *files(sealed, 10)) == "sealed"
        await store.heads_close([deleted], HeadState.DELETED)
        assert await refusal(store, deleted, *files(deleted, 10)) == "deleted"
        (unknown,) = new_pids(1)
        assert (await load(store, unknown, *files(unknown, 10))).reason == REASONS["missing"]
        await store.epoch_raise([grown], 2)
        assert await refusal(store, grown, *files(grown, 10)) == "epoch"
        await load(store, empty, *files(empty, 10), name="first")
        (used,) = (await store.cold.plans([ColdPlanRequest(pid=empty)]))[0].segments
        again = replace(files(filled, 10, first=3, at=now)[0], path=used.path)
        assert await refusal(store, filled, again) == "path"
        mixed = [(filled, part_of(filled, files(filled, 9, first=1))), (grown, part_of(grown))]
        assert [each.status for each in await store.cold.load("mixed", mixed)] == [LoadStatus.MOVED, LoadStatus.LOADED]


async def test_an_emptied_partition_accepts_old_messages(backing: Backing) -> None:
    async with backing.store() as store:
        pid = await create_one(store)
        await appended(store, plain(pid, 3))
        await store.log_start_raise([(pid, 3)])
        assert (await load(store, pid, *files(pid, 10, first=3))).status is LoadStatus.LOADED
        assert await store.offset_at_time(pid, OLD) == 3


async def test_times_and_bytes_find_loaded_segments(backing: Backing) -> None:
    """Retention by age and bytes, and a seek to a time."""
    async with backing.store() as store:
        pid = await create_one(store)
        made = files(pid, 10, 20, 30, step=timedelta(days=1))
        await load(store, pid, *made)
        await appended(store, plain(pid, 5))
        day = timedelta(days=1)
        assert [await store.offset_at_time(pid, OLD + day * n) for n in range(4)] == [0, 10, 20, 30]
        assert await store.cold.search_time(pid, OLD + day) == (10, None)
        assert await store.offset_at_bytes(pid, 16) == 30
        assert await store.offset_at_bytes(pid, 1016) == 20
        assert await store.offset_at_bytes(pid, 1 << 20) == 0
        await store.log_start_raise([(pid, 15)])
        assert await store.cold.trim() >= 1
        (plan,) = await store.cold.plans([ColdPlanRequest(pid=pid)])
        assert tuple(plan.segments) == made[1:]
        assert await ranges(store, pid, 1 << 20) == [(30, 35, 16)]
        assert await store.cold.paths_known([each.path for each in made]) == {each.path for each in made[1:]}


async def test_the_decisions_go_with_their_partition(backing: Backing) -> None:
    async with backing.empty_store_pair() as (store, _):
        pid = await create_one(store)
        await load(store, pid, *files(pid, 10))
        await store.heads_close([pid], HeadState.DELETED)
        await store.cold.trim()
        assert await store.partitions_remove(memory=NO_TIME) == 1
        assert await store.heads_read([pid]) == []
        if backing.name != "memory":
            assert await store.cold.loaded("history", [pid]) == []


async def test_a_segment_of_tiering_and_a_load_do_not_overlap(backing: Backing) -> None:
    """S20."""
    async with backing.store() as store:
        pid = await create_one(store)
        await appended(store, plain(pid, 3))
        tier = await segment(store, pid, 0, 3)
        await load(store, pid, *files(pid, 9, first=3, at=tier.last_at))
        (answer,) = await store.cold.register([(pid, replace(tier, end=4, path="other"))])
        assert answer.reason == REASONS["overlap"]
