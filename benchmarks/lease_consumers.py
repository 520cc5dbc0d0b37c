"""The Lakelog side of the group benchmarks: batches leased and acked over HTTP with the SDK's transport.

`consume-handler` measures a worker with handlers.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from lakelog.batches import decode, with_positions
from lakelog.client._async.http import AsyncHttpTransport
from lakelog.client.connecting.servers import servers_of
from lakelog.client.publishing.codec import Codec
from lakelog.client.reading.decoding import leased_messages
from lakelog.client.values import Consumed
from lakelog.errors import LakelogError
from lakelog.model.lease import Answered, AnswersRequest, ConsumeRequest, LeaseAnswer, Verb
from lakelog.model.ranges import from_ranges

SECONDS = 30.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CODEC: Codec[dict[str, int]] = Codec(None)
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


def objects(consumed: Consumed, topic: str) -> int:
    """Make an object of every message, with its value decoded."""
    count = total = 0
    payloads = iter(consumed.payloads)
    for lease in consumed.leases:
        pieces = [next(payloads) for _ in lease.pieces]
        for message in leased_messages(topic, _CODEC, consumed.head.incarnation, lease, pieces):
            count += 1
            total += message.value["cents"]
    assert total > 0
    return count


def columns(consumed: Consumed, topic: str) -> int:
    """Make Arrow batches in the schema of a fetch, each cut to the leased messages."""
    parts = []
    payloads = iter(consumed.payloads)
    for lease in consumed.leases:
        for piece in lease.pieces:
            batch = decode(next(payloads))
            at = _EPOCH + timedelta(microseconds=piece.appended_us)
            first, last = piece.offsets[0][0], piece.offsets[-1][1]
            count = sum(end - start + 1 for start, end in piece.offsets)
            if piece.whole and count == last - first + 1:
                batch = batch.slice(first - piece.base, count)
            elif piece.whole:
                picked = [offset - piece.base for offset in from_ranges(piece.offsets)]
                batch = batch.take(pa.array(picked, pa.int64()))
            parts.append(with_positions(batch, lease.partition, first, at))
    return int(pa.Table.from_batches(parts).num_rows)


def nothing(consumed: Consumed, topic: str) -> int:
    """Count the messages."""
    ranges = (each for lease in consumed.leases for piece in lease.pieces for each in piece.offsets)
    return sum(last - first + 1 for first, last in ranges)
