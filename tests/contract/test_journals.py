"""Journals: a version is written once, after the last, in time; a refusal does not affect other writers (S8, S9)."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from lakelog.storage.groups import JOURNAL_READ_ROWS, CommitStatus, JournalRequest
from tests.contract.group_values import (
    ALWAYS,
    body_of,
    commit,
    commit_one,
    entry,
    letter,
    new_group,
    rows_of,
    versions_of,
    write,
)
from tests.contract.stores import Backing
from tests.contract.values import new_pids

OK, CONFLICT, TIME, _ = CommitStatus


async def test_a_journal_grows_row_by_row_and_is_read_back(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        group, (pid,) = new_group(), new_pids(1)
        assert await rows_of(one.groups, group, pid) == []
        await write(one.groups, group, pid, range(1, 6), snapshots=[3])
        rows = await rows_of(other.groups, group, pid)
        assert [row.version for row in rows] == [1, 2, 3, 4, 5]
        assert [row.snapshot for row in rows] == [False, False, True, False, False]
        assert [row.body for row in rows] == [body_of(version) for version in range(1, 6)]
        assert await versions_of(other.groups, group, pid, 3) == [4, 5]
        assert await versions_of(other.groups, group, pid, 5) == []


@pytest.mark.parametrize("version", [0, 2, 7])
async def test_a_journal_begins_with_version_one(backing: Backing, version: int) -> None:
    async with backing.store() as store:
        group, (pid,) = new_group(), new_pids(1)
        assert await commit(store.groups, entry(group, pid, version)) == [CONFLICT]
        assert await rows_of(store.groups, group, pid) == []


@pytest.mark.parametrize("version", [1, 2, 3, 5, 6])
async def test_a_version_that_does_not_follow_the_last_is_a_conflict(backing: Backing, version: int) -> None:
    async with backing.store() as store:
        group, (pid,) = new_group(), new_pids(1)
        await write(store.groups, group, pid, [1, 2, 3])
        assert await commit(store.groups, entry(group, pid, version)) == [CONFLICT]
        assert await versions_of(store.groups, group, pid) == [1, 2, 3]


async def test_of_two_writers_of_one_version_exactly_one_wins(backing: Backing) -> None:
    """S9: both writers decided against the same state; the second decision is not written."""
    async with backing.store_pair() as (one, other):
        group, (pid,) = new_group(), new_pids(1)
        for version in range(1, 21):
            answers = await asyncio.gather(
                *(commit(store.groups, entry(group, pid, version)) for store in (one, other) * 4)
            )
            assert sorted(status for (status,) in answers) == [OK] + [CONFLICT] * 7
        assert await versions_of(one.groups, group, pid) == list(range(1, 21))


async def test_a_refusal_blocks_no_other_entry(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        group, pids = new_group(), new_pids(4)
        await write(one.groups, group, pids[1], [1])
        past = (0, 1)
        entries = [
            entry(group, pids[3], 1),
            entry(group, pids[1], 1),
            entry(group, pids[2], 1, bounds=past),
            entry(group, pids[0], 1),
        ]
        assert await commit(other.groups, *entries) == [OK, CONFLICT, TIME, OK]
        assert [await versions_of(one.groups, group, pid) for pid in pids] == [[1], [1], [], [1]]


async def test_overlapping_commits_in_any_order_do_not_wait_for_each_other(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        group, pids = new_group(), new_pids(8)
        for version in range(1, 11):
            forth = [entry(group, pid, version) for pid in pids]
            back = forth[::-1]
            async with asyncio.timeout(20):
                first, second = await asyncio.gather(commit(one.groups, *forth), commit(other.groups, *back))
            for mine, theirs in zip(first, second[::-1], strict=True):
                assert sorted([mine, theirs]) == [OK, CONFLICT]


async def test_groups_and_partitions_have_journals_of_their_own(backing: Backing) -> None:
    async with backing.store() as store:
        groups, pids = [new_group(), new_group()], new_pids(2)
        entries = [entry(group, pid, 1) for group in groups for pid in pids]
        assert await commit(store.groups, *entries) == [OK] * 4
        await write(store.groups, groups[0], pids[0], [2])
        asks = [JournalRequest(group_id=group, pid=pid) for group in groups for pid in pids]
        reads = await store.groups.journals_read(asks[::-1])
        assert [[row.version for row in read.rows] for read in reads] == [[1], [1], [1], [1, 2]]


async def test_the_clock_decides_with_both_bounds_included(backing: Backing) -> None:
    """S8: the clock of the database at the moment of the write determines whether a lease has expired."""
    async with backing.store() as store:
        group, (pid,) = new_group(), new_pids(1)
        (read,) = await store.groups.journals_read([JournalRequest(group_id=group, pid=pid)])
        assert abs(read.clock_ms - time.time() * 1000) < 60_000
        late = await commit_one(store.groups, entry(group, pid, 1, bounds=(0, read.clock_ms - 1)))
        early = await commit_one(store.groups, entry(group, pid, 1, bounds=(read.clock_ms + 60_000, ALWAYS)))
        assert [late.status, early.status] == [TIME, TIME]
        assert read.clock_ms <= late.clock_ms <= early.clock_ms < read.clock_ms + 60_000
        assert await rows_of(store.groups, group, pid) == []
        good = await commit_one(store.groups, entry(group, pid, 1, bounds=(early.clock_ms, early.clock_ms + 60_000)))
        assert good.status is OK
        assert good.clock_ms >= early.clock_ms


async def test_a_refused_entry_leaves_no_dead_letter(backing: Backing) -> None:
    """S14: the dead letter and the row that ends its message are one write."""
    async with backing.store() as store:
        group, pids = new_group(), new_pids(3)
        entries = [
            entry(group, pids[0], 2, dead=[letter(1), letter(2)]),
            entry(group, pids[1], 1, dead=[letter(3), letter(4)]),
            entry(group, pids[2], 1, bounds=(0, 1), dead=[letter(5)]),
        ]
        assert await commit(store.groups, *entries) == [CONFLICT, OK, TIME]
        found = await store.groups.dead_list(group, pids)
        assert [(each.key.pid, each.key.offset) for each in found] == [(pids[1], 3), (pids[1], 4)]


async def test_an_empty_request_has_an_empty_result(backing: Backing) -> None:
    async with backing.store() as store:
        assert await store.groups.journals_read([]) == []
        assert await store.groups.journals_commit([]) == []


async def test_a_journal_that_is_behind_its_reader_is_read_from_its_snapshot(backing: Backing) -> None:
    """After a failover a caller may know more than the store; an empty result would tell it that it is up to date."""
    async with backing.store() as store:
        group, (pid,) = new_group(), new_pids(1)
        await write(store.groups, group, pid, [1, 2, 3], snapshots=[2])
        assert await versions_of(store.groups, group, pid, 4) == [2, 3]


async def test_a_reader_far_behind_gets_a_snapshot_instead(backing: Backing) -> None:
    async with backing.store() as store:
        group, pids = new_group(), new_pids(2)
        last = JOURNAL_READ_ROWS + 2
        for version in range(1, last + 1):
            entries = [entry(group, pid, version, snapshot=version == last - 1) for pid in pids[:1]]
            entries += [entry(group, pid, version) for pid in pids[1:]]
            assert await commit(store.groups, *entries) == [OK, OK]
        assert await versions_of(store.groups, group, pids[0], 1) == [last - 1, last]
        assert await versions_of(store.groups, group, pids[0], 2) == list(range(3, last + 1))
        assert await versions_of(store.groups, group, pids[1], 0) == list(range(1, last + 1)), "it has no snapshot"


async def test_bodies_of_any_size_are_read_back(backing: Backing) -> None:
    async with backing.store() as store:
        group, (pid,) = new_group(), new_pids(1)
        sizes = (0, 1, 3000, 9000, 3_000_000)
        for version, size in enumerate(sizes, 1):
            new = entry(group, pid, version)
            (answer,) = await store.groups.journals_commit([replace(new, body=b"\0" * size)])
            assert answer.status is OK
        assert [len(row.body) for row in await rows_of(store.groups, group, pid)] == list(sizes)


async def test_the_newest_row_of_each_journal_is_read_in_one_call(backing: Backing) -> None:
    async with backing.store() as store:
        group, other, pids = new_group(), new_group(), new_pids(3)
        await write(store.groups, group, pids[0], [1, 2, 3])
        assert await commit(store.groups, entry(group, pids[1], 1, snapshot=True)) == [OK]
        places = [(other, pids[0]), (group, pids[1]), (group, pids[2]), (group, pids[0])]
        found = await store.groups.journals_newest(places)
        assert [row and (row.version, row.snapshot, row.body) for row in found] == [
            None,
            (1, True, body_of(1)),
            None,
            (3, False, body_of(3)),
        ]
        assert await store.groups.journals_newest([]) == []


async def test_S3_a_version_counts_only_with_its_nonce(backing: Backing) -> None:
    """After a failover that lost rows, version 2 can exist again with another content."""
    group, (pid,) = new_group(), new_pids(1)
    async with backing.store() as store:
        first = entry(group, pid, 1, snapshot=True, nonces=(71, 0))
        second = entry(group, pid, 2, nonces=(72, 71))
        assert [await commit(store.groups, each) for each in (first, second)] == [[OK], [OK]]
        stale = entry(group, pid, 3, nonces=(83, 82))
        assert await commit(store.groups, stale) == [CONFLICT]
        behind = {}
        for version, nonce in ((1, 71), (1, 81), (2, 72), (2, 82), (3, 83)):
            ask = JournalRequest(group_id=group, pid=pid, after=version, after_nonce=nonce)
            (read,) = await store.groups.journals_read([ask])
            behind[version, nonce] = [(row.version, row.nonce) for row in read.rows]
        every = [(1, 71), (2, 72)]
        assert behind == {(1, 71): [(2, 72)], (1, 81): every, (2, 72): [], (2, 82): every, (3, 83): every}
        assert await commit(store.groups, replace(stale, after_nonce=72)) == [OK]
