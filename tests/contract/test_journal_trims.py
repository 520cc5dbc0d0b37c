"""Trims of journals: the rows that they may remove, and that an earlier writer cannot write after them."""

from __future__ import annotations

from datetime import timedelta

from lakelog.storage.groups import JOURNAL_GRACE_SECONDS, CommitStatus
from lakelog.storage.store import HeadState
from tests.contract.group_values import commit, entry, letter, new_group, rows_of, versions_of, write
from tests.contract.stores import Backing
from tests.contract.values import create, new_pids

OVER, UNDER = JOURNAL_GRACE_SECONDS + 1, JOURNAL_GRACE_SECONDS - 30


async def test_rows_below_an_old_snapshot_go_and_a_reader_begins_at_it(backing: Backing) -> None:
    async with backing.aging_store() as (store, pass_by):
        group, (pid,) = new_group(), new_pids(1)
        await write(store.groups, group, pid, range(1, 8), snapshots=[1, 5])
        assert await store.groups.journals_trim() == 0, "all are young"
        await pass_by(OVER)
        assert await store.groups.journals_trim() == 4
        assert await store.groups.journals_trim() == 0
        for after in (0, 1, 3, 4):
            assert await versions_of(store.groups, group, pid, after) == [5, 6, 7]
        assert await versions_of(store.groups, group, pid, 5) == [6, 7]
        assert (await rows_of(store.groups, group, pid))[0].snapshot
        await write(store.groups, group, pid, [8])


async def test_a_young_snapshot_makes_nothing_superfluous(backing: Backing) -> None:
    """A statement that began before the snapshot may still be running, and must find the version taken."""
    async with backing.aging_store() as (store, pass_by):
        group, (pid,) = new_group(), new_pids(1)
        await write(store.groups, group, pid, range(1, 5), snapshots=[1])
        await pass_by(OVER)
        await write(store.groups, group, pid, range(5, 8), snapshots=[5])
        assert await store.groups.journals_trim() == 0
        await pass_by(UNDER)
        assert await store.groups.journals_trim() == 0
        await pass_by(OVER - UNDER)
        assert await store.groups.journals_trim() == 4
        assert await versions_of(store.groups, group, pid) == [5, 6, 7]


async def test_a_busy_journal_is_trimmed_to_its_newest_old_snapshot(backing: Backing) -> None:
    async with backing.aging_store() as (store, pass_by):
        group, (pid,) = new_group(), new_pids(1)
        snapshots = range(1, 100, 10)
        await write(store.groups, group, pid, range(1, 37), snapshots=snapshots)
        await pass_by(OVER)
        await write(store.groups, group, pid, range(37, 64), snapshots=snapshots)
        assert await store.groups.journals_trim() == 30
        assert await versions_of(store.groups, group, pid, 29) == [61, 62, 63], "30 is gone"
        assert await versions_of(store.groups, group, pid, 30) == list(range(31, 64))
        await pass_by(OVER)
        await write(store.groups, group, pid, range(64, 70), snapshots=snapshots)
        assert await store.groups.journals_trim() == 30
        assert await versions_of(store.groups, group, pid) == list(range(61, 70))


async def test_the_journal_of_a_removed_partition_goes(backing: Backing) -> None:
    async with backing.aging_store() as (store, _):
        group, (pid, kept) = new_group(), await create(store, 2)
        await write(store.groups, group, pid, [1, 2])
        await store.heads_close([pid], HeadState.DELETED)
        assert await store.partitions_remove(memory=timedelta(0)) == 1
        assert await store.groups.journals_trim() == 2
        other = new_pids(1)[0]
        await write(store.groups, group, other, [1])
        assert await store.groups.journals_trim() == 0, "a partition that is not created yet"
        assert (await store.heads_read([kept]))[0].pid == kept


async def test_a_journal_without_a_snapshot_is_kept(backing: Backing) -> None:
    async with backing.aging_store() as (store, pass_by):
        group, (pid,) = new_group(), new_pids(1)
        await write(store.groups, group, pid, range(1, 5))
        await pass_by(OVER)
        assert await store.groups.journals_trim() == 0
        assert await versions_of(store.groups, group, pid) == [1, 2, 3, 4]


