"""Settings of a group in single topics: who sets them, who is refused, and that delivery uses them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from lakelog.engine import Engine
from lakelog.errors import Conflict, GroupSettingsDiffer, InvalidFilter, InvalidRequest, TopicNotFound
from lakelog.model.group import AlterGroupRequest, Exponential, Fixed, GroupSettings, GroupTopicSettings, Order
from lakelog.model.lease import Answered, ConsumeRequest, LeaseAnswer, Verb
from lakelog.model.levels import FeatureLevel
from lakelog.model.membership import JoinRequest, Membership
from lakelog.model.topic import Scope
from lakelog.storage.memory import MemoryCatalog, MemoryStore
from tests.unit.engine.support import publish, started, text

FIVE, TWO, ONE = Fixed(max=5), Fixed(max=2), Fixed(max=1)


class Shop:
    """Two servers over the same data, with two topics."""

    def __init__(self, one: Engine, other: Engine, catalog: MemoryCatalog, scope: Scope) -> None:
        self.one = one
        self.other = other
        self.catalog = catalog
        self.scope = scope
        self.max_attempts: int | None = None
        """The limit of failures in the reply to the last nack."""

    async def join(self, *topics: str, at: Engine | None = None, **stated: Any) -> Membership:
        request = JoinRequest(group="billing", topics=topics, **stated)
        return await (at or self.one).members.join(self.scope, request)

    async def alter(self, **stated: Any) -> GroupSettings:
        return (await self.one.groups.alter(self.scope, AlterGroupRequest(group="billing", **stated))).info().settings

    async def settings(self) -> GroupSettings:
        return (await self.one.groups.describe(self.scope, "billing")).group.settings

    async def consume(self, topic: str) -> list[str]:
        """Return the values of the messages that the group gets, and fail all of them."""
        ask = ConsumeRequest(topic=topic, group="billing", owner="ann", max_messages=100, wait_ms=100)
        values = []
        for lease in (await self.one.leases.consume(self.scope, ask)).leases:
            for piece in lease.pieces:
                column = piece.decoded.column("value").to_pylist()
                values += [column[offset - piece.batch.base].decode() for offset in piece.offsets]
            nack = LeaseAnswer(verb=Verb.NACK, partition=0, token=lease.token, offsets=tuple(lease.offsets))
            (done,) = await self.one.leases.answer(self.scope, topic, "billing", "ann", [nack])
            assert isinstance(done, Answered), done
            self.max_attempts = done.max_attempts
        return values


@asynccontextmanager
async def shop() -> AsyncIterator[Shop]:
    catalog, store = MemoryCatalog(), MemoryStore()
    async with started(catalog, store) as one, started(catalog, store) as other:
        scope = await catalog.scope_create("shop", "test")
        for name in ("orders", "refunds"):
            await one.topics.create(scope, name, partitions=1)
        yield Shop(one, other, catalog, scope)


async def test_a_caller_states_the_settings_of_its_own_topic() -> None:
    async with shop() as its:
        await its.join("orders", retries=FIVE, filter="key = 'a'")
        joined = await its.join("refunds", retries=TWO, dead_letter=False, filter="")
        found = await its.settings()
        assert found == joined.settings
        assert (found.retries, found.filter, found.dead_letter) == (FIVE, "key = 'a'", True)
        assert found.topics == {"refunds": GroupTopicSettings(retries=TWO, dead_letter=False, filter="")}
        own = found.in_topic("refunds")
        assert (own.retries, own.filter, own.dead_letter, own.topics) == (TWO, None, False, {})
        # Both agree again, at every server, with and without a filter of their own.
        for engine in (its.one, its.other):
            await its.join("orders", at=engine, retries=FIVE)
            await its.join("refunds", at=engine, retries=TWO, filter="")
            await its.join("orders", "refunds", at=engine, order=Order.KEY)


async def test_a_conflict_names_group_topic_and_both_settings() -> None:
    async with shop() as its:
        await its.join("orders", retries=FIVE)
        await its.join("refunds", retries=TWO)
        for engine in (its.one, its.other):
            with pytest.raises(GroupSettingsDiffer) as of_group:
                await its.join("orders", at=engine, retries=ONE)
            with pytest.raises(GroupSettingsDiffer) as of_topic:
                await its.join("orders", "refunds", at=engine, retries=FIVE)
        told = of_group.value.detail
        assert f"Group 'billing' has in topic 'orders' retries {FIVE}, and this caller wants {ONE}" in told
        assert "The first is the setting of the group" in told and "groups alter billing --topic orders" in told
        told = of_topic.value.detail
        assert f"Group 'billing' has in topic 'refunds' retries {TWO}, and this caller wants {FIVE}" in told
        assert "The first is set for this topic" in told
        assert of_topic.value.subject == {"group": "billing", "topic": "refunds", "setting": "retries"}


async def test_a_topic_that_the_group_reads_already_keeps_its_settings() -> None:
    async with shop() as its:
        await its.join("orders", "refunds")
        with pytest.raises(GroupSettingsDiffer, match="the setting of the group"):
            await its.join("refunds", retries=TWO)
        assert not (await its.settings()).topics


@pytest.mark.parametrize("is_new", [True, False])
async def test_of_two_callers_at_the_same_time_one_is_refused(is_new: bool) -> None:
    """Also if the first states the setting that the group has anyway."""
    async with shop() as its:
        if not is_new:
            await its.join("orders", retries=FIVE)
        results = await asyncio.gather(
            its.join("refunds", retries=FIVE),
            its.join("refunds", at=its.other, retries=TWO),
            return_exceptions=True,
        )
        refused = [each for each in results if isinstance(each, BaseException)]
        assert [type(each) for each in refused] == [GroupSettingsDiffer]
        applied = (await its.settings()).in_topic("refunds").retries
        (joined,) = (each for each in results if isinstance(each, Membership))
        assert applied == (FIVE if joined is results[0] else TWO)


async def test_settings_of_topics_wait_for_the_feature_level() -> None:
    """A server of the second level would not apply them, and would forget them when it alters the group."""
    async with shop() as its:
        its.catalog.groups.level = FeatureLevel.SECOND
        await its.join("orders", retries=FIVE)
        with pytest.raises(GroupSettingsDiffer, match="retries"):
            await its.join("refunds", retries=TWO)
        with pytest.raises(Conflict, match="need feature level 3, and this installation has level 2"):
            await its.alter(topic="refunds", retries=TWO)
        stored = await its.catalog.groups.group_find(its.scope, "billing")
        assert stored is not None and not stored.settings.topics
        its.catalog.groups.level = FeatureLevel.THIRD
        await its.join("refunds", retries=TWO)
        with pytest.raises(GroupSettingsDiffer):
            await its.join("orders", retries=TWO)


async def test_the_settings_of_a_topic_can_be_altered_and_removed() -> None:
    async with shop() as its:
        await its.join("orders", "refunds", filter="key = 'a'")
        found = await its.alter(topic="refunds", retries=TWO, filter="key='b'")
        assert found.topics == {"refunds": GroupTopicSettings(retries=TWO, filter="key = 'b'")}
        found = await its.alter(topic="refunds", filter="")
        assert found.topics == {"refunds": GroupTopicSettings(retries=TWO, filter="")}
        found = await its.alter(retries=ONE)
        assert (found.in_topic("orders").retries, found.in_topic("refunds").retries) == (ONE, TWO)
        found = await its.alter(topic="refunds", inherit=True, dead_letter=False)
        assert found.topics == {"refunds": GroupTopicSettings(dead_letter=False)}
        assert not (await its.alter(topic="refunds", inherit=True)).topics


async def test_what_cannot_be_altered_in_a_topic_is_refused_by_name() -> None:
    async with shop() as its:
        await its.join("orders")
        with pytest.raises(InvalidRequest, match="`window` is a setting of the whole group"):
            await its.alter(topic="orders", window=7)
        with pytest.raises(InvalidRequest, match="name it with `topic`"):
            await its.alter(inherit=True)
        with pytest.raises(TopicNotFound):
            await its.alter(topic="nowhere", retries=TWO)
        with pytest.raises(InvalidFilter):
            await its.alter(topic="orders", filter="nonsense")


async def test_messages_are_delivered_with_the_settings_of_their_topic() -> None:
    async with shop() as its:
        await its.join("orders", filter="value = 'a'", retries=Exponential(max=3), start_from="earliest")
        await its.join("refunds", filter="value = 'b'", retries=Fixed(max=0), start_from="earliest")
        for topic in ("orders", "refunds"):
            await publish(its.one, its.scope, topic, text("a"), text("b"))
        assert (await its.consume("orders"), its.max_attempts) == (["a"], 4)
        assert (await its.consume("refunds"), its.max_attempts) == (["b"], 1)
        described = await its.one.groups.describe(its.scope, "billing")
        assert described.dead_letters == 1, "that of refunds"
        # A change applies to consumers that already have the journal.
        await its.alter(topic="refunds", filter="", retries=TWO, dead_letter=False)
        await publish(its.one, its.scope, "refunds", text("c"))
        assert (await its.consume("refunds"), its.max_attempts) == (["c"], 3)
