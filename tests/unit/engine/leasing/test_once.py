"""Values of which a group accepts one run: acks that race, repeats that are filtered before they run, and retries."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence

import pytest

from lakelog.engine.leasing.consuming import Leased
from lakelog.errors import Conflict, InvalidRequest, LakelogError, OutcomeUnknown
from lakelog.model.lease import Answered, LeaseAnswer, Verb
from lakelog.model.levels import FeatureLevel
from lakelog.storage.groups import CommitResult, JournalEntry
from tests.unit.engine.leasing.test_consume_with_answers import Shop, shop


def hash_of(value: str) -> str:
    return hashlib.md5(value.encode()).hexdigest()


def said(verb: Verb, lease: Leased, *values: str) -> LeaseAnswer:
    """Return an answer to the first messages of the lease, with their values."""
    once = {offset: hash_of(value) for offset, value in zip(lease.offsets, values, strict=False)}
    return LeaseAnswer(verb=verb, partition=lease.partition, token=lease.token, offsets=tuple(once), once=once)


async def answer(one: Shop, owner: str, *answers: LeaseAnswer) -> Sequence[Answered | LakelogError]:
    return await one.engine.leases.answer(one.scope, "orders", "billing", owner, answers)


async def filtered(one: Shop) -> int:
    return sum(each.filtered for each in await one.engine.groups.lag(one.scope, "billing"))


async def test_of_two_acks_with_one_value_at_the_same_time_one_is_accepted() -> None:
    async with shop(partitions=2) as one:
        await one.publish(1, partition=0)
        await one.publish(1, partition=1)
        leases = [await one.lease(owner="ann", max_messages=1), await one.lease(owner="bob", max_messages=1)]
        results = await asyncio.gather(
            *(
                answer(one, owner, said(Verb.ACK, lease, "v"))
                for owner, lease in zip(("ann", "bob"), leases, strict=True)
            )
        )
        found = [each.filtered for (each,) in results if isinstance(each, Answered)]
        assert sorted(map(len, found)) == [0, 1]
        assert (await one.acked(), await filtered(one)) == (1, 1)


async def test_repeats_in_one_ack_are_filtered_and_messages_without_a_value_are_not() -> None:
    async with shop() as one:
        await one.publish(4)
        lease = await one.lease(max_messages=4)
        ack = said(Verb.ACK, lease, "v", "w", "v")
        ack = LeaseAnswer(verb=Verb.ACK, partition=0, token=lease.token, offsets=(0, 1, 2, 3), once=ack.once)
        assert await answer(one, "ann", ack) == [Answered(filtered=[2])]
        assert await answer(one, "ann", ack) == [Answered(filtered=[2])], "a repeated answer"
        assert (await one.acked(), await filtered(one)) == (3, 1)


async def test_repeats_are_filtered_before_they_run_and_the_others_stay_open() -> None:
    async with shop() as one:
        await one.publish(3)
        first = await one.lease(max_messages=1)
        rest = await one.lease(max_messages=2)
        assert await answer(one, "ann", said(Verb.FILTER_REPEATS, rest, "v", "w")) == [Answered()]
        assert await answer(one, "ann", said(Verb.ACK, first, "v")) == [Answered(filtered=[])]
        assert await answer(one, "ann", said(Verb.FILTER_REPEATS, rest, "v", "w")) == [Answered(filtered=[1])]
        assert (await one.acked(), await filtered(one)) == (1, 1)
        (done,) = await answer(one, "ann", LeaseAnswer(verb=Verb.ACK, partition=0, token=rest.token, offsets=(2,)))
        assert isinstance(done, Answered)


async def test_a_nacked_message_runs_again_and_its_value_is_accepted_then() -> None:
    async with shop() as one:
        await one.publish(1)
        lease = await one.lease()
        nack = LeaseAnswer(verb=Verb.NACK, partition=0, token=lease.token, offsets=(0,), delay_ms=0)
        await answer(one, "ann", nack)
        again = await one.lease()
        assert await answer(one, "ann", said(Verb.FILTER_REPEATS, again, "v")) == [Answered()]
        assert await answer(one, "ann", said(Verb.ACK, again, "v")) == [Answered(filtered=[])]


async def test_an_ack_whose_commit_was_written_but_not_confirmed_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The value is taken by the very ack that is decided again."""
    async with shop() as one:
        await one.publish(1)
        lease = await one.lease()
        groups = one.engine.leases._context.cells[0].groups
        commit = groups.journals_commit

        async def lost(entries: Sequence[JournalEntry]) -> list[CommitResult]:
            await commit(entries)
            groups.journals_commit = commit  # type: ignore[method-assign]
            raise OutcomeUnknown("The connection broke.")

        groups.journals_commit = lost  # type: ignore[method-assign]
        assert await answer(one, "ann", said(Verb.ACK, lease, "v")) == [Answered(filtered=[])]
        assert (await one.acked(), await filtered(one)) == (1, 0)


async def test_a_value_for_a_message_that_the_answer_does_not_name_is_refused() -> None:
    async with shop() as one:
        await one.publish(2)
        lease = await one.lease()
        wrong = LeaseAnswer(verb=Verb.ACK, partition=0, token=lease.token, offsets=(0,), once={1: hash_of("v")})
        (refusal,) = await answer(one, "ann", wrong)
        assert isinstance(refusal, InvalidRequest)
        assert "offset 1" in str(refusal)


async def test_values_wait_for_the_feature_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of the second level would count repeats as discarded."""
    async with shop() as one:
        await one.publish(1)
        lease = await one.lease()
        monkeypatch.setattr(one.engine.group_directory._catalog.groups, "level", FeatureLevel.SECOND)
        with pytest.raises(Conflict, match="`once` need feature level 3, and this installation has level 2"):
            await answer(one, "ann", said(Verb.FILTER_REPEATS, lease, "v"))
        assert await one.acked() == 0
