"""Rolls by size and by age, and only then; what is retired is dropped; what nobody can ask for is forgotten."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

import pytest

from lakelog import meters
from lakelog.engine import Engine, Frame, FrameReceipt, Numbered
from lakelog.errors import LakelogError, SequenceRefused, Unavailable
from lakelog.maintenance.roller import Roller
from lakelog.maintenance.trimmer import Trimmer
from lakelog.model.group import GroupKind, GroupSettings
from lakelog.model.topic import Scope, TopicSettings
from lakelog.storage.compaction import ActiveRoll
from lakelog.storage.store import PartitionStore, Trimmed
from tests.unit.engine.support import Clock, WatchedStore, one_engine, packed, publish, text, values

LARGE = text("x" * (65 << 10))
"""More than a hot table that counts as empty."""


class CountingStore(WatchedStore):
    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.trimmed: list[Trimmed] = []
        self.down = False

    async def roll_active(self) -> ActiveRoll:
        if self.down:
            raise Unavailable("this cell is down")
        return await super().roll_active()

    async def trim(self, incarnation_memory: dict[int, timedelta]) -> Trimmed:
        if self.down:
            raise Unavailable("this cell is down")
        self.trimmed.append(await super().trim(incarnation_memory))
        return self.trimmed[-1]


async def test_a_roll_begins_when_the_active_one_is_large() -> None:
    store = WatchedStore()
    async with one_engine(store) as (engine, scope):
        await engine.topics.create(scope, "orders")
        roller = Roller(engine, max_bytes=100 << 10)
        await publish(engine, scope, "orders", LARGE)
        await roller.work()
        assert (await store.roll_active()).roll == 1
        await publish(engine, scope, "orders", LARGE)
        await roller.work()
        assert (await store.roll_active()).roll == 3
        await roller.work()
        assert (await store.roll_active()).roll == 3


async def test_a_roll_begins_when_the_active_one_is_old_and_not_empty() -> None:
    clock = Clock()
    store = WatchedStore(clock)
    async with one_engine(store) as (engine, scope):
        await engine.topics.create(scope, "orders")
        roller = Roller(engine, max_age=timedelta(hours=1))
        clock.pass_by(hours=2)
        await publish(engine, scope, "orders", text("small"))
        await roller.work()
        assert (await store.roll_active()).roll == 1
        await publish(engine, scope, "orders", LARGE)
        await roller.work()
        assert (await store.roll_active()).roll == 3
        await publish(engine, scope, "orders", LARGE)
        clock.pass_by(minutes=59)
        await roller.work()
        assert (await store.roll_active()).roll == 3
        clock.pass_by(minutes=2)
        await roller.work()
        assert (await store.roll_active()).roll == 5


async def test_what_is_retired_is_dropped_and_what_is_not_stays() -> None:
    store = WatchedStore()
    async with one_engine(store) as (engine, scope):
        topic = await engine.topics.create(scope, "orders")
        roller = Roller(engine, max_bytes=1)
        for value in ("a", "b"):
            await publish(engine, scope, "orders", text(value))
            await roller.work()
        assert await values(engine, scope, "orders") == ["a", "b"]
        await store.log_start_raise([(topic.pid(0), 1)])
        await roller.work()
        assert sorted(store._hot.tables) == [3, 5]
        assert await values(engine, scope, "orders") == ["b"]


async def test_a_deleted_topics_bytes_go() -> None:
    store = WatchedStore()
    async with one_engine(store) as (engine, scope):
        await engine.topics.create(scope, "orders")
        await publish(engine, scope, "orders", text("a"))
        await engine.topics.delete(scope, "orders")
        await Roller(engine, max_bytes=1).work()
        assert sorted(store._hot.tables) == [3]


async def test_metrics_count_the_hot_tables_of_elected_cells_only(monkeypatch: pytest.MonkeyPatch) -> None:
    async def none() -> dict[int, PartitionStore]:
        return {}

    first, second = CountingStore(Clock()), CountingStore(Clock())
    async with one_engine(first, second) as (engine, scope):
        await engine.topics.create(scope, "orders", 2)
        await publish(engine, scope, "orders", text("a", partition=1))
        roller = Roller(engine, max_bytes=1)
        await roller.work()
        assert [meters.HOT_TABLES[cell]["messages"] for cell in sorted(meters.HOT_TABLES)] == [1, 2]
        monkeypatch.setattr(roller, "elected", none)
        await roller.work()
        assert meters.HOT_TABLES == {}, "another process maintains both cells"


async def test_a_cell_that_is_down_holds_up_no_other() -> None:
    down, store = CountingStore(Clock()), CountingStore(Clock())
    async with one_engine(down, store) as (engine, scope):
        await engine.topics.create(scope, "orders", 2)
        await publish(engine, scope, "orders", text("a", partition=1))
        down.down = True
        await Roller(engine, max_bytes=1).work()
        await Trimmer(engine).work()
        assert (await store.roll_active()).roll == 3
        assert len(store.trimmed) == 1


async def numbered(engine: Engine, scope: Scope, sequence: int) -> FrameReceipt | LakelogError:
    frame = Frame(partition=0, payload=packed("n"), numbered=Numbered(producer=b"p" * 16, sequence=sequence))
    (answer,) = await engine.publisher.frames(scope, "orders", [frame])
    return answer


async def test_keys_and_producers_are_forgotten_after_their_time() -> None:
    clock = Clock()
    store = CountingStore(clock)
    async with one_engine(store) as (engine, scope):
        await engine.topics.create(scope, "orders")
        await engine.topics.create(scope, "short", 1, TopicSettings(idempotency_memory=timedelta(hours=1)))
        await engine.topics.create(scope, "long", 1, TopicSettings(idempotency_memory=timedelta(days=7)))
        names = ("orders", "short", "long")

        async def duplicates() -> list[bool]:
            return [(await publish(engine, scope, n, text("a", idempotency_key="k")))[0].duplicate for n in names]

        assert await duplicates() == [False, False, False]
        await numbered(engine, scope, 0)
        trimmer = Trimmer(engine)
        clock.pass_by(minutes=59)
        await trimmer.work()
        assert await duplicates() == [True, True, True]
        clock.pass_by(minutes=2)
        await trimmer.work()
        assert await duplicates() == [True, False, True]
        clock.pass_by(hours=22, minutes=58)
        await trimmer.work()
        assert isinstance(await numbered(engine, scope, 0), FrameReceipt)
        clock.pass_by(minutes=2)
        await trimmer.work()
        assert await duplicates() == [False, False, True]
        assert isinstance(await numbered(engine, scope, 1), SequenceRefused)


async def test_old_head_rows_go_and_the_log_stays() -> None:
    store = CountingStore(Clock())
    async with one_engine(store) as (engine, scope):
        await engine.topics.create(scope, "orders")
        for n in range(5):
            await publish(engine, scope, "orders", text(str(n)))
        await Trimmer(engine).work()
        await Trimmer(engine).work()
        assert [trimmed.heads for trimmed in store.trimmed] == [5, 0]
        assert await values(engine, scope, "orders") == ["0", "1", "2", "3", "4"]


async def test_what_cells_hold_of_deleted_groups_goes_and_the_group_is_forgotten_when_all_answered() -> None:
    clock = Clock()
    down, store = WatchedStore(clock), WatchedStore(clock)
    async with one_engine(down, store) as (engine, scope):
        groups = engine.catalog.groups
        group = await groups.group_create(scope, "billing", GroupKind.LEASE, GroupSettings(), 0)
        for cell in (down, store):
            await cell.groups.members_write(group.group_id, 1, b"members")
        await Trimmer(engine).work()
        assert (await store.groups.members_read(group.group_id)).version == 1
        await groups.group_delete(group)
        down.groups.journals_trim = refuse  # type: ignore[method-assign]
        await Trimmer(engine).work()
        assert (await store.groups.members_read(group.group_id)).version == 0
        engine.catalog.groups.group_forget = forgotten = Noted()  # type: ignore[method-assign]
        await Trimmer(engine).work()
        assert forgotten.calls == []
        down.groups.journals_trim = busy  # type: ignore[method-assign]
        await Trimmer(engine).work()
        assert forgotten.calls == [], "another process is trimming, and may not know of the deleted group"
        del down.groups.journals_trim
        await Trimmer(engine).work()
        assert forgotten.calls == [[group.group_id]]
        assert (await down.groups.members_read(group.group_id)).version == 0


async def busy(dropped_groups: Collection[int] = ()) -> None:
    return None


async def refuse(dropped_groups: Collection[int] = ()) -> int:
    raise Unavailable("this cell is down")


class Noted:
    def __init__(self) -> None:
        self.calls: list[object] = []

    async def __call__(self, group_ids: object) -> None:
        self.calls.append(group_ids)
