"""Cold segments: tierable ranges, registration, verification, reads, drops and trims (S3, S20, S23)."""

from __future__ import annotations

import asyncio
import secrets
from datetime import timedelta

from msgspec.structs import replace

from lakelog.model.lake import Registered, RegisterStatus, TierRange
from lakelog.model.message import partition_of_id
from lakelog.model.segment import Segment
from lakelog.storage.cold import REASONS, ColdPlanRequest
from lakelog.storage.store import HeadState, HotBatch, PartitionStore
from tests.contract.stores import Backing
from tests.contract.values import appended, create, create_one, head_of, new_pids, plain, read_all

REGISTERED = Registered(status=RegisterStatus.REGISTERED)
KNOWN = Registered(status=RegisterStatus.KNOWN)
NO_TIME = timedelta(0)
DAY = timedelta(days=1)


def refused(reason: str) -> Registered:
    return Registered(status=RegisterStatus.TAKEN, reason=REASONS[reason])


async def segment(store: PartitionStore, pid: int, first: int, end: int) -> Segment:
    """Return the segment for this range, whose hot batches have to exist."""
    head, tail = await _batch(store, pid, first), await _batch(store, pid, end - 1)
    return Segment(
        partition=partition_of_id(pid),
        first=first,
        end=end,
        path=f"p{pid}/{first}-{end}-{secrets.token_hex(4)}",
        bytes=1000,
        file_hash="ab",
        content_hash="cd",
        first_at=head.appended_at,
        last_at=tail.appended_at,
        epoch=tail.epoch,
    )


async def _batch(store: PartitionStore, pid: int, offset: int) -> HotBatch:
    read = await store.read(pid, offset, max_messages=1, max_bytes=1)
    assert read is not None and read.batches
    return read.batches[0]


async def filled(store: PartitionStore, *counts: int) -> int:
    """Create a partition with batches of these numbers of messages and 16 bytes each, each one appended separately."""
    pid = await create_one(store)
    for count in counts:
        await appended(store, plain(pid, count))
    return pid


async def register(store: PartitionStore, pid: int, *segments: Segment) -> list[Registered]:
    return await store.cold.register([(pid, each) for each in segments])


async def tiered(store: PartitionStore, pid: int, *ends: int, first: int = 0) -> list[Segment]:
    """Register verified segments with these ends."""
    made = []
    for end in ends:
        made.append(await segment(store, pid, first, end))
        first = end
    assert await register(store, pid, *made) == [REGISTERED] * len(made)
    assert await store.cold.verified([(pid, each) for each in made]) == [True] * len(made)
    return made


async def ranges(store: PartitionStore, pid: int, segment_bytes: int, **how: object) -> list[tuple[int, int, int]]:
    wished = {"min_bytes": 0, "min_age": NO_TIME, **how}
    found = await store.cold.tierable([pid], segment_bytes=segment_bytes, **wished)  # type: ignore[arg-type]
    assert all(where == pid and each.partition == partition_of_id(pid) for where, each in found)
    return [(each.first, each.end, each.bytes) for _, each in found]


async def test_ranges_are_whole_batches_of_about_the_size(backing: Backing) -> None:
    async with backing.store() as store:
        pid = await filled(store, 3, 3, 3, 3, 3)
        assert await ranges(store, pid, 1000) == [(0, 15, 80)]
        assert await ranges(store, pid, 32) == [(0, 6, 32), (6, 12, 32), (12, 15, 16)]
        assert await ranges(store, pid, 33) == [(0, 9, 48), (9, 15, 32)]
        assert await ranges(store, pid, 1) == [(n * 3, n * 3 + 3, 16) for n in range(5)]
        (pair,) = await store.cold.tierable([pid], segment_bytes=1000, min_bytes=0, min_age=NO_TIME)
        assert pair == (pid, TierRange(partition=partition_of_id(pid), first=0, end=15, bytes=80))


async def test_a_small_young_remainder_is_left(backing: Backing) -> None:
    async with backing.store() as store:
        pid = await filled(store, 3, 3, 3)
        assert await ranges(store, pid, 32, min_bytes=17, min_age=DAY) == [(0, 6, 32)]
        assert await ranges(store, pid, 32, min_bytes=16, min_age=DAY) == [(0, 6, 32), (6, 9, 16)]
        assert await ranges(store, pid, 100, min_bytes=49, min_age=DAY) == []
        assert await ranges(store, pid, 100, min_bytes=49, min_age=NO_TIME) == [(0, 9, 48)]


