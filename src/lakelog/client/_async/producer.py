"""The producer accepts messages one by one, and publishes them in batches.

Two stages run in the background: one seals and encodes a batch while the other sends the previous one. A message that
was accepted is published, or reported as failed: by an exception from the next `send`, `flush` or `close`, and to
`on_error`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Generic, TypeVar

from lakelog.batches import to_messages
from lakelog.client import processes
from lakelog.client._async.keyed_publishing import schedule_one
from lakelog.client._async.publishing import AsyncBatchPublish, AsyncTopicState, session_is_sound
from lakelog.client._runtime import AsyncBackgroundTask, AsyncCondition, AsyncMutex, async_offload, async_wait_at_exit
from lakelog.client.publishing.codec import Encoded, Key, MessageBuilder, encode_any, key_bytes
from lakelog.client.publishing.columns import ColumnBuffer, PartitionBatch, RareFields, SealedBatch, parts_of
from lakelog.client.publishing.partition_choice import MAX_BATCH_BYTES, MESSAGE_OVERHEAD
from lakelog.client.publishing.producer_settings import ProducerSettings, check_size, extras_of
from lakelog.client.publishing.sessions import ProducerSession
from lakelog.client.tracing import HEADER_BYTES, end_spans, tracing
from lakelog.client.values import Outgoing
from lakelog.errors import Closed, LakelogError, OutcomeUnknown, PartlyPublished
from lakelog.model import limits
from lakelog.model.arguments import check_seconds

T = TypeVar("T")

_AT_EXIT_SECONDS = 10.0
_ASK = -1
"""The value of the limit below which `send` needs no check: `send` must always check."""
_LOOP_ENDED = "its event loop ended before the producer was closed"


class AsyncProducer(Generic[T]):
    """Publishes in the background: `async with topic.producer() as producer: await producer.send(value)`.

    Threads and tasks may share it.
    """

    def __init__(self, state: AsyncTopicState, builder: MessageBuilder[T], settings: ProducerSettings) -> None:
        self._state = state
        self._builder = builder
        self._settings = settings
        self._closing = False
        self._learnt = False
        self._key_field: str | None = None
        self._is_plain = builder.codec.kind is None
        self._to_bytes: Callable[[T], Encoded] = encode_any if self._is_plain else builder.codec.encode
        self._max_batch = settings.max_batch
        self._used = self._sealed_count = self._settled = 0
        self._ended = self._warned = False
        self._begin()
        processes.after_fork(self)

    async def send(
        self,
        value: T,
        *,
        key: Key | None = None,
        headers: Mapping[str, str] | None = None,
        partition: int | None = None,
        correlation_id: str | None = None,
        content_type: str | None = None,
        expires: timedelta | datetime | None = None,
        delay: timedelta | float | None = None,
        deliver_at: datetime | None = None,
    ) -> None:
        """Accept a message, to publish it in the background. Wait while the buffer is full.

        Messages of one key keep their order. If `send` raises, this message was not accepted; the error may concern
        earlier messages.

        Args:
            value: The value, as for `topic.publish`.
            key: The key, at most 1024 bytes. Default: what the topic's `key` function or `key_field` gives.
            headers: Text by name, at most 64 with 4096 bytes for each name and text. Default: none.
            partition: The partition, from 0. Default: chosen by the key.
            correlation_id: A text that readers see beside the value, at most 1024 bytes. Default: none.
            content_type: The content type of the stored bytes. Default: by the kind of the value.
            expires: When groups of workers stop receiving the message, as for `publish`. Default: never.
            delay: Publish the message later, as for `publish`. `send` then returns when it is stored. Default: none.
            deliver_at: Publish the message at this time, as for `publish`. Default: at once.

        Raises:
            InvalidRequest: An argument is not valid.
            PartlyPublished: Messages accepted earlier were not published. Its `results` has an error for each.
            Closed: The producer or its client is closed.
        """
        builder = self._builder
        if delay is not None or deliver_at is not None:
            rest: dict[str, Any] = {"expires": expires, "delay": delay, "deliver_at": deliver_at}
            rest |= {"partition": partition, "correlation_id": correlation_id, "content_type": content_type}
            self._check_open()
            await schedule_one(self._state, builder, Outgoing(value, key=key, headers=headers, **rest))
            return
        if builder.validate is not None:
            builder.check(value)
        raw: bytes | None
        kind: str | None
        if type(value) is bytes and self._is_plain:
            raw, kind = value, None  # type: ignore[assignment]
        else:
            raw, kind = self._to_bytes(value)
        if type(key) is not bytes:
            if not self._learnt:
                await self._learn()
            key = key_bytes(key) if key is not None else builder.key_of(value, None, self._key_field)
        size = MESSAGE_OVERHEAD + (len(raw) if raw is not None else 0) + (len(key) if key is not None else 0)
        if size > limits.MAX_KEY_BYTES:
            check_size(raw, key)
        extra = None
        if headers or partition is not None or correlation_id is not None or expires is not None or content_type:
            if isinstance(expires, timedelta):
                expires = await self._state.time_after(expires)
            extra = extras_of(headers, partition, correlation_id, content_type, expires)
            kind = content_type or kind
            size += sum(map(len, headers)) + sum(map(len, headers.values())) if headers else 0
        if self._tracing is not None:
            size += HEADER_BYTES
        with self._mutex:
            if self._used + size > self._unasked:
                await self._may_take(size)
            columns = self._open
            values = columns.values
            values.append(raw)
            columns.keys.append(key)
            columns.content_types.append(kind)
            columns.size += size
            self._used += size
            count = len(values)
            if self._tracing is not None and len(columns.spans) == count - 1:
                extra = columns.trace(self._tracing.publish(self._state.name), extra)
            if extra is not None:
                columns.extras.append(RareFields(count - 1, *extra))
            if count == 1:
                columns.opened_at = time.time()
                self._linger_until = time.monotonic() + self._settings.linger_seconds
                self._work.notify_all()
            if count >= self._max_batch or columns.size >= MAX_BATCH_BYTES:
                self._seal()

    async def flush(self, timeout: timedelta | float | None = None) -> None:
        """Wait until each message accepted so far is published or has failed.

        Args:
            timeout: How long to wait, in seconds or as a timedelta. Default: no limit. After the time, it raises
                `TimeoutError`, and the producer keeps the messages.

        Raises:
            PartlyPublished: Some messages were not published. Its `results` has an error for each.
        """
        deadline = None if timeout is None else time.monotonic() + check_seconds("timeout", timeout)
        with self._mutex:
            self._seal()
            target = self._sealed_count
            while self._settled < target:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    waiting = target - self._settled
                    raise TimeoutError(f"{waiting} messages are not published yet; the producer keeps them.")
                await self._room.wait(left)
            self._raise_failures()

    async def close(self) -> None:
        """Publish the messages that the producer holds, and close it. Raise the same errors as `flush`."""
        self._closing = True
        self._unasked = _ASK
        try:
            await self.flush()
        finally:
            await self._end()

    async def finish(self, seconds: float) -> None:
        """Publish the accepted messages within that time, and close the producer with its client.

        Failures are logged.
        """
        await self._finish(seconds)
        self._warn("the client was closed before the producer")
        await self._end()

    async def __aenter__(self) -> AsyncProducer[T]:
        await self._learn()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"AsyncProducer({self._state.name!r}, buffered={self.buffered}, url={self._state.calls.place!r})"

    @property
    def buffered(self) -> int:
        """The number of accepted messages that are neither published nor reported as failed yet."""
        return self._sealed_count + len(self._open) - self._settled

    def reset_after_fork(self) -> None:
        """Forget the buffer in the child: the parent publishes it. The child continues as a new producer."""
        self._begin()

    def finish_at_exit(self) -> None:
        async_wait_at_exit(lambda: self._finish(_AT_EXIT_SECONDS))
        self._warn("the process ended before the producer was closed")

    def _begin(self) -> None:
        self._mutex = AsyncMutex()
        self._work = AsyncCondition(self._mutex)
        self._ready = AsyncCondition(self._mutex)
        self._room = AsyncCondition(self._mutex)
        self._open = ColumnBuffer()
        self._tracing = tracing()
        """Looked up once per batch, because a lookup costs a tenth of a `send`."""
        self._linger_until = 0.0
        self._sealed: deque[ColumnBuffer] = deque()
        self._encoded: deque[SealedBatch] = deque()
        self._used = self._sealed_count = self._settled = 0
        self._unasked = _ASK
        self._failures: list[LakelogError] = []
        self._session = ProducerSession()
        self._ended = self._warned = False
        self._tasks: list[AsyncBackgroundTask] = []

    async def _end(self) -> None:
        self._state.calls.producers.discard(self)
        with self._mutex:
            self._ended = True
            self._work.notify_all()
            self._ready.notify_all()
        if self._settled == self._sealed_count:
            for task in self._tasks:
                if task.alive:
                    await task.join()
            processes.forget(self)

    async def _learn(self) -> None:
        self._key_field = (await self._state.info()).key_field
        self._learnt = True

    def _check_open(self) -> None:
        self._state.calls.check_open()
        if self._closing:
            raise Closed("This producer is closed. Create a new one.")

    async def _may_take(self, size: int) -> None:
        """Wait until the buffer has space for a message of that size. Return with the mutex held."""
        while True:
            self._raise_failures()
            self._check_open()
            if not self._tasks:
                processes.before_exit(self)
                self._state.calls.producers.add(self)
                self._tasks = [
                    AsyncBackgroundTask("lakelog-encode", self._encode_all),
                    AsyncBackgroundTask("lakelog-send", self._send_all),
                ]
            self._unasked = self._settings.max_buffer_bytes
            if self._used == 0 or self._used + size <= self._unasked:
                return
            await self._room.wait()

    def _seal(self) -> None:
        if len(self._open):
            self._sealed.append(self._open)
            self._sealed_count += len(self._open)
            self._open = ColumnBuffer()
            self._tracing = tracing()
            self._work.notify_all()

    async def _encode_all(self) -> None:
        try:
            while (columns := await self._next_columns()) is not None:
                ready = await self._encode(columns)
                with self._mutex:
                    while self._encoded:
                        await self._room.wait()
                    self._encoded.append(ready)
                    self._ready.notify_all()
        except BaseException:
            self._warn(_LOOP_ENDED)
            raise

    async def _next_columns(self) -> ColumnBuffer | None:
        with self._mutex:
            while not self._sealed:
                if len(self._open):
                    left = self._linger_until - time.monotonic()
                    if left <= 0:
                        self._seal()
                    else:
                        await self._work.wait(left)
                elif self._ended:
                    return None
                else:
                    await self._work.wait()
            return self._sealed.popleft()

    async def _encode(self, columns: ColumnBuffer) -> SealedBatch:
        try:
            # At any age: if partitions were added since, the server refuses the batch.
            info = self._state.known or await self._state.info()
            parts = await async_offload(lambda: parts_of(columns.batch(), info, self._state.partitioner))
            return SealedBatch(columns, parts, info.incarnation)
        except LakelogError as error:
            return SealedBatch(columns, [], error=error)
        except Exception as exc:
            return SealedBatch(columns, [], error=LakelogError(f"The batch could not be encoded: {exc!r}."))

    async def _send_all(self) -> None:
        try:
            while (ready := await self._next_ready()) is not None:
                self._settle(ready, await self._send(ready))
        except BaseException:
            self._warn(_LOOP_ENDED)
            raise

    async def _send(self, ready: SealedBatch) -> list[PartitionBatch]:
        if ready.error is not None:
            return []
        try:
            parts = await AsyncBatchPublish(self._state, self._session, self._settings.give_up_seconds).run(ready.parts)
        except Exception as exc:
            ready.error = OutcomeUnknown(f"Sending failed in an unexpected way: {exc!r}.")
            parts = []
        if ready.error is not None or not session_is_sound(parts):
            self._session.renew()
        return parts

    async def _next_ready(self) -> SealedBatch | None:
        with self._mutex:
            while not self._encoded:
                if self._ended and self._settled == self._sealed_count and not len(self._open):
                    return None
                await self._ready.wait()
            ready = self._encoded.popleft()
            self._room.notify_all()
            return ready

    def _settle(self, ready: SealedBatch, parts: Sequence[PartitionBatch]) -> None:
        failures: list[LakelogError] = []
        if ready.error is not None:
            failures += [ready.error] * len(ready.columns)
            self._settings.report(ready.error, ready.columns.messages())
        else:
            for part in parts:
                if isinstance(part.result, LakelogError):
                    failures += [part.result] * part.count
                    self._settings.report(part.result, to_messages(part.rows.batch))
        incarnation = (self._state.known or ready).incarnation
        self._builder.settled(parts, incarnation)
        if ready.columns.spans:
            end_spans(ready.columns.spans, parts, incarnation, ready.error)
        with self._mutex:
            if failures:
                self._failures += failures
                self._unasked = _ASK
            self._used -= ready.columns.size
            self._settled += len(ready.columns)
            self._room.notify_all()
            self._ready.notify_all()

    def _raise_failures(self) -> None:
        if self._failures:
            failures, self._failures = self._failures, []
            first = failures[0]
            raise PartlyPublished(
                f"{len(failures)} messages were not published. The first: {first.detail}", results=failures
            ) from first

    async def _finish(self, seconds: float) -> None:
        self._closing = True
        self._unasked = _ASK
        try:
            await self.flush(seconds)
        except TimeoutError:
            pass
        except PartlyPublished as error:
            processes.log.error("topic %s: %s", self._state.name, error.detail)

    def _warn(self, why: str) -> None:
        if self.buffered and not self._warned:
            self._warned = True
            processes.log.error(
                "topic %s: %d messages were NOT published: %s. Close it, or use `with`.",
                self._state.name,
                self.buffered,
                why,
            )
