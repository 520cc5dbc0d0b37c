"""Incidents: written with their decision or not at all, read by message, counted by group; clusters of dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lakelog.model.incident import Incident, IncidentKind
from lakelog.model.kinds import DeadLetterState
from lakelog.model.message import PARTITION_BITS
from lakelog.storage.groups import CommitStatus, DeadLetterKey, GroupStore, JournalEntry
from lakelog.storage.store import Append, Appended, Payload
from tests.contract.group_values import commit, entry, letter, new_group
from tests.contract.stores import Backing
from tests.contract.values import create_one, new_pids


def incident(offset: int, kind: IncidentKind = IncidentKind.FAILED, **given: object) -> Incident:
    made = Incident(
        kind=kind,
        offset=offset,
        epoch=2,
        deliveries=3,
        failures=2,
        owner="w-1",
        leased_ms=1000,
        due_ms=5000,
        reason="ValueError: ä",
        traceback="in pay",
        fingerprint=(1 << 48) - 1,
        left_out=0,
    )
    return replace(made, **given)  # type: ignore[arg-type]


def noted(group: int, pid: int, version: int, *incidents: Incident, dead: Sequence[int] = ()) -> JournalEntry:
    """Return an entry with incidents, and with dead letters at these offsets, each with its own fingerprint."""
    letters = [replace(letter(offset), fingerprint=offset % 3) for offset in dead]
    return replace(entry(group, pid, version, dead=letters), incidents=incidents)


async def read(groups: GroupStore, pid: int, *offsets: int, limit: int = 100) -> list[Incident]:
    return [each.incident for each in await groups.incidents.incidents_read(pid, offsets, limit=limit)]


async def test_an_incident_is_kept_as_it_was_written_with_the_time_of_the_database(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        group, (pid,) = new_group(), new_pids(1)
        full, bare = incident(7), incident(8, IncidentKind.ACKED, due_ms=None, reason="", traceback=None, fingerprint=0)
        before = await other.clock()
        assert await commit(one.groups, noted(group, pid, 1, full, bare)) == [CommitStatus.OK]
        (found,) = await other.groups.incidents.incidents_read(pid, [7], limit=10)
        assert (found.group_id, found.pid, found.incident) == (group, pid, full)
        after = await other.clock()
        assert int(before.timestamp() * 1000) <= found.at_ms <= after.timestamp() * 1000 + 1
        assert await read(other.groups, pid, 8) == [bare]
        assert await read(other.groups, pid, 9) == []
        assert await read(other.groups, pid + 1, 7) == []


async def test_an_incident_of_a_refused_decision_is_not_written(backing: Backing) -> None:
    async with backing.store() as store:
        group, pids = new_group(), new_pids(2)
        conflict, fine = noted(group, pids[0], 2, incident(1), dead=[1]), noted(group, pids[1], 1, incident(1))
        assert await commit(store.groups, conflict, fine) == [CommitStatus.CONFLICT, CommitStatus.OK]
        assert await read(store.groups, pids[0], 1) == []
        assert await store.groups.dead_list(group, pids) == []
        assert len(await read(store.groups, pids[1], 1)) == 1


async def test_an_incident_of_a_decision_that_accepts_a_value(backing: Backing) -> None:
    async with backing.store() as store:
        group, (pid,) = new_group(), new_pids(1)
        accepting = replace(noted(group, pid, 1, incident(1), dead=[2]), incarnation=5, accepted_values=[b"v" * 32])
        assert await commit(store.groups, accepting) == [CommitStatus.OK]
        again = replace(noted(group, pid, 2, incident(3)), incarnation=5, accepted_values=[b"v" * 32])
        assert await commit(store.groups, again) == [CommitStatus.REPEATED]
        assert (len(await read(store.groups, pid, 1)), await read(store.groups, pid, 3)) == (1, [])
        assert [each.key.offset for each in await store.groups.dead_list(group, [pid])] == [2]


async def test_the_newest_incidents_of_each_message_in_the_order_of_time(backing: Backing) -> None:
    async with backing.store() as store:
        (group, other), (pid,) = (new_group(), new_group()), new_pids(1)
        for version in range(1, 6):
            assert await commit(store.groups, noted(group, pid, version, incident(1, deliveries=version)))
        assert await commit(store.groups, noted(other, pid, 1, incident(2, deliveries=9)))
        assert [each.deliveries for each in await read(store.groups, pid, 1, 2, limit=3)] == [3, 4, 5, 9]


async def test_a_text_that_cannot_be_stored_blocks_no_answer(backing: Backing) -> None:
    async with backing.store() as store:
        group, (pid,) = new_group(), new_pids(1)
        odd = incident(1, owner="a\0b", reason="a\0b\ud800c", traceback="d\0e")
        assert await commit(store.groups, noted(group, pid, 1, odd)) == [CommitStatus.OK]
        (found,) = await read(store.groups, pid, 1)
        assert (found.owner, found.reason, found.traceback) == ("a\ufffdb", "a\ufffdb?c", "d\ufffde")


async def test_failures_are_counted_by_group_and_topic_with_those_that_were_left_out(backing: Backing) -> None:
    async with backing.store() as store:
        (group, other), pids, (elsewhere,) = (new_group(), new_group()), new_pids(2), new_pids(1)
        kinds = [incident(n, kind) for n, kind in enumerate(IncidentKind)]
        kinds.append(incident(9, IncidentKind.DISCARDED, due_ms=None, reason="", traceback=None, fingerprint=0))
        await commit(store.groups, noted(group, pids[0], 1, *kinds), noted(group, pids[1], 1, incident(0, left_out=40)))
        await commit(store.groups, noted(group, elsewhere, 1, incident(0)), noted(other, pids[0], 1, incident(0)))
        now = int((await store.clock()).timestamp() * 1000)
        count = store.groups.incidents.failures_count
        assert await count([group], now - 60_000, now + 60_000) == {
            (group, pids[0] >> PARTITION_BITS): 5 + 41,
            (group, elsewhere >> PARTITION_BITS): 1,
        }
        assert await count([group, other], now + 60_000, now + 70_000) == {}
        assert await store.groups.incidents.incidents_trim() == 0


async def test_clusters_of_dead_letters_with_the_newest_of_each(backing: Backing) -> None:
    async with backing.store() as store:
        group, pids = new_group(), new_pids(2)
        await commit(store.groups, noted(group, pids[0], 1, dead=[0, 1, 3, 4, 6]))
        await commit(store.groups, noted(group, pids[1], 1, dead=[9]), noted(new_group(), pids[0], 1, dead=[2]))
        clusters = await store.groups.incidents.dead_clusters(group, pids, limit=10)
        assert [(each.fingerprint, each.count) for each in clusters] == [(0, 4), (1, 2)]
        assert (clusters[0].pid, clusters[0].offset, clusters[0].reason) == (pids[1], 9, "boom")
        assert clusters[0].first_ms <= clusters[0].last_ms
        assert len(await store.groups.incidents.dead_clusters(group, pids, limit=1)) == 1
        for each in clusters:
            chosen = await store.groups.incidents.dead_clusters(group, pids, fingerprint=each.fingerprint, limit=10)
            assert chosen == [each]
        assert await store.groups.incidents.dead_clusters(group, pids, fingerprint=7, limit=10) == []
        assert await store.groups.dead_discard(group, [DeadLetterKey(pid=pids[0], offset=1, epoch=0)]) == 1
        (_, second) = await store.groups.incidents.dead_clusters(group, pids[:1], limit=10)
        assert (second.fingerprint, second.count, second.offset) == (1, 1, 4)


async def test_dead_letters_of_an_older_version_are_one_cluster_without_a_fingerprint(backing: Backing) -> None:
    async with backing.store() as store:
        group, (pid,) = new_group(), new_pids(1)
        await commit(store.groups, entry(group, pid, 1, dead=[letter(1), letter(2)]))
        (cluster,) = await store.groups.incidents.dead_clusters(group, [pid], limit=10)
        assert (cluster.fingerprint, cluster.count) == (None, 2)


async def test_dead_letters_of_a_cluster_are_listed_page_by_page(backing: Backing) -> None:
    async with backing.store() as store:
        group, pids = new_group(), new_pids(2)
        await commit(store.groups, *(noted(group, pid, 1, dead=range(9)) for pid in pids))
        first = await store.groups.dead_list(group, pids, fingerprint=1, limit=4)
        rest = await store.groups.dead_list(group, pids, fingerprint=1, after=first[-1].key, limit=4)
        assert [(each.key.pid, each.key.offset) for each in [*first, *rest]] == [
            (pid, offset) for pid in pids for offset in (1, 4, 7)
        ]
        assert {each.fingerprint for each in first} == {1}
        assert await store.groups.dead_list(group, pids, fingerprint=77) == []


async def test_a_chain_of_redriven_messages(backing: Backing) -> None:
    async with backing.store() as store:
        group, other, pid = new_group(), new_group(), await create_one(store)
        await commit(store.groups, noted(group, pid, 1, dead=[3]), noted(other, pid, 1, dead=[3]))
        await store.append([Append(pid=pid, epoch=0, payloads=[Payload(data=b"x", count=9)])])
        append = Append(pid=pid, epoch=0, payloads=[Payload(data=b"x", count=1)])
        answer, _ = await store.groups.dead_redrive(group, [DeadLetterKey(pid=pid, offset=3, epoch=0)], append)
        assert isinstance(answer, Appended)
        await commit(store.groups, noted(group, pid, 2, dead=[answer.base]))
        chain = await store.groups.incidents.dead_chain([group], pid, [3])
        assert [(each.key.offset, each.state, each.redriven_to) for each in chain] == [
            (3, DeadLetterState.REDRIVEN, answer.base),
            (answer.base, DeadLetterState.DEAD, None),
        ]
        assert [each.group_id for each in await store.groups.incidents.dead_chain([group, other], pid, [3])] == sorted(
            [group, group, other]
        )