async def test_ranges_continue_after_segments_and_across_rolls(backing: Backing) -> None:
    async with backing.store() as store:
        pid = await filled(store, 3, 3)
        await store.roll()
        await appended(store, plain(pid, 4, 4))
        assert await ranges(store, pid, 33) == [(0, 10, 48), (10, 14, 16)]
        await register(store, pid, await segment(store, pid, 0, 6))
        assert await ranges(store, pid, 33) == [(6, 14, 32)]
        await register(store, pid, await segment(store, pid, 6, 14))
        assert await ranges(store, pid, 33) == []
        assert await ranges(store, await create_one(store), 33) == []
        assert await store.cold.tierable(new_pids(1), segment_bytes=1, min_bytes=0, min_age=NO_TIME) == []


async def test_ranges_begin_with_the_log_start_if_it_is_within_a_batch(backing: Backing) -> None:
    async with backing.store() as store:
        pid = await filled(store, 5, 5, 5)
        await store.log_start_raise([(pid, 7)])
        assert await ranges(store, pid, 1000) == [(7, 15, 32)]
        # Messages below it can no longer be read.
        assert await register(store, pid, await segment(store, pid, 7, 15)) == [REGISTERED]
        assert await ranges(store, pid, 1000) == []


async def segment_from(store: PartitionStore, pid: int, first: int, end: int) -> Segment:
    """Like `segment`, but the first offset is already below the log start."""
    made = await segment(store, pid, end - 1, end)
    return replace(made, first=first)


async def test_a_plan_has_the_first_segments_up_to_a_limit(backing: Backing) -> None:
    async with backing.store() as store:
        one, other = await filled(store, 3, 3, 3, 3), await filled(store, 3)
        made = await tiered(store, one, 3, 6, 9, 12)
        asks = [ColdPlanRequest(pid=one, start=4), ColdPlanRequest(pid=other)]
        found = await store.cold.plans(asks, limit=2)
        assert [list(each.segments) for each in sorted(found, key=lambda each: each.head.pid == other)] == [
            made[1:3],
            [],
        ]
        assert [list(each.segments) for each in await store.cold.plans(asks[:1], limit=3)] == [made[1:]]


async def test_the_row_groups_of_a_segment_are_stored(backing: Backing) -> None:
    async with backing.store_pair() as (store, other):
        pid = await filled(store, 3, 3, 3)
        first = replace(await segment(store, pid, 0, 6), groups=(0, 2, 5))
        second = await segment(store, pid, 6, 9)
        await register(store, pid, first, second)
        assert [each.groups for _, each in await other.cold.unverified([pid])] == [(0, 2, 5), ()]
        await store.cold.verified([(pid, first), (pid, second)])
        (plan,) = await other.cold.plans([ColdPlanRequest(pid=pid)])
        assert list(plan.segments) == [first, second]


async def test_segments_follow_one_another(backing: Backing) -> None:
    """S20: no gap, no overlap, only whole batches that are in the log."""
    async with backing.store() as store:
        pid = await filled(store, 3, 3, 3, 3)
        assert await register(store, pid, await segment(store, pid, 3, 6)) == [refused("gap")]
        assert await register(store, pid, await segment(store, pid, 0, 4)) == [refused("boundary")]
        assert await register(store, pid, await segment(store, pid, 0, 6)) == [REGISTERED]
        assert await register(store, pid, await segment(store, pid, 0, 6)) == [refused("overlap")]
        assert await register(store, pid, await segment(store, pid, 3, 9)) == [refused("overlap")]
        assert await register(store, pid, await segment(store, pid, 9, 12)) == [refused("gap")]
        beyond = replace(await segment(store, pid, 6, 12), end=13)
        assert await register(store, pid, beyond) == [refused("beyond")]
        other = replace(await segment(store, pid, 6, 12), epoch=7)
        assert await register(store, pid, other) == [refused("other")]
        missing = await segment(store, pid, 6, 12)
        assert await store.cold.register([(new_pids(1)[0], missing)]) == [refused("missing")]
        # Given in any order, they are registered in the order of the log.
        parts = [await segment(store, pid, 9, 12), await segment(store, pid, 6, 9)]
        assert await register(store, pid, *parts) == [REGISTERED, REGISTERED]


