"""Memberships, written in sequence by version, and heartbeats, which change only a time (S17)."""

from __future__ import annotations

import asyncio
import time

from tests.contract.group_values import new_group
from tests.contract.stores import Backing


async def test_a_membership_is_written_behind_the_last_only(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        group = new_group()
        empty = await one.groups.members_read(group)
        assert (empty.version, empty.body, dict(empty.seen_ms)) == (0, b"", {})
        assert not await one.groups.members_write(group, 2, b"too far")
        assert await one.groups.members_write(group, 1, b"first")
        assert not await other.groups.members_write(group, 1, b"late")
        assert await other.groups.members_write(group, 2, b"second")
        found = await one.groups.members_read(group)
        assert (found.version, found.body) == (2, b"second")


async def test_of_two_writers_of_one_membership_exactly_one_wins(backing: Backing) -> None:
    """S17: two servers that rebalance at the same time do it one after the other."""
    async with backing.store_pair() as (one, other):
        group = new_group()
        for version in range(1, 11):
            writes = [store.groups.members_write(group, version, b"%d" % n) for n, store in enumerate((one, other) * 3)]
            assert sorted(await asyncio.gather(*writes)) == [False] * 5 + [True]
        assert (await one.groups.members_read(group)).version == 10


async def test_heartbeats_are_by_group_and_member(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        group, stranger = new_group(), new_group()
        first = await one.groups.heartbeats_write([(group, "b"), (group, "a"), (stranger, "a"), (group, "b")])
        assert abs(first - time.time() * 1000) < 60_000
        found = await other.groups.members_read(group)
        assert found.seen_ms == {"a": first, "b": first}
        assert found.clock_ms >= first
        async with asyncio.timeout(10):
            while (second := await other.groups.heartbeats_write([(group, "a")])) == first:
                pass
        assert (await one.groups.members_read(group)).seen_ms == {"a": second, "b": first}
        assert (await one.groups.members_read(stranger)).seen_ms == {"a": first}


async def test_heartbeats_in_any_order_do_not_wait_for_each_other(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        group = new_group()
        members = [(group, f"m{n}") for n in range(50)]
        async with asyncio.timeout(20):
            for _ in range(10):
                await asyncio.gather(one.groups.heartbeats_write(members), other.groups.heartbeats_write(members[::-1]))
        assert len((await one.groups.members_read(group)).seen_ms) == 50


async def test_members_that_left_are_forgotten(backing: Backing) -> None:
    async with backing.store() as store:
        group, other = new_group(), new_group()
        await store.groups.heartbeats_write([(group, "a"), (group, "b"), (group, "c"), (other, "a")])
        await store.groups.heartbeats_drop(group, ["a", "c", "never"])
        await store.groups.heartbeats_drop(group, [])
        assert (await store.groups.members_read(group)).seen_ms.keys() == {"b"}
        assert (await store.groups.members_read(other)).seen_ms.keys() == {"a"}


async def test_heartbeats_of_no_member_still_return_the_clock(backing: Backing) -> None:
    async with backing.store() as store:
        assert abs(await store.groups.heartbeats_write([]) - time.time() * 1000) < 60_000


async def test_a_group_is_announced_by_a_negative_number(backing: Backing) -> None:
    async with backing.store_pair() as (one, other):
        group = new_group()
        heard: set[int] = set()

        async def listen() -> None:
            async for numbers in other.announcements():
                heard.update(numbers)
                if {-group, group + 1} <= heard:
                    return

        reader = asyncio.create_task(listen())
        async with asyncio.timeout(20):
            while (await asyncio.wait([reader], timeout=0.05))[1]:
                await one.announce({-group, group + 1})
        await reader
        assert heard == {-group, group + 1}


async def test_memberships_of_many_groups_are_read_at_once(backing: Backing) -> None:
    async with backing.store() as store:
        group, other, empty = new_group(), new_group(), new_group()
        for each in (group, other):
            assert await store.groups.members_write(each, 1, b"of %d" % each)
        await store.groups.heartbeats_write([(group, "a"), (group, "b"), (other, "c")])
        found = await store.groups.members_list([other, empty, group])
        assert [(each.version, each.body, each.seen_ms.keys()) for each in found] == [
            (1, b"of %d" % other, {"c"}),
            (0, b"", set()),
            (1, b"of %d" % group, {"a", "b"}),
        ]
        assert await store.groups.members_list([]) == []
