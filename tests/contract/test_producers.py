"""Producer sequences: a retry is recognised, also by another server; a number that does not continue is refused."""

from __future__ import annotations

import asyncio

from lakelog.storage.store import PRODUCER_BATCHES, Append, Appended, PartVerdict, Refusal, Refused, Verdict
from tests.contract.stores import Backing
from tests.contract.values import (
    append_one,
    appended,
    batch,
    create,
    create_one,
    head_of,
    new_producer,
    numbered,
    plain,
    read_all,
    refused,
    run,
)


def sequenced(index: int, verdict: Verdict, offset: int | None = None) -> PartVerdict:
    return PartVerdict(keyed=False, index=index, verdict=verdict, offset=offset)


async def test_a_sequence_begins_at_zero(backing: Backing) -> None:
    async with backing.store() as store:
        pid = await create_one(store)
        answer = await refused(store, numbered(pid, run(new_producer(), 1)))
        assert answer.refusal is Refusal.PARTS
        assert list(answer.verdicts) == [sequenced(0, Verdict.UNKNOWN_PRODUCER)]
        assert (await head_of(store, pid)).next_offset == 0
        assert (await appended(store, numbered(pid, run(new_producer(), 0)))).base == 0


async def test_the_sequence_counts_batches_not_messages(backing: Backing) -> None:
    async with backing.store() as store:
        pid, producer = await create_one(store), new_producer()
        bases = [(await appended(store, numbered(pid, run(producer, n, count=10)))).base for n in range(3)]
        assert bases == [0, 10, 20]


