"""Audit records through the client: the same over every transport."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import lakelog


async def test_changes_are_recorded_with_their_actor(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        await log.topic("audited").create(partitions=2)
        await log.topic("audited").alter(tags=["a"])
        altered, created = await log.audit.list(topic="audited")
        assert (created.operation, created.after is not None and created.after["partitions"]) == ("create_topic", 2)
        assert (altered.before, altered.after) == ({"tags": []}, {"tags": ["a"]})
        assert altered.actor_kind == ("anonymous" if url.startswith("http") else "database")
        assert bool(altered.actor) == (not url.startswith("http"))
        assert [each.number for each in await log.audit.list(topic="audited", limit=1)] == [altered.number]
        assert await log.audit.list(topic="audited", since=datetime.now(UTC) + timedelta(minutes=5)) == []
