"""Groups: found or made, where they begin, seeks that break off, commits, pauses, and how far they are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from lakelog.coordinator.leasing.operations import FinishMessages, ReturnKind, ReturnMessages, SeekPosition
from lakelog.engine.groups import group_directory as module
from lakelog.errors import (
    Conflict,
    GroupBusy,
    GroupKindDiffers,
    GroupNotFound,
    GroupSettingsDiffer,
    InvalidFilter,
    InvalidName,
    InvalidRequest,
    NoPosition,
    NotOwner,
    OffsetOutOfRange,
    PartitionNotFound,
    PositionRefused,
    StaleGeneration,
    TopicNotFound,
    Unavailable,
    UnknownMember,
)
from lakelog.model.group import (
    AlterGroupRequest,
    Exponential,
    Group,
    GroupKind,
    GroupTopic,
    NewGroupSettings,
    NoStart,
    Order,
    RequestedSettings,
)
from lakelog.model.position import AtOffset, AtTime, Earliest, Latest
from lakelog.model.seek import GroupPosition, Sought
from lakelog.model.times import to_time
from lakelog.model.topic import Scope
from lakelog.storage.memory import MemoryStore
from tests.unit.engine.group_support import World, commit_of, ms

# Finding and making ---------------------------------------------------------------------------------------------------


async def test_a_group_is_made_by_the_first_wish_and_later_ones_have_to_agree() -> None:
    world = World()
    scope = await world.scope()
    wanted = RequestedSettings(order=Order.NONE, filter="key='a'", retries=Exponential(max=5))
    made = await world.group_directory.resolve(scope, "billing", wanted, create=True)
    assert (made.kind, made.settings.order, made.settings.filter) == (GroupKind.LEASE, Order.NONE, "key = 'a'")
    assert await world.group_directory.resolve(scope, "billing", create=False) == made
    same = RequestedSettings(filter="( key = 'a' )")
    assert await world.group_directory.resolve(scope, "billing", same, create=True) == made
    for server in (world.group_directory, world.server()._directory):
        with pytest.raises(GroupSettingsDiffer, match="order"):
            await server.resolve(scope, "billing", RequestedSettings(order=Order.KEY), create=True)
        with pytest.raises(GroupKindDiffers, match="cursor"):
            await server.resolve(scope, "billing", kind=GroupKind.CURSOR, create=True)
        with pytest.raises(GroupSettingsDiffer, match="filter"):
            await server.resolve(scope, "billing", RequestedSettings(filter="key = 'b'"), create=True)


async def test_a_missing_group_is_not_made_unless_asked_for_nor_with_bad_settings() -> None:
    world = World()
    scope = await world.scope()
    with pytest.raises(GroupNotFound):
        await world.group_directory.resolve(scope, "billing", create=False)
    with pytest.raises(InvalidName):
        await world.group_directory.resolve(scope, "Billing!", create=True)
    for bad in ("key =", "deliveries < 3", "not error is null"):
        with pytest.raises(InvalidFilter):
            await world.group_directory.resolve(scope, "billing", RequestedSettings(filter=bad), create=True)
    assert await world.groups.list(scope) == []


async def test_groups_are_kept_apart_by_environment_and_spread_over_cells() -> None:
    world = World()
    here, there = await world.scope(), await world.catalog.scope_create("shop", "other")
    mine = await world.group_directory.resolve(here, "billing", create=True)
    theirs = await world.group_directory.resolve(there, "billing", create=True)
    assert mine.group_id != theirs.group_id
    assert mine.cell == theirs.cell
    cells = {(await world.group_directory.resolve(here, f"g{n}", create=True)).cell for n in range(20)}
    assert cells == {0, 1}
    assert [each.name for each in await world.groups.list(here, after="g18")] == [
        "g19",
        "g2",
        *map("g{}".format, range(3, 10)),
    ]


async def test_a_group_is_remembered_for_a_second_or_until_it_is_said_to_have_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    world = World()
    scope = await world.scope()
    other = world.server()
    old = await other._directory.resolve(scope, "billing", create=True)
    new = await world.groups.alter(scope, AlterGroupRequest(group="billing", window=7))
    assert world.changed == [old.group_id]
    assert await other._directory.resolve(scope, "billing", create=False) == old
    clock.now += 1
    assert await other._directory.resolve(scope, "billing", create=False) == new
    newest = await world.groups.alter(scope, AlterGroupRequest(group="billing", window=8))
    other._directory.forget(newest.group_id)
    assert await other._directory.resolve(scope, "billing", create=False) == newest
    await world.groups.alter(scope, AlterGroupRequest(group="billing", window=9))
    other._directory.forget(None)
    assert (await other._directory.resolve(scope, "billing", create=False)).settings.window == 9


async def test_settings_that_the_cache_refuses_are_compared_with_the_catalog() -> None:
    world = World()
    scope = await world.scope()
    other = world.server()
    await other._directory.resolve(scope, "billing", create=True)
    await world.groups.alter(scope, AlterGroupRequest(group="billing", window=7))
    assert (
        await other._directory.resolve(scope, "billing", RequestedSettings(window=7), create=True)
    ).settings.window == 7


# Where a group begins -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (None, (5, 1)),
        ("latest", (5, 1)),
        (Latest(2), (3, 0)),
        (Latest(9), (1, 0)),
        ("earliest", (1, 0)),
        (0, (1, 0)),
        (3, (3, 1)),
        ("99", (5, 1)),
        (AtTime, (3, 1)),
    ],
)
async def test_a_group_begins_where_the_first_request_says(
    start: str | int | Latest | type[AtTime] | None, expected: tuple[int, int]
) -> None:
    world = World()
    scope, topic = await world.topic()
    await world.publish(topic, 0, "a", "b", "c")
    await world.publish(topic, 1, "x")
    world.clock.pass_by(seconds=10)
    middle = world.clock.now
    await world.publish(topic, 0, "d", "e")
    await world.cells[0].log_start_raise([(topic.pid(0), 1)])
    if isinstance(start, Latest):
        group = await world.group_directory.resolve(scope, "billing", create=True)
        group_topic, _ = await world.group_directory._begin(group, topic, start)
    else:
        wanted = middle.isoformat() if start is AtTime else start
        group, group_topic = await world.joined(scope, topic, start_from=wanted)
    assert group_topic.starts == expected
    await world.publish(topic, 1, "y")
    assert await world.group_directory.group_topic(group, topic, NewGroupSettings(start_from="earliest")) == group_topic
    assert (
        await world.server()._directory.group_topic(group, topic, NewGroupSettings(start_from="earliest"))
        == group_topic
    )


async def test_a_group_without_a_start_has_to_be_given_one() -> None:
    world = World()
    scope, topic = await world.topic()
    await world.publish(topic, 0, "a", "b")
    with pytest.raises(NoPosition, match="groups seek billing orders"):
        await world.joined(scope, topic, start_from="none")
    with pytest.raises(NoPosition):
        await world.groups.seek(scope, "billing", "orders", Earliest(), partition=0, dry_run=True)
    assert await world.groups.seek(scope, "billing", "orders", AtOffset(1), dry_run=True) == [
        Sought(0, 1, 1),
        Sought(1, 0, 0),
    ]
    assert await world.groups.positions(scope, "billing", "orders") == []
    unread = (await world.groups.lag(scope, "billing", "orders"))[0]
    assert unread.status == "no-position" and "groups seek billing orders" in str(unread.reason)
    assert await world.groups.seek(scope, "billing", "orders", AtOffset(1)) == [Sought(0, 1, 1), Sought(1, 0, 0)]
    _, group_topic = await world.joined(scope, topic, start_from="none")
    assert (group_topic.starts, group_topic.epoch) == ((1, 0), 0)


async def test_a_recreated_topic_is_begun_anew_and_an_added_partition_at_0() -> None:
    world = World()
    scope, topic = await world.topic()
    await world.publish(topic, 0, "a", "b")
    group, group_topic = await world.joined(scope, topic)
    grown = await world.topics.alter(scope, "orders", partitions=3)
    assert await world.group_directory.group_topic(group, grown) == group_topic
    assert group_topic.start(2) == 0
    await world.topics.delete(scope, "orders")
    _, again = await world.topic()
    assert (await world.group_directory.group_topic(group, again, NewGroupSettings(start_from="earliest"))).starts == (
        0,
        0,
    )
    assert await world.groups.positions(scope, "billing", "orders") == [GroupPosition(0, 0, 0), GroupPosition(1, 0, 0)]


# Seek -----------------------------------------------------------------------------------------------------------------


async def ready(world: World) -> tuple[Scope, Group]:
    scope, topic = await world.topic()
    await world.publish(topic, 0, "a", "b", "c", "d")
    await world.publish(topic, 1, "x", "y")
    group, group_topic = await world.joined(scope, topic, start_from="earliest")
    granted = await world.take(group, group_topic, topic, 0, 3)
    await world.journals.run(
        group, group_topic, topic, 0, FinishMessages(owner="ann", token=granted.token, ranges=[(0, 1)])
    )
    return scope, group


async def test_seek_moves_all_partitions_and_begins_a_position_epoch() -> None:
    world = World()
    scope, group = await ready(world)
    world.changed.clear()
    assert await world.groups.seek(scope, "billing", "orders", Latest(), dry_run=True) == [
        Sought(0, 1, 4),
        Sought(1, 0, 2),
    ]
    assert world.changed == []
    assert await world.groups.positions(scope, "billing", "orders") == [GroupPosition(0, 1, 0), GroupPosition(1, 0, 0)]
    assert await world.groups.seek(scope, "billing", "orders", Latest()) == [Sought(0, 1, 4), Sought(1, 0, 2)]
    assert await world.groups.positions(scope, "billing", "orders") == [GroupPosition(0, 4, 1), GroupPosition(1, 2, 1)]
    assert world.changed == [group.group_id]
    topic = await world.topics.find(scope, "orders")
    assert (await world.group_directory.group_topic(group, topic)).epoch == 1
    assert await world.groups.seek(scope, "billing", "orders", AtOffset(3), partition=0) == [Sought(0, 4, 3)]
    assert await world.groups.positions(scope, "billing", "orders") == [GroupPosition(0, 3, 2), GroupPosition(1, 2, 1)]


async def test_seek_to_a_message_moves_its_partition_only() -> None:
    world = World()
    scope, _ = await ready(world)
    topic = await world.topics.find(scope, "orders")
    seek = world.groups.seek
    assert await seek(scope, "billing", "orders", f"{topic.incarnation}-1-1") == [Sought(1, 0, 1)]
    assert await world.groups.positions(scope, "billing", "orders") == [GroupPosition(0, 1, 0), GroupPosition(1, 1, 1)]
    for bad in (f"{topic.incarnation + 1}-1-1", "one", f"{topic.incarnation}-0-1"):
        with pytest.raises(InvalidRequest):
            await seek(scope, "billing", "orders", bad, partition=1)
    with pytest.raises(PartitionNotFound):
        await seek(scope, "billing", "orders", f"{topic.incarnation}-7-1")
    with pytest.raises(PartitionNotFound):
        await seek(scope, "billing", "orders", Earliest(), partition=2)
    with pytest.raises(InvalidRequest):
        await seek(scope, "billing", "orders", NoStart())
    with pytest.raises(GroupNotFound):
        await seek(scope, "nobody", "orders", Earliest())


async def test_a_seek_that_broke_off_is_finished_before_the_next_one() -> None:
    world = World()
    scope, group = await ready(world)
    world.journals.fails[1] = Unavailable("down")
    with pytest.raises(Unavailable):
        await world.groups.seek(scope, "billing", "orders", Latest())
    # Decided: every reader sees it, though no journal of partition 1 has it.
    assert await world.groups.positions(scope, "billing", "orders") == [GroupPosition(0, 4, 1), GroupPosition(1, 2, 1)]
    world.journals.fails.clear()
    world.journals.ran.clear()
    await world.groups.seek(scope, "billing", "orders", AtOffset(2), partition=0)
    assert world.journals.ran == [(1, SeekPosition(epoch=1, offset=2)), (0, SeekPosition(epoch=2, offset=2))]
    assert await world.groups.positions(scope, "billing", "orders") == [GroupPosition(0, 2, 2), GroupPosition(1, 2, 1)]
    assert world.changed[-2:] == [group.group_id] * 2


async def test_seeks_at_the_same_time_are_one_after_another() -> None:
    world = World()
    scope, _ = await ready(world)
    other = world.server()
    await asyncio.gather(
        world.groups.seek(scope, "billing", "orders", Latest()), other.seek(scope, "billing", "orders", Earliest())
    )
    positions = await world.groups.positions(scope, "billing", "orders")
    assert positions in (
        [GroupPosition(0, 4, 2), GroupPosition(1, 2, 2)],
        [GroupPosition(0, 0, 2), GroupPosition(1, 0, 2)],
    )


# Commits of cursor groups ---------------------------------------------------------------------------------------------


async def test_positions_are_committed_by_cursor_groups_only_and_never_back() -> None:
    world = World()
    scope, topic = await world.topic()
    await world.publish(topic, 0, "a", "b", "c")
    await world.joined(scope, topic, kind=GroupKind.CURSOR, start_from="earliest")
    commit = world.groups.commit
    await commit(scope, commit_of("billing", "orders", {0: 2, 1: 0}, epoch=0))
    assert await world.groups.positions(scope, "billing", "orders") == [GroupPosition(0, 2, 0), GroupPosition(1, 0, 0)]
    with pytest.raises(PositionRefused):
        await commit(scope, commit_of("billing", "orders", {0: 1}))
    with pytest.raises(OffsetOutOfRange):
        await commit(scope, commit_of("billing", "orders", {0: 4}))
    with pytest.raises(PartitionNotFound):
        await commit(scope, commit_of("billing", "orders", {2: 0}))
    await world.groups.seek(scope, "billing", "orders", Earliest())
    with pytest.raises(PositionRefused):
        await commit(scope, commit_of("billing", "orders", {0: 3}, epoch=0))
    await world.group_directory.resolve(scope, "leasing", create=True)
    with pytest.raises(GroupKindDiffers, match="cursor"):
        await commit(scope, commit_of("leasing", "orders", {0: 1}))


async def test_a_member_commits_what_it_has_and_an_old_generation_is_refused() -> None:
    """S17: a call that names an old generation answers a conflict."""
    world = World()
    scope, topic = await world.topic()
    await world.publish(topic, 0, "a", "b", "c")
    await world.joined(scope, topic, kind=GroupKind.CURSOR, start_from="earliest")
    world.members.assigned = {"one": {"orders": [0]}}
    world.members.generation = 5
    commit = world.groups.commit
    await commit(scope, commit_of("billing", "orders", {0: 1}, member_id="one", generation=5))
    with pytest.raises(UnknownMember):
        await commit(scope, commit_of("billing", "orders", {0: 2}, member_id="two", generation=5))
    with pytest.raises(NotOwner):
        await commit(scope, commit_of("billing", "orders", {1: 0}, member_id="one", generation=5))
    with pytest.raises(StaleGeneration):
        await commit(scope, commit_of("billing", "orders", {1: 0}, member_id="one", generation=4))
    with pytest.raises(StaleGeneration):
        await commit(scope, commit_of("billing", "orders", {0: 2}, generation=4))
    assert (await world.groups.positions(scope, "billing", "orders"))[0] == GroupPosition(0, 1, 0)


async def test_the_first_commit_of_a_group_without_a_position_is_where_it_begins() -> None:
    world = World()
    scope, topic = await world.topic()
    await world.publish(topic, 0, "a", "b", "c")
    await world.publish(topic, 1, "x")
    await world.group_directory.resolve(scope, "billing", kind=GroupKind.CURSOR, create=True)
    await world.groups.commit(scope, commit_of("billing", "orders", {0: 1}))
    assert await world.groups.positions(scope, "billing", "orders") == [GroupPosition(0, 1, 0), GroupPosition(1, 1, 0)]


# Changing -------------------------------------------------------------------------------------------------------------


async def test_alter_changes_what_is_stated() -> None:
    world = World()
    scope = await world.scope()
    made = await world.group_directory.resolve(
        scope, "billing", RequestedSettings(filter="key = 'a'", window=5), create=True
    )
    altered = await world.groups.alter(scope, AlterGroupRequest(group="billing", order=Order.NONE))
    assert (altered.settings.order, altered.settings.window, altered.version) == (Order.NONE, 5, made.version + 1)
    assert (
        await world.groups.alter(scope, AlterGroupRequest(group="billing", filter="key<>'a'"))
    ).settings.filter == "key != 'a'"
    same = await world.groups.alter(scope, AlterGroupRequest(group="billing", filter="key != 'a'"))
    assert same.version == made.version + 2
    assert (await world.groups.alter(scope, AlterGroupRequest(group="billing", filter=""))).settings.filter is None
    for fixed in ({"kind": "cursor"}, {"start_from": "latest"}):
        with pytest.raises(msgspec.ValidationError, match="unknown field"):
            msgspec.convert({"group": "billing", **fixed}, AlterGroupRequest)
    with pytest.raises(InvalidFilter):
        await world.groups.alter(scope, AlterGroupRequest(group="billing", filter="nonsense"))


async def test_changes_at_the_same_time_all_hold() -> None:
    world = World()
    scope = await world.scope()
    await world.group_directory.resolve(scope, "billing", create=True)
    await asyncio.gather(
        world.groups.alter(scope, AlterGroupRequest(group="billing", window=5)),
        world.server().alter(scope, AlterGroupRequest(group="billing", order=Order.NONE)),
        world.server().pause(scope, "billing"),
    )
    group = await world.group_directory.resolve(scope, "billing", create=False)
    assert (group.settings.window, group.settings.order, group.paused) == (5, Order.NONE, {"*"})


async def test_pause_and_resume_of_a_group_and_of_a_topic() -> None:
    world = World()
    scope, topic = await world.topic()
    await world.topics.create(scope, "refunds")
    for name in ("billing", "scoring"):
        await world.joined(scope, topic, name)
    await world.group_directory.resolve(scope, "idle", create=True)
    paused = await world.groups.pause(scope, "billing", "orders")
    assert paused.is_paused("orders") and not paused.is_paused("refunds")
    assert (await world.groups.pause(scope, "billing", "orders")).version == paused.version
    assert not (await world.groups.resume(scope, "billing", "orders")).paused
    with pytest.raises(TopicNotFound):
        await world.groups.pause(scope, "billing", "nothing")
    assert [group.paused for group in await world.groups.pause_topic(scope, "orders")] == [{"orders"}] * 2
    assert not (await world.group_directory.resolve(scope, "idle", create=False)).paused
    await world.groups.pause(scope, "billing")
    with pytest.raises(Conflict, match="as a whole"):
        await world.groups.resume(scope, "billing", "orders")
    assert [group.name for group in await world.groups.resume_topic(scope, "orders")] == ["scoring"]
    assert not (await world.groups.resume(scope, "billing")).paused


async def test_a_paused_topic_is_paused_for_groups_that_begin_later() -> None:
    world = World()
    scope, topic = await world.topic()
    await world.joined(scope, topic, "billing")
    await world.groups.pause_topic(scope, "orders")

    await world.joined(scope, topic, "scoring")
    other = world.server()
    await other._directory.resolve(scope, "audit", create=True)
    await other.seek(scope, "audit", "orders", Earliest())
    paused = [
        await world.group_directory.resolve(scope, name, create=False) for name in ("billing", "scoring", "audit")
    ]
    assert [group.paused for group in paused] == [{"orders"}] * 3

    resumed = await world.groups.resume_topic(scope, "orders")
    assert sorted(group.name for group in resumed) == ["audit", "billing", "scoring"]
    group, _ = await world.joined(scope, topic, "reports")
    assert not group.paused


async def test_a_group_that_was_resumed_alone_stays_so_when_it_is_moved() -> None:
    world = World()
    scope, topic = await world.topic()
    await world.joined(scope, topic, "billing")
    await world.groups.pause_topic(scope, "orders")
    await world.groups.resume(scope, "billing", "orders")

    await world.groups.seek(scope, "billing", "orders", Earliest())
    assert not (await world.group_directory.resolve(scope, "billing", create=False)).paused


async def test_a_pause_of_the_topic_while_a_group_begins_reaches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    scope, topic = await world.topic()
    catalog = world.catalog.groups
    create = catalog.group_topic_create

    async def paused_before(group_topic: GroupTopic) -> GroupTopic:
        await world.server().pause_topic(scope, "orders")
        return await create(group_topic)

    monkeypatch.setattr(catalog, "group_topic_create", paused_before)
    await world.joined(scope, topic, "billing")
    assert (await world.group_directory.resolve(scope, "billing", create=False)).paused == {"orders"}


async def test_a_group_with_members_is_not_deleted() -> None:
    world = World()
    scope, topic = await world.topic()
    group, _ = await world.joined(scope, topic)
    world.members.assigned = {"one": {}}
    with pytest.raises(GroupBusy):
        await world.groups.delete(scope, "billing")
    world.members.assigned = {}
    world.changed.clear()
    await world.groups.delete(scope, "billing")
    assert world.changed == [group.group_id]
    with pytest.raises(GroupNotFound):
        await world.group_directory.resolve(scope, "billing", create=False)
    with pytest.raises(GroupNotFound):
        await world.groups.delete(scope, "billing")
    again, _ = await world.joined(scope, topic)
    assert again.group_id != group.group_id


# Looking --------------------------------------------------------------------------------------------------------------


async def test_progress_adds_up_and_says_who_holds_what() -> None:
    """S14, L7: what was published is finished, or is in one of the open counts; lag is their sum."""
    world = World()
    scope, topic = await world.topic()
    begun = ms(world.clock.now)
    await world.publish(topic, 0, *"abcdef")
    world.clock.pass_by(seconds=5)
    await world.publish(topic, 0, "late")
    group, group_topic = await world.joined(scope, topic, start_from="earliest")
    granted = await world.take(group, group_topic, topic, 0, 4)
    answers = [
        FinishMessages(owner="ann", token=granted.token, ranges=[(1, 2)]),
        ReturnMessages(owner="ann", token=granted.token, ranges=[(2, 3)], kind=ReturnKind.NACK, delay_ms=60_000),
    ]
    for answer in answers:
        await world.journals.run(group, group_topic, topic, 0, answer)
    info = await world.groups.describe(scope, "billing")
    one, other = info.progress
    assert (one.committed, one.frontier, one.high_watermark) == (0, 4, 7)
    assert (one.leased, one.waiting, one.skipped, one.acked, one.lag) == (2, 1, 0, 1, 6)
    assert one.acked + one.dead + one.discarded + one.filtered + one.expired + one.cut + one.lag == 7
    assert one.oldest_at == to_time(begun)
    (lease,) = one.leases
    assert (lease.owner, lease.offsets, lease.token) == ("ann", ((0, 0), (3, 3)), granted.token)
    assert (one.status, one.reason) == ("working", None)
    assert (other.lag, other.oldest_at, other.status, other.reason) == (0, None, "caught-up", None)
    assert await world.groups.lag(scope, "billing") == list(info.progress)
    assert await world.groups.lag(scope, "billing", "orders") == list(info.progress)


async def test_the_oldest_messages_are_looked_for_once_and_together(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    scope, topic = await world.topic(partitions=4)
    begun = ms(world.clock.now)
    for partition in range(4):
        await world.publish(topic, partition, "a", "b")
    group, group_topic = await world.joined(scope, topic, start_from="earliest")
    asked: list[list[tuple[int, int]]] = []

    def counted(store: MemoryStore) -> Callable[..., Awaitable[Any]]:
        read_many = store.read_many

        async def call(asks: Sequence[tuple[int, int]], **limits: int) -> Any:
            asked.append([*asks])
            return await read_many(asks, **limits)

        return call

    for store in world.cells.values():
        monkeypatch.setattr(store, "read_many", counted(store))
    for _ in range(2):
        assert [each.oldest_at for each in await world.groups.lag(scope, "billing")] == [to_time(begun)] * 4
        assert len(asked) == len(set(topic.cells))
        assert sorted(ask for asks in asked for ask in asks) == [(topic.pid(each), 0) for each in range(4)]
    granted = await world.take(group, group_topic, topic, 0, 1)
    asked.clear()
    await world.journals.run(
        group, group_topic, topic, 0, FinishMessages(owner="ann", token=granted.token, ranges=[(0, 1)])
    )
    assert [each.oldest_at for each in await world.groups.lag(scope, "billing")] == [to_time(begun)] * 4
    assert asked == [[(topic.pid(0), 1)]]


async def test_what_retention_took_is_cut_and_no_lag() -> None:
    world = World()
    scope, topic = await world.topic()
    await world.publish(topic, 0, *"abcdef")
    group, group_topic = await world.joined(scope, topic, start_from="earliest")
    granted = await world.take(group, group_topic, topic, 0, 1)
    nack = ReturnMessages(owner="ann", token=granted.token, ranges=[(0, 1)], kind=ReturnKind.NACK)
    await world.journals.run(group, group_topic, topic, 0, nack)
    await world.cells[topic.cells[0]].log_start_raise([(topic.pid(0), 4)])
    one = (await world.groups.lag(scope, "billing", "orders"))[0]
    assert (one.committed, one.log_start, one.lag, one.cut, one.waiting) == (0, 4, 2, 4, 0)


async def test_the_figures_of_a_topic() -> None:
    world = World()
    scope, topic = await world.topic()
    empty = await world.groups.stats(scope, "orders")
    assert (empty.messages, empty.partitions, empty.oldest_at, empty.newest_at, empty.groups) == (0, 2, None, None, ())
    begun = world.clock.now
    await world.publish(topic, 0, "a", "b", "c")
    world.clock.pass_by(seconds=5)
    await world.publish(topic, 1, "x")
    group, group_topic = await world.joined(scope, topic, start_from="earliest")
    await world.joined(scope, topic, "late")
    await world.take(group, group_topic, topic, 0, 2)
    stats = await world.groups.stats(scope, "orders")
    assert (stats.messages, stats.oldest_at, stats.newest_at) == (4, begun, begun + timedelta(seconds=5))
    billing, late = stats.groups
    assert (billing.group, billing.lag, billing.pending, billing.committed) == ("billing", 4, 2, {0: 0, 1: 0})
    assert (late.group, late.lag, late.pending, late.committed) == ("late", 0, 0, {0: 3, 1: 1})
    assert stats.dead_letters == 0
