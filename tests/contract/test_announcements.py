"""Announcements, and what a store reports about itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tests.contract.stores import Backing
from tests.contract.values import new_pids
from tests.kit.waiting import eventually_async


async def hear(announcements: AsyncIterator[set[int]], wanted: set[int]) -> None:
    """Wait until all wanted partitions were announced; ignore the empty set of a reconnect."""
    while wanted:
        wanted = wanted - await anext(announcements)


async def test_announcements_reach_every_reader_of_the_other_server(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        pids = set(new_pids(3))
        readers = [asyncio.create_task(hear(other.announcements(), pids)) for _ in range(2)]
        async with asyncio.timeout(20):
            # Repeat the announcement until it arrives: one that is sent before the reader listens may be lost.
            while (await asyncio.wait(readers, timeout=0.05))[1]:
                await one.announce(pids)
        await asyncio.gather(*readers)


async def test_only_announced_partitions_are_received(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        quiet, loud = new_pids(2)
        heard: set[int] = set()

        async def listen() -> None:
            async for pids in other.announcements():
                heard.update(pids)
                if loud in heard:
                    return

        reader = asyncio.create_task(listen())
        async with asyncio.timeout(20):
            while (await asyncio.wait([reader], timeout=0.05))[1]:
                await one.announce([loud])
        await reader
        assert quiet not in heard


async def test_a_store_says_whether_its_announcements_are_received(backing: Backing) -> None:
    async with backing.store() as store:
        assert not store.is_listening

        async def listen() -> None:
            async for _ in store.announcements():
                pass

        reader = asyncio.create_task(listen())
        await eventually_async(lambda: store.is_listening)
        reader.cancel()
        await asyncio.wait([reader])
        del reader
        await eventually_async(lambda: not store.is_listening)


async def test_announcing_without_readers_does_no_harm(backing: Backing) -> None:
    async with backing.store() as store:
        await store.announce(new_pids(2))
        await store.announce([])


async def test_a_reader_may_go_away(backing: Backing) -> None:
    async with backing.store() as store:
        reader = asyncio.create_task(hear(store.announcements(), set(new_pids(1))))
        await asyncio.wait([reader], timeout=0.05)
        reader.cancel()
        await asyncio.wait([reader])
        assert reader.cancelled()
        await store.announce(new_pids(1))


async def test_the_clock_is_timezone_aware_and_advances(backing: Backing) -> None:
    async with backing.store() as store:
        first = await store.clock()
        assert first.utcoffset() is not None
        async with asyncio.timeout(10):
            while await store.clock() <= first:
                pass


async def test_durability_names_what_is_weak(backing: Backing) -> None:
    async with backing.store() as store:
        found = await store.durability()
        weak = {"memory": ["memory store"], "postgres": []}
        assert list(found.weak) == weak[backing.name]
        assert found.synchronous_standby is (backing.name == "memory"), "memory is never replaced by a standby"
        assert found.timeline >= 1