async def test_a_repeat_is_known_and_a_rival_is_refused(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        pid = await filled(one, 3, 3)
        mine, rival = await segment(one, pid, 0, 6), await segment(one, pid, 0, 6)
        answers = await asyncio.gather(register(one, pid, mine), register(other, pid, rival))
        assert sorted(answer.status for (answer,) in answers) == [RegisterStatus.REGISTERED, RegisterStatus.TAKEN]
        winner = mine if answers[0] == [REGISTERED] else rival
        assert await register(other, pid, winner) == [KNOWN]
        await one.cold.verified([(pid, winner)])
        assert await register(other, pid, winner, winner) == [KNOWN, KNOWN]
        again = replace(await segment_from(one, pid, 3, 6), path=winner.path)
        assert (await register(one, pid, again))[0].status is RegisterStatus.TAKEN


async def test_nothing_below_the_log_start_or_of_a_deleted_partition_is_registered(backing: Backing) -> None:
    """S22, S23."""
    async with backing.store() as store:
        pid = await filled(store, 3, 3)
        low, high = await segment(store, pid, 0, 3), await segment(store, pid, 3, 6)
        await store.log_start_raise([(pid, 3)])
        assert await register(store, pid, low) == [refused("below")]
        await store.heads_close([pid], HeadState.DELETED)
        assert await register(store, pid, high) == [refused("deleted")]
        assert await ranges(store, pid, 1) == []


async def test_only_verified_segments_are_read(backing: Backing) -> None:
    """S20."""
    async with backing.store_pair() as (one, other):
        pid = await filled(one, 3, 3)
        made = await segment(one, pid, 0, 6)
        await register(one, pid, made)
        await one.roll()
        await appended(one, plain(pid, 4))
        read = await other.read(pid, 2, max_messages=1, max_bytes=1)
        assert read is not None and read.segment is None and read.batches[0].base == 0
        assert (await other.cold.plans([ColdPlanRequest(pid=pid)]))[0].segments == []
        assert await other.cold.unverified([pid]) == [(pid, made)]
        assert await other.cold.verified([(pid, made)]) == [True]
        assert await other.cold.verified([(pid, made)]) == [True]
        assert await one.cold.unverified([pid]) == []
        read = await one.read(pid, 2, max_messages=1, max_bytes=1)
        assert read is not None and read.segment == made and read.batches == ()
        read = await one.read(pid, 6, max_messages=1, max_bytes=1)
        assert read is not None and read.segment is None and read.batches[0].base == 6
        assert await one.cold.unregister([(pid, made)]) == [False]


async def test_messages_of_the_newest_hot_table_are_read_from_it(backing: Backing) -> None:
    async with backing.store() as store:
        pid = await filled(store, 3, 3)
        await tiered(store, pid, 6)
        assert [each.base for each in await read_all(store, pid)] == [0, 3]


async def test_a_hole_is_filled_exactly(backing: Backing) -> None:
    async with backing.store() as store:
        pid = await filled(store, 3, 3, 3, 3)
        parts = [await segment(store, pid, first, first + 3) for first in (0, 3, 6)]
        assert await register(store, pid, *parts) == [REGISTERED] * 3
        await store.cold.verified([(pid, parts[0]), (pid, parts[2])])
        assert await store.cold.unregister([(pid, parts[1])]) == [True]
        assert await store.cold.unregister([(pid, parts[1])]) == [True]
        assert await ranges(store, pid, 1000, min_bytes=1000, min_age=DAY) == [(3, 6, 16)]
        found = (await store.cold.plans([ColdPlanRequest(pid=pid)]))[0].segments
        assert [each.first for each in found] == [0, 6]
        await store.roll()
        assert await store.rolls_drop(grace=NO_TIME) == []
        assert [each.base for each in await _hot(store, pid, 3)] == [3]
        await tiered(store, pid, 6, first=3)
        assert await ranges(store, pid, 1000) == [(9, 12, 16)]


async def _hot(store: PartitionStore, pid: int, offset: int) -> list[HotBatch]:
    read = await store.read(pid, offset, max_messages=1, max_bytes=1)
    assert read is not None
    return list(read.batches)


async def test_a_hot_table_goes_when_segments_hold_all_of_it(backing: Backing) -> None:
    """S3, S20: hot tables are not dropped before the grace period has passed."""
    async with backing.empty_store_pair() as (one, other):
        pids = await create(one, 2)
        await one.append([plain(pid, 4, 4) for pid in pids])
        old = (await head_of(one, pids[0])).roll
        await one.roll()
        await tiered(one, pids[0], 8)
        await tiered(one, pids[1], 4)
        assert await other.rolls_drop(grace=NO_TIME) == []
        await tiered(one, pids[1], 8, first=4)
        assert await other.rolls_drop() == []
        assert await other.rolls_drop(grace=NO_TIME) == [old]
        for pid in pids:
            read = await one.read(pid, 5, max_messages=1, max_bytes=1)
            assert read is not None and read.segment is not None and read.segment.first <= 5 < read.segment.end
        await one.append([plain(pid, 1) for pid in pids])
        assert [each.base for each in await _hot(other, pids[0], 8)] == [8]


async def test_the_segment_wins_over_an_older_roll_whose_span_would_match(backing: Backing) -> None:
    """S3: the middle one of three hot tables is dropped; an idle partition keeps the oldest."""
    async with backing.empty_store_pair() as (one, other):
        idle, busy = await create(one, 2)
        await one.append([plain(idle, 1), plain(busy, 3)])
        await one.roll()
        await appended(one, plain(busy, 3))
        middle = (await head_of(one, busy)).roll
        await one.roll()
        await appended(one, plain(busy, 3))
        made = await tiered(one, busy, 3, 6)
        assert await other.rolls_drop(grace=NO_TIME) == [middle]
        for store in (one, other):
            for offset in range(6):
                read = await store.read(busy, offset, max_messages=1, max_bytes=1)
                assert read is not None and read.segment == made[offset // 3]
            assert [each.base for each in await _hot(store, busy, 6)] == [6]
            assert [each.base for each in await _hot(store, idle, 0)] == [0]
            assert await store.offset_at_bytes(busy, 16) == 6
            assert await store.offset_at_time(busy, made[1].last_at) in (0, 3)


async def test_plans_show_head_and_segments_together(backing: Backing) -> None:
    async with backing.store() as store:
        pid = await filled(store, 3, 3, 3, 3)
        made = await tiered(store, pid, 3, 6, 9)

        async def firsts(start: int = 0, end: int | None = None) -> list[int]:
            (plan,) = await store.cold.plans([ColdPlanRequest(pid=pid, start=start, end=end)])
            assert plan.head == await head_of(store, pid)
            return [each.first for each in plan.segments]

        assert (await store.cold.plans([ColdPlanRequest(pid=pid)]))[0].segments == made
        assert await firsts() == [0, 3, 6]
        assert await firsts(3, 6) == [3]
        assert await firsts(4, 7) == [3, 6]
        assert await firsts(9) == []
        await store.log_start_raise([(pid, 4)])
        assert await firsts() == [3, 6]
        assert await store.cold.plans([ColdPlanRequest(pid=other) for other in new_pids(2)]) == []


async def test_times_are_found_through_segments(backing: Backing) -> None:
    """S22: a segment counts as a whole, and is named if the offset is inside it."""
    async with backing.store() as store:
        pid = await filled(store, 3, 3, 3, 3)
        times = [each.appended_at for each in await read_all(store, pid)]
        first = (await tiered(store, pid, 6, 9))[0]
        instant = timedelta(microseconds=1)
        assert await store.cold.search_time(pid, times[0]) == (0, None)
        assert await store.cold.search_time(pid, times[3]) == (9 if times[3] > times[2] else 6, None)
        assert await store.cold.search_time(pid, times[3] + instant) == (12, None)
        if times[1] > times[0]:
            assert await store.cold.search_time(pid, times[1]) == (0, first)
            assert await store.offset_at_time(pid, times[1]) == 0
        if times[2] > times[1]:
            assert await store.cold.search_time(pid, times[2]) == (6, None)
            assert await store.cold.search_time(pid, times[1] + instant) == (6, None)
        await store.log_start_raise([(pid, 2)])
        if times[1] > times[0]:
            assert await store.cold.search_time(pid, times[1]) == (2, first)
        assert await store.cold.search_time(new_pids(1)[0], times[0]) == (0, None)


async def test_bytes_are_counted_by_whole_segments(backing: Backing) -> None:
    """S23: retention never removes more than the limit requires."""
    async with backing.store() as store:
        pid = await filled(store, 3, 3, 3, 3)
        await tiered(store, pid, 6, 9)
        assert await store.offset_at_bytes(pid, 64) == 0
        assert await store.offset_at_bytes(pid, 63) == 0
        assert await store.offset_at_bytes(pid, 33) == 0
        assert await store.offset_at_bytes(pid, 32) == 6
        assert await store.offset_at_bytes(pid, 17) == 6
        assert await store.offset_at_bytes(pid, 16) == 9
        assert await store.offset_at_bytes(pid, 15) == 12


async def test_a_trim_forgets_what_is_below_the_log_start_and_of_deleted_partitions(backing: Backing) -> None:
    async with backing.empty_store_pair() as (one, other):
        kept, deleted = await filled(one, 3, 3, 3), await filled(one, 3)
        parts = await tiered(one, kept, 3, 6, 9)
        gone = await tiered(one, deleted, 3)
        paths = [each.path for each in (*parts, *gone)]
        assert await other.cold.trim() == 0
        assert await other.cold.paths_known([*paths, "nothing"]) == set(paths)
        await one.log_start_raise([(kept, 5)])
        await one.heads_close([deleted], HeadState.DELETED)
        assert await other.cold.trim() == 2
        assert await other.cold.trim() == 0
        assert await one.cold.paths_known(paths) == {parts[1].path, parts[2].path}


async def test_verifying_what_is_not_registered_says_so(backing: Backing) -> None:
    async with backing.store() as store:
        pid = await filled(store, 3, 3)
        made, other = await segment(store, pid, 0, 3), await segment(store, pid, 0, 3)
        await register(store, pid, made)
        assert await store.cold.verified([(pid, other), (pid, made)]) == [False, True]
        assert await store.cold.paths_known([other.path, made.path]) == {made.path}


async def test_registering_while_others_append(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        pid = await filled(one, 3)

        async def grow() -> None:
            for _ in range(30):
                await appended(other, plain(pid, 2))

        async def tier() -> None:
            for _ in range(30):
                for first, end, _ in await ranges(one, pid, 1000):
                    assert await register(one, pid, await segment(one, pid, first, end)) == [REGISTERED]

        await asyncio.gather(grow(), tier())
        ends = [each.end for _, each in await one.cold.unverified([pid])]
        firsts = [each.first for _, each in await one.cold.unverified([pid])]
        assert firsts == [0, *ends[:-1]]


def merged(*parts: Segment) -> Segment:
    """Return a segment of the range of all parts."""
    first, last = parts[0], parts[-1]
    path = f"{first.path.split('/')[0]}/{first.first}-{last.end}-{secrets.token_hex(4)}"
    return replace(last, first=first.first, first_at=first.first_at, path=path, content_hash="ef")


async def test_segments_are_replaced_by_one(backing: Backing) -> None:
    """S20: readers find the same offsets in the new segment, and a repeat of the call changes nothing."""
    async with backing.store_pair() as (one, other):
        pid = await filled(one, 3, 3, 3, 3)
        made = await tiered(one, pid, 3, 6, 9, 12)
        new = replace(merged(*made[:3]), groups=(0, 4))
        assert await one.cold.replace(pid, made[:3], [new]) == REGISTERED
        assert await other.cold.replace(pid, made[:3], [new]) == KNOWN
        (plan,) = await other.cold.plans([ColdPlanRequest(pid=pid)])
        assert list(plan.segments) == [new, made[3]]
        assert await other.cold.paths_known([each.path for each in (*made, new)]) == {new.path, made[3].path}
        await one.roll()
        await appended(one, plain(pid, 3))
        read = await one.read(pid, 4, max_messages=1, max_bytes=1)
        assert read is not None and read.segment == new
        assert await one.cold.verified([(pid, made[0])]) == [False]
        assert await register(one, pid, made[0]) == [refused("overlap")]
        assert await ranges(one, pid, 1000) == [(12, 15, 16)]


async def test_a_segment_is_replaced_by_its_parts(backing: Backing) -> None:
    async with backing.store() as store:
        pid = await filled(store, 3, 3, 3, 3)
        parts = [await segment(store, pid, 0, 3), await segment(store, pid, 3, 9)]
        (whole, rest) = await tiered(store, pid, 9, 12)
        assert await store.cold.replace(pid, [whole], parts) == REGISTERED
        (plan,) = await store.cold.plans([ColdPlanRequest(pid=pid)])
        assert list(plan.segments) == [*parts, rest]
        # A part counts the bytes of the whole segment: retention by bytes may keep too much, never too little.
        assert await store.offset_at_bytes(pid, 33) == 0
        assert await store.offset_at_bytes(pid, 16) == 9


async def test_only_registered_and_verified_segments_are_replaced(backing: Backing) -> None:
    """S20, S22, S23."""
    async with backing.store_pair() as (one, other):
        pid = await filled(one, 3, 3, 3)
        made = await tiered(one, pid, 3, 6)
        waiting = await segment(one, pid, 6, 9)
        await register(one, pid, waiting)
        assert await one.cold.replace(pid, [made[1], waiting], [merged(made[1], waiting)]) == refused("replaced")
        forged = replace(made[1], content_hash="12")
        assert await one.cold.replace(pid, [made[0], forged], [merged(*made)]) == refused("replaced")
        assert await one.cold.replace(pid, made, [replace(merged(*made), path=waiting.path)]) == refused("path")
        assert await one.cold.replace(new_pids(1)[0], made, [merged(*made)]) == refused("missing")
        rivals = [merged(*made), merged(*made)]
        answers = await asyncio.gather(
            *(store.cold.replace(pid, made, [rival]) for store, rival in zip((one, other), rivals, strict=True))
        )
        assert sorted(answers, key=lambda answer: answer.status) == [REGISTERED, refused("replaced")]
        winner = rivals[answers.index(REGISTERED)]
        await one.log_start_raise([(pid, 6)])
        assert await one.cold.replace(pid, [winner], [merged(winner)]) == refused("below")
        await one.heads_close([pid], HeadState.DELETED)
        assert await one.cold.replace(pid, [winner], [merged(winner)]) == refused("deleted")


async def test_orphans_are_old_only_after_their_first_look(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        paths = [f"e1/{secrets.token_hex(8)}" for _ in range(3)]
        assert await one.orphans.old(paths, age=NO_TIME) == set()
        assert await one.orphans.look(paths[:2], min_age=DAY) == set()
        assert await other.orphans.old(paths, age=NO_TIME) == set(paths[:2])
        assert await other.orphans.look(paths, min_age=DAY) == set()
        assert await other.orphans.look(paths, min_age=NO_TIME) == set(paths)
        unseen = f"e1/{secrets.token_hex(8)}"
        assert await one.orphans.look([unseen, unseen], min_age=NO_TIME) == set()
        assert await one.orphans.look([unseen], min_age=NO_TIME) == {unseen}
        await one.orphans.forget(paths[:1])
        assert await other.orphans.old(paths, age=NO_TIME) == set(paths[1:])


async def test_a_backup_mark_holds_back_what_was_recorded_after_it(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        early, late = (f"e1/{secrets.token_hex(8)}" for _ in range(2))
        await one.orphans.look([early], min_age=NO_TIME)
        mark = await one.orphans.backup_mark("a", DAY)
        assert mark is not None and (mark.name, mark.until - mark.at) == ("a", DAY)
        assert await other.orphans.backup_mark("a", DAY) is None
        second = await other.orphans.backup_mark("b", DAY)
        assert await one.orphans.backup_marks() == [mark, second]
        for _ in range(2):
            assert await other.orphans.look([early, late], min_age=NO_TIME) == {early}
        assert await one.orphans.backup_mark_end("a")
        assert await other.orphans.look([early, late], min_age=NO_TIME) == {early}, "it was recorded after b too"
        assert await one.orphans.backup_mark_end("b") and not await one.orphans.backup_mark_end("b")
        assert await other.orphans.look([early, late], min_age=NO_TIME) == {early, late}
        assert await one.orphans.backup_mark("c", NO_TIME) is not None
        assert await one.orphans.backup_marks() == [], "it has ended"
        assert await other.orphans.look([late], min_age=NO_TIME) == {late}
        assert await one.orphans.backup_mark("c", DAY) is not None
        assert await one.orphans.backup_mark_end("c")


async def test_a_cold_message_has_the_time_at_which_its_segment_begins(backing: Backing) -> None:
    async with backing.store() as store:
        pid = await filled(store, 3, 3, 3)
        hot = await store.append_times([(pid, offset) for offset in range(9)])
        (made,) = await tiered(store, pid, 6)
        cold = await store.append_times([(pid, offset) for offset in range(9)])
        assert cold == [made.first_at] * 6 + hot[6:]
