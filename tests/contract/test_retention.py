"""The log start: raised, counted, never lowered; and what a trim may remove."""

from __future__ import annotations

import asyncio

from lakelog.storage.store import HeadState, Verdict
from tests.contract.stores import Backing
from tests.contract.values import (
    appended,
    create,
    create_one,
    head_of,
    new_hash,
    new_pids,
    new_producer,
    numbered,
    plain,
    read_all,
    read_batches,
    refused,
    run,
    with_keys,
)


async def test_raising_the_log_start_counts_removed_messages(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        pid = await create_one(one)
        await appended(one, plain(pid, 10))
        assert await other.log_start_raise([(pid, 4)]) == [(pid, 4)]
        assert await other.log_start_raise([(pid, 7)]) == [(pid, 3)]
        head = await head_of(one, pid)
        assert (head.log_start, head.next_offset) == (7, 10)


async def test_the_log_start_never_falls(backing: Backing) -> None:
    async with backing.store() as store:
        pid = await create_one(store)
        await appended(store, plain(pid, 10))
        await store.log_start_raise([(pid, 7)])
        assert await store.log_start_raise([(pid, 3)]) == [(pid, 0)]
        assert await store.log_start_raise([(pid, 7)]) == [(pid, 0)]
        assert (await head_of(store, pid)).log_start == 7


async def test_the_log_start_never_passes_the_next_offset(backing: Backing) -> None:
    async with backing.store() as store:
        pid = await create_one(store)
        await appended(store, plain(pid, 10))
        assert await store.log_start_raise([(pid, 1 << 40)]) == [(pid, 10)]
        head = await head_of(store, pid)
        assert (head.log_start, head.next_offset) == (10, 10)


async def test_offsets_continue_after_a_purge(backing: Backing) -> None:
    async with backing.store() as store:
        pid = await create_one(store)
        await appended(store, plain(pid, 10))
        await store.log_start_raise([(pid, 10)])
        assert await read_batches(store, pid, 10) == []
        assert (await appended(store, plain(pid, 2))).base == 10
        assert [(each.base, each.count) for each in await read_all(store, pid)] == [(10, 2)]


async def test_many_log_starts_in_one_call_each_have_their_answer(backing: Backing) -> None:
    async with backing.store() as store:
        (missing,) = new_pids(1)
        one, two, empty, deleted = await create(store, 4)
        await store.append([plain(one, 5), plain(two, 5), plain(deleted, 5)])
        await store.heads_close([deleted], HeadState.DELETED)
        asked = [(two, 2), (missing, 3), (one, 5), (empty, 1), (deleted, 4)]
        assert dict(await store.log_start_raise(asked)) == {one: 5, two: 2, empty: 0, deleted: 0}
        assert await store.log_start_raise([]) == []
        assert [head.log_start for head in await store.heads_read([one, two, empty])] == [5, 2, 0]


async def test_messages_are_counted_once_by_concurrent_callers(backing: Backing) -> None:
    async with backing.store_pair() as handles:
        pid = await create_one(handles[0])
        await appended(handles[0], plain(pid, 100))
        calls = (handles[n % 2].log_start_raise([(pid, 10 * n)]) for n in range(11))
        answers, _ = await asyncio.gather(asyncio.gather(*calls), appended(handles[0], plain(pid, 1)))
        assert sum(removed for ((_, removed),) in answers) == 100
        head = await head_of(handles[0], pid)
        assert (head.log_start, head.next_offset) == (100, 101)


async def test_everything_continues_after_a_trim(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        pid, producer, key = await create_one(one), new_producer(), new_hash()
        for sequence in range(3):
            await appended(one, numbered(pid, run(producer, sequence)))
        await appended(one, with_keys(pid, key))
        await one.log_start_raise([(pid, 1)])
        before = await head_of(one, pid)
        await other.trim({})
        await one.trim({})
        assert await head_of(other, pid) == before
        assert [each.base for each in await read_all(one, pid)] == [1, 2, 3]
        answer = await refused(one, numbered(pid, run(producer, 2)))
        assert (answer.verdicts[0].verdict, answer.verdicts[0].offset) == (Verdict.DUPLICATE, 2)
        assert (await refused(one, with_keys(pid, key))).verdicts[0].offset == 3
        assert (await appended(other, numbered(pid, run(producer, 3)))).base == 4


async def test_a_trim_leaves_closed_heads_closed(backing: Backing) -> None:
    async with backing.store() as store:
        pid = await create_one(store)
        await appended(store, plain(pid, 1))
        await store.heads_close([pid], HeadState.DELETED)
        before = await head_of(store, pid)
        await store.trim({})
        assert await head_of(store, pid) == before
