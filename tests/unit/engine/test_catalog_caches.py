"""Caches of topics, groups and members: long while changes are announced, short while announcements may be lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from lakelog.engine import Engine, changes
from lakelog.engine.changes import Changes, topic_number
from lakelog.engine.leasing import watcher
from lakelog.errors import OutcomeUnknown
from lakelog.model.group import Group
from lakelog.model.lease import ConsumeRequest
from lakelog.model.levels import FeatureLevel
from lakelog.model.membership import JoinRequest
from lakelog.model.message import Message
from lakelog.model.topic import Scope, Topic, TopicSettings
from lakelog.storage.memory import MemoryCatalog, MemoryStore
from tests.kit.waiting import eventually_async
from tests.unit.engine.support import started

LONG = timedelta(days=30)


@asynccontextmanager
async def two_engines(catalog: MemoryCatalog | None = None) -> AsyncIterator[tuple[Engine, Engine, Scope]]:
    catalog, store = catalog or MemoryCatalog(), MemoryStore()
    async with started(catalog, store) as one, started(catalog, store) as other:
        yield one, other, await catalog.scope_create("shop", "test")


def longer(settings: TopicSettings) -> TopicSettings:
    return replace(settings, idempotency_memory=LONG)


async def test_a_topic_that_was_altered_elsewhere_is_read_again_at_once() -> None:
    async with two_engines() as (one, other, scope):
        await one.topics.create(scope, "orders")
        await other.topics.find(scope, "orders")
        await one.topics.alter(scope, "orders", change=longer)

        async def is_altered() -> bool:
            return (await other.topics.find(scope, "orders")).settings.idempotency_memory == LONG

        await eventually_async(is_altered)


async def test_a_topic_that_was_deleted_elsewhere_is_not_cached_any_longer() -> None:
    async with two_engines() as (one, other, scope):
        await one.topics.create(scope, "orders")
        await other.topics.find(scope, "orders")
        await one.topics.delete(scope, "orders")
        await eventually_async(lambda: other.topics.cached(scope, "orders") is None)


@pytest.mark.parametrize("verb", ["topic_alter", "topic_delete", "group_alter"])
async def test_a_change_of_unknown_outcome_is_announced(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have been made, and caches must not keep the old value."""
    catalog = MemoryCatalog()
    async with two_engines(catalog) as (one, other, scope):
        await one.topics.create(scope, "orders")
        await one.leases.consume(scope, ConsumeRequest(topic="orders", group="billing", owner="ann"))
        topic = await other.topics.find(scope, "orders")
        group = await other.group_directory.resolve(scope, "billing", create=False)
        place: Any = catalog.groups if verb.startswith("group") else catalog
        call = getattr(place, verb)

        async def lost(*args: object) -> object:
            await call(*args)
            raise OutcomeUnknown("The connection was lost.")

        monkeypatch.setattr(place, verb, lost)
        with pytest.raises(OutcomeUnknown):
            if verb == "topic_alter":
                await one.topics.alter(scope, "orders", change=longer)
            elif verb == "topic_delete":
                await one.topics.delete(scope, "orders")
            else:
                await one.groups.pause(scope, "billing")
        if verb.startswith("group"):
            await eventually_async(lambda: not other.group_directory.is_current(group))
        else:
            await eventually_async(lambda: other.topics.cached(scope, "orders") is not topic)


