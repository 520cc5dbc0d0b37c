"""Heads: created once, closed permanently, with epochs that only increase."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from lakelog.storage.store import Appended, HeadState, Refusal
from tests.contract.stores import Backing
from tests.contract.values import (
    append_one,
    appended,
    create,
    create_one,
    head_of,
    new_pids,
    plain,
    read_all,
    read_batches,
    refused,
)


async def test_a_new_head_is_open_and_empty(backing: Backing) -> None:
    async with backing.store() as store:
        (pid,) = new_pids(1)
        await store.heads_create([pid], 7)
        head = await head_of(store, pid)
        assert (head.pid, head.next_offset, head.log_start, head.total_bytes) == (pid, 0, 0, 0)
        assert (head.state, head.epoch) == (HeadState.OPEN, 7)
        assert head.appended_at.utcoffset() is not None


async def test_heads_are_read_by_pid_and_missing_ones_left_out(backing: Backing) -> None:
    async with backing.store() as store:
        pids = new_pids(4)
        await store.heads_create([pids[2], pids[0], pids[3]], 0)
        heads = await store.heads_read([pids[3], pids[1], pids[0], pids[2]])
        assert [head.pid for head in heads] == [pids[0], pids[2], pids[3]]
        assert await store.heads_read([]) == []


async def test_creating_again_changes_nothing(backing: Backing) -> None:
    async with backing.store() as store:
        pid, new = new_pids(2)
        await store.heads_create([pid], 0)
        await appended(store, plain(pid, 3))
        before = await head_of(store, pid)
        await store.heads_create([pid, new], 5)
        assert await head_of(store, pid) == before
        assert (await head_of(store, new)).epoch == 5


async def test_creating_from_many_tasks_makes_one_head(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        pids = new_pids(8)
        await asyncio.gather(*(store.heads_create(pids, 0) for store in (one, other) for _ in range(8)))
        assert [head.pid for head in await one.heads_read(pids)] == pids
        answers = await one.append([plain(pid, 1) for pid in pids])
        assert [answer.base for answer in answers if isinstance(answer, Appended)] == [0] * 8


async def test_the_head_follows_what_is_appended(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        pid = await create_one(one)
        first = await head_of(one, pid)
        append = plain(pid, 3, 4)
        answer = await appended(one, append)
        head = await head_of(other, pid)
        assert (head.next_offset, head.log_start) == (7, 0)
        assert head.total_bytes == sum(len(payload.data) for payload in append.payloads)
        assert head.appended_at == answer.appended_at
        assert head.version > first.version


async def test_a_sealed_partition_is_read_but_not_appended_to(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        pid = await create_one(one)
        await appended(one, plain(pid, 3))
        await other.heads_close([pid], HeadState.SEALED)
        assert (await refused(one, plain(pid, 1))).refusal is Refusal.CLOSED
        head = await head_of(one, pid)
        assert (head.state, head.log_start, head.next_offset) == (HeadState.SEALED, 0, 3)
        assert [each.count for each in await read_all(one, pid)] == [3]


async def test_a_deleted_partition_has_nothing_left(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        pid, kept = await create(one, 2)
        await one.append([plain(pid, 3), plain(kept, 3)])
        await other.heads_close([pid], HeadState.DELETED)
        assert (await refused(one, plain(pid, 1))).refusal is Refusal.CLOSED
        head = await head_of(one, pid)
        assert (head.state, head.log_start, head.next_offset) == (HeadState.DELETED, 3, 3)
        assert await read_batches(one, pid, 3) == []
        assert (await appended(one, plain(kept, 1))).base == 3


async def test_closing_again_changes_nothing_and_never_reopens(backing: Backing) -> None:
    async with backing.store() as store:
        pid = await create_one(store)
        await appended(store, plain(pid, 2))
        await store.heads_close([pid], HeadState.SEALED)
        await store.heads_close([pid], HeadState.SEALED)
        assert (await head_of(store, pid)).state is HeadState.SEALED
        await store.heads_close([pid], HeadState.DELETED)
        deleted = await head_of(store, pid)
        for state in (HeadState.DELETED, HeadState.SEALED, HeadState.OPEN):
            await store.heads_close([pid], state)
            assert await head_of(store, pid) == deleted


async def test_creating_after_a_delete_leaves_it_deleted(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        pid = await create_one(one)
        await appended(one, plain(pid, 2))
        await one.heads_close([pid], HeadState.DELETED)
        await other.heads_create([pid], 0)
        assert (await head_of(other, pid)).state is HeadState.DELETED
        assert (await refused(other, plain(pid, 1))).refusal is Refusal.CLOSED


async def test_a_delete_that_comes_before_the_head_is_not_undone_by_a_late_creator(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        (pid,) = new_pids(1)
        await one.heads_close([pid], HeadState.DELETED)
        await other.heads_create([pid], 0)
        assert (await refused(other, plain(pid, 1))).refusal is Refusal.CLOSED


async def test_deleted_partitions_are_removed_after_a_while_and_never_created_again(backing: Backing) -> None:
    async with backing.empty_store_pair() as (one, other):
        pids = await create(one, 3)
        kept = await create_one(one)
        await one.append([plain(pid, 2) for pid in (*pids, kept)])
        await one.heads_close(pids, HeadState.DELETED)
        assert await other.partitions_remove() == 0, "deleted just now"
        assert await other.partitions_remove(memory=timedelta(0)) == 3
        assert [head.pid for head in await one.heads_read([*pids, kept])] == [kept]
        await other.heads_create(pids, 0)
        await other.heads_close(pids, HeadState.DELETED)
        assert (await refused(one, plain(pids[0], 1))).refusal is Refusal.MISSING
        assert await one.read(pids[0], 0, max_messages=1, max_bytes=1) is None
        assert (await appended(one, plain(kept, 1))).base == 2
        assert await other.partitions_remove(memory=timedelta(0)) == 0
        roll = (await one.roll_active()).roll
        await one.roll()
        await one.log_start_raise([(kept, 3)])
        assert await one.rolls_drop() == [roll]


async def test_deleting_while_many_append_loses_no_answer(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        pid = await create_one(one)
        await appended(one, plain(pid, 1))
        appends = [append_one(store, plain(pid, 1)) for store in (one, other) for _ in range(10)]
        *answers, _ = await asyncio.gather(*appends, one.heads_close([pid], HeadState.DELETED))
        went_in = sum(isinstance(answer, Appended) for answer in answers)
        head = await head_of(one, pid)
        assert head.log_start == head.next_offset == 1 + went_in
        assert (await refused(other, plain(pid, 1))).refusal is Refusal.CLOSED


async def test_a_lower_epoch_is_refused_after_it_was_raised(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        pid = await create_one(one)
        await appended(one, plain(pid, 1, epoch=0))
        await other.epoch_raise([pid], 2)
        await other.epoch_raise([pid], 2)
        await other.epoch_raise([pid], 1)
        assert (await refused(one, plain(pid, 1, epoch=1))).refusal is Refusal.EPOCH
        assert (await appended(one, plain(pid, 1, epoch=2))).base == 1
        assert [each.epoch for each in await read_all(one, pid)] == [0, 2]


async def test_the_epochs_of_batches_never_fall(backing: Backing) -> None:
    """A server that learnt about new partitions early may append before the head has the new epoch."""
    async with backing.store_pair() as (one, other):
        pid = await create_one(one)
        await appended(one, plain(pid, 1, epoch=1))
        assert (await refused(other, plain(pid, 1, epoch=0))).refusal is Refusal.EPOCH
        assert (await head_of(other, pid)).epoch == 1
