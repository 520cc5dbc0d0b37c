"""Fetching: from any position, without gaps or duplicates, and with a long poll that ends when a message arrives."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest

from lakelog.engine.log import head_watch
from lakelog.errors import OffsetOutOfRange, PartitionNotFound, TopicNotFound
from lakelog.model.position import AtOffset, AtTime, Earliest, Latest
from tests.acceptance.engines import Log, Server
from tests.kit.waiting import eventually_async
from tests.unit.engine.support import stored, text


async def poll_begun(server: Server) -> None:
    await eventually_async(lambda: server.engine.waiters._waiting, every=0.002)


async def test_from_either_end_and_from_an_offset(log: Log) -> None:
    async with log.server() as server:
        await server.create()
        await server.publish(*(text(str(n)) for n in range(10)))
        for position, start in (
            (Earliest(), 0),
            (Latest(), 10),
            (Latest(back=3), 7),
            (Latest(back=99), 0),
            (AtOffset(4), 4),
            (AtOffset(10), 10),
        ):
            fetched = await server.fetch(position)
            assert (fetched.start, fetched.until, fetched.high_watermark) == (start, 10, 10)
            assert [m.value for m in stored(fetched)] == [str(n).encode() for n in range(start, 10)]


async def test_by_time(log: Log) -> None:
    async with log.server() as server:
        await server.create()
        times = []
        for n in range(4):
            await server.publish(text(f"{n}a"), text(f"{n}b"))
            (head,) = await server.heads()
            times.append(head.appended_at)
            # The next batch must have a later time.
            store = next(iter(server.engine.cells.values()))
            await eventually_async(lambda store=store, head=head: _is_later(store, head.appended_at), every=0.001)
        assert [(await server.fetch(AtTime(at))).start for at in times] == [0, 2, 4, 6]
        later = [at + timedelta(microseconds=1) for at in times]
        assert [(await server.fetch(AtTime(at))).start for at in later] == [2, 4, 6, 8]
        assert (await server.fetch(AtTime(times[0] - timedelta(days=1)))).start == 0


async def _is_later(store, time) -> bool:  # type: ignore[no-untyped-def]
    return bool(await store.clock() > time)


async def test_an_offset_outside_of_the_log_is_out_of_range(log: Log) -> None:
    async with log.server() as server:
        await server.create()
        await server.publish(*[text("x")] * 5)
        await server.engine.topics.purge(server.scope, server.name)
        await server.publish(text("y"))
        for offset in (0, 4, 7):
            with pytest.raises(OffsetOutOfRange) as caught:
                await server.fetch(AtOffset(offset), wait_seconds=5)
            assert (caught.value.log_start, caught.value.high_watermark) == (5, 6)
        with pytest.raises(PartitionNotFound):
            await server.fetch(Earliest(), 1)


async def test_a_tail_reader_at_one_server_sees_all_that_others_publish_in_order(log: Log) -> None:
    async with log.servers(2) as (here, there):
        await here.create(1)
        total = 600

        async def publisher(server: Server, number: int) -> None:
            for n in range(0, total // 4, 5):
                await server.publish(*(text(f"{number}-{n + m:04}") for m in range(5)))

        async def read() -> list[str]:
            at, found = 0, list[str]()
            while len(found) < total:
                fetched = await there.fetch(AtOffset(at), wait_seconds=10, max_messages=97)
                assert fetched.start == at
                found += [(m.value or b"").decode() for m in stored(fetched)]
                assert fetched.until == at + len(stored(fetched))
                at = fetched.until
            return found

        publishers = (publisher(server, 2 * m + n) for n, server in enumerate((here, there)) for m in range(2))
        found, *_ = await asyncio.gather(read(), *publishers)
        assert found == await here.values()
        assert len(set(found)) == total
        for number in range(4):
            own = [value for value in found if value.startswith(f"{number}-")]
            assert own == sorted(own)


async def test_a_fetch_reads_over_rolls(log: Log) -> None:
    async with log.server() as server:
        await server.create(2)
        for n in range(12):
            await server.publish(*(text(f"{n}", partition=p) for p in range(2)))
            if n % 4 == 3:
                for store in server.engine.cells.values():
                    await store.roll()
        for partition in range(2):
            assert await server.values(partition) == [str(n) for n in range(12)]


async def test_a_long_poll_is_woken_by_a_publish_at_the_same_server(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    # The reader does not check by itself.
    monkeypatch.setattr(head_watch, "WATCH_SECONDS", 60.0)
    async with log.server() as server:
        await server.create(2)
        poll = asyncio.create_task(server.fetch(Latest(), 1, wait_seconds=30))
        await poll_begun(server)
        await server.publish(text("other", partition=0))
        await server.publish(text("new", partition=1))
        async with asyncio.timeout(20):
            assert [m.value for m in stored(await poll)] == [b"new"]


async def test_a_long_poll_is_woken_by_a_publish_at_the_other_server(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    # Only an announcement can wake the reader.
    monkeypatch.setattr(head_watch, "WATCH_SECONDS", 60.0)
    async with log.servers(2) as (here, there):
        await here.create(2)
        for n in range(5):
            for partition in range(2):
                poll = asyncio.create_task(there.fetch(AtOffset(n), partition, wait_seconds=30))
                await poll_begun(there)
                await here.publish(text(str(n), partition=partition))
                async with asyncio.timeout(20):
                    assert [m.value for m in stored(await poll)] == [str(n).encode()]


async def test_a_long_poll_ends_with_nothing_at_its_deadline(log: Log) -> None:
    async with log.server() as server:
        await server.create()
        began = time.monotonic()
        fetched = await server.fetch(Latest(), wait_seconds=0.2)
        assert (fetched.start, fetched.until) == (0, 0)
        assert 0.2 <= time.monotonic() - began < 5


async def test_a_missing_topic_is_not_found(log: Log) -> None:
    async with log.server() as server:
        with pytest.raises(TopicNotFound):
            await server.fetch(Earliest())
