"""Dead letters: listed, found, discarded and redriven, each exactly once (S14)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from lakelog.model.dead_letter_retention import DeadLetterRetention
from lakelog.model.kinds import DeadLetterState
from lakelog.storage.groups import (
    CommitStatus,
    DeadLetterKey,
    GroupStore,
    NewDeadLetter,
    StoredDeadLetter,
)
from lakelog.storage.store import Append, Appended, HeadState, Payload, Refusal, Refused
from tests.contract.group_values import commit, entry, letter, new_group
from tests.contract.stores import Backing
from tests.contract.values import create, create_one, head_of, new_pids, plain, read_all

DEAD, REDRIVEN, DISCARDED = DeadLetterState


def key(pid: int, offset: int, epoch: int = 0) -> DeadLetterKey:
    return DeadLetterKey(pid=pid, offset=offset, epoch=epoch)


def offsets(letters: Sequence[StoredDeadLetter]) -> list[int]:
    return [each.key.offset for each in letters]


async def bury(groups: GroupStore, group_id: int, pid: int, *letters: NewDeadLetter) -> None:
    assert await commit(groups, entry(group_id, pid, 1, dead=letters)) == [CommitStatus.OK]


async def test_a_dead_letter_is_kept_as_it_was_written(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        group, (pid,) = new_group(), new_pids(1)
        new = letter(1 << 40, epoch=3, reason="ä\n'quoted'", payload=b"\0\xff" * 5000, traceback="in pay\n☃")
        before = await other.clock()
        await bury(one.groups, group, pid, new, letter(5, payload=None))
        found, kept = await other.groups.dead_list(group, [pid])
        assert (found.key, found.payload, found.traceback) == (key(pid, 5), None, None)
        # The time is the database's, independent of the server's clock.
        assert int(before.timestamp() * 1000) <= kept.at_ms <= (await other.clock()).timestamp() * 1000
        assert kept == StoredDeadLetter(
            group_id=group,
            key=key(pid, 1 << 40, 3),
            state=DEAD,
            at_ms=kept.at_ms,
            deliveries=5,
            failures=4,
            reason="ä\n'quoted'",
            owner="worker-1",
            payload=b"\0\xff" * 5000,
            traceback="in pay\n☃",
        )


async def test_a_reason_that_cannot_be_stored_blocks_no_other_answer(backing: Backing) -> None:
    async with backing.store() as store:
        group, pids = new_group(), new_pids(2)
        odd = entry(group, pids[0], 1, dead=[letter(1, reason="a\0b\ud800c", traceback="d\0e\ud800f")])
        assert await commit(store.groups, odd, entry(group, pids[1], 1)) == [CommitStatus.OK] * 2
        (found,) = await store.groups.dead_list(group, pids)
        assert (found.reason, found.traceback) == ("a\ufffdb?c", "d\ufffde?f")


async def test_dead_letters_are_listed_page_by_page_in_order(backing: Backing) -> None:
    async with backing.store() as store:
        group, pids = new_group(), new_pids(3)
        for pid in pids:
            await bury(store.groups, group, pid, *(letter(offset, epoch=e) for offset in (9, 2, 300) for e in (1, 0)))
        everything = [key(pid, offset, epoch) for pid in pids for offset in (2, 9, 300) for epoch in (0, 1)]
        assert [each.key for each in await store.groups.dead_list(group, pids[::-1])] == everything
        paged: list[DeadLetterKey] = []
        after: DeadLetterKey | None = None
        while page := await store.groups.dead_list(group, pids, after=after, limit=4):
            assert len(page) <= 4
            paged += [each.key for each in page]
            after = paged[-1]
        assert paged == everything
        assert [each.key for each in await store.groups.dead_list(group, pids[1:2])] == everything[6:12]
        assert await store.groups.dead_list(new_group(), pids) == []
        assert await store.groups.dead_list(group, []) == []
        assert await store.groups.dead_count(group, pids) == 18
        assert await store.groups.dead_count(group, pids[:1]) == 6
        assert await store.groups.dead_count(new_group(), pids) == 0


async def test_dead_letters_of_many_groups_are_counted_at_once_up_to_a_limit(backing: Backing) -> None:
    async with backing.store() as store:
        group, other, none, pids = new_group(), new_group(), new_group(), new_pids(3)
        for pid in pids:
            await bury(store.groups, group, pid, *(letter(offset) for offset in range(4)))
        await bury(store.groups, other, pids[0], letter(1), letter(2))
        assert await store.groups.dead_discard(group, [key(pids[0], 3)]) == 1
        asks = {group: pids[:2], other: pids, none: pids, new_group(): []}
        assert [*(await store.groups.dead_counts(asks, limit=100)).values()] == [7, 2, 0, 0]
        assert [*(await store.groups.dead_counts(asks, limit=5)).values()] == [5, 2, 0, 0]
        assert await store.groups.dead_counts({}, limit=5) == {}


async def test_a_message_is_found_in_all_its_epochs(backing: Backing) -> None:
    async with backing.store() as store:
        group, (pid,) = new_group(), new_pids(1)
        await bury(store.groups, group, pid, letter(4, epoch=2), letter(4, epoch=0), letter(5))
        assert [each.key.epoch for each in await store.groups.dead_find(group, pid, 4)] == [0, 2]
        assert await store.groups.dead_find(group, pid, 6) == []


async def test_discarding_counts_those_that_were_dead(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        group, (pid,) = new_group(), new_pids(1)
        await bury(one.groups, group, pid, *(letter(offset) for offset in range(6)))
        assert await one.groups.dead_discard(group, [key(pid, 1), key(pid, 3), key(pid, 99), key(pid, 3)]) == 2
        keys = [key(pid, offset) for offset in range(6)]
        counts = await asyncio.gather(
            *(store.groups.dead_discard(group, order) for store in (one, other) for order in (keys, keys[::-1]))
        )
        assert sum(counts) == 4
        assert await one.groups.dead_discard(group, keys) == 0
        assert await one.groups.dead_count(group, [pid]) == 0
        assert offsets(await one.groups.dead_list(group, [pid], state=DISCARDED)) == list(range(6))


async def test_a_purge_deletes_finished_dead_letters_up_to_a_limit(backing: Backing) -> None:
    async with backing.store() as store:
        group, other, pids = new_group(), new_group(), sorted([await create_one(store), await create_one(store)])
        for pid in pids:
            await store.append([plain(pid, 10)])
            await bury(store.groups, group, pid, *(letter(offset) for offset in range(5)))
        await bury(store.groups, other, pids[0], letter(1))
        await store.groups.dead_discard(other, [key(pids[0], 1)])
        await store.groups.dead_discard(group, [key(pids[0], 1), key(pids[1], 1), key(pids[1], 2)])
        await store.groups.dead_redrive(group, [key(pids[0], 3)], plain(pids[0], 1))
        assert await store.groups.dead_purge(group, pids, age=timedelta(hours=1), limit=100) == 0
        assert await store.groups.dead_purge(group, pids, age=timedelta(0), limit=0) == 0
        assert await store.groups.dead_purge(group, pids, age=timedelta(0), limit=3) == 3
        assert await store.groups.dead_purge(group, [*pids, pids[0]], age=timedelta(0), limit=100) == 1
        assert await store.groups.dead_purge(group, pids, age=timedelta(0), limit=100) == 0
        for state in (DISCARDED, REDRIVEN):
            assert await store.groups.dead_list(group, pids, state=state) == []
        assert offsets(await store.groups.dead_list(group, pids)) == [0, 2, 4, 0, 3, 4]
        assert offsets(await store.groups.dead_list(other, pids, state=DISCARDED)) == [1]


async def test_the_retention_of_dead_letters_by_age_removes_those_in_any_state(backing: Backing) -> None:
    async with backing.aging_store() as (store, pass_by):
        group, other = new_group(), new_group()
        pids = await create(store, 2)
        for pid in pids:
            await bury(store.groups, group, pid, *(letter(offset) for offset in range(4)))
        await bury(store.groups, other, pids[0], letter(1))
        await store.groups.dead_discard(group, [key(pids[0], 1)])
        await pass_by(3600)
        assert await commit(store.groups, entry(group, pids[0], 2, dead=[letter(9)])) == [CommitStatus.OK]
        hour, day = DeadLetterRetention(max_age_ms=3_600_000), DeadLetterRetention(max_age_ms=86_400_000)
        assert await store.groups.dead_expire(group, pids, day, limit=100) == 0
        assert await store.groups.dead_expire(group, pids, DeadLetterRetention(), limit=100) == 0
        assert await store.groups.dead_expire(group, pids, hour, limit=0) == 0
        assert await store.groups.dead_expire(group, pids, hour, limit=3) == 3
        assert await store.groups.dead_expire(group, [*pids, pids[0]], hour, limit=100) == 5
        assert await store.groups.dead_expire(group, pids, hour, limit=100) == 0
        assert offsets(await store.groups.dead_list(group, pids)) == [9]
        assert await store.groups.dead_list(group, pids, state=DISCARDED) == []
        assert offsets(await store.groups.dead_list(other, pids)) == [1]


async def test_the_retention_of_dead_letters_by_count_keeps_the_newest_and_counts_finished_ones_apart(
    backing: Backing,
) -> None:
    async with backing.aging_store() as (store, pass_by):
        group, pids = new_group(), await create(store, 2)
        # The order of death is not the order of the offsets.
        for version, offset in enumerate((7, 3, 9, 1, 5), 1):
            for pid in pids:
                assert await commit(store.groups, entry(group, pid, version, dead=[letter(offset)])) == [0]
            await pass_by(1)
        await store.groups.dead_discard(group, [key(pids[0], offset) for offset in (1, 5)])
        two = DeadLetterRetention(max_count=2)
        assert await store.groups.dead_expire(group, pids, DeadLetterRetention(max_count=5), limit=100) == 0
        assert await store.groups.dead_expire(group, pids, two, limit=1) == 1
        assert await store.groups.dead_expire(group, pids, two, limit=100) == 3
        assert offsets(await store.groups.dead_list(group, pids)) == [3, 9, 1, 5]
        assert offsets(await store.groups.dead_list(group, pids, state=DISCARDED)) == [1, 5]
        one = DeadLetterRetention(max_count=1, max_age_ms=3_600_000)
        assert await store.groups.dead_expire(group, pids, one, limit=100) == 3
        await pass_by(3600)
        assert await store.groups.dead_expire(group, pids, one, limit=100) == 3
        assert await store.groups.dead_count(group, pids) == 0


async def test_dead_letters_that_died_together_are_removed_in_the_order_of_their_offsets(backing: Backing) -> None:
    async with backing.store() as store:
        group, (pid,) = new_group(), new_pids(1)
        await bury(store.groups, group, pid, *(letter(offset) for offset in (5, 4, 1, 3, 2)))
        assert await store.groups.dead_expire(group, [pid], DeadLetterRetention(max_count=2), limit=100) == 3
        assert offsets(await store.groups.dead_list(group, [pid])) == [4, 5]


async def test_a_dead_letter_is_redriven_or_removed_by_retention_but_not_both(backing: Backing) -> None:
    """S14."""
    async with backing.store_pair() as (one, other):
        group, (pid,) = new_group(), await create(one, 1)
        await one.append([plain(pid, 30)])
        await bury(one.groups, group, pid, *(letter(offset) for offset in range(30)))
        keep = DeadLetterRetention(max_count=10)
        redrives = [one.groups.dead_redrive(group, [key(pid, offset)], plain(pid, 1)) for offset in range(30)]
        expired, *answers = await asyncio.gather(
            other.groups.dead_expire(group, [pid], keep, limit=100), *redrives, return_exceptions=True
        )
        done = sum(isinstance(answer, tuple) and isinstance(answer[0], Appended) for answer in answers)
        assert isinstance(expired, int)
        redriven = len(await one.groups.dead_list(group, [pid], state=REDRIVEN))
        dead = await one.groups.dead_count(group, [pid])
        assert (await head_of(one, pid)).next_offset == 30 + done
        assert redriven <= done
        assert expired + redriven + dead == 30


async def test_a_redrive_appends_and_marks(backing: Backing) -> None:
    """S14: both changes are one write."""
    async with backing.store_pair() as (one, other):
        group, pid = new_group(), await create_one(one)
        await one.append([plain(pid, 10)])
        await bury(one.groups, group, pid, letter(1), letter(2), letter(3))
        append = plain(pid, 1, 1)
        answer, were_dead = await other.groups.dead_redrive(group, [key(pid, 3), key(pid, 1)], append)
        assert isinstance(answer, Appended)
        assert (answer.base, were_dead) == (10, [True, True])
        batches = await read_all(one, pid)
        assert [batch.payload for batch in batches[1:]] == [payload.data for payload in append.payloads]
        redriven = await one.groups.dead_list(group, [pid], state=REDRIVEN)
        assert [(each.key.offset, each.redriven_to) for each in redriven] == [(1, 11), (3, 10)]
        assert offsets(await one.groups.dead_list(group, [pid])) == [2]


async def test_a_redrive_of_what_is_not_dead_does_nothing(backing: Backing) -> None:
    async with backing.store() as store:
        group, pid = new_group(), await create_one(store)
        await bury(store.groups, group, pid, letter(1), letter(2), letter(3))
        await store.groups.dead_discard(group, [key(pid, 2)])
        keys = [key(pid, 3), key(pid, 2), key(pid, 1), key(pid, 1, 7)]
        answer, are_dead = await store.groups.dead_redrive(group, keys, plain(pid, 4))
        assert (answer, are_dead) == (None, [True, False, True, False])
        assert (await head_of(store, pid)).next_offset == 0
        assert offsets(await store.groups.dead_list(group, [pid])) == [1, 3]


async def test_two_redrives_at_once_append_once(backing: Backing) -> None:
    """S14: a redrive moves each dead letter exactly once."""
    async with backing.store_pair() as (one, other):
        group, pid = new_group(), await create_one(one)
        await bury(one.groups, group, pid, *(letter(offset) for offset in range(30)))
        for first in range(0, 30, 3):
            keys = [key(pid, offset) for offset in range(first, first + 3)]
            orders = (keys, keys[::-1], keys, keys[1:])
            answers = await asyncio.gather(
                *(
                    store.groups.dead_redrive(group, order, plain(pid, len(order)))
                    for store, order in zip((one, other, other, one), orders, strict=True)
                )
            )
            done = [answer for answer, _ in answers if answer is not None]
            assert len(done) == 1
            assert isinstance(done[0], Appended)
        redriven = await one.groups.dead_list(group, [pid], state=REDRIVEN, limit=100)
        targets = [each.redriven_to for each in redriven]
        assert len(set(targets)) == len(targets)
        assert (await head_of(one, pid)).next_offset == len(targets)


async def test_a_redrive_and_a_discard_at_once_end_each_letter_once(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        group, pid = new_group(), await create_one(one)
        await bury(one.groups, group, pid, *(letter(offset) for offset in range(20)))
        for offset in range(20):
            (answer, _), discarded = await asyncio.gather(
                one.groups.dead_redrive(group, [key(pid, offset)], plain(pid, 1)),
                other.groups.dead_discard(group, [key(pid, offset)]),
            )
            assert (answer is not None) + discarded == 1


async def test_a_refused_append_leaves_the_letters_dead(backing: Backing) -> None:
    async with backing.store() as store:
        group, (pid, sealed) = new_group(), await create(store, 2)
        for each in (pid, sealed):
            await bury(store.groups, group, each, letter(1))
        await store.heads_close([sealed], HeadState.SEALED)
        await store.epoch_raise([pid], 2)
        answer, were_dead = await store.groups.dead_redrive(group, [key(sealed, 1)], plain(sealed, 1, epoch=2))
        assert (answer, were_dead) == (Refused(pid=sealed, refusal=Refusal.CLOSED), [True])
        answer, _ = await store.groups.dead_redrive(group, [key(pid, 1)], plain(pid, 1, epoch=1))
        assert answer == Refused(pid=pid, refusal=Refusal.EPOCH)
        assert await store.groups.dead_count(group, [pid, sealed]) == 2
        answer, _ = await store.groups.dead_redrive(group, [key(pid, 1)], plain(pid, 1, epoch=2))
        assert isinstance(answer, Appended)


async def test_a_redrive_continues_in_the_next_roll(backing: Backing) -> None:
    async with backing.empty_store_pair() as (one, other):
        group, pid = new_group(), await create_one(one)
        await bury(one.groups, group, pid, letter(1), letter(2))
        for offset in (1, 2):
            await one.append([plain(pid, 1)])
            await other.roll()
            await other.log_start_raise([(pid, 10)])
            await other.rolls_drop()
            payload = Payload(data=b"redriven %d" % offset, count=1)
            append = Append(pid=pid, epoch=0, payloads=[payload])
            answer, _ = await one.groups.dead_redrive(group, [key(pid, offset)], append)
            assert isinstance(answer, Appended)
            assert [batch.payload for batch in await read_all(other, pid)][-1] == payload.data
        assert await one.groups.dead_count(group, [pid]) == 0
