"""A topic in the caller's hands: its verbs, with values of the topic's type."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

from lakelog.client._async.producer import AsyncProducer, OnError, ProducerSettings
from lakelog.client._async.publishing import AsyncSettling, AsyncTopicState, lane_is_sound, publish_one
from lakelog.client._async.reading import Source, fetch_chunk, read_on, read_to_end
from lakelog.client._async.topic_groups import AsyncTopicGroups
from lakelog.client._runtime import AsyncWork
from lakelog.client.backoff import Tries, is_passing, may_be_written
from lakelog.client.codec import Key, Maker
from lakelog.client.columns import (
    MAX_BATCH_BYTES,
    MESSAGE_OVERHEAD,
    Piece,
    Rows,
    pieces_of,
    rows_of_messages,
    rows_of_table,
)
from lakelog.client.messages import ReceivedMessage, result_of, table_of
from lakelog.client.positions import Offset, Start, position_of, seconds_of
from lakelog.client.values import FetchResult, FetchWish, Outgoing, Purged, Run, TopicChange, TopicInfo
from lakelog.errors import LakelogError, OutcomeUnknown, PartlyPublished
from lakelog.model.limits import MAX_BATCH_MESSAGES
from lakelog.model.message import Message, message_id
from lakelog.model.position import Receipt
from lakelog.model.topic import Retention, TopicSettings

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
_KEEP: Any = object()


class AsyncTopic(AsyncTopicGroups[T]):
    """Made by `log.topic(name)`. Nothing is asked of a server until a verb is called."""

    def __init__(self, state: AsyncTopicState, maker: Maker[T]) -> None:
        self._state = state
        self._maker = maker

    @property
    def name(self) -> str:
        return self._state.name

    async def create(
        self,
        partitions: int = 1,
        *,
        key_field: str | None = None,
        max_age: timedelta | None = None,
        max_count: int | None = None,
        max_bytes: int | None = None,
        idempotency_memory: timedelta | None = None,
        tags: Sequence[str] = (),
        metadata: Mapping[str, str] | None = None,
        if_missing: bool = False,
    ) -> TopicInfo:
        """Makes the topic. `if_missing`: one that exists is left as it is."""
        settings = TopicSettings(
            retention=Retention(max_age=max_age, max_count=max_count, max_bytes=max_bytes),
            key_field=key_field,
            idempotency_memory=idempotency_memory or timedelta(hours=24),
            tags=tuple(tags),
            metadata=metadata or {},
        )
        transport = self._state.calls.transport
        info = await self._state.calls.run(
            lambda left: transport.create_topic(self.name, partitions, settings, if_missing, left), safe=if_missing
        )
        self._state.remember(info)
        return info

    async def describe(self) -> TopicInfo:
        return await self._state.info(fresh=True)

    async def alter(
        self,
        *,
        partitions: int | None = None,
        key_field: str | None = _KEEP,
        max_age: timedelta | None = _KEEP,
        max_count: int | None = _KEEP,
        max_bytes: int | None = _KEEP,
        idempotency_memory: timedelta | None = None,
        tags: Sequence[str] | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> TopicInfo:
        """Changes what is given; None for a limit or the key field takes it away. Partitions only become more."""
        limits = {"max_age": max_age, "max_count": max_count, "max_bytes": max_bytes}
        given: dict[str, Any] = {name: limit for name, limit in limits.items() if limit is not _KEEP}
        change = TopicChange(
            partitions=partitions,
            retention=replace((await self.describe()).retention, **given) if given else None,
            key_field=None if key_field is _KEEP else key_field,
            drop_key_field=key_field is None,
            idempotency_memory=idempotency_memory,
            tags=None if tags is None else tuple(tags),
            metadata=metadata,
        )
        transport = self._state.calls.transport
        info = await self._state.calls.run(lambda left: transport.alter_topic(self.name, change, left), safe=True)
        self._state.remember(info)
        return info

    async def delete(self) -> None:
        """Deletes the topic with all its messages. A topic made again under the name is another one."""
        transport = self._state.calls.transport
        await self._state.calls.run(lambda left: transport.delete_topic(self.name, left), safe=False)
        self._state.remember(None)

    async def purge(self) -> Purged:
        """Puts everything published so far out of reach; offsets go on."""
        transport = self._state.calls.transport
        return await self._state.calls.run(lambda left: transport.purge_topic(self.name, left), safe=False)

    async def publish(
        self,
        value: T,
        *,
        key: Key | None = None,
        headers: Mapping[str, str] | None = None,
        partition: int | None = None,
        idempotency_key: str | None = None,
        correlation_id: str | None = None,
        content_type: str | None = None,
        expires: timedelta | datetime | None = None,
    ) -> Receipt:
        """Returns when the message is durable. Lost answers are repeated safely, with or without an idempotency key."""
        outgoing = Outgoing(
            value,
            key=key,
            headers=headers,
            partition=partition,
            idempotency_key=idempotency_key,
            correlation_id=correlation_id,
            content_type=content_type,
            expires=expires,
        )
        receipt = await publish_one(self._state, await self._made(outgoing))
        self._maker.published([receipt])
        return receipt

    async def publish_many(self, values: Iterable[T | Outgoing[T]]) -> list[Receipt]:
        """A receipt for each, in order. `PartlyPublished` with a result for each if any was not published."""
        messages = [await self._made(value if isinstance(value, Outgoing) else Outgoing(value)) for value in values]
        results: dict[int, Receipt | LakelogError] = {}
        keyed = [index for index, message in enumerate(messages) if message.idempotency_key is not None]
        plain = [index for index, message in enumerate(messages) if message.idempotency_key is None]
        for indexes in _chunks(messages, plain, MAX_BATCH_BYTES):
            results.update(zip(indexes, await self._publish_numbered([messages[i] for i in indexes]), strict=True))
        # Bodies of these are JSON with base64.
        for indexes in _chunks(messages, keyed, MAX_BATCH_BYTES // 2):
            results.update(zip(indexes, await self._publish_keyed([messages[i] for i in indexes]), strict=True))
        ordered = [results[index] for index in range(len(messages))]
        self._maker.published(result for result in ordered if isinstance(result, Receipt))
        failed = [result for result in ordered if isinstance(result, LakelogError)]
        if failed:
            raise PartlyPublished(
                f"{len(failed)} of {len(ordered)} messages were not published. The first: {failed[0].detail}",
                results=ordered,
            ) from failed[0]
        return [result for result in ordered if isinstance(result, Receipt)]

    async def publish_columns(self, table: pa.Table | pa.RecordBatch) -> list[Run]:
        """Publishes a table with the columns `value` and, as wanted, `key`, `headers`, `partition` and others.

        Returns where the messages are, as runs of offsets. What is not published raises `PartlyPublished`, with the
        runs that are in its `results`.
        """
        runs: list[Run] = []
        failed: list[LakelogError] = []
        lane = self._state.lanes.take()
        parts = rows_of_table(table)
        info = await self._state.info()
        ahead = AsyncWork(_next_pieces, parts, info, self._state)
        while (pieces := await _pieces(ahead, failed)) is not None:
            # The next part is encoded while this one is sent.
            ahead = AsyncWork(_next_pieces, parts, self._state.known or info, self._state)
            settled = await AsyncSettling(self._state, lane).run(pieces)
            if not lane_is_sound(settled):
                lane.renew()
            runs += [Run(p.partition, p.result, p.count) for p in settled if isinstance(p.result, int)]
            failed += [p.result for p in settled if isinstance(p.result, LakelogError)]
        self._state.lanes.give(lane)
        if failed and not runs:
            raise failed[0]
        if failed:
            raise PartlyPublished(
                f"Not all rows were published. The first reason: {failed[0].detail}", results=[*runs, *failed]
            ) from failed[0]
        return runs

    def producer(
        self,
        *,
        max_batch: int = MAX_BATCH_MESSAGES,
        linger: timedelta | float = 0.005,
        max_buffer_bytes: int = 32 << 20,
        give_up_after: timedelta | float = 120.0,
        on_error: OnError | None = None,
    ) -> AsyncProducer[T]:
        """Publishes in the background, in batches. `on_error` gets an error and the messages that it hit."""
        settings = ProducerSettings(
            max_batch=max_batch,
            linger_seconds=seconds_of(linger),
            max_buffer_bytes=max_buffer_bytes,
            give_up_seconds=seconds_of(give_up_after),
            on_error=on_error,
        )
        return AsyncProducer(self._state, self._maker, settings)

    async def fetch(
        self,
        partition: int = 0,
        *,
        offset: Offset | None = None,
        time: datetime | None = None,
        last: int | None = None,
        limit: int = 1000,
        wait: timedelta | float = 0.0,
    ) -> FetchResult[T]:
        """Messages of one partition, from an offset, a time, or the `last` so many; waits for the first if asked to."""
        wish = FetchWish(limit=limit, wait_seconds=seconds_of(wait))
        chunk = await fetch_chunk(self._state, partition, position_of(offset, time, last), wish)
        return result_of(chunk, self.name, self._maker.codec)

    async def fetch_arrow(
        self,
        partition: int = 0,
        *,
        offset: Offset | None = None,
        time: datetime | None = None,
        last: int | None = None,
        limit: int = MAX_BATCH_MESSAGES,
        wait: timedelta | float = 0.0,
    ) -> pa.Table:
        """The same as a table; read on at the last `offset` + 1."""
        wish = FetchWish(limit=limit, wait_seconds=seconds_of(wait))
        return table_of(await fetch_chunk(self._state, partition, position_of(offset, time, last), wish))

    def read(self, *, from_: Start = "earliest", follow: bool = False) -> AsyncIterator[ReceivedMessage[T]]:
        """All messages of all partitions, up to the present end; with `follow`, also those to come."""
        source = Source(state=self._state, codec=self._maker.codec)
        return read_on(source, from_) if follow else read_to_end(source, from_)

    def tail(self, *, from_: Start = "latest", follow: bool = True) -> AsyncIterator[ReceivedMessage[T]]:
        """What arrives from now on; `from_=10` begins with the last ten of each partition."""
        return self.read(from_=from_, follow=follow)

    async def _made(self, outgoing: Outgoing[T]) -> Message:
        info = self._state.known or await self._state.info()
        return self._maker.make(outgoing, info.key_field)

    async def _publish_numbered(self, messages: Sequence[Message]) -> list[Receipt | LakelogError]:
        state = self._state
        info = await state.info()
        lane = state.lanes.take()
        pieces = await AsyncSettling(state, lane).run(pieces_of(rows_of_messages(messages), info, state.spread))
        if lane_is_sound(pieces):
            state.lanes.give(lane)
        incarnation = (state.known or info).incarnation
        results: dict[int, Receipt | LakelogError] = {}
        for piece in pieces:
            for place, index in enumerate(piece.messages_at()):
                if isinstance(piece.result, int):
                    offset = piece.result + place
                    mark = message_id(incarnation, piece.partition, offset)
                    results[index] = Receipt(id=mark, partition=piece.partition, offset=offset)
                else:
                    results[index] = piece.result or LakelogError()
        return [results[index] for index in range(len(messages))]

    async def _publish_keyed(self, messages: Sequence[Message]) -> list[Receipt | LakelogError]:
        """By idempotency keys: what has no definite answer is repeated."""
        calls = self._state.calls
        tries = Tries(calls.policy)
        results: dict[int, Receipt | LakelogError] = {}
        unknown: set[int] = set()
        pending = list(range(len(messages)))
        while pending:
            answers: Sequence[Receipt | LakelogError]
            try:
                answers = await calls.transport.publish_messages(
                    self.name, [messages[index] for index in pending], None, None, tries.seconds()
                )
            except LakelogError as error:
                answers = [error] * len(pending)
            for index, answer in zip(pending, answers, strict=True):
                results[index] = OutcomeUnknown.after(answer) if index in unknown and _is_refusal(answer) else answer
            unknown.update(index for index in pending if _is_unknown(results[index]))
            again = [index for index in pending if _is_open(results[index])]
            reasons = [reason for index in again if isinstance(reason := results[index], LakelogError)]
            if not reasons or not await calls.pause(tries, reasons[0]):
                break
            pending = again
        return [results[index] for index in range(len(messages))]


def _is_refusal(result: Receipt | LakelogError) -> TypeGuard[LakelogError]:
    return isinstance(result, LakelogError) and not may_be_written(result)


def _is_unknown(result: Receipt | LakelogError) -> bool:
    return isinstance(result, LakelogError) and may_be_written(result)


def _is_open(result: Receipt | LakelogError) -> bool:
    return isinstance(result, LakelogError) and is_passing(result)


async def _pieces(work: AsyncWork, failed: list[LakelogError]) -> list[Piece] | None:
    """None at the end, and after a part that cannot be published: parts before it are published already."""
    try:
        pieces: list[Piece] | None = await work.result()
        return pieces
    except LakelogError as error:
        failed.append(error)
        return None


def _next_pieces(parts: Iterator[Rows], info: TopicInfo, state: AsyncTopicState) -> list[Piece] | None:
    rows = next(parts, None)
    return None if rows is None else pieces_of(rows, info, state.spread)


def _chunks(messages: Sequence[Message], indexes: Sequence[int], max_bytes: int) -> Iterator[list[int]]:
    """Cuts into what fits one request each."""
    chunk: list[int] = []
    size = 0
    for index in indexes:
        message = messages[index]
        headers = message.headers or {}
        own = MESSAGE_OVERHEAD + len(message.value or b"") + len(message.key or b"")
        own += sum(len(name) + len(text) for name, text in headers.items())
        if chunk and (len(chunk) >= MAX_BATCH_MESSAGES or size + own > max_bytes):
            yield chunk
            chunk, size = [], 0
        chunk.append(index)
        size += own
    if chunk:
        yield chunk
