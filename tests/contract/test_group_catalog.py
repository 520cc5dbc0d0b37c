"""Groups in the catalog, the topics they read, and the servers that are alive."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import replace

import pytest
from msgspec import structs

from lakelog.errors import Conflict, GroupNotFound
from lakelog.model.dead_letter_retention import DeadLetterRetention
from lakelog.model.group import (
    Assignor,
    Exponential,
    Fixed,
    Group,
    GroupKind,
    GroupSettings,
    GroupTopic,
    GroupTopicSettings,
    Order,
)
from lakelog.model.inventory import Inventory
from lakelog.model.levels import SUPPORTED
from lakelog.model.topic import Scope, Topic, TopicSettings
from lakelog.storage.groups import ServerInfo
from lakelog.storage.store import Catalog
from tests.contract.group_values import new_group
from tests.contract.stores import Backing
from tests.contract.test_catalog import new_scope, unique
from tests.contract.values import new_incarnation

DEFAULT = GroupSettings()
ODD = [
    GroupSettings(
        order=Order.PARTITION,
        filter="headers.kind = 'ä\"' and value.amount > 10",
        retries=Fixed(max=0, seconds=0.25),
        dead_letter=False,
        assignor=Assignor.ROUND_ROBIN,
        window=1,
    ),
    GroupSettings(order=Order.NONE, retries=Exponential(max=1000, base_seconds=0.001, max_seconds=86_400, jitter=1.0)),
    GroupSettings(assignor=Assignor.STICKY, window=10_000),
    GroupSettings(dead_letter_retention=DeadLetterRetention(max_age_ms=1, max_count=1_000_000)),
    GroupSettings(dead_letter_retention=DeadLetterRetention(max_count=1)),
    GroupSettings(
        filter="key = 'a'",
        topics={
            "orders": GroupTopicSettings(),
            "refunds": GroupTopicSettings(filter="", retries=Fixed(max=0, seconds=0.25), dead_letter=False),
        },
    ),
]


async def create(catalog: Catalog, scope: Scope, name: str = "billing", settings: GroupSettings = DEFAULT) -> Group:
    return await catalog.groups.group_create(scope, name, GroupKind.LEASE, settings, 0)


async def new_topic(catalog: Catalog, scope: Scope, name: str = "orders") -> Topic:
    return await catalog.topic_create(scope, name, TopicSettings(), [0, 0])


def reading_of(group: Group, topic: Topic, *starts: int) -> GroupTopic:
    return GroupTopic(group_id=group.group_id, incarnation=topic.incarnation, starts=starts)


async def test_a_group_is_made_once_and_the_first_settings_hold(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        scope = await new_scope(one)
        assert await one.groups.group_find(scope, "billing") is None
        made = await asyncio.gather(
            *(
                catalog.groups.group_create(scope, "billing", kind, structs.replace(DEFAULT, window=n + 1), n)
                for n, (catalog, kind) in enumerate([(one, GroupKind.LEASE), (other, GroupKind.CURSOR)] * 3)
            )
        )
        assert made == [made[0]] * 6
        assert (made[0].version, made[0].paused) == (1, frozenset())
        assert made[0].settings.window == made[0].cell + 1
        assert made[0].kind is (GroupKind.LEASE, GroupKind.CURSOR)[made[0].cell % 2]
        assert made[0].created_at.utcoffset() is not None
        assert await other.groups.group_find(scope, "billing") == made[0]


@pytest.mark.parametrize("settings", ODD)
async def test_settings_are_read_back_unchanged(backing: Backing, settings: GroupSettings) -> None:
    async with backing.catalog_pair() as (one, other):
        scope = await new_scope(one)
        await create(one, scope, settings=settings)
        found = await other.groups.group_find(scope, "billing")
        assert found is not None
        assert found.settings == settings


async def test_groups_that_limit_their_dead_letters_are_listed_by_id_in_all_scopes(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        limited = GroupSettings(dead_letter_retention=DeadLetterRetention(max_count=5))
        scopes = [await new_scope(one), await new_scope(one)]
        first, second, deleted = [
            await create(one, scope, name, limited) for scope, name in zip([*scopes, scopes[0]], "abc", strict=True)
        ]
        plain = await create(one, scopes[0], "plain")
        await one.groups.group_delete(deleted)
        before = first.group_id - 1
        assert await other.groups.group_list_retention(after=before) == [first, second]
        assert await other.groups.group_list_retention(after=before, limit=1) == [first]
        assert await other.groups.group_list_retention(after=second.group_id) == []
        altered = await one.groups.group_alter(plain, limited, frozenset())
        await one.groups.group_alter(first, DEFAULT, frozenset())
        assert await other.groups.group_list_retention(after=before) == [second, altered]


async def test_groups_are_listed_by_name_within_their_scope(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, _):
        scope, stranger = await new_scope(one), await new_scope(one)
        for name in ("c", "a", "d", "b"):
            await create(one, scope, name)
        elsewhere = await create(one, stranger, "a")
        assert [group.name for group in await one.groups.group_list(scope)] == ["a", "b", "c", "d"]
        assert [group.name for group in await one.groups.group_list(scope, after="a", limit=2)] == ["b", "c"]
        assert await one.groups.group_list(stranger) == [elsewhere]
        await one.topic_create(scope, "t2", TopicSettings(), [0, 0])
        await one.topic_create(scope, "t1", TopicSettings(), [0])
        await one.topic_create(stranger, "t1", TopicSettings(), [0])
        inventory = await one.inventory_read(scope)
        assert inventory == Inventory(topics=("t1", "t2"), groups=("a", "b", "c", "d"), partitions=3)
        await create(one, scope, "bc_x")
        assert [group.name for group in await one.groups.group_list(scope, contains="c")] == ["bc_x", "c"]
        assert [group.name for group in await one.groups.group_list(scope, contains="c", limit=1)] == ["bc_x"]
        for nothing in ("%", "_%", "\0", "C"):
            assert await one.groups.group_list(scope, contains=nothing) == []


async def test_altering_raises_the_version_and_refuses_an_old_one(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        scope = await new_scope(one)
        group = await create(one, scope)
        altered = await one.groups.group_alter(group, ODD[0], frozenset({"orders", "*"}))
        assert altered == replace(group, settings=ODD[0], paused=frozenset({"orders", "*"}), version=2)
        assert await other.groups.group_find(scope, "billing") == altered
        with pytest.raises(Conflict):
            await other.groups.group_alter(group, DEFAULT, frozenset())
        assert (await other.groups.group_alter(altered, DEFAULT, frozenset())).version == 3
        await one.groups.group_delete(group)
        with pytest.raises(GroupNotFound):
            await other.groups.group_alter(replace(group, version=3), DEFAULT, frozenset())


async def test_one_of_two_alters_of_one_version_is_refused(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        group = await create(one, await new_scope(one))
        tries = [catalog.groups.group_alter(group, DEFAULT, frozenset()) for catalog in (one, other) * 3]
        answers = await asyncio.gather(*tries, return_exceptions=True)
        assert sum(isinstance(answer, Group) for answer in answers) == 1
        assert sum(isinstance(answer, Conflict) for answer in answers) == 5


async def test_a_recreated_group_shares_nothing_with_the_old_one(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        scope = await new_scope(one)
        group, topic = await create(one, scope), await new_topic(one, scope)
        await one.groups.group_topic_create(reading_of(group, topic, 3, 4))
        deleted = await asyncio.gather(*(catalog.groups.group_delete(group) for catalog in (one, other) * 2))
        assert sorted(deleted) == [False, False, False, True]
        assert await one.groups.group_find(scope, "billing") is None
        assert await one.groups.group_list(scope) == []
        assert await one.groups.group_topic_find(group.group_id, topic.incarnation) is None
        assert await one.groups.group_topic_list_by_topic(topic) == []
        again = await create(other, scope)
        assert again.group_id != group.group_id
        assert await one.groups.group_topic_list(again) == []
        with pytest.raises(GroupNotFound):
            await one.groups.group_topic_create(reading_of(group, topic, 3, 4))


async def test_a_deleted_group_is_listed_until_no_server_can_write_for_it(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        group = await create(one, await new_scope(one))
        assert group.group_id not in await one.groups.group_deleted()
        await one.groups.group_forget([group.group_id])
        await one.groups.group_delete(group)
        await other.groups.group_forget([group.group_id])
        assert group.group_id in await other.groups.group_deleted()


async def test_the_first_reading_holds(backing: Backing) -> None:
    """S16: the start position of a group is decided once for all partitions; a second caller gets the first one."""
    async with backing.catalog_pair() as (one, other):
        scope = await new_scope(one)
        group, topic = await create(one, scope), await new_topic(one, scope)
        assert await one.groups.group_topic_find(group.group_id, topic.incarnation) is None
        made = await asyncio.gather(
            *(
                catalog.groups.group_topic_create(reading_of(group, topic, n, 1 << 40))
                for n, catalog in enumerate((one, other) * 3)
            )
        )
        assert made == [made[0]] * 6
        assert await other.groups.group_topic_find(group.group_id, topic.incarnation) == made[0]
        assert made[0].starts[1] == 1 << 40


async def test_readings_are_listed_by_group_and_by_topic(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        scope = await new_scope(one)
        groups = [await create(one, scope, name) for name in ("g2", "g1")]
        topics = [await new_topic(one, scope, name) for name in ("t2", "t1", "t3")]
        for group in groups:
            for topic in topics:
                await one.groups.group_topic_create(reading_of(group, topic, topic.incarnation, 0))
        sought = await one.groups.group_topic_seek(reading_of(groups[0], topics[0]), [5, 6])
        await one.topic_delete(topics[2])
        listed = await other.groups.group_topic_list(groups[0])
        assert [topic for topic, _ in listed] == [topics[1], topics[0]]
        assert [reading.epoch for _, reading in listed] == [0, 1]
        assert [reading.starts[0] for _, reading in listed] == [topics[1].incarnation, topics[0].incarnation]
        many = await other.groups.group_topic_list(*groups)
        assert [(reading.group_id, topic) for topic, reading in many] == [
            (group.group_id, topic) for group in groups for topic in (topics[1], topics[0])
        ]
        assert await other.groups.group_topic_list() == []
        readers = await other.groups.group_topic_list_by_topic(topics[0])
        assert [group for group, _ in readers] == [groups[1], groups[0]]
        assert readers[1][1].targets == sought.targets
        await one.topic_forget(topics[2])
        assert await one.groups.group_topic_find(groups[0].group_id, topics[2].incarnation) is None


async def test_a_seek_raises_the_epoch_once(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        scope = await new_scope(one)
        group, topic = await create(one, scope), await new_topic(one, scope)
        reading = await one.groups.group_topic_create(reading_of(group, topic, 1, 2))
        sought = await one.groups.group_topic_seek(reading, [None, 1 << 40])
        assert sought == replace(reading, epoch=1, targets=(None, 1 << 40))
        assert await other.groups.group_topic_find(group.group_id, topic.incarnation) == sought
        with pytest.raises(Conflict):
            await other.groups.group_topic_seek(reading, [0, 0])
        tries = [catalog.groups.group_topic_seek(sought, [n, n]) for n, catalog in enumerate((one, other) * 3)]
        answers = await asyncio.gather(*tries, return_exceptions=True)
        (winner,) = [answer for answer in answers if isinstance(answer, GroupTopic)]
        assert winner.epoch == 2
        assert await one.groups.group_topic_find(group.group_id, topic.incarnation) == winner
        with pytest.raises(Conflict):
            await one.groups.group_topic_seek(
                GroupTopic(group_id=new_group(), incarnation=new_incarnation(), starts=()), []
            )


async def test_servers_are_alive_as_long_as_they_are_seen(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        a, b = (ServerInfo(server_id=unique(name), address=f"http://{name}:1") for name in ("a", "b"))

        async def seen(catalog: Catalog, server: ServerInfo, memory: float = 60) -> Sequence[ServerInfo]:
            return (await catalog.groups.server_seen(server, memory_seconds=memory)).servers

        assert a in await seen(one, a)
        both = [each for each in await seen(other, b) if each in (a, b)]
        assert both == [a, b]
        assert a not in await seen(other, b, 0), "it was seen too long ago"
        moved = replace(a, address="http://a:2", level=a.level + 1)
        assert moved in await seen(one, moved)
        assert moved in await seen(other, b)
        await one.groups.server_gone(a.server_id)
        await one.groups.server_gone(a.server_id)
        alive = await other.groups.server_seen(b, memory_seconds=60)
        assert b in alive.servers
        assert moved not in alive.servers
        assert alive.level == SUPPORTED, "that of a new installation"


async def test_keys_of_servers_are_shared_and_replaced(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        first, second, third, unused = (secrets.token_bytes(32) for _ in range(4))
        hour = 3600.0
        known = await one.groups.server_keys(first, rotate_seconds=hour, keep_seconds=hour)
        assert known == await other.groups.server_keys(unused, rotate_seconds=hour, keep_seconds=hour)
        # The newest key counts as old: it is replaced, and still accepted.
        rotated = await other.groups.server_keys(second, rotate_seconds=0, keep_seconds=hour)
        assert rotated == [second, *known]
        assert rotated == await one.groups.server_keys(unused, rotate_seconds=hour, keep_seconds=hour)
        assert await one.groups.server_keys(third, rotate_seconds=0, keep_seconds=0) == [third]
        assert await other.groups.server_keys(unused, rotate_seconds=hour, keep_seconds=hour) == [third]
