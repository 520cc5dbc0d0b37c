"""Changes: one query finds the rows of a cell, or of the catalog, that differ from the known ones."""

from __future__ import annotations

from datetime import timedelta

from lakelog.model.group import GroupKind, GroupSettings, GroupTopic
from lakelog.model.times import to_time
from lakelog.model.topic import TopicSettings
from lakelog.storage.changes import ChangedVersions, KnownRows, KnownVersions
from lakelog.storage.store import HeadState
from tests.contract.group_values import commit, entry, new_group, write
from tests.contract.stores import Backing
from tests.contract.test_catalog import new_scope
from tests.contract.values import new_pids, plain


async def test_heads_that_moved_are_returned_with_their_ends(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        pids = quiet, grown, purged, deleted, missing = new_pids(5)
        await one.heads_create([quiet, grown, purged, deleted], 0)
        await one.append([plain(pid, 3) for pid in (quiet, grown, purged, deleted)])
        known = dict.fromkeys(pids, (0, 3))
        assert not (await other.changes_read(KnownRows(heads=known))).heads
        await one.append([plain(grown, 2)])
        await one.log_start_raise([(purged, 3)])
        await one.heads_close([deleted], HeadState.DELETED)
        found = await other.changes_read(KnownRows(heads=known))
        assert found.heads == {grown: (0, 5), purged: (3, 3), deleted: (3, 3)}
        assert not (await other.changes_read(KnownRows(heads={**known, **found.heads}))).heads
        assert missing not in found.heads


async def test_journals_with_another_newest_row_are_returned(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        group, (same, further, new, empty) = new_group(), new_pids(4)
        for pid in (same, further):
            await write(one.groups, group, pid, [1, 2])
        known = {(group, same): (2, 0), (group, further): (2, 0), (group, new): (0, 0), (group, empty): (0, 0)}
        assert not (await other.changes_read(KnownRows(journals=known))).journals
        await write(one.groups, group, further, [3])
        await write(one.groups, group, new, [1])
        assert (await other.changes_read(KnownRows(journals=known))).journals == {(group, further), (group, new)}


async def test_a_journal_whose_newest_row_has_another_nonce_has_changed(backing: Backing) -> None:
    """After a failover that lost rows, the same version can be another row."""
    async with backing.store() as store:
        group, (pid,) = new_group(), new_pids(1)
        await commit(store.groups, entry(group, pid, 1, nonces=(7, 0)))
        assert not (await store.changes_read(KnownRows(journals={(group, pid): (1, 7)}))).journals
        assert (await store.changes_read(KnownRows(journals={(group, pid): (1, 8)}))).journals == {(group, pid)}
        assert (await store.changes_read(KnownRows(journals={(group, pid): (2, 7)}))).journals == {(group, pid)}


async def test_groups_with_other_members_are_returned(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        same, changing, empty = new_group(), new_group(), new_group()
        for group in (same, changing):
            assert await one.groups.members_write(group, 1, b"first")
        known = {same: 1, changing: 1, empty: 0}
        assert not (await other.changes_read(KnownRows(members=known))).members
        assert await one.groups.members_write(changing, 2, b"second")
        assert (await other.changes_read(KnownRows(members=known))).members == {changing}


async def test_a_read_of_changes_tells_the_time_even_if_nothing_is_known(backing: Backing) -> None:
    async with backing.store() as store:
        before = await store.clock()
        found = await store.changes_read(KnownRows())
        after = await store.clock()
        assert (found.heads, found.journals, found.members) == ({}, set(), set())
        # The clock of a read is in whole milliseconds.
        assert before - timedelta(milliseconds=1) <= to_time(found.clock_ms) <= after


async def test_groups_and_topics_of_the_catalog_that_changed_are_returned(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        scope = await new_scope(one)
        groups = [
            await one.groups.group_create(scope, f"group-{n}", GroupKind.LEASE, GroupSettings(), 0) for n in range(4)
        ]
        topics = [await one.topic_create(scope, f"topic-{n}", TopicSettings(), [0]) for n in range(3)]
        places = [GroupTopic(group_id=g.group_id, incarnation=topics[0].incarnation, starts=(0,)) for g in groups]
        for place in places:
            await one.groups.group_topic_create(place)
        known = KnownVersions(
            groups={group.group_id: group.version for group in groups},
            group_topics={(each.group_id, each.incarnation): each.epoch for each in places},
            topics={topic.incarnation: topic.version for topic in topics},
        )
        nothing = ChangedVersions(groups=set(), topics=set())
        assert await other.groups.versions_read(known) == nothing
        assert await other.groups.versions_read(KnownVersions()) == nothing
        await one.groups.group_alter(groups[1], GroupSettings(window=7), frozenset())
        await one.groups.group_topic_seek(places[2], [5])
        await one.groups.group_delete(groups[3])
        await one.topic_alter(topics[1], TopicSettings(key_field="id"), [])
        await one.topic_delete(topics[2])
        found = await other.groups.versions_read(known)
        assert found.groups == {group.group_id for group in groups[1:]}
        assert found.topics == {topic.incarnation for topic in topics[1:]}
