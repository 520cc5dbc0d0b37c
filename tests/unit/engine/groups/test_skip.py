"""Skips: what they cut, what they leave, and what they refuse (S23)."""

from __future__ import annotations

import pytest
from msgspec import structs

from lakelog.coordinator.leasing.operations import ReturnKind, ReturnMessages, SkipTo
from lakelog.errors import GroupKindDiffers, GroupNotFound, NoPosition, OffsetOutOfRange, PartitionNotFound
from lakelog.model.group import Group, GroupKind, GroupTopic
from lakelog.model.position import Earliest, Latest
from lakelog.model.seek import Skipped
from lakelog.model.topic import Scope, Topic
from tests.unit.engine.group_support import World


async def begun(world: World, messages: int = 10) -> tuple[Scope, Topic, Group, GroupTopic]:
    """Partition 0: offset 0 is leased, offset 1 waits for a retry, the rest is unread."""
    scope, topic = await world.topic()
    await world.publish(topic, 0, *map(str, range(messages)))
    group, group_topic = await world.joined(scope, topic, start_from="earliest")
    await world.take(group, group_topic, topic, 0, 1)
    nacked = await world.take(group, group_topic, topic, 0, 1)
    back = ReturnMessages(owner="ann", token=nacked.token, ranges=[(1, 2)], kind=ReturnKind.NACK)
    await world.journals.run(group, group_topic, topic, 0, back)
    return scope, topic, group, group_topic


async def test_a_skip_cuts_what_is_not_leased_and_the_group_continues_behind_it() -> None:
    world = World()
    scope, topic, group, group_topic = await begun(world)
    expected = Skipped(partition=0, offset=6, messages=5, leased=1)
    assert await world.groups.skip(scope, "billing", "orders", 0, 6, dry_run=True) == structs.replace(
        expected, dry_run=True
    )
    assert not any(isinstance(operation, SkipTo) for _, operation in world.journals.ran)
    assert await world.groups.skip(scope, "billing", "orders", 0, 6) == expected
    progress = (await world.groups.lag(scope, "billing", "orders"))[0]
    assert (progress.cut, progress.leased, progress.waiting, progress.frontier) == (5, 1, 0, 6)
    assert list((await world.take(group, group_topic, topic, 0, 100)).offsets) == [6, 7, 8, 9]


async def test_a_repeated_skip_skips_nothing_more() -> None:
    world = World()
    scope, *_ = await begun(world)
    await world.groups.skip(scope, "billing", "orders", 0, 6)
    repeated = await world.groups.skip(scope, "billing", "orders", 0, 6)
    assert repeated == Skipped(partition=0, offset=6, messages=0, leased=1)
    assert (await world.groups.lag(scope, "billing", "orders"))[0].cut == 5


async def test_retries_below_the_frontier_are_skipped_and_nothing_above_them() -> None:
    """A message that waits for a retry may lie in a segment that was damaged since."""
    world = World()
    scope, *_ = await begun(world)
    assert (await world.groups.skip(scope, "billing", "orders", 0, 2)).messages == 1
    progress = (await world.groups.lag(scope, "billing", "orders"))[0]
    assert (progress.cut, progress.waiting, progress.frontier) == (1, 0, 2)


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (11, "Offset 11 is above the end of topic 'orders', partition 0: skip to 10 at most."),
        (1, "has nothing to skip below offset 1 of topic 'orders', partition 0: it continues at 2. Skip to an offset"),
    ],
)
async def test_an_offset_that_is_likely_a_mistake_is_refused(offset: int, expected: str) -> None:
    world = World()
    scope, *_ = await begun(world)
    for dry_run in (True, False):
        with pytest.raises(OffsetOutOfRange) as refused:
            await world.groups.skip(scope, "billing", "orders", 0, offset, dry_run=dry_run)
        assert expected in refused.value.detail
    assert (await world.groups.lag(scope, "billing", "orders"))[0].cut == 0


async def test_what_cannot_be_skipped_is_refused() -> None:
    world = World()
    scope, *_ = await begun(world)
    with pytest.raises(PartitionNotFound):
        await world.groups.skip(scope, "billing", "orders", 2, 0)
    with pytest.raises(GroupNotFound):
        await world.groups.skip(scope, "shipping", "orders", 0, 1)
    await world.group_directory.resolve(scope, "shipping", create=True)
    with pytest.raises(NoPosition, match="nothing to skip"):
        await world.groups.skip(scope, "shipping", "orders", 0, 1)
    await world.group_directory.resolve(scope, "spark", kind=GroupKind.CURSOR, create=True)
    with pytest.raises(GroupKindDiffers, match="lakelog groups seek spark orders --partition 0 --to 1"):
        await world.groups.skip(scope, "spark", "orders", 0, 1)


async def test_a_skip_does_not_apply_to_a_position_that_a_seek_changed_since() -> None:
    world = World()
    scope, *_ = await begun(world)
    await world.groups.seek(scope, "billing", "orders", Latest())
    with pytest.raises(OffsetOutOfRange):
        await world.groups.skip(scope, "billing", "orders", 0, 6)
    await world.groups.seek(scope, "billing", "orders", Earliest())
    assert (await world.groups.skip(scope, "billing", "orders", 0, 6)).messages == 6
