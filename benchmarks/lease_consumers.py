"""The Lakelog side of the group benchmarks: batches leased and acked over HTTP with the SDK's transport.

`consume-handler` measures a worker with handlers.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from lakelog.client._async.http import AsyncHttpTransport
from lakelog.client.connecting.servers import servers_of
from lakelog.client.values import Consumed
from lakelog.errors import LakelogError
from lakelog.model.lease import Answered, AnswersRequest, ConsumeRequest, LeaseAnswer, Verb

SECONDS = 30.0
_groups = itertools.count(1)

Look = Callable[[Consumed, str], int]
"""Processes leased messages as the benchmark requires, and returns their number."""


def fresh_group() -> str:
    return f"group-{next(_groups)}"


@asynccontextmanager
async def transport_to(url: str) -> AsyncIterator[AsyncHttpTransport]:
    transport = AsyncHttpTransport(servers_of(url), None)
    try:
        yield transport
    finally:
        await transport.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """One owner that leases from the earliest message, processes, and acks with the next lease."""

    transport: AsyncHttpTransport
    topic: str
    group: str
    batch: int
    wait_seconds: float = 0.0
    owner: str = "bench"

    async def lease(self, done: Consumed | None = None) -> Consumed:
        """Lease messages and ack `done` in the same call, which then does not wait."""
        request = ConsumeRequest(
            topic=self.topic,
            group=self.group,
            owner=self.owner,
            request_id=uuid.uuid4().hex,
            max_messages=self.batch,
            wait_ms=int(self.wait_seconds * 1000),
            isolates=True,
            answers=_acks(done),
            start_from="earliest",
        )
        consumed = await self.transport.consume(request, SECONDS)
        _raise_refusal(consumed.answered)
        return consumed

    async def begin(self) -> None:
        """Create the group with its start position, while the topic is empty."""
        consumed = await replace(self, wait_seconds=0.0).lease()
        assert not consumed.leases, "the topic was not empty"

    async def ack(self, consumed: Consumed) -> None:
        request = AnswersRequest(topic=self.topic, group=self.group, owner=self.owner, answers=_acks(consumed))
        _raise_refusal(await self.transport.answer(request, SECONDS))

    async def run(self, look: Look, messages: int) -> None:
        """Consume until exactly this many messages are acked."""
        count, consumed = 0, None
        while count < messages:
            consumed = await self.lease(consumed)
            if consumed.leases:
                count += look(consumed, self.topic)
        if consumed is not None:
            await self.ack(consumed)
        assert count == messages, f"consumed {count} of {messages} messages"


def _acks(consumed: Consumed | None) -> tuple[LeaseAnswer, ...]:
    return tuple(
        LeaseAnswer(verb=Verb.ACK, partition=lease.partition, token=lease.token, offsets=tuple(lease.offsets()))
        for lease in (consumed.leases if consumed is not None else ())
    )


def _raise_refusal(results: Sequence[Answered | LakelogError]) -> None:
    for result in results:
        if isinstance(result, LakelogError):
            raise result


def nothing(consumed: Consumed, topic: str) -> int:
    """Count the messages."""
    ranges = (each for lease in consumed.leases for piece in lease.pieces for each in piece.offsets)
    return sum(last - first + 1 for first, last in ranges)