class SlowCatalog(MemoryCatalog):
    """Holds back what it has read, until `gate` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()

    async def topic_find(self, scope: Scope, name: str) -> Topic | None:
        found = await super().topic_find(scope, name)
        await self.gate.wait()
        return found


async def test_a_topic_that_changes_while_it_is_read_is_not_cached() -> None:
    catalog = SlowCatalog()
    async with started(catalog, MemoryStore()) as engine:
        scope = await catalog.scope_create("shop", "test")
        topic = await engine.topics.create(scope, "orders")
        engine.topics.forget(None)
        catalog.gate.clear()
        reading = asyncio.create_task(engine.topics.find(scope, "orders"))
        await asyncio.sleep(0.01)
        engine._changes.heard(topic_number(topic.incarnation))
        catalog.gate.set()
        await reading
        assert engine.topics.cached(scope, "orders") is None


async def test_a_group_that_changes_while_it_is_read_is_not_cached() -> None:
    catalog = MemoryCatalog()
    async with started(catalog, MemoryStore()) as engine:
        scope = await catalog.scope_create("shop", "test")
        await engine.topics.create(scope, "orders")
        await engine.leases.consume(scope, ConsumeRequest(topic="orders", group="billing", owner="ann"))
        find, gate = catalog.groups.group_find, asyncio.Event()

        async def slow(scope: Scope, name: str) -> Group | None:
            found = await find(scope, name)
            await gate.wait()
            return found

        catalog.groups.group_find = slow  # type: ignore[method-assign]
        engine.group_directory.forget(None)
        reading = asyncio.create_task(engine.group_directory.resolve(scope, "billing", create=False))
        await asyncio.sleep(0.01)
        engine.group_directory.forget(7)
        gate.set()
        assert not engine.group_directory.is_current(await reading)


def test_caches_are_short_while_announcements_may_be_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Changes({0: MemoryStore(), 1: MemoryStore()})
    monkeypatch.setattr(MemoryStore, "is_listening", False)
    assert made.cache_seconds == 1.0
    monkeypatch.setattr(MemoryStore, "is_listening", True)
    assert made.cache_seconds == 30.0


async def test_caches_are_short_while_servers_of_the_first_level_may_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """They announce no changes of topics."""
    monkeypatch.setattr(MemoryStore, "is_listening", True)
    catalog = MemoryCatalog()
    async with started(catalog, MemoryStore()) as engine:
        catalog.groups.level = FeatureLevel.FIRST
        assert engine._changes.cache_seconds == 1.0
        catalog.groups.level = FeatureLevel.SECOND
        assert engine._changes.cache_seconds == 30.0


async def test_a_change_of_members_that_was_not_announced_reaches_consumers_that_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other server gives partitions to a new member, and its announcement is lost."""
    monkeypatch.setattr(watcher, "WATCH_SECONDS", 0.05)
    async with two_engines() as (one, other, scope):
        await one.topics.create(scope, "orders", partitions=2)
        first = await one.members.join(scope, JoinRequest(group="billing", topics=("orders",), member_id="ann"))
        await other.groups.describe(scope, "billing")
        await other._changes.stop()
        request = ConsumeRequest(
            topic="orders", group="billing", owner="ann", member_id="ann", generation=first.generation, wait_ms=10_000
        )
        waiting = asyncio.create_task(one.leases.consume(scope, request))
        await asyncio.sleep(0.1)
        await other.members.join(scope, JoinRequest(group="billing", topics=("orders",), member_id="bob"))
        async with asyncio.timeout(8):
            assert not (await waiting).leases, "the wait ends, because the assignment of the member changed"


async def test_a_member_that_knows_a_newer_generation_is_not_served_from_the_cache() -> None:
    async with two_engines() as (one, other, scope):
        await one.topics.create(scope, "orders", partitions=2)
        await one.members.join(scope, JoinRequest(group="billing", topics=("orders",), member_id="ann"))
        group = await one.group_directory.resolve(scope, "billing", create=False)
        await one.members.membership(group, "ann")
        await other._changes.stop()
        newer = await other.members.join(scope, JoinRequest(group="billing", topics=("orders",), member_id="bob"))
        seen = await one.members.membership(group, "ann", at_least=newer.generation)
        assert seen.generation == newer.generation
        assert (await one.members.membership(group, "ann")).generation == newer.generation


async def test_values_that_the_watcher_confirmed_are_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "WATCH_SECONDS", 0.05)
    monkeypatch.setattr(changes, "CACHE_SECONDS", 2.0)
    catalog, store = MemoryCatalog(), MemoryStore()
    async with started(catalog, store) as engine:
        scope = await catalog.scope_create("shop", "test")
        await engine.topics.create(scope, "orders")
        await engine.members.join(scope, JoinRequest(group="billing", topics=("orders",), member_id="ann"))
        request = ConsumeRequest(topic="orders", group="billing", owner="ann", member_id="ann", wait_ms=500)
        await engine.leases.consume(scope, request)

        async def unexpected(*_: object) -> Any:
            raise AssertionError("read again")

        for place, verb in (
            (catalog, "topic_find"),
            (catalog.groups, "group_find"),
            (catalog.groups, "group_topic_find"),
            (store.groups, "members_read"),
        ):
            monkeypatch.setattr(place, verb, unexpected)
        for _ in range(5):
            assert not (await engine.leases.consume(scope, request)).leases
        await engine.publisher.messages(scope, "orders", [Message(value=b"x")])
        assert (await engine.leases.consume(scope, request)).leases
