"""Rolls: a new hot table during appends, reads across hot tables, drops of retired ones."""

from __future__ import annotations

import asyncio

from lakelog.storage.compaction import RollCounts
from lakelog.storage.store import Append, Appended, HeadState, PartitionStore, Verdict
from tests.contract.stores import Backing
from tests.contract.values import (
    appended,
    batch,
    create,
    create_one,
    head_of,
    new_hash,
    new_producer,
    numbered,
    plain,
    read_all,
    read_batches,
    refused,
    run,
    with_keys,
)


async def test_a_roll_is_new_and_the_next_append_of_every_partition_goes_to_it(backing: Backing) -> None:
    async with backing.store() as store:
        pids = await create(store, 3)
        assert [head.roll for head in await store.heads_read(pids)] == [0] * 3, "nothing is in a hot table yet"
        before = (await store.roll_active()).roll
        roll = await store.roll()
        assert roll > before
        await store.append([plain(pid, 1) for pid in pids])
        assert [head.roll for head in await store.heads_read(pids)] == [roll] * 3
        later = await store.roll()
        assert later > roll
        await store.append([plain(pids[0], 1)])
        assert [head.roll for head in await store.heads_read(pids)] == [later, roll, roll]


async def test_a_server_that_knows_only_the_old_roll_appends(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        pids = await create(one, 2)
        await one.append([plain(pid, 2) for pid in pids])
        await other.append([plain(pid, 1) for pid in pids])
        await other.roll()
        answers = await one.append([plain(pid, 4) for pid in pids])
        assert [answer.base for answer in answers if isinstance(answer, Appended)] == [3, 3]
        for pid in pids:
            assert [(each.base, each.count) for each in await read_all(other, pid)] == [(0, 2), (2, 1), (3, 4)]


async def test_a_read_goes_across_three_rolls(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        pid = await create_one(one)
        appends = [plain(pid, 3, 3) for _ in range(3)]
        for append in appends:
            await appended(one, append)
            await other.roll()
        data = [payload.data for append in appends for payload in append.payloads]
        for store in (one, other):
            assert [each.payload for each in await read_all(store, pid)] == data
        # A read may end where a roll ends, but never before the requested batch.
        for offset in range(18):
            assert (await read_batches(one, pid, offset))[0].base == offset // 3 * 3
        assert await read_batches(one, pid, 18) == []
        assert await one.offset_at_bytes(pid, 3 * 16) == 9
        assert await one.offset_at_time(pid, (await read_batches(one, pid, 0))[0].appended_at) == 0


async def test_producers_and_keys_are_known_after_a_roll(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        pid, producer, key = await create_one(one), new_producer(), new_hash()
        await appended(one, numbered(pid, run(producer, 0)))
        await appended(one, with_keys(pid, key))
        await other.roll()
        assert (await refused(one, numbered(pid, run(producer, 0)))).verdicts[0].verdict is Verdict.DUPLICATE
        assert (await refused(other, with_keys(pid, key))).verdicts[0].offset == 1
        assert (await appended(other, numbered(pid, run(producer, 1)))).base == 2


async def test_two_servers_that_roll_for_one_reason_roll_once(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        pid = await create_one(one)
        active = (await one.roll_active()).roll
        rolls = await asyncio.gather(*(store.roll(active) for store in (one, other) * 3))
        assert set(rolls) == {rolls[0]}
        assert rolls[0] > active
        await appended(other, plain(pid, 1))
        assert (await head_of(other, pid)).roll == (await other.roll_active()).roll == rolls[0]
        assert await one.roll(active) == rolls[0]
        assert await one.roll(rolls[0]) > rolls[0]


async def test_hot_tables_are_counted_until_they_are_dropped(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        pid = await create_one(one)
        await one.roll()
        # Other tests may use the same database.
        await one.rolls_drop()
        before = (await other.rolls_count()).messages
        for _ in range(2):
            await appended(one, plain(pid, 1))
            await one.roll()
        assert await other.rolls_count() == RollCounts(messages=before + 2)
        await one.log_start_raise([(pid, 1)])
        assert await other.rolls_count() == RollCounts(messages=before + 1, transactions=1)
        assert len(await one.rolls_drop()) == 1
        assert await other.rolls_count() == RollCounts(messages=before + 1)


async def test_the_size_and_birth_of_the_active_hot_table(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        pid = await create_one(one)
        before = await one.clock()
        roll = await one.roll()
        empty = await other.roll_active()
        assert empty.roll == roll
        assert before <= empty.created_at <= await one.clock()
        await appended(one, Append(pid=pid, epoch=0, payloads=[batch(1, size=200_000)]))
        filled = await other.roll_active()
        assert filled.bytes - empty.bytes >= 200_000
        assert (filled.roll, filled.created_at) == (roll, empty.created_at)
        await other.roll()
        later = await one.roll_active()
        assert later.roll > roll
        assert later.bytes <= empty.bytes
        assert later.created_at > empty.created_at


async def test_a_hot_table_is_dropped_only_when_all_in_it_is_retired(backing: Backing) -> None:
    async with backing.empty_store_pair() as (one, other):
        first, second = await create(one, 2)
        await one.append([plain(first, 5), plain(second, 3, 2)])
        old = (await head_of(one, first)).roll
        assert await one.rolls_drop() == []
        await one.roll()
        await one.append([plain(first, 1), plain(second, 1)])
        await other.log_start_raise([(first, 5), (second, 4)])
        assert await other.rolls_drop() == []
        assert [each.base for each in await read_all(one, second)] == [3, 5]
        await other.log_start_raise([(second, 5)])
        assert await other.rolls_drop() == [old]
        assert await one.rolls_drop() == []
        for pid in (first, second):
            assert [(each.base, each.count) for each in await read_all(one, pid)] == [(5, 1)]


async def test_the_active_hot_table_is_never_dropped(backing: Backing) -> None:
    async with backing.empty_store_pair() as (one, other):
        pid = await create_one(one)
        await appended(one, plain(pid, 5))
        await other.log_start_raise([(pid, 5)])
        assert await other.rolls_drop() == []
        assert (await appended(one, plain(pid, 1))).base == 5


async def test_offsets_continue_after_everything_was_purged_and_dropped(backing: Backing) -> None:
    async with backing.empty_store_pair() as (one, other):
        pid, producer = await create_one(one), new_producer()
        await appended(one, numbered(pid, run(producer, 0, count=5)))
        old = (await head_of(one, pid)).roll
        await other.log_start_raise([(pid, 5)])
        await other.roll()
        assert await other.rolls_drop() == [old]
        assert await read_batches(one, pid, 5) == []
        assert (await refused(one, numbered(pid, run(producer, 0)))).verdicts[0].offset == 0
        assert (await appended(one, numbered(pid, run(producer, 1, count=2)))).base == 5
        head = await head_of(other, pid)
        assert (head.log_start, head.next_offset, head.total_bytes) == (5, 7, 32)
        assert await other.offset_at_bytes(pid, 16) == 5


async def test_deleted_partitions_do_not_hold_a_hot_table(backing: Backing) -> None:
    async with backing.empty_store_pair() as (one, _):
        pid, kept = await create(one, 2)
        await one.append([plain(pid, 5)])
        old = (await head_of(one, pid)).roll
        await one.roll()
        await one.heads_close([pid], HeadState.DELETED)
        assert await one.rolls_drop() == [old]
        assert (await head_of(one, pid)).next_offset == 5
        assert (await appended(one, plain(kept, 1))).base == 0


async def test_an_idle_partition_holds_only_the_tables_with_its_messages(backing: Backing) -> None:
    async with backing.empty_store_pair() as (one, other):
        idle, busy = await create(one, 2)
        await one.append([plain(idle, 2), plain(busy, 2)])
        first = (await head_of(one, idle)).roll
        await one.roll()
        await appended(one, plain(busy, 2))
        second = (await head_of(one, busy)).roll
        await one.roll()
        await one.log_start_raise([(busy, 4)])
        assert await one.rolls_drop() == [second]
        assert [each.base for each in await read_all(other, idle)] == [0]
        await one.log_start_raise([(idle, 2)])
        assert await one.rolls_drop() == [first]
        assert (await appended(other, plain(idle, 1))).base == 2
        assert [each.base for each in await read_all(one, idle)] == [2]


async def test_several_hot_tables_go_in_one_drop(backing: Backing) -> None:
    async with backing.empty_store_pair() as (one, _):
        pid = await create_one(one)
        rolls = []
        for _ in range(3):
            await appended(one, plain(pid, 2))
            rolls.append((await head_of(one, pid)).roll)
            await one.roll()
        await one.log_start_raise([(pid, 4)])
        assert sorted(await one.rolls_drop()) == rolls[:2]
        assert [each.base for each in await read_all(one, pid)] == [4]


async def test_nothing_is_lost_by_rolls_under_load(backing: Backing) -> None:
    async with backing.empty_store_pair() as handles:
        pids = await create(handles[0], 3)

        async def publish(store: PartitionStore) -> None:
            for _ in range(15):
                answers = await store.append([plain(pid, 2) for pid in pids])
                assert all(isinstance(answer, Appended) for answer in answers)

        async def turn() -> None:
            for _ in range(5):
                await handles[1].roll()
                await handles[0].rolls_drop()

        await asyncio.gather(*(publish(handles[n % 2]) for n in range(4)), turn())
        for pid in pids:
            found = await read_all(handles[0], pid)
            assert [each.base for each in found] == list(range(0, 120, 2))


async def test_a_neighbour_that_keeps_everything_does_not_keep_a_hot_table(backing: Backing) -> None:
    """Retention of one topic frees bytes, although a quiet topic in the same tables has none."""
    async with backing.empty_store_pair() as (one, other):
        quiet, busy = await create(one, 2)
        rolls = []
        for _ in range(3):
            await one.append([plain(quiet, 2), Append(pid=busy, epoch=0, payloads=[batch(1, size=20_000)])])
            rolls.append((await head_of(one, quiet)).roll)
            await one.roll()
        await one.log_start_raise([(busy, 3)])
        assert await one.rolls_drop() == []
        before = await read_all(one, quiet)
        assert (await other.rolls_compact()).bytes == 3 * 16
        assert await other.rolls_drop() == rolls
        assert await read_all(one, quiet) == before
        assert (await other.rolls_compact()).bytes == 0
        await one.append([plain(quiet, 3), plain(busy, 3)])
        for store in (one, other):
            assert [each.base for each in await read_all(store, quiet)] == [0, 2, 4, 6]
            assert [each.base for each in await read_all(store, busy)] == [3]
            assert await store.offset_at_bytes(quiet, 3 * 16) == 2
            assert await store.offset_at_time(quiet, before[1].appended_at) in (0, 2)
            assert await store.append_times([(quiet, 3)]) == [before[1].appended_at]
        await one.log_start_raise([(quiet, 6)])
        assert len(await one.rolls_drop()) == 1, "the kept table"


async def test_a_hot_table_of_which_much_survives_is_left_alone(backing: Backing) -> None:
    async with backing.empty_store_pair() as (one, _):
        kept, gone = await create(one, 2)
        large = [batch(1, size=100_000) for _ in range(4)]
        await one.append([Append(pid=pid, epoch=0, payloads=large) for pid in (kept, gone)])
        old = (await head_of(one, kept)).roll
        await one.roll()
        await one.log_start_raise([(gone, 4)])
        assert (await one.rolls_compact(table_bytes=1_000_000)).bytes == 0, "half survives"
        await one.log_start_raise([(kept, 3)])
        assert (await one.rolls_compact(table_bytes=1_000_000)).bytes == 100_000
        assert await one.rolls_drop() == [old]
        assert [each.base for each in await read_all(one, kept)] == [3]


async def test_reads_have_no_gap_when_a_table_between_two_compacted_ones_stays(backing: Backing) -> None:
    async with backing.empty_store_pair() as (one, other):
        pid, gone, holder = await create(one, 3)
        rolls = []
        for large in (gone, holder, gone):
            await one.append([plain(pid, 2), Append(pid=large, epoch=0, payloads=[batch(1, size=100_000)])])
            rolls.append((await head_of(one, pid)).roll)
            await one.roll()
        await one.log_start_raise([(gone, 2)])
        before = await read_all(one, pid)
        assert (await other.rolls_compact(table_bytes=1_000_000)).bytes == 2 * 16
        assert await other.rolls_drop() == [rolls[0], rolls[2]]
        for store in (one, other):
            for _ in range(2):
                assert await read_all(store, pid) == before
                for offset in range(6):
                    found = await read_batches(store, pid, offset)
                    assert [each.base for each in found] == list(range(offset // 2 * 2, found[-1].end, 2))


async def test_nothing_is_lost_by_compactions_under_load(backing: Backing) -> None:
    async with backing.empty_store_pair() as handles:
        pids = await create(handles[0], 3)
        noise = await create_one(handles[0])
        is_running = True

        async def publish(store: PartitionStore) -> None:
            for _ in range(15):
                answers = await store.append([plain(pid, 2) for pid in pids])
                assert all(isinstance(answer, Appended) for answer in answers)

        async def turn() -> None:
            while is_running:
                await appended(handles[0], Append(pid=noise, epoch=0, payloads=[batch(1, size=50_000)]))
                await handles[1].roll()
                await handles[1].log_start_raise([(noise, (await head_of(handles[1], noise)).next_offset)])
                await handles[0].rolls_compact()
                await handles[0].rolls_drop()

        async def look() -> None:
            while is_running:
                for pid in pids:
                    await read_all(handles[1], pid)

        async with asyncio.TaskGroup() as tasks:
            for each in (turn(), look()):
                tasks.create_task(each)
            await asyncio.gather(*(publish(handles[n % 2]) for n in range(4)))
            is_running = False
        await handles[0].roll()
        await handles[0].rolls_compact()
        await handles[0].rolls_drop()
        for pid in pids:
            found = await read_all(handles[0], pid)
            assert [each.base for each in found] == list(range(0, 120, 2))
