"""Why messages wait: each reason is true, also while members work elsewhere, are between calls, or have left."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from lakelog.coordinator.leasing.operations import FinishMessages, Granted, ReturnKind, ReturnMessages
from lakelog.engine.groups.reasons import Status, status_of_group
from lakelog.engine.log.damage import Damage, DamageTest
from lakelog.model.group import Group, GroupKind, GroupTopic, Order
from lakelog.model.topic import Scope, Topic
from tests.unit.engine.group_support import World

WORKER = "host-12345-ab12cd34"


class Case:
    """A group that reads a topic of two partitions from its beginning."""

    def __init__(self) -> None:
        self.world = World()
        self.scope: Scope
        self.topic: Topic
        self.group: Group
        self.group_topic: GroupTopic

    async def begin(self, **wish: object) -> Case:
        self.scope, self.topic = await self.world.topic()
        self.group, self.group_topic = await self.world.joined(self.scope, self.topic, start_from="earliest", **wish)
        return self

    async def publish(self, partition: int, *values: str) -> None:
        await self.world.publish(self.topic, partition, *values)

    async def take(self, partition: int, count: int = 1, owner: str = WORKER) -> Granted:
        return await self.world.take(self.group, self.group_topic, self.topic, partition, count, owner)

    async def ack(self, partition: int, granted: Granted, owner: str = WORKER) -> None:
        ranges = [(offset, offset + 1) for offset in granted.offsets]
        settle = FinishMessages(owner=owner, token=granted.token, ranges=ranges)
        await self.world.journals.run(self.group, self.group_topic, self.topic, partition, settle)

    async def nack(self, partition: int, granted: Granted, delay_ms: int = 90_000, owner: str = WORKER) -> None:
        ranges = [(offset, offset + 1) for offset in granted.offsets]
        back = ReturnMessages(owner=owner, token=granted.token, ranges=ranges, kind=ReturnKind.NACK, delay_ms=delay_ms)
        await self.world.journals.run(self.group, self.group_topic, self.topic, partition, back)

    def member(self, *partitions: int, name: str = WORKER, topic: str = "orders") -> None:
        self.world.members.assigned[name] = {topic: [*partitions]}

    async def told(self, partition: int = 0) -> tuple[str, str]:
        """The status and the reason, which `describe` and `lag` tell alike."""
        described = (await self.world.groups.describe(self.scope, "billing")).progress[partition]
        assert (await self.world.groups.lag(self.scope, "billing", "orders"))[partition] == described
        return described.status, described.reason or ""


async def test_nothing_waits_where_everything_is_finished_or_leased() -> None:
    case = await Case().begin()
    assert await case.told() == ("caught-up", "")
    await case.publish(0, "a")
    granted = await case.take(0)
    assert await case.told() == ("working", "")
    await case.ack(0, granted)
    assert await case.told() == ("caught-up", "")


async def test_without_members_and_leases_there_is_no_consumer() -> None:
    case = await Case().begin()
    await case.publish(0, "a")
    status, reason = await case.told()
    assert status == "no-consumer"
    assert "has no members, and no messages of topic 'orders' are leased" in reason
    assert "Start a worker of group 'billing'" in reason


class Damaged(DamageTest):
    """Damage as a test says."""

    def __init__(self, **found: Damage) -> None:
        self.found = {int(name[1:]): each for name, each in found.items()}
        self.tested: list[Mapping[int, Collection[int]]] = []

    async def find(self, topic: Topic, offsets: Mapping[int, Collection[int]]) -> dict[int, Damage]:
        self.tested.append(offsets)
        return {partition: each for partition, each in self.found.items() if partition in offsets}


@pytest.mark.parametrize("members", [0, 1])
async def test_damage_is_named_with_the_command_that_gets_past_it(members: int) -> None:
    case = await Case().begin()
    if members:
        case.member(0, 1)
    await case.publish(0, *"abcdef")
    case.world.groups._progress.damage = damaged = Damaged(p0=Damage(2, 5))
    await case.ack(0, await case.take(0, 2))
    status, reason = await case.told()
    assert (status, damaged.tested[-1]) == ("unreadable", {0: {2}})
    assert reason == (
        "Offsets 2 to 4 of topic 'orders', partition 0, cannot be read: the file of their segment is damaged or "
        "missing. Restore the file, and the group continues by itself. If that is not possible, give these messages up "
        "with `lakelog groups skip billing orders --partition 0 --to 5`."
    )
    assert (await case.world.groups.describe(case.scope, "billing")).status == "unreadable"


async def test_damage_is_looked_for_only_where_messages_would_be_read_now() -> None:
    case = await Case().begin()
    await case.publish(0, *"abc")
    await case.publish(1, *"abc")
    case.world.groups._progress.damage = damaged = Damaged(p0=Damage(0, 3))
    await case.take(0, 1)
    assert await case.told() == ("working", "")
    assert damaged.tested[-1] == {1: {0}}
    await case.nack(1, await case.take(1, 1), delay_ms=0)
    await case.told(1)
    assert damaged.tested[-1] == {1: {0, 1}}, "the retry, and what is unread"
    await case.world.groups.pause(case.scope, "billing")
    await case.told()
    assert damaged.tested[-1] == {}


async def test_a_cursor_group_is_told_to_seek_past_damage() -> None:
    case = await Case().begin(kind=GroupKind.CURSOR)
    await case.publish(0, *"abc")
    case.world.groups._progress.damage = Damaged(p0=Damage(0, 3))
    status, reason = await case.told()
    assert status == "unreadable" and "`lakelog groups seek billing orders --partition 0 --to 3`" in reason


async def test_a_member_that_works_on_other_partitions_is_named_with_its_work() -> None:
    case = await Case().begin()
    case.member(0, 1)
    await case.publish(0, "a")
    await case.publish(1, "b", "c")
    await case.take(1, 2)
    assert await case.told(1) == ("working", "")
    status, reason = await case.told(0)
    assert status == "queued"
    assert f"Assigned to member {WORKER}, which is working on 2 messages of orders/1." in reason
    assert "raise their concurrency" in reason and "Start" not in reason


async def test_a_member_between_two_calls_is_not_said_to_be_missing() -> None:
    case = await Case().begin()
    case.member(0, 1)
    await case.publish(0, "a")
    status, reason = await case.told()
    assert status == "queued"
    assert f"Assigned to member {WORKER}, which holds no messages of topic 'orders' now" in reason


async def test_a_member_that_works_on_another_topic_is_named_with_its_work() -> None:
    case = await Case().begin()
    refunds = await case.world.topics.create(case.scope, "refunds", 1)
    await case.world.publish(refunds, 0, "r")
    _, group_topic = await case.world.joined(case.scope, refunds, start_from="earliest")
    case.world.members.assigned = {WORKER: {"orders": [0, 1], "refunds": [0]}}
    await case.publish(0, "a")
    await case.world.take(case.group, group_topic, refunds, 0, owner=WORKER)
    described = (await case.world.groups.describe(case.scope, "billing")).progress[0]
    assert described.status == "queued" and "working on 1 message of refunds/0" in str(described.reason)


async def test_consumers_without_membership_are_named() -> None:
    case = await Case().begin()
    await case.publish(0, "a")
    await case.publish(1, "b")
    await case.take(1, owner="ann")
    status, reason = await case.told(0)
    assert status == "queued"
    assert "Consumers that are not members (ann) are working on 1 message of orders/1." in reason
    case.member(0, 1)
    assert f"Assigned to member {WORKER}. Consumers that are not members (ann)" in (await case.told(0))[1]


async def test_members_that_read_other_topics_are_no_consumers_of_this_one() -> None:
    case = await Case().begin()
    case.member(0, topic="refunds")
    await case.publish(0, "a")
    status, reason = await case.told()
    assert status == "no-consumer" and "No member reads topic 'orders'; the members read refunds." in reason


async def test_a_partition_that_no_member_has_yet_is_about_to_be_assigned() -> None:
    case = await Case().begin()
    case.member(1)
    await case.publish(0, "a")
    status, reason = await case.told(0)
    assert status == "queued" and "Not assigned to a member yet" in reason


@pytest.mark.parametrize("topic", [None, "orders"])
async def test_a_pause_is_told_with_the_command_that_ends_it(topic: str | None) -> None:
    case = await Case().begin()
    await case.world.groups.pause(case.scope, "billing", topic)
    assert await case.told() == ("paused", "")
    await case.publish(0, "a")
    status, reason = await case.told()
    command = "`lakelog groups resume billing --topic orders`" if topic else "`lakelog groups resume billing`"
    assert status == "paused" and command in reason


async def test_a_full_window_names_who_holds_it() -> None:
    case = await Case().begin(window=2)
    await case.publish(0, "a", "b", "c")
    await case.take(0, owner="ann")
    await case.take(0, owner="bob")
    status, reason = await case.told()
    assert status == "full" and "window of 2 messages is full: 2 leased to ann and bob" in reason
    assert "groups alter billing --window" in reason


async def test_a_window_full_of_ended_leases_is_not_called_full() -> None:
    """The worker died with all that the window lets in: what is missing is a consumer."""
    case = await Case().begin(window=2)
    await case.publish(0, "a", "b", "c")
    await case.take(0, 2)
    case.world.clock.pass_by(seconds=31)
    status, reason = await case.told()
    assert status == "no-consumer" and "The group has no members" in reason
    assert f"The lease of {WORKER} ended without an answer for 2 messages." in reason


async def test_retries_are_told_with_their_time_and_then_with_who_takes_them() -> None:
    case = await Case().begin()
    await case.publish(0, "a")
    await case.nack(0, await case.take(0))
    status, reason = await case.told()
    assert status == "retrying"
    assert reason == "1 message waits for a retry. The first is due at 2026-01-01T00:01:30Z."
    case.world.clock.pass_by(seconds=90)
    assert (await case.told())[0] == "no-consumer"
    case.member(0, 1)
    assert (await case.told())[0] == "queued"


async def test_retries_that_fill_the_window_hold_up_what_was_never_read() -> None:
    case = await Case().begin(window=2)
    await case.publish(0, "a", "b", "c")
    await case.nack(0, await case.take(0, 2))
    status, reason = await case.told()
    assert status == "retrying" and "2 messages wait for a retry. They fill the window of 2." in reason


async def test_under_partition_order_a_retry_holds_up_the_partition() -> None:
    case = await Case().begin(order=Order.PARTITION)
    case.member(0, 1)
    await case.publish(0, "a", "b")
    await case.nack(0, await case.take(0))
    status, reason = await case.told()
    assert status == "retrying"
    assert "all later messages wait for them (partition order)" in reason and "due at 2026-01-01T00:01:30Z" in reason


async def test_a_lost_owner_and_what_it_leaves() -> None:
    case = await Case().begin()
    await case.publish(0, "a", "b")
    granted = await case.take(0, 2)
    case.world.clock.pass_by(seconds=31)
    assert "ended without an answer for 2 messages" in (await case.told())[1]
    # A late answer finds that the lease has ended.
    with pytest.raises(Exception, match="lease has ended"):
        await case.ack(0, granted)
    status, reason = await case.told()
    assert status == "no-consumer" and "2 messages lost their owner: each is delivered alone" in reason


async def test_a_cursor_group_has_a_member_for_each_partition_or_a_reason() -> None:
    case = await Case().begin(kind=GroupKind.CURSOR)
    await case.publish(0, "a")
    status, reason = await case.told()
    assert (status, reason) == ("no-consumer", "The group has no members. Start a worker of group 'billing'.")
    case.member(1)
    status, reason = await case.told()
    assert status == "rebalancing" and "No member is assigned this partition yet" in reason
    case.member(0, topic="refunds")
    assert (await case.told())[0] == "no-consumer"
    case.member(0)
    assert await case.told() == ("working", "")


async def test_the_status_of_a_group_is_the_one_that_matters_most() -> None:
    case = await Case().begin()
    assert status_of_group(case.group, []) is Status.CAUGHT_UP
    assert status_of_group(case.group, [Status.CAUGHT_UP, Status.QUEUED, Status.WORKING]) is Status.WORKING
    assert status_of_group(case.group, [Status.WORKING, Status.NO_CONSUMER]) is Status.NO_CONSUMER
    paused = await case.world.groups.pause(case.scope, "billing")
    assert status_of_group(paused, [Status.CAUGHT_UP, Status.NO_CONSUMER]) is Status.PAUSED
