"""Marks through the client: the same over every transport."""

from __future__ import annotations

import lakelog


async def test_deploys_and_changes_are_on_one_timeline(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        await log.topic("marked").create()
        made = await log.marks.create("deploy 1.4", topic="marked")
        await log.topic("marked").alter(tags=["a"])
        found = await log.marks.list(topic="marked", limit=3)
        assert [each.kind for each in found] == ["alter_topic", "mark", "create_topic"]
        assert found[1] == made
        assert (made.text, made.topic, made.group) == ("deploy 1.4", "marked", None)
        assert [each.number for each in await log.marks.list(topic="marked", until=made.at)] == [found[2].number]
