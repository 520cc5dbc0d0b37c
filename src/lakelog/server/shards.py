"""The number of partitions of a topic, by which servers find the home of a call. It decides nothing."""

from __future__ import annotations

from lakelog.engine import Engine
from lakelog.errors import LakelogError
from lakelog.server.calls import Call
from lakelog.server.group_routing import GroupRouting


async def partitions_of(engine: Engine, routing: GroupRouting | None, call: Call, topic: str) -> int:
    """Return how many partitions the topic has; 1 if that is not needed, or if the topic cannot be read.

    The server that serves the call raises the error.
    """
    if routing is None or not routing.has_others:
        return 1
    try:
        return (await engine.topics.find(call.scope, topic)).partitions
    except LakelogError:
        return 1
