"""Writes: many messages that become visible by one decision, for large sinks such as Spark's.

`lakelog.client.publishing.staging` chooses partitions and encodes; `topic` publishes a few messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import asdict

from lakelog.client._async.calls import AsyncCalls
from lakelog.model.write import DecideOptions, DecideRequest, StageOptions, StagePiece, Written
from lakelog.wire.operations.writes import DECIDE


class AsyncWrites:
    """Writes into topics, as `log.writes`."""

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls

    async def stage(self, topic: str, options: StageOptions, pieces: Sequence[StagePiece]) -> None:
        """Store batches that stay invisible until the decision. The call is repeated until they are stored.

        Args:
            topic: The name of the topic.
            options: The write, the attempt, and the topic as it was when partitions were chosen.
            pieces: The encoded batches.
        """
        transport = self._calls.transport
        await self._calls.run(lambda left: transport.stage(topic, options, pieces, left), safe=True)

    async def decide(self, topic: str, options: DecideOptions) -> Written:
        """Decide which attempts count, unless that was decided before. Return when their messages are in the log.

        Args:
            topic: The name of the topic.
            options: The write, and the attempts that count.
        """
        return await self._calls.call(DECIDE, DecideRequest(topic=topic, **asdict(options)))
