"""Fetch: positions, limits, the long poll and what ends it, topics that change during it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from lakelog.engine import Engine
from lakelog.engine.log import head_watch as module
from lakelog.errors import InvalidRequest, OffsetOutOfRange, PartitionNotFound, TopicNotFound
from lakelog.model.fetch import FetchedBatches, FetchLimits
from lakelog.model.position import AtOffset, AtTime, Earliest, Latest, Position
from lakelog.model.topic import Scope, TopicSettings
from lakelog.storage.memory import MemoryCatalog
from tests.kit.waiting import eventually_async
from tests.unit.engine.support import Clock, WatchedStore, one_engine, publish, started, stored, text

LONG = FetchLimits(wait_seconds=20)


async def fetch(engine: Engine, scope: Scope, position: Position, wanted: FetchLimits | None = None) -> FetchedBatches:
    return await engine.fetcher.fetch(scope, "orders", 0, position, wanted)


def shown(fetched: FetchedBatches) -> list[str]:
    return [(message.value or b"").decode() for message in stored(fetched)]


async def waiting(engine: Engine) -> None:
    """Wait until a reader waits for a partition to grow."""
    await eventually_async(lambda: engine.waiters._waiting, every=0.001)
    for _ in range(10):
        await asyncio.sleep(0)


async def test_every_position_is_found() -> None:
    clock = Clock()
    async with one_engine(WatchedStore(clock)) as (engine, scope):
        await engine.topics.create(scope, "orders")
        times = []
        for n in range(6):
            clock.pass_by(minutes=1)
            times.append(clock.now)
            await publish(engine, scope, "orders", text(str(n)))
        await engine.cells[0].log_start_raise([((await engine.topics.find(scope, "orders")).pid(0), 1)])

        async def start(position: Position) -> int:
            fetched = await fetch(engine, scope, position)
            assert (fetched.log_start, fetched.high_watermark) == (1, 6)
            assert shown(fetched) == [str(n) for n in range(fetched.start, fetched.until)]
            return fetched.start

        assert await start(Earliest()) == 1
        assert await start(Latest()) == 6
        assert await start(Latest(back=2)) == 4
        assert await start(Latest(back=100)) == 1
        assert await start(AtOffset(1)) == 1
        assert await start(AtOffset(6)) == 6
        assert await start(AtTime(times[3])) == 3
        assert await start(AtTime(times[3] + timedelta(seconds=1))) == 4
        assert await start(AtTime(times[0])) == 1
        assert await start(AtTime(times[5] + timedelta(days=1))) == 6


@pytest.mark.parametrize("offset", [0, 1, 6, -1, 1 << 60])
async def test_an_offset_outside_of_the_log_is_out_of_range_also_with_a_wait(offset: int) -> None:
    async with one_engine() as (engine, scope):
        topic = await engine.topics.create(scope, "orders")
        await publish(engine, scope, "orders", *[text("x")] * 5)
        await engine.cells[0].log_start_raise([(topic.pid(0), 2)])
        for wanted in (FetchLimits(), LONG):
            with pytest.raises(OffsetOutOfRange) as caught:
                await fetch(engine, scope, AtOffset(offset), wanted)
            assert (caught.value.log_start, caught.value.high_watermark) == (2, 5)


async def test_batches_are_whole_and_the_bounds_say_what_counts() -> None:
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders")
        await publish(engine, scope, "orders", *(text(str(n)) for n in range(10)))
        fetched = await fetch(engine, scope, AtOffset(3), FetchLimits(max_messages=4))
        assert (fetched.start, fetched.until) == (3, 7)
        assert [(batch.base, batch.count) for batch in fetched.batches] == [(0, 10)]
        assert shown(fetched) == ["3", "4", "5", "6"]


async def test_reading_on_from_until_misses_nothing_and_repeats_nothing() -> None:
    store = WatchedStore()
    async with one_engine(store) as (engine, scope):
        await engine.topics.create(scope, "orders")
        for n in range(0, 100, 5):
            await publish(engine, scope, "orders", *(text(str(n + m)) for m in range(5)))
            if n in (30, 60):
                await store.roll()
        for wanted in (FetchLimits(max_messages=7), FetchLimits(max_bytes=1), FetchLimits()):
            at, found = 0, list[str]()
            while at < 100:
                fetched = await fetch(engine, scope, AtOffset(at), wanted)
                found += shown(fetched)
                assert fetched.until > at
                at = fetched.until
            assert found == [str(n) for n in range(100)]


@pytest.mark.parametrize(
    "wrong", [{"max_messages": 0}, {"max_messages": 10_001}, {"wait_seconds": -1}, {"wait_seconds": 31}]
)
def test_limits_outside_of_their_bounds_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidRequest):
        FetchLimits(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("partition", [-1, 2, 70_000])
async def test_a_partition_that_there_is_not_is_not_found(partition: int) -> None:
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders", 2)
        with pytest.raises(PartitionNotFound, match="0 to 1"):
            await engine.fetcher.fetch(scope, "orders", partition, Earliest())


async def test_a_partition_added_behind_the_cache_is_found() -> None:
    catalog, store = MemoryCatalog(), WatchedStore()
    async with started(catalog, store) as here, started(catalog, store) as there:
        scope = await catalog.scope_create("p", "e")
        await here.topics.create(scope, "orders", 1)
        await there.topics.alter(scope, "orders", partitions=3)
        assert (await here.fetcher.fetch(scope, "orders", 2, Earliest())).high_watermark == 0


async def test_without_a_wait_nothing_is_an_answer() -> None:
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders")
        fetched = await fetch(engine, scope, Earliest())
        assert (fetched.start, fetched.until, list(fetched.batches)) == (0, 0, [])


async def test_a_long_poll_ends_with_nothing_at_its_deadline() -> None:
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders")
        began = time.monotonic()
        fetched = await fetch(engine, scope, Latest(), FetchLimits(wait_seconds=0.1))
        assert not fetched.batches
        assert 0.1 <= time.monotonic() - began < 5


async def test_a_long_poll_is_woken_by_a_publish_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WATCH_SECONDS", 60.0)
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders", 2)
        polls = [asyncio.create_task(fetch(engine, scope, position, LONG)) for position in (Latest(), Earliest())]
        await waiting(engine)
        await publish(engine, scope, "orders", text("other", partition=1))
        assert not any(poll.done() for poll in polls)
        began = time.monotonic()
        await publish(engine, scope, "orders", text("new", partition=0))
        assert [shown(fetched) for fetched in await asyncio.gather(*polls)] == [["new"], ["new"]]
        # Far below the time after which a waiter looks by itself, and the end of the poll.
        assert time.monotonic() - began < 10
        assert not engine.waiters._waiting


async def test_a_long_poll_is_woken_by_an_announcement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WATCH_SECONDS", 60.0)
    catalog, store = MemoryCatalog(), WatchedStore()
    async with started(catalog, store) as here, started(catalog, store) as there:
        scope = await catalog.scope_create("p", "e")
        await here.topics.create(scope, "orders")
        poll = asyncio.create_task(fetch(here, scope, Latest(), LONG))
        await waiting(here)
        began = time.monotonic()
        await publish(there, scope, "orders", text("new"))
        assert shown(await poll) == ["new"]
        assert time.monotonic() - began < 10


async def test_a_lost_announcement_only_makes_the_wait_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WATCH_SECONDS", 0.05)
    catalog, store = MemoryCatalog(), WatchedStore()
    engine = Engine(catalog, {0: store})  # Not started: it hears nothing.
    async with started(catalog, store) as there:
        scope = await catalog.scope_create("p", "e")
        await there.topics.create(scope, "orders")
        poll = asyncio.create_task(fetch(engine, scope, Latest(), LONG))
        await waiting(engine)
        await publish(there, scope, "orders", text("new"))
        assert shown(await poll) == ["new"]


async def test_waiting_readers_share_one_query_per_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WATCH_SECONDS", 0.05)
    catalog, store = MemoryCatalog(), WatchedStore()
    calls: Counter[str] = Counter()

    def count(name: str) -> None:
        given = getattr(store, name)

        async def counted(*arguments: Any, **named: Any) -> Any:
            calls[name] += 1
            return await given(*arguments, **named)

        monkeypatch.setattr(store, name, counted)

    async with started(catalog, store) as engine:
        scope = await catalog.scope_create("p", "e")
        pid = (await engine.topics.create(scope, "orders")).pid(0)
        polls = [asyncio.create_task(fetch(engine, scope, Latest(), LONG)) for _ in range(200)]
        await eventually_async(lambda: len(engine.waiters._waiting[pid]) == 200)
        await asyncio.sleep(0.1)
        count("heads_read")
        count("read")
        await asyncio.sleep(0.5)
        assert calls["read"] == 0 and 1 <= calls["heads_read"] <= 10
        await publish(engine, scope, "orders", text("new"))
        assert all(shown(fetched) == ["new"] for fetched in await asyncio.gather(*polls))


async def test_what_is_there_already_is_not_waited_for() -> None:
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders")
        await publish(engine, scope, "orders", text("a"))
        async with asyncio.timeout(5):
            assert shown(await fetch(engine, scope, Earliest(), LONG)) == ["a"]


async def test_a_deleted_topic_ends_a_long_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WATCH_SECONDS", 0.02)
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders")
        poll = asyncio.create_task(fetch(engine, scope, Earliest(), LONG))
        await waiting(engine)
        await engine.topics.delete(scope, "orders")
        with pytest.raises(TopicNotFound):
            await poll


@pytest.mark.parametrize("position", [AtOffset(0), Earliest(), Latest(), Latest(back=3)])
async def test_a_long_poll_over_a_recreation_goes_on_at_the_beginning(
    position: Position, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WATCH_SECONDS", 0.02)
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders")
        poll = asyncio.create_task(fetch(engine, scope, position, LONG))
        await waiting(engine)
        await engine.topics.delete(scope, "orders")
        new = await engine.topics.create(scope, "orders")
        await publish(engine, scope, "orders", text("a"), text("b"))
        fetched = await poll
        assert (fetched.incarnation, fetched.start, shown(fetched)) == (new.incarnation, 0, ["a", "b"])


async def test_a_long_poll_at_an_offset_of_a_deleted_topic_says_that_it_is_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "WATCH_SECONDS", 0.02)
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders")
        await publish(engine, scope, "orders", text("old"))
        poll = asyncio.create_task(fetch(engine, scope, AtOffset(1), LONG))
        await waiting(engine)
        await engine.topics.delete(scope, "orders")
        await engine.topics.create(scope, "orders")
        await publish(engine, scope, "orders", text("a"), text("b"))
        with pytest.raises(OffsetOutOfRange, match="created again"):
            await poll


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (AtOffset(0), ["a", "b", "c"]),
        (AtOffset(1), ["b", "c"]),
        (AtOffset(2), ["c"]),
        (Earliest(), ["a", "b", "c"]),
        (Latest(back=1), ["c"]),
        (Latest(), []),
    ],
)
async def test_a_topic_recreated_behind_the_cache_is_read_like_any_other(
    position: Position, expected: list[str]
) -> None:
    catalog, store = MemoryCatalog(), WatchedStore()
    async with started(catalog, store) as here, started(catalog, store) as there:
        scope = await catalog.scope_create("p", "e")
        await here.topics.create(scope, "orders")
        await publish(here, scope, "orders", text("old"), text("older"))
        await there.topics.delete(scope, "orders")
        new = await there.topics.create(scope, "orders")
        await publish(there, scope, "orders", text("a"), text("b"), text("c"))
        fetched = await fetch(here, scope, position)
        assert (fetched.incarnation, shown(fetched)) == (new.incarnation, expected)


async def test_an_offset_beyond_a_topic_recreated_behind_the_cache_is_out_of_the_new_range() -> None:
    catalog, store = MemoryCatalog(), WatchedStore()
    async with started(catalog, store) as here, started(catalog, store) as there:
        scope = await catalog.scope_create("p", "e")
        await here.topics.create(scope, "orders")
        await publish(here, scope, "orders", *[text("old")] * 5)
        await there.topics.delete(scope, "orders")
        await there.topics.create(scope, "orders")
        with pytest.raises(OffsetOutOfRange) as caught:
            await fetch(here, scope, AtOffset(4))
        assert (caught.value.log_start, caught.value.high_watermark) == (0, 0)


async def test_a_head_that_is_missing_is_made() -> None:
    async with one_engine() as (engine, scope):
        await engine.catalog.topic_create(scope, "orders", TopicSettings(), [0])
        fetched = await fetch(engine, scope, Earliest())
        assert (fetched.start, fetched.high_watermark) == (0, 0)


async def test_a_reader_that_gave_up_is_forgotten() -> None:
    async with one_engine() as (engine, scope):
        await engine.topics.create(scope, "orders")
        poll = asyncio.create_task(fetch(engine, scope, Latest(), LONG))
        await waiting(engine)
        poll.cancel()
        await asyncio.wait([poll])
        assert not engine.waiters._waiting
