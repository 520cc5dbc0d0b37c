"""Appends: dense offsets, all or nothing, one result each in the given order."""

from __future__ import annotations

import asyncio
import random

from lakelog.storage.store import Appended, HeadState, PartitionStore, Refusal, Refused
from tests.contract.stores import Backing
from tests.contract.values import (
    appended,
    create,
    create_one,
    head_of,
    new_pids,
    new_producer,
    numbered,
    plain,
    read_all,
    refused,
    run,
)


async def test_offsets_start_at_zero_and_continue(backing: Backing) -> None:
    async with backing.store() as store:
        pid = await create_one(store)
        assert [(await appended(store, plain(pid, count))).base for count in (3, 1, 5)] == [0, 3, 4]
        assert (await head_of(store, pid)).next_offset == 9


async def test_one_append_may_hold_several_batches(backing: Backing) -> None:
    async with backing.store() as store:
        pid = await create_one(store)
        append = plain(pid, 2, 3, 1)
        answer = await appended(store, append)
        found = await read_all(store, pid)
        assert [(each.base, each.count) for each in found] == [(0, 2), (2, 3), (5, 1)]
        assert [each.payload for each in found] == [payload.data for payload in append.payloads]
        assert {each.appended_at for each in found} == {answer.appended_at}
        assert [each.bytes_end for each in found] == [16, 32, 48]


async def test_results_are_in_the_given_order(backing: Backing) -> None:
    async with backing.store() as store:
        pids = await create(store, 6)
        random.shuffle(pids)
        for round_ in range(3):
            answers = await store.append([plain(pid, 2) for pid in pids])
            assert [answer.pid for answer in answers] == pids
            assert [answer.base for answer in answers if isinstance(answer, Appended)] == [round_ * 2] * 6


async def test_appending_nothing_answers_nothing(backing: Backing) -> None:
    async with backing.store() as store:
        assert await store.append([]) == []


async def test_a_refusal_touches_no_other_append_of_the_commit(backing: Backing) -> None:
    async with backing.store() as store:
        (missing,) = new_pids(1)
        good, sealed, deleted, raised, unknown, last = await create(store, 6)
        await store.heads_close([sealed], HeadState.SEALED)
        await store.heads_close([deleted], HeadState.DELETED)
        await store.epoch_raise([raised], 1)
        answers = await store.append(
            [
                plain(good, 2),
                plain(missing, 1),
                plain(sealed, 1),
                plain(deleted, 1),
                plain(raised, 1),
                numbered(unknown, run(new_producer(), 3)),
                plain(last, 4),
            ]
        )
        kinds = [answer.refusal if isinstance(answer, Refused) else answer.base for answer in answers]
        expected = [0, Refusal.MISSING, Refusal.CLOSED, Refusal.CLOSED, Refusal.EPOCH, Refusal.PARTS, 0]
        assert kinds == expected
        assert [each.count for each in await read_all(store, good)] == [2]
        assert [each.count for each in await read_all(store, last)] == [4]
        heads = await store.heads_read([missing, sealed, deleted, raised, unknown])
        assert [(head.next_offset, head.total_bytes) for head in heads] == [(0, 0)] * 4


async def test_an_append_alone_is_refused_for_the_same_reasons(backing: Backing) -> None:
    async with backing.store() as store:
        (missing,) = new_pids(1)
        sealed, deleted, raised = await create(store, 3)
        await store.heads_close([sealed], HeadState.SEALED)
        await store.heads_close([deleted], HeadState.DELETED)
        await store.epoch_raise([raised], 1)
        found = [(await refused(store, plain(pid, 1))).refusal for pid in (missing, sealed, deleted, raised)]
        assert found == [Refusal.MISSING, Refusal.CLOSED, Refusal.CLOSED, Refusal.EPOCH]
        assert (await appended(store, plain(raised, 2, epoch=1))).base == 0
        assert [(each.base, each.count, each.epoch) for each in await read_all(store, raised)] == [(0, 2, 1)]


async def test_a_missing_head_can_be_made_and_the_append_repeated(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        (pid,) = new_pids(1)
        append = plain(pid, 2)
        assert (await refused(one, append)).refusal is Refusal.MISSING
        await other.heads_create([pid], 0)
        assert (await appended(one, append)).base == 0


async def test_offsets_are_dense_under_many_concurrent_appends(backing: Backing) -> None:
    """Two servers, tasks, several partitions per commit in any order: each result is stored once, at its offset."""
    async with backing.store_pair() as handles:
        pids = await create(handles[0], 5)
        placed: dict[int, dict[int, list[bytes]]] = {pid: {} for pid in pids}

        async def publish(store: PartitionStore, seed: int) -> None:
            chance = random.Random(seed)
            for _ in range(6):
                chosen = chance.sample(pids, chance.randint(1, len(pids)))
                appends = [plain(pid, *(chance.randint(1, 4) for _ in range(chance.randint(1, 2)))) for pid in chosen]
                for append, answer in zip(appends, await store.append(appends), strict=True):
                    assert isinstance(answer, Appended)
                    assert answer.pid == append.pid
                    assert answer.base not in placed[append.pid]
                    placed[append.pid][answer.base] = [payload.data for payload in append.payloads]

        await asyncio.gather(*(publish(handles[seed % 2], seed) for seed in range(12)))
        for pid in pids:
            found = await read_all(handles[1], pid)
            by_base = [data for base in sorted(placed[pid]) for data in placed[pid][base]]
            assert [each.payload for each in found] == by_base
            assert [each.base for each in found[1:]] == [each.end for each in found[:-1]]
            assert set(placed[pid]) <= {each.base for each in found}
            times = [each.appended_at for each in found]
            assert times == sorted(times)


async def test_the_time_of_an_append_is_the_stores(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        pid = await create_one(one)
        before = await other.clock()
        answer = await appended(one, plain(pid, 1))
        assert before <= answer.appended_at <= await other.clock()


async def test_bytes_are_counted_over_appends(backing: Backing) -> None:
    async with backing.store() as store:
        pid = await create_one(store)
        await appended(store, plain(pid, 1, 1))
        await appended(store, plain(pid, 9))
        assert [each.bytes_end for each in await read_all(store, pid)] == [16, 32, 48]
        assert (await head_of(store, pid)).total_bytes == 48


async def test_any_bytes_are_read_back_unchanged(backing: Backing) -> None:
    async with backing.store() as store:
        pid = await create_one(store)
        append = plain(pid, 1)
        bodies = [b"\x00", bytes(range(256)) * 8, b"\\x00'\";--", b"\xff" * (1 << 20)]
        payloads = [type(append.payloads[0])(data=body, count=1) for body in bodies]
        await appended(store, type(append)(pid=pid, epoch=0, payloads=payloads))
        assert [each.payload for each in await read_all(store, pid)] == bodies
