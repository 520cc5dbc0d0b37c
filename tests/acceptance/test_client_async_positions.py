"""Members of cursor groups through the client, which commit positions: the same over every transport."""

from __future__ import annotations

from typing import Any

import pytest

import lakelog
from lakelog.errors import PositionRefused, UnknownMember
from lakelog.model.group import GroupKind
from lakelog.model.membership import JoinRequest
from lakelog.model.seek import GroupPosition

CURSOR: dict[str, Any] = {"kind": GroupKind.CURSOR, "start_from": "earliest"}


async def test_a_member_commits_positions_and_a_seek_refuses_what_was_read_before(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        orders, group = log.topic("orders"), log.group("features")
        await orders.create(2)
        await orders.publish_many([lakelog.Outgoing({"n": n}, partition=n % 2) for n in range(10)])
        joined = await group.join(JoinRequest(group="features", topics=("orders",), member_id="one", **CURSOR))
        assert {topic: list(some) for topic, some in joined.assigned.items()} == {"orders": [0, 1]}
        assert await group.positions("orders") == {
            0: GroupPosition(0, 0, 0),
            1: GroupPosition(1, 0, 0),
        }
        await group.commit("orders", {0: 3}, member_id="one", generation=joined.generation, epoch=0)
        await group.commit("orders", {0: 3}, member_id="one", generation=joined.generation, epoch=0)
        assert await group.positions("orders") == {
            0: GroupPosition(0, 3, 0),
            1: GroupPosition(1, 0, 0),
        }
        assert await group.lag("orders") == 7
        with pytest.raises(PositionRefused):
            await group.commit("orders", {0: 2})
        await orders.seek("features", to="earliest")
        with pytest.raises(PositionRefused):
            await group.commit("orders", {0: 4}, epoch=0)
        assert (await group.heartbeat("one", joined.generation)).member_id == "one"
        await group.leave("one")
        with pytest.raises(UnknownMember):
            await group.heartbeat("one", joined.generation)


async def test_s17_a_replacing_member_is_the_only_one_and_names_its_client(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        group = log.group("features")
        await log.topic("orders").create(2)
        one = await group.join(JoinRequest(group="features", topics=("orders",), member_id="one", **CURSOR))
        wish = JoinRequest(
            group="features",
            topics=("orders",),
            member_id="two",
            client="spark",
            replaces=True,
            **CURSOR,
        )
        two = await group.join(wish)
        assert two.generation > one.generation
        assert two.assigned == one.assigned
        [member] = (await group.describe()).members
        assert member.member_id == "two"
        assert member.client_host.endswith(" (spark)")
        with pytest.raises(UnknownMember):
            await group.commit("orders", {0: 0}, member_id="one", generation=one.generation)
