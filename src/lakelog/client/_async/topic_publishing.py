"""Publishes into a topic: one message, several, columns, or a producer in the background.

`publishing` makes repeats after a lost response safe.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Generic, TypeVar

from lakelog.client._async.keyed_publishing import publish_keyed, publish_scheduled
from lakelog.client._async.outbox import async_publish_in_outbox
from lakelog.client._async.publishing import AsyncBatchPublish, AsyncTopicState, only, publish_one, session_is_sound
from lakelog.client._runtime import AsyncComputation
from lakelog.client.publishing.codec import Key, MessageBuilder, check_values
from lakelog.client.publishing.partition_choice import MAX_BATCH_BYTES, MESSAGE_OVERHEAD
from lakelog.client.publishing.producer_settings import OnError, ProducerSettings
from lakelog.client.tracing import publish_span
from lakelog.client.values import Outgoing, Run
from lakelog.errors import LakelogError, PartlyPublished, SchemaViolation
from lakelog.model.arguments import check_positive_seconds, check_seconds
from lakelog.model.limits import MAX_BATCH_MESSAGES
from lakelog.model.message import Message
from lakelog.model.position import Receipt
from lakelog.model.topic_info import TopicInfo

# Arrow takes longer to load than everything else together: only the methods that need it import it.
if TYPE_CHECKING:
    import pyarrow as pa

    from lakelog.client._async.producer import AsyncProducer
    from lakelog.client.publishing.columns import PartitionBatch, PublishRows

T = TypeVar("T")


class AsyncTopicPublishing(Generic[T]):
    """The publishing methods of `AsyncTopic`."""

    _state: AsyncTopicState
    _builder: MessageBuilder[T]

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
        delay: timedelta | float | None = None,
        deliver_at: datetime | None = None,
        transaction: object | None = None,
    ) -> Receipt:
        """Publish one message. Return its position in the log when it is durable.

        The client repeats a call whose response was lost, for at most the `timeout` of `connect`. A repeat never
        publishes the message twice.

        Args:
            value: The value: bytes are stored as they are, text as UTF-8, anything else as JSON. A topic with a type
                takes values of this type. At most 1 MiB when encoded; NaN and infinity are refused. None publishes a
                message without a value.
            key: Messages with the same key are stored in one partition, in order, and workers handle them one after
                another. At most 1024 bytes. Default: the key that the topic's `key` function or `key_field` gives;
                without any, the message goes to the partitions in turn.
            headers: Text by name, at most 64 with 4096 bytes for each name and text. Default: none.
            partition: The partition, from 0. Default: chosen by the key. A partition that does not exist raises
                `PartitionNotFound`.
            idempotency_key: A text that names the message for the topic, at most 1024 bytes. Publishing the same
                message with the same key again, also from another process, returns the first receipt with
                `duplicate=True`; with other content, it raises `IdempotencyConflict`. Keys are remembered for the
                topic's `idempotency_memory`, 24 hours by default.
            correlation_id: A text that readers see beside the value, at most 1024 bytes. Default: none.
            content_type: The content type of the stored bytes. Default: `application/json` for JSON, `text/plain` for
                text, none for bytes. Readers decode the value by it.
            expires: When the message expires: a timedelta from now, or a datetime with a time zone. After
                that time, groups do not receive it, and groups of workers count it as expired. Reads without a group
                still return it, with its `expires_at`. A timedelta counts from the delivery of a delayed message.
                Default: never.
            delay: Publish the message after this time, in seconds or as a timedelta, above zero and at most 366 days.
                The message is stored at once, and the receipt is a `ScheduledReceipt`, whose offset is None.
                `cancel` takes its id. Default: publish at once.
            deliver_at: Publish the message at this time, a datetime with a time zone at most 366 days ahead. A time
                that has passed publishes it at once. Give `delay` or `deliver_at`, not both.
            transaction: A connection to your own database, which has an outbox (`lakelog outbox install`): the message
                is published if and only if the open transaction of the connection commits. It is a connection of
                psycopg 3, a session or connection of SQLAlchemy 2, in a synchronous client `django.db.connection`, and
                in an asynchronous client a connection of asyncpg. The receipt is an `OutboxReceipt`, without an offset.
                `on_publish` is not called. Default: publish now.

        Raises:
            InvalidRequest: An argument is not valid. Nothing was published.
            OutcomeUnknown: No server answered in time: the message may or may not be published.
        """
        outgoing = Outgoing(
            value,
            key=key,
            headers=headers,
            partition=partition,
            idempotency_key=idempotency_key,
            correlation_id=correlation_id,
            content_type=content_type,
            expires=expires,
            delay=delay,
            deliver_at=deliver_at,
        )
        if transaction is not None:
            return (await async_publish_in_outbox(self._state, self._builder, [outgoing], transaction))[0]
        with publish_span(self._state.name) as span:
            message = await self._made(outgoing)
            span.mark(message)
            if message.schedule is None:
                receipt = await publish_one(self._state, message)
            else:
                receipt = only(await publish_scheduled(self._state, [message]))
            span.published(receipt)
        self._builder.published([receipt])
        return receipt

    async def publish_many(
        self, values: Iterable[T | Outgoing[T]], *, transaction: object | None = None
    ) -> list[Receipt]:
        """Publish several messages. Return a receipt for each, in order, when all are durable.

        It is not one transaction: if it fails, some of the messages may be published.

        Args:
            values: A list or another iterable of values; `lakelog.Outgoing` gives a value with its key, headers and
                other arguments of `publish`. Any number: the client sends as many requests as it needs. Nothing is
                published if one of the messages is not valid.
            transaction: A connection to your own database, as for `publish`. All messages are published if and only if
                its transaction commits.

        Raises:
            InvalidRequest: A message is not valid; its `index` counts from 0. Nothing was published.
            PartlyPublished: At least one message was not published. Its `results` has a receipt or an error for each.
        """
        self._state.calls.check_open()
        check_values(values)
        if transaction is not None:
            outgoing = [value if isinstance(value, Outgoing) else Outgoing(value) for value in values]
            return await async_publish_in_outbox(self._state, self._builder, outgoing, transaction)
        messages = [
            await self._made(value if isinstance(value, Outgoing) else Outgoing(value), index)
            for index, value in enumerate(values)
        ]
        with publish_span(self._state.name, len(messages)) as span:
            for message in messages:
                span.mark(message)
            return await self._publish_made(messages)

    async def _publish_made(self, messages: Sequence[Message]) -> list[Receipt]:
        results: dict[int, Receipt | LakelogError] = {}
        keyed, plain, delayed = _by_kind(messages)
        for indexes in _chunks(messages, plain, MAX_BATCH_BYTES):
            results.update(_placed(indexes, await self._publish_numbered([messages[i] for i in indexes])))
        # Their request bodies are JSON with base64.
        for indexes in _chunks(messages, keyed, MAX_BATCH_BYTES // 2):
            results.update(_placed(indexes, await publish_keyed(self._state, [messages[i] for i in indexes])))
        for indexes in _chunks(messages, delayed, MAX_BATCH_BYTES // 2):
            some = [messages[index] for index in indexes]
            results.update(_placed(indexes, await publish_scheduled(self._state, some)))
        ordered = [
            result.of_message(index) if isinstance(result, LakelogError) else result
            for index, result in sorted(results.items())
        ]
        self._builder.published(result for result in ordered if isinstance(result, Receipt))
        failed = [result for result in ordered if isinstance(result, LakelogError)]
        if failed:
            raise PartlyPublished(
                f"{len(failed)} of {len(ordered)} messages were not published. {failed[0].detail}", results=ordered
            ) from failed[0]
        return [result for result in ordered if isinstance(result, Receipt)]

    async def publish_columns(self, table: pa.Table | pa.RecordBatch) -> list[Run]:
        """Publish the rows of an Arrow table. Return the partitions and offsets of the messages, as runs.

        Args:
            table: A table with the column `value`, of text or bytes, and optionally `key`, `headers`, `partition`,
                `content_type`, `correlation_id`, `created_at` and `expires_at`. Other columns are refused. Any number
                of rows: the client sends as many requests as it needs.

        Raises:
            InvalidRequest: The topic's `validate` function refuses a row; its `index` counts from 0. Nothing was
                published.
            InvalidBatch: A column is not valid.
            PartlyPublished: Some rows were not published. Its `results` has the runs that were, then the errors.
        """
        from lakelog.client.publishing.columns import check_table

        table = check_table(table)
        self._builder.check_table(table)
        with publish_span(self._state.name, table.num_rows) as span:
            return await self._publish_table(span.marked(table))

    async def _publish_table(self, table: pa.Table) -> list[Run]:
        from lakelog.client.publishing.columns import rows_of_table

        runs: list[Run] = []
        failed: list[LakelogError] = []
        session = self._state.sessions.take()
        row_groups = rows_of_table(table)
        info = await self._state.info()
        ahead = AsyncComputation(_next_parts, row_groups, info, self._state)
        while (parts := await _parts(ahead, failed)) is not None:
            # The next part is encoded while this one is sent.
            ahead = AsyncComputation(_next_parts, row_groups, self._state.known or info, self._state)
            settled = await AsyncBatchPublish(self._state, session).run(parts)
            if not session_is_sound(settled):
                session.renew()
            self._builder.settled(settled, (self._state.known or info).incarnation)
            runs += [Run(p.partition, p.result, p.count) for p in settled if isinstance(p.result, int)]
            failed += [p.result for p in settled if isinstance(p.result, LakelogError)]
        self._state.sessions.give(session)
        if failed and not runs:
            raise failed[0]
        if failed:
            raise PartlyPublished(
                f"Some rows were not published. The first error: {failed[0].detail}", results=[*runs, *failed]
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
        """Return a producer, which publishes messages in the background, in batches.

        Use it with `async with`, or close it: closing publishes the messages that it holds.

        Args:
            max_batch: Messages in one batch at most, from 1 to 10,000. Default: 10,000.
            linger: How long a message waits for others to share its batch, in seconds or as a timedelta. Default: 5 ms.
                0 sends each batch as soon as the batch before it was sent.
            max_buffer_bytes: Bytes that the producer holds at most. `send` waits while it holds more. Default: 32 MiB.
            give_up_after: How long the producer repeats a batch that has no definite answer, in seconds or as a
                timedelta, above zero. Then its messages are reported as failed. Default: 120 seconds.
            on_error: A function of `(error, messages)`, called from the background for each batch that was not
                published, with a `LakelogError` and a list of `lakelog.Message`. The error is raised by the next
                `send`, `flush` or `close` too. An exception of the function is logged.
        """
        from lakelog.client._async.producer import AsyncProducer

        self._state.calls.check_open()
        settings = ProducerSettings(
            max_batch=max_batch,
            linger_seconds=check_seconds("linger", linger),
            max_buffer_bytes=max_buffer_bytes,
            give_up_seconds=check_positive_seconds("give_up_after", give_up_after),
            on_error=on_error,
        )
        return AsyncProducer(self._state, self._builder, settings)

    async def _made(self, outgoing: Outgoing[T], index: int | None = None) -> Message:
        info = self._state.known or await self._state.info()
        try:
            return self._builder.make(outgoing, info.key_field)
        except LakelogError as error:
            if index is None:
                raise
            raise error.of_message(index) from error

    async def _publish_numbered(self, messages: Sequence[Message]) -> list[Receipt | LakelogError]:
        from lakelog.client.publishing.columns import parts_of, results_of, rows_of_messages

        state = self._state
        info = await state.info()
        dated = [await self._dated(message) for message in messages]
        session = state.sessions.take()
        parts = await AsyncBatchPublish(state, session).run(parts_of(rows_of_messages(dated), info, state.partitioner))
        if session_is_sound(parts):
            state.sessions.give(session)
        return results_of(parts, (state.known or info).incarnation)

    async def _dated(self, message: Message) -> Message:
        """Return the message with an absolute expiry: servers store batches unchanged."""
        if message.expires_ms is None:
            return message
        expires_at = await self._state.time_after(timedelta(milliseconds=message.expires_ms))
        return replace(message, expires_at=expires_at, expires_ms=None)


async def _parts(work: AsyncComputation, failed: list[LakelogError]) -> list[PartitionBatch] | None:
    """Return the next parts; None at the end, or after rows that cannot be published. Earlier parts are published."""
    try:
        parts: list[PartitionBatch] | None = await work.result()
        return parts
    except LakelogError as error:
        failed.append(error)
        return None


def _by_kind(messages: Sequence[Message]) -> tuple[list[int], list[int], list[int]]:
    """Return the indexes of the messages with an idempotency key, of plain messages, and of delayed ones."""
    keyed: list[int] = []
    plain: list[int] = []
    delayed: list[int] = []
    for index, message in enumerate(messages):
        is_keyed = message.idempotency_key is not None
        (delayed if message.schedule is not None else keyed if is_keyed else plain).append(index)
    return keyed, plain, delayed


def _next_parts(
    row_groups: Iterator[PublishRows], info: TopicInfo, state: AsyncTopicState
) -> list[PartitionBatch] | None:
    from lakelog.client.publishing.columns import parts_of

    rows = next(row_groups, None)
    return None if rows is None else parts_of(rows, info, state.partitioner)


def _placed(indexes: Sequence[int], results: Sequence[Receipt | LakelogError]) -> dict[int, Receipt | LakelogError]:
    """Return the results of a request by the indexes of its messages among all messages of the caller."""
    return {
        index: result.moved(indexes) if isinstance(result, SchemaViolation) else result
        for index, result in zip(indexes, results, strict=True)
    }


def _chunks(messages: Sequence[Message], indexes: Sequence[int], max_bytes: int) -> Iterator[list[int]]:
    """Split the messages into chunks that fit into one request each."""
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
