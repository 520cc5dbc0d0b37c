"""Topics: the cache, partitions over cells, adding partitions, delete and recreate, purge."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace

import pytest

from lakelog.engine.log import topics as module
from lakelog.errors import Conflict, InvalidName, InvalidRequest, TopicExists, TopicNotFound, Unavailable
from lakelog.model.topic import Scope, Topic, TopicSettings
from lakelog.storage.memory import MemoryCatalog
from lakelog.storage.store import HeadState
from tests.unit.engine.support import WatchedStore, one_engine, publish, started, text, values


class CountingCatalog(MemoryCatalog):
    def __init__(self) -> None:
        super().__init__()
        self.finds = 0

    async def topic_find(self, scope: Scope, name: str) -> Topic | None:
        self.finds += 1
        return await super().topic_find(scope, name)


class Stumbling(WatchedStore):
    """Fails once at the step that is named."""

    def __init__(self) -> None:
        super().__init__()
        self.stumbles: set[str] = set()

    def _stumble(self, step: str) -> None:
        if step in self.stumbles:
            self.stumbles.discard(step)
            raise Unavailable(step)

    async def heads_create(self, pids: Sequence[int], epoch: int) -> None:
        self._stumble("heads_create")
        await super().heads_create(pids, epoch)

    async def heads_close(self, pids: Sequence[int], state: HeadState) -> None:
        self._stumble("heads_close")
        await super().heads_close(pids, state)

    async def epoch_raise(self, pids: Sequence[int], epoch: int) -> None:
        self._stumble("epoch_raise")
        await super().epoch_raise(pids, epoch)


@pytest.mark.parametrize(("is_listening", "seconds"), [(True, 30.0), (False, 1.0)])
async def test_a_found_topic_is_cached_for_longer_while_changes_are_announced(
    is_listening: bool, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WatchedStore, "is_listening", is_listening)
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    catalog = CountingCatalog()
    async with started(catalog, WatchedStore()) as engine:
        scope = await catalog.scope_create("p", "e")
        await engine.topics.create(scope, "orders")
        await engine.topics.find(scope, "orders")
        assert catalog.finds == 0
        clock.now += seconds - 0.1
        await engine.topics.find(scope, "orders")
        assert catalog.finds == 0
        clock.now += 0.2
        await engine.topics.find(scope, "orders")
        await engine.topics.find(scope, "orders")
        assert catalog.finds == 1


async def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CACHE_SIZE", 5)
    async with one_engine() as (engine, scope):
        for n in range(12):
            await engine.topics.create(scope, f"t{n}")
            assert (await engine.topics.find(scope, f"t{n}")).name == f"t{n}"
        assert len(engine.topics._cached) <= 5


async def test_a_missing_topic_is_not_found_and_not_remembered() -> None:
    async with one_engine() as (engine, scope):
        with pytest.raises(TopicNotFound, match="lakelog topics create orders"):
            await engine.topics.find(scope, "orders")
        await engine.topics.create(scope, "orders")
        assert (await engine.topics.find(scope, "orders")).partitions == 1
        with pytest.raises(InvalidName):
            await engine.topics.find(scope, "Not A Name")


async def test_partitions_alternate_over_the_cells_also_those_added_later() -> None:
    stores = [WatchedStore() for _ in range(3)]
    async with one_engine(*stores) as (engine, scope):
        topic = await engine.topics.create(scope, "orders", 4)
        assert topic.cells == (0, 1, 2, 0)
        altered = await engine.topics.alter(scope, "orders", partitions=7)
        assert altered.cells == (0, 1, 2, 0, 1, 2, 0)
        for cell, store in enumerate(stores):
            mine = [altered.pid(n) for n in range(7) if n % 3 == cell]
            assert [head.pid for head in await store.heads_read([altered.pid(n) for n in range(7)])] == mine


async def test_creating_twice_is_refused_unless_it_may_exist() -> None:
    async with one_engine() as (engine, scope):
        topic = await engine.topics.create(scope, "orders", 2)
        with pytest.raises(TopicExists):
            await engine.topics.create(scope, "orders", 2)
        assert await engine.topics.create(scope, "orders", 5, if_missing=True) == topic


@pytest.mark.parametrize("count", [0, -1, 10_001])
async def test_a_topic_has_1_to_10000_partitions(count: int) -> None:
    async with one_engine() as (engine, scope):
        with pytest.raises(InvalidRequest):
            await engine.topics.create(scope, "orders", count)
        assert await engine.topics.list(scope) == []


async def test_adding_partitions_raises_the_epoch_of_all_heads() -> None:
    async with one_engine(WatchedStore(), WatchedStore()) as (engine, scope):
        topic = await engine.topics.create(scope, "orders", 2)
        altered = await engine.topics.alter(scope, "orders", partitions=5)
        assert (altered.partitions, altered.epoch) == (5, topic.epoch + 1)
        described = await engine.topics.describe(scope, "orders")
        assert [head.epoch for head in described.heads] == [altered.epoch] * 5
        assert [head.pid for head in described.heads] == [topic.pid(n) for n in range(5)]


async def test_partitions_never_become_fewer() -> None:
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders", 3)
        with pytest.raises(InvalidRequest, match="fewer"):
            await engine.topics.alter(scope, "orders", partitions=2)
        same = await engine.topics.alter(scope, "orders", partitions=3)
        assert (same.partitions, same.epoch) == (3, 0)


async def test_settings_change_without_touching_partitions() -> None:
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders", 2, TopicSettings(tags=("a",)))
        altered = await engine.topics.alter(scope, "orders", change=lambda s: replace(s, key_field="id"))
        assert altered.settings == TopicSettings(tags=("a",), key_field="id")
        assert (altered.partitions, altered.epoch) == (2, 0)
        assert await engine.topics.find(scope, "orders") == altered


async def test_settings_that_several_callers_change_at_once_keep_every_change() -> None:
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders", 1)

        def tagged(tag: str) -> Callable[[TopicSettings], TopicSettings]:
            return lambda settings: replace(settings, tags=(*settings.tags, tag))

        changes = [engine.topics.alter(scope, "orders", change=tagged(f"t{n}")) for n in range(8)]
        await asyncio.gather(*changes, engine.topics.alter(scope, "orders", partitions=3))
        topic = (await engine.topics.describe(scope, "orders")).topic
        assert sorted(topic.settings.tags) == [f"t{n}" for n in range(8)]
        assert (topic.partitions, topic.version) == (3, 9)


async def test_of_two_who_add_partitions_at_once_one_is_told_of_the_conflict() -> None:
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders", 1)
        answers = await asyncio.gather(
            *(engine.topics.alter(scope, "orders", partitions=n) for n in (2, 3)), return_exceptions=True
        )
        assert [type(answer) for answer in answers] == [Topic, Conflict]
        assert (await engine.topics.describe(scope, "orders")).topic.partitions == 2


@pytest.mark.parametrize("step", ["heads_create", "epoch_raise"])
async def test_adding_partitions_that_broke_off_is_finished_by_a_repeat(step: str) -> None:
    store = Stumbling()
    async with one_engine(store) as (engine, scope):
        await engine.topics.create(scope, "orders", 1)
        store.stumbles.add(step)
        with pytest.raises(Unavailable):
            await engine.topics.alter(scope, "orders", partitions=3)
        altered = await engine.topics.alter(scope, "orders", partitions=3)
        assert (altered.partitions, altered.epoch) == (3, 1)
        assert [head.epoch for head in (await engine.topics.describe(scope, "orders")).heads] == [1, 1, 1]


async def test_a_recreated_topic_is_another_one() -> None:
    async with one_engine() as (engine, scope):
        old = await engine.topics.create(scope, "orders")
        await publish(engine, scope, "orders", text("old"))
        await engine.topics.delete(scope, "orders")
        with pytest.raises(TopicNotFound):
            await engine.topics.find(scope, "orders")
        with pytest.raises(TopicNotFound):
            await engine.topics.delete(scope, "orders")
        new = await engine.topics.create(scope, "orders")
        assert new.incarnation != old.incarnation
        assert await values(engine, scope, "orders") == []
        assert (await publish(engine, scope, "orders", text("new")))[0].offset == 0


async def test_only_one_of_two_deletes_is_told_that_it_did() -> None:
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders")
        answers = await asyncio.gather(
            *(engine.topics.delete(scope, "orders") for _ in range(2)), return_exceptions=True
        )
        assert [type(answer) for answer in answers] == [type(None), TopicNotFound]


async def test_a_delete_that_broke_off_is_remembered_in_the_catalog() -> None:
    store = Stumbling()
    async with one_engine(store) as (engine, scope):
        topic = await engine.topics.create(scope, "orders", 2)
        store.stumbles.add("heads_close")
        with pytest.raises(Unavailable):
            await engine.topics.delete(scope, "orders")
        assert await engine.catalog.topic_deleted() == [topic]
        await engine.topics.close_deleted(topic)
        await engine.topics.close_deleted(topic)
        assert await engine.catalog.topic_deleted() == []
        assert {head.state for head in await store.heads_read([topic.pid(0), topic.pid(1)])} == {HeadState.DELETED}


async def test_a_purge_counts_what_it_removed_and_offsets_go_on() -> None:
    async with one_engine(WatchedStore(), WatchedStore()) as (engine, scope):
        await engine.topics.create(scope, "orders", 3)
        await publish(engine, scope, "orders", *(text("x", partition=n % 2) for n in range(9)))
        purge = await engine.topics.purge(scope, "orders")
        assert purge.removed == 9
        assert [(head.log_start, head.next_offset) for head in purge.described.heads] == [(5, 5), (4, 4), (0, 0)]
        await publish(engine, scope, "orders", text("y", partition=1))
        assert (await engine.topics.purge(scope, "orders")).removed == 1
        assert (await engine.topics.purge(scope, "orders")).removed == 0
        assert (await publish(engine, scope, "orders", text("z", partition=1)))[0].offset == 5


async def test_lists_are_by_name_and_scope() -> None:
    async with one_engine() as (engine, scope):
        other = await engine.catalog.scope_create("shop", "other")
        for name in ("c", "a", "b"):
            await engine.topics.create(scope, name)
        await engine.topics.create(other, "d")
        assert [topic.name for topic in await engine.topics.list(scope)] == ["a", "b", "c"]
        assert [topic.name for topic in await engine.topics.list(scope, after="a", limit=1)] == ["b"]
        assert [topic.name for topic in await engine.topics.list(other)] == ["d"]