async def test_the_last_batches_are_answered_with_their_offsets(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        pid, producer = await create_one(one), new_producer()
        await appended(one, plain(pid, 100))
        for sequence in range(PRODUCER_BATCHES + 2):
            await appended(one, numbered(pid, run(producer, sequence, count=2)))
        before = await head_of(one, pid)
        for sequence in range(2, PRODUCER_BATCHES + 2):
            answer = await refused(other, numbered(pid, run(producer, sequence, count=2)))
            assert list(answer.verdicts) == [sequenced(0, Verdict.DUPLICATE, 100 + 2 * sequence)]
        for sequence in (0, 1):
            answer = await refused(other, numbered(pid, run(producer, sequence, count=2)))
            assert list(answer.verdicts) == [sequenced(0, Verdict.GAP)]
        assert await head_of(one, pid) == before


async def test_a_skipped_sequence_is_a_gap(backing: Backing) -> None:
    async with backing.store() as store:
        pid, producer = await create_one(store), new_producer()
        await appended(store, numbered(pid, run(producer, 0)))
        answer = await refused(store, numbered(pid, run(producer, 2)))
        assert list(answer.verdicts) == [sequenced(0, Verdict.GAP)]
        assert (await appended(store, numbered(pid, run(producer, 1)))).base == 1
        assert (await appended(store, numbered(pid, run(producer, 2)))).base == 2


async def test_producers_and_partitions_count_for_themselves(backing: Backing) -> None:
    async with backing.store() as store:
        one, other = await create(store, 2)
        producer = new_producer()
        await appended(store, numbered(one, run(producer, 0)))
        await appended(store, numbered(one, run(producer, 1)))
        assert (await refused(store, numbered(other, run(producer, 2)))).verdicts[0].verdict is Verdict.UNKNOWN_PRODUCER
        assert (await appended(store, numbered(other, run(producer, 0)))).base == 0
        assert (await appended(store, numbered(one, run(new_producer(), 0)))).base == 2


async def test_one_append_may_hold_several_runs_of_a_producer(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        pid, producer, neighbour = await create_one(one), new_producer(), new_producer()
        await appended(one, numbered(pid, run(producer, 0, 0, 2), run(neighbour, 0, 2, 3), run(producer, 1, 5, 1)))
        assert (await appended(other, numbered(pid, run(producer, 2)))).base == 6
        answer = await refused(other, numbered(pid, run(neighbour, 0, 0, 3), run(producer, 1, 3, 1)))
        assert set(answer.verdicts) == {sequenced(0, Verdict.DUPLICATE, 2), sequenced(1, Verdict.DUPLICATE, 5)}


async def test_more_runs_in_one_append_than_are_remembered(backing: Backing) -> None:
    async with backing.store() as store:
        pid, producer = await create_one(store), new_producer()
        runs = [run(producer, n, n) for n in range(PRODUCER_BATCHES + 2)]
        await appended(store, numbered(pid, *runs))
        answer = await refused(store, numbered(pid, *runs))
        expected = [sequenced(n, Verdict.GAP) for n in (0, 1)]
        expected += [sequenced(n, Verdict.DUPLICATE, n) for n in range(2, PRODUCER_BATCHES + 2)]
        assert sorted(answer.verdicts, key=lambda verdict: verdict.index) == expected


async def test_a_gap_inside_an_append_refuses_what_follows_too(backing: Backing) -> None:
    async with backing.store() as store:
        pid, producer = await create_one(store), new_producer()
        answer = await refused(store, numbered(pid, run(producer, 0), run(producer, 2, 1), run(producer, 3, 2)))
        assert set(answer.verdicts) == {sequenced(1, Verdict.GAP), sequenced(2, Verdict.GAP)}
        assert (await appended(store, numbered(pid, run(producer, 0)))).base == 0


async def test_runs_that_overtook_each_other_are_not_put_right(backing: Backing) -> None:
    """Their messages are in the payload in the given order: if accepted, the log would have the wrong order."""
    async with backing.store() as store:
        pid, producer = await create_one(store), new_producer()
        answer = await refused(store, numbered(pid, run(producer, 1), run(producer, 0, 1)))
        assert list(answer.verdicts) == [sequenced(0, Verdict.UNKNOWN_PRODUCER)]
        await appended(store, numbered(pid, run(producer, 0)))
        answer = await refused(store, numbered(pid, run(producer, 2), run(producer, 1, 1)))
        assert list(answer.verdicts) == [sequenced(0, Verdict.GAP)]
        assert (await head_of(store, pid)).next_offset == 1


async def test_duplicates_beside_new_runs_write_nothing_and_the_rest_goes_in_again(backing: Backing) -> None:
    async with backing.store() as store:
        pid, producer, neighbour = await create_one(store), new_producer(), new_producer()
        await appended(store, numbered(pid, run(producer, 0, count=3)))
        before = await head_of(store, pid)
        old, new, other = run(producer, 0, 0, 3), run(producer, 1, 3, 1), run(neighbour, 0, 4, 2)
        answer = await refused(store, numbered(pid, old, new, other))
        assert answer.refusal is Refusal.PARTS
        assert list(answer.verdicts) == [sequenced(0, Verdict.DUPLICATE, 0)]
        assert await head_of(store, pid) == before
        assert (await appended(store, numbered(pid, run(producer, 1, 0, 1), run(neighbour, 0, 1, 2)))).base == 3
        assert (await head_of(store, pid)).next_offset == 6


async def test_a_batch_that_occurs_twice_in_one_append_is_stored_once(backing: Backing) -> None:
    """A retry may overtake its first attempt; the second has no offset before the first is written."""
    async with backing.store() as store:
        pid, producer = await create_one(store), new_producer()
        answer = await refused(store, numbered(pid, run(producer, 0), run(producer, 0, 1)))
        assert list(answer.verdicts) == [sequenced(1, Verdict.DUPLICATE)]
        assert (await head_of(store, pid)).next_offset == 0
        await appended(store, numbered(pid, run(producer, 0)))
        answer = await refused(store, numbered(pid, run(producer, 0)))
        assert list(answer.verdicts) == [sequenced(0, Verdict.DUPLICATE, 0)]


async def test_a_run_may_share_its_append_with_messages_that_are_not_numbered(backing: Backing) -> None:
    async with backing.store() as store:
        pid, producer = await create_one(store), new_producer()
        append = Append(pid=pid, epoch=0, payloads=[batch(2), batch(3)], sequenced=[run(producer, 0, 2, 3)])
        await appended(store, append)
        answer = await refused(store, numbered(pid, run(producer, 0, count=3)))
        assert list(answer.verdicts) == [sequenced(0, Verdict.DUPLICATE, 2)]


async def test_a_sequence_continues_when_the_epoch_increases(backing: Backing) -> None:
    """Otherwise a batch of unknown outcome, repeated after partitions were added, would be stored twice."""
    async with backing.store_pair() as (one, other):
        pid, producer = await create_one(one), new_producer()
        await appended(one, numbered(pid, run(producer, 0)))
        await other.epoch_raise([pid], 1)
        for epoch in (0, 1):
            answer = await refused(one, numbered(pid, run(producer, 0), epoch=epoch))
            assert answer.refusal is Refusal.PARTS
            assert list(answer.verdicts) == [sequenced(0, Verdict.DUPLICATE, 0)]
        assert (await refused(one, numbered(pid, run(producer, 1), epoch=0))).refusal is Refusal.EPOCH
        assert (await appended(one, numbered(pid, run(producer, 1), epoch=1))).base == 1


async def test_a_retry_sent_to_both_servers_at_once_goes_in_once(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        pid, producer = await create_one(one), new_producer()
        for sequence in range(10):
            tries = [append_one(store, numbered(pid, run(producer, sequence))) for store in (one, other, one, other)]
            answers = await asyncio.gather(*tries)
            (won,) = [answer for answer in answers if isinstance(answer, Appended)]
            lost = [answer for answer in answers if isinstance(answer, Refused)]
            assert won.base == sequence
            assert [list(answer.verdicts) for answer in lost] == [[sequenced(0, Verdict.DUPLICATE, sequence)]] * 3
        assert len(await read_all(one, pid)) == 10


async def test_numbers_continue_whether_batches_are_appended_alone_or_together(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        pid, producer = await create_one(one), new_producer()
        assert (await appended(one, numbered(pid, run(producer, 0, count=3)))).base == 0
        together = numbered(pid, run(producer, 1), run(producer, 2, start=1))
        assert (await appended(other, together)).base == 3
        assert (await appended(other, numbered(pid, run(producer, 3, count=2)))).base == 5
        for sequence, offset in enumerate([0, 3, 4, 5]):
            alone = await refused(one, numbered(pid, run(producer, sequence)))
            assert list(alone.verdicts) == [sequenced(0, Verdict.DUPLICATE, offset)]
        again = await refused(one, together)
        assert list(again.verdicts) == [sequenced(0, Verdict.DUPLICATE, 3), sequenced(1, Verdict.DUPLICATE, 4)]
        assert list((await refused(one, numbered(pid, run(producer, 5)))).verdicts) == [sequenced(0, Verdict.GAP)]
