"""Writes: many messages that become visible by one decision. For sinks of much at once, such as Spark's.

Choosing partitions and encoding is `lakelog.client.publishing.staging`'s; publishing a few messages is `topic`'s.
"""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.client._async.calls import AsyncCalls
from lakelog.model.write import DecideWish, StagePiece, StageWish, Written


class AsyncWrites:
    """`log.writes`."""

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls

    async def stage(self, topic: str, wish: StageWish, pieces: Sequence[StagePiece]) -> None:
        """Stores batches that nobody sees before the decision. Repeated until it is certain that they are stored."""
        transport = self._calls.transport.writes
        await self._calls.run(lambda left: transport.stage(topic, wish, pieces, left), safe=True)

    async def decide(self, topic: str, wish: DecideWish) -> Written:
        """Which attempts count: these, or those that were named before. When it returns, all is in the log."""
        transport = self._calls.transport.writes
        return await self._calls.run(lambda left: transport.decide(topic, wish, left), safe=True)
