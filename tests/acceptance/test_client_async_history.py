"""The history of a group through the client: the same over every transport."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import lakelog
from lakelog.errors import GroupNotFound, TopicNotFound
from lakelog.model.lease import ConsumeRequest


async def test_a_history_has_the_time_that_was_asked_for(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        await log.topic("watched").create()
        await log.group("watchers").consume(ConsumeRequest(topic="watched", group="watchers", owner="ann"))
        found = await log.group("watchers").history()
        assert (found.group, found.topic, found.step_seconds) == ("watchers", None, 60)
        assert found.until - found.since == timedelta(hours=1)
        assert all(each.lag == 0 for each in found.points)
        month = datetime.now(UTC) - timedelta(days=29)
        long = await log.group("watchers").history("watched", since=month, partitions=True)
        assert (long.topic, long.since, long.step_seconds) == ("watched", month, 3600)
        with pytest.raises(TopicNotFound):
            await log.group("watchers").history("other")
        with pytest.raises(GroupNotFound):
            await log.group("nobody").history()
