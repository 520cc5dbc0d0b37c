"""One membership: heartbeats, generations, a member that was removed, and the end."""

from __future__ import annotations

import asyncio
import threading

import pytest

from lakelog.client._async.group_member import AsyncGroupMember
from lakelog.client._sync.group_member import GroupMember
from lakelog.errors import Closed, LakelogError, NotAllowed, Unavailable, UnknownMember
from lakelog.model.membership import Membership
from tests.kit.waiting import eventually_async


def membership(generation: int) -> Membership:
    return Membership(member_id="m", generation=generation, assigned={}, heartbeat_ms=1)


class Group:
    """Counts the calls. `replies` are the generations, or the errors, of the next heartbeats."""

    def __init__(self, *replies: int | LakelogError) -> None:
        self.replies = list(replies)
        self.joined = self.left = 0
        self.sent: list[int] = []
        self.exhausted = threading.Event()
        self.leave_error: LakelogError | None = None

    def join(self) -> Membership:
        self.joined += 1
        return membership(self.joined * 10)

    def heartbeat(self, member: Membership) -> Membership:
        self.sent.append(member.generation)
        if not self.replies:
            self.exhausted.set()
            return member
        reply = self.replies.pop(0)
        if isinstance(reply, LakelogError):
            raise reply
        return membership(reply)

    def leave(self) -> None:
        self.left += 1
        if self.leave_error is not None:
            raise self.leave_error

    def member(self) -> GroupMember:
        return GroupMember("orders/billing", self.join, self.heartbeat, self.leave)

    def async_member(self) -> AsyncGroupMember:
        async def join() -> Membership:
            return self.join()

        async def heartbeat(member: Membership) -> Membership:
            return self.heartbeat(member)

        async def leave() -> None:
            self.leave()

        return AsyncGroupMember("orders/billing", join, heartbeat, leave)


def test_a_heartbeat_names_the_last_generation() -> None:
    group = Group(11, 12)
    member = group.member()
    member.join()
    member.heartbeat()
    member.heartbeat()
    member.advance(20)
    member.advance(15)
    member.advance(None)
    member.heartbeat()
    assert group.sent == [10, 11, 20]


def test_a_removed_member_joins_again(caplog: pytest.LogCaptureFixture) -> None:
    group = Group(UnknownMember())
    member = group.member()
    member.join()
    member.heartbeat()
    assert group.joined == 2
    assert member.membership == membership(20)
    assert "orders/billing: Removed from the group after a timeout. Joining again." in caplog.messages


def test_before_it_has_joined_it_sends_nothing_and_leaves_nothing() -> None:
    group = Group()
    member = group.member()
    member.heartbeat()
    member.advance(3)
    member.leave()
    assert (group.sent, group.left, member.membership) == ([], 0, None)


def test_what_the_server_refuses_at_the_join_is_raised() -> None:
    def refuse() -> Membership:
        raise NotAllowed("no")

    group = Group()
    with pytest.raises(NotAllowed):
        GroupMember("orders/billing", refuse, group.heartbeat, group.leave).join()


def test_heartbeats_go_on_after_a_failure_and_end_with_leave() -> None:
    group = Group(Unavailable("away"), 11)
    member = group.member()
    member.join()
    beating = threading.Thread(target=member.keep_alive)
    beating.start()
    assert group.exhausted.wait(10)
    member.leave()
    beating.join(10)
    assert not beating.is_alive()
    assert group.left == 1
    assert group.sent[:3] == [10, 10, 11]


def test_a_member_that_has_left_does_not_join_again() -> None:
    group = Group(UnknownMember())
    member = group.member()
    member.join()
    member.leave()
    member.heartbeat()
    assert group.joined == 1


def test_heartbeats_end_with_the_client() -> None:
    group = Group(Closed())
    member = group.member()
    member.join()
    member.keep_alive(0.001)
    assert group.sent == [10]


def test_a_failed_leave_is_logged_and_not_raised(caplog: pytest.LogCaptureFixture) -> None:
    group = Group()
    group.leave_error = Unavailable("away")
    member = group.member()
    member.join()
    with caplog.at_level("INFO", "lakelog"):
        member.leave()
    assert "orders/billing: Could not leave the group; the member will time out: away" in caplog.messages


async def test_the_async_member_does_the_same() -> None:
    group = Group(Unavailable("away"), UnknownMember(), 21)
    member = group.async_member()
    await member.join()
    beating = asyncio.create_task(member.keep_alive(0.001))
    await eventually_async(group.exhausted.is_set)
    await member.leave()
    await asyncio.wait_for(beating, 10)
    assert group.sent[:4] == [10, 10, 20, 21]
    assert (group.joined, group.left) == (2, 1)
