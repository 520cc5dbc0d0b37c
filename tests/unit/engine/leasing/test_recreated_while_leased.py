"""A topic or a group that is deleted and made again while its messages are leased: old answers reach nothing new."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lakelog.engine.leasing.journal import token_before
from lakelog.errors import LeaseLost
from lakelog.model.lease import Answered, ConsumeRequest, LeaseAnswer, Verb
from lakelog.storage.memory import MemoryCatalog, MemoryStore
from tests.unit.engine.support import publish, started, text

PER_SECOND = 100_000
"""Leases of one partition: far more than any server can grant."""
ASK = ConsumeRequest(topic="orders", group="billing", owner="ann", max_messages=1, start_from="earliest")


@pytest.mark.parametrize("recreated", ["topic", "group"])
@pytest.mark.parametrize("verb", [Verb.ACK, Verb.NACK, Verb.EXTEND])
async def test_S9_an_answer_to_what_was_leased_before_is_refused(recreated: str, verb: Verb) -> None:
    """The same owner has the message at the same place again, by a new lease."""
    catalog, store = MemoryCatalog(), MemoryStore()
    async with started(catalog, store) as one, started(catalog, store) as other:
        scope = await catalog.scope_create("shop", "test")
        await one.topics.create(scope, "orders", partitions=1)
        await publish(one, scope, "orders", text("old"))
        before = (await one.leases.consume(scope, ASK)).leases[0]
        if recreated == "topic":
            await other.topics.delete(scope, "orders")
            await other.topics.create(scope, "orders", partitions=1)
            await publish(other, scope, "orders", text("new"))
        else:
            await other.groups.delete(scope, "billing")
        now = (await other.leases.consume(scope, ASK)).leases[0]
        assert (now.partition, now.offsets) == (before.partition, before.offsets)
        late = LeaseAnswer(verb=verb, partition=0, token=before.token, offsets=(0,))
        # This one may not have heard of it, and answer for what was deleted.
        await one.leases.answer(scope, "orders", "billing", "ann", [late])
        (answer,) = await other.leases.answer(scope, "orders", "billing", "ann", [late])
        assert isinstance(answer, LeaseLost)
        ack = LeaseAnswer(verb=Verb.ACK, partition=0, token=now.token, offsets=(0,))
        (answer,) = await other.leases.answer(scope, "orders", "billing", "ann", [ack])
        assert answer == Answered()


@pytest.mark.parametrize("life", [timedelta(seconds=1), timedelta(days=30), timedelta(days=3650)], ids=str)
@pytest.mark.parametrize("recreated", ["topic", "group"])
async def test_S9_no_token_is_given_out_again_however_many_leases_there_were(recreated: str, life: timedelta) -> None:
    catalog, store = MemoryCatalog(), MemoryStore()
    async with started(catalog, store) as engine:
        scope = await catalog.scope_create("shop", "test")
        topic = await engine.topics.create(scope, "orders", partitions=1)
        group = await engine.group_directory.resolve(scope, "billing", ASK, create=True)
        last = token_before(group, topic) + round(life.total_seconds() * PER_SECOND)
        later = max(group.created_at, topic.created_at) + life
        if recreated == "topic":
            topic = replace(topic, incarnation=topic.incarnation + 1, created_at=later)
        else:
            group = replace(group, group_id=group.group_id + 1, created_at=later)
        assert token_before(group, topic) > last


async def test_tokens_are_exact_where_numbers_are_floats() -> None:
    catalog, store = MemoryCatalog(), MemoryStore()
    async with started(catalog, store) as engine:
        scope = await catalog.scope_create("shop", "test")
        topic = await engine.topics.create(scope, "orders", partitions=1)
        group = await engine.group_directory.resolve(scope, "billing", ASK, create=True)
    late = replace(group, created_at=datetime(2250, 1, 1, tzinfo=UTC))
    last = token_before(late, topic) + 5 * 365 * 86_400 * PER_SECOND
    assert token_before(group, topic) < token_before(late, topic) < last < 2**53
