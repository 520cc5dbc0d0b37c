"""Dead letters are removed by age and count, group by group, by the process that is elected in their cell."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from lakelog.engine import Engine
from lakelog.engine.groups import dead_letter_expiry
from lakelog.errors import Unavailable
from lakelog.maintenance.dead_letter_expirer import DeadLetterExpirer
from lakelog.model.dead_letter_retention import DeadLetterRetention
from lakelog.model.group import Group, GroupKind, GroupSettings, GroupTopic
from lakelog.model.topic import Scope, Topic
from tests.contract.group_values import entry, letter
from tests.unit.engine.support import Clock, WatchedStore, one_engine


async def bury(engine: Engine, group: Group, topic: Topic, count: int) -> None:
    """Write dead letters in all partitions of the topic."""
    for partition, cell in enumerate(topic.cells):
        dead = [letter(offset) for offset in range(count)]
        await engine.cells[cell].groups.journals_commit([entry(group.group_id, topic.pid(partition), 1, dead=dead)])


async def reading(engine: Engine, scope: Scope, name: str, topic: Topic, retention: DeadLetterRetention) -> Group:
    settings = GroupSettings(dead_letter_retention=retention)
    group = await engine.catalog.groups.group_create(scope, name, GroupKind.LEASE, settings, 0)
    await engine.catalog.groups.group_topic_create(
        GroupTopic(group_id=group.group_id, incarnation=topic.incarnation, starts=(0,) * topic.partitions)
    )
    return group


async def left(engine: Engine, group: Group, topic: Topic) -> list[int]:
    """Return the number of dead letters in each partition."""
    return [
        await engine.cells[cell].groups.dead_count(group.group_id, [topic.pid(partition)])
        for partition, cell in enumerate(topic.cells)
    ]


async def test_each_group_keeps_what_its_retention_allows(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    async with one_engine(WatchedStore(clock), WatchedStore(clock)) as (engine, scope):
        topic = await engine.topics.create(scope, "orders", 2)
        by_count = await reading(engine, scope, "count", topic, DeadLetterRetention(max_count=3))
        by_age = await reading(engine, scope, "age", topic, DeadLetterRetention(max_age_ms=3_600_000))
        everything = await reading(engine, scope, "everything", topic, DeadLetterRetention())
        groups = (by_count, by_age, everything)
        for group in groups:
            await bury(engine, group, topic, 8)
        agent = DeadLetterExpirer(engine)
        with caplog.at_level(logging.INFO):
            await agent.work()
        assert [await left(engine, group, topic) for group in groups] == [
            [3, 3],
            [8, 8],
            [8, 8],
        ]
        assert caplog.messages == ["Group count: retention removed 5 dead letters of topic orders."] * 2
        clock.pass_by(hours=1)
        await agent.work()
        assert [await left(engine, group, topic) for group in groups] == [
            [3, 3],
            [0, 0],
            [8, 8],
        ]
        assert engine.dead_letter_expiry.removed == 26


async def test_many_groups_and_dead_letters_are_removed_in_small_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter_expiry, "_PER_STATEMENT", 4)
    monkeypatch.setattr(dead_letter_expiry, "_COUNTED", 10)
    monkeypatch.setattr(dead_letter_expiry, "_GROUPS", 2)
    store = WatchedStore()
    asked: list[tuple[int, int]] = []
    real = store.groups.dead_expire

    async def expire(group_id: int, pids: Sequence[int], retention: DeadLetterRetention, *, limit: int) -> int:
        asked.append((len(pids), count := await real(group_id, pids, retention, limit=limit)))
        return count

    store.groups.dead_expire = expire  # type: ignore[method-assign]
    async with one_engine(store) as (engine, scope):
        topic = await engine.topics.create(scope, "orders", 3)
        groups = [await reading(engine, scope, f"g{n}", topic, DeadLetterRetention(max_count=1)) for n in range(5)]
        for group in groups:
            await bury(engine, group, topic, 6)
        await DeadLetterExpirer(engine).work()
        assert [await left(engine, group, topic) for group in groups] == [[1, 1, 1]] * 5
        assert max(partitions for partitions, _ in asked) == 2
        assert {count for _, count in asked} <= {0, 1, 2, 4, 5}
        assert max(count for _, count in asked) == 4


async def test_a_cell_that_is_down_does_not_keep_the_dead_letters_of_the_others() -> None:
    down, store = WatchedStore(), WatchedStore()

    async def refuse(*_: object, **__: object) -> int:
        raise Unavailable("this cell is down")

    async with one_engine(down, store) as (engine, scope):
        topic = await engine.topics.create(scope, "orders", 2)
        group = await reading(engine, scope, "billing", topic, DeadLetterRetention(max_count=1))
        await bury(engine, group, topic, 3)
        down.groups.dead_expire = refuse  # type: ignore[method-assign]
        await DeadLetterExpirer(engine).work()
        assert sorted(await left(engine, group, topic)) == [1, 3]
