"""Values of which a group accepts one run: an entry is written with its values, or not at all."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import replace

from lakelog.storage.groups import CommitResult, CommitStatus, JournalEntry
from lakelog.storage.store import PartitionStore
from tests.contract.group_values import commit, entry, new_group, versions_of, write
from tests.contract.stores import Backing
from tests.contract.values import new_pids

OK, CONFLICT, TIME, REPEATED = CommitStatus
TOPIC = 7
HOUR = 60 * 60


def new_value() -> bytes:
    return secrets.token_bytes(16)


def accepting(group: int, pid: int, version: int, *values: bytes, topic: int = TOPIC) -> JournalEntry:
    return replace(entry(group, pid, version), incarnation=topic, accepted_values=values)


async def commit_all(store: PartitionStore, *entries: JournalEntry) -> Sequence[CommitResult]:
    return await store.groups.journals_commit(entries)


async def test_an_entry_with_an_accepted_value_is_refused_whole_and_names_it(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        group, (pid, second) = new_group(), new_pids(2)
        value, new = new_value(), new_value()
        assert await one.groups.once_find(group, TOPIC, [value]) == frozenset()
        assert await commit(one.groups, accepting(group, pid, 1, value)) == [OK]
        (result,) = await commit_all(other, accepting(group, second, 1, new, value))
        assert (result.status, result.taken) == (REPEATED, {value})
        assert await versions_of(other.groups, group, second) == []
        assert await other.groups.once_find(group, TOPIC, [value, new]) == {value}
        assert await commit(other.groups, accepting(group, second, 1, new)) == [OK]
        assert await one.groups.once_find(group, TOPIC, [value, new]) == {value, new}


async def test_values_of_other_groups_and_topics_do_not_count(backing: Backing) -> None:
    async with backing.store() as store:
        group, (pid, second) = new_group(), new_pids(2)
        value = new_value()
        entries = [
            accepting(group, pid, 1, value),
            accepting(new_group(), pid, 1, value),
            accepting(group, second, 1, value, topic=8),
        ]
        assert await commit(store.groups, *entries) == [OK, OK, OK]


async def test_a_refused_entry_leaves_its_values_free(backing: Backing) -> None:
    async with backing.store() as store:
        group, pids = new_group(), new_pids(4)
        late, wrong, repeated, old = new_value(), new_value(), new_value(), new_value()
        await write(store.groups, group, pids[0], [1])
        assert await commit(store.groups, accepting(group, pids[3], 1, old)) == [OK]
        entries = [
            accepting(group, pids[0], 1, wrong),
            replace(accepting(group, pids[1], 1, late), not_before_ms=0, not_after_ms=1),
            accepting(group, pids[2], 1, repeated, old),
        ]
        assert await commit(store.groups, *entries) == [CONFLICT, TIME, REPEATED]
        assert await store.groups.once_find(group, TOPIC, [late, wrong, repeated, old]) == {old}


async def test_a_later_entry_with_the_value_of_an_earlier_one_is_decided_again(backing: Backing) -> None:
    """The later entry is not told that the value is taken: the earlier entry may be refused."""
    async with backing.store() as store:
        group, pids = new_group(), new_pids(3)
        value, other = new_value(), new_value()
        assert await commit(
            store.groups, accepting(group, pids[0], 2, value), accepting(group, pids[1], 1, value, other)
        ) == [CONFLICT, CONFLICT]
        assert await store.groups.once_find(group, TOPIC, [value, other]) == frozenset()
        results = await commit_all(
            store, accepting(group, pids[0], 1, value), accepting(group, pids[1], 1, value), entry(group, pids[2], 1)
        )
        assert [result.status for result in results] == [OK, CONFLICT, OK]
        assert [result.taken for result in results] == [frozenset()] * 3


async def test_of_writers_of_one_value_exactly_one_wins(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        group, pids = new_group(), new_pids(8)
        for version in range(1, 11):
            values = sorted(new_value() for _ in range(4))
            results = await asyncio.gather(
                *(
                    commit_all(store, accepting(group, pid, 1, *(values if pid % 2 else values[::-1])))
                    for store, pid in zip((one, other) * 4, pids, strict=True)
                )
            )
            assert sorted(result.status for (result,) in results) == [OK] + [REPEATED] * 7, version
            group = new_group()


async def test_a_value_is_remembered_for_a_day_in_whatever_period_it_is(backing: Backing) -> None:
    async with backing.aging_store() as (store, pass_by):
        group, (pid,) = new_group(), new_pids(1)
        values: list[bytes] = []
        for version in range(1, 25):
            values.append(new_value())
            assert await commit(store.groups, accepting(group, pid, version, values[-1])) == [OK]
            await pass_by(3 * HOUR)
            await store.trim({})
            (result,) = await commit_all(store, accepting(group, pid, version + 1, *values[-7:]))
            assert result.taken == set(values[-7:])
            assert await store.groups.once_find(group, TOPIC, values) == set(values[-7:])
        assert await commit(store.groups, accepting(group, pid, 25, *values[:-8])) == [OK], "expired values"