async def test_a_writer_that_slept_through_a_trim_is_refused(backing: Backing) -> None:
    """S9: a writer suspended at version v resumes when v + 1 was removed from the table, and must not write it."""
    async with backing.aging_store() as (store, pass_by):
        group, (pid,) = new_group(), new_pids(1)
        await write(store.groups, group, pid, range(1, 7), snapshots=[6])
        await pass_by(OVER)
        assert await store.groups.journals_trim() == 5
        for version in (1, 2, 4, 5, 6):
            assert await commit(store.groups, entry(group, pid, version, dead=[letter(1)])) == [CommitStatus.CONFLICT]
        assert await versions_of(store.groups, group, pid) == [6]
        assert await store.groups.dead_count(group, [pid]) == 0
        await write(store.groups, group, pid, [7])


async def test_everything_of_deleted_partitions_goes_at_once(backing: Backing) -> None:
    async with backing.aging_store() as (store, _):
        group, (kept, sealed, gone) = new_group(), await create(store, 3)
        for pid in (kept, sealed, gone):
            await commit(store.groups, entry(group, pid, 1, snapshot=True, dead=[letter(7)]), entry(group, pid + 9, 1))
            await write(store.groups, group, pid, [2])
        await store.heads_close([sealed], HeadState.SEALED)
        await store.heads_close([gone], HeadState.DELETED)
        assert await store.groups.journals_trim() == 3
        assert [await versions_of(store.groups, group, pid) for pid in (kept, sealed, gone)] == [[1, 2], [1, 2], []]
        assert [await store.groups.dead_count(group, [pid]) for pid in (kept, sealed, gone)] == [1, 1, 0]
        assert await store.groups.journals_trim() == 0


async def test_everything_of_dropped_groups_goes_at_once(backing: Backing) -> None:
    async with backing.aging_store() as (store, _):
        groups, pids = [new_group() for _ in range(3)], new_pids(2)
        for group in groups:
            await commit(store.groups, *(entry(group, pid, 1, dead=[letter(3)]) for pid in pids))
            assert await store.groups.members_write(group, 1, b"members")
            await store.groups.heartbeats_write([(group, "m")])
        dropped, kept = groups[:2], groups[2]
        assert await store.groups.journals_trim(dropped) == 10
        for group in dropped:
            assert [await rows_of(store.groups, group, pid) for pid in pids] == [[], []]
            assert await store.groups.dead_count(group, pids) == 0
            members = await store.groups.members_read(group)
            assert (members.version, members.body, members.seen_ms) == (0, b"", {})
        assert [await versions_of(store.groups, kept, pid) for pid in pids] == [[1], [1]]
        assert await store.groups.dead_count(kept, pids) == 2
        assert (await store.groups.members_read(kept)).seen_ms.keys() == {"m"}
        assert await store.groups.journals_trim(dropped) == 0


async def test_old_memberships_go_and_the_newest_stays(backing: Backing) -> None:
    async with backing.aging_store() as (store, pass_by):
        group = new_group()
        for version in (1, 2, 3):
            assert await store.groups.members_write(group, version, b"%d" % version)
        await pass_by(OVER)
        assert await store.groups.members_write(group, 4, b"4")
        assert await store.groups.journals_trim() == 2, "3 was in force until just now"
        assert not await store.groups.members_write(group, 2, b"again")
        await pass_by(OVER)
        assert await store.groups.journals_trim() == 1
        members = await store.groups.members_read(group)
        assert (members.version, members.body) == (4, b"4")
        assert not await store.groups.members_write(group, 4, b"again")
        assert await store.groups.members_write(group, 5, b"5")


async def test_heartbeats_of_another_day_are_forgotten(backing: Backing) -> None:
    async with backing.aging_store() as (store, pass_by):
        group = new_group()
        await store.groups.heartbeats_write([(group, "old")])
        await pass_by(24 * 3600 - 60)
        await store.groups.journals_trim()
        assert (await store.groups.members_read(group)).seen_ms.keys() == {"old"}
        await store.groups.heartbeats_write([(group, "new")])
        await pass_by(120)
        await store.groups.journals_trim()
        assert (await store.groups.members_read(group)).seen_ms.keys() == {"new"}
