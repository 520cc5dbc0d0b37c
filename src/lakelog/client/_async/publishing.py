"""Publishes into one topic so that every repeat is safe: single messages in sessions, batches as numbered parts.

An attempt with an unknown outcome is repeated with the same producer, sequence, partition and bytes until the response
is definite or the time limit is reached. Only a message that was certainly not written gets a new partition. The
producer does the buffering.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from lakelog.client._async.calls import AsyncCalls
from lakelog.client._runtime import async_offload
from lakelog.client.publishing.database_time import DatabaseTime
from lakelog.client.publishing.partition_choice import KeylessPartitioner
from lakelog.client.publishing.sessions import ProducerSession, SessionPool
from lakelog.client.retrying import Attempts, RetryRule, may_be_written
from lakelog.client.values import Run
from lakelog.client.worker.pool import WorkerPool
from lakelog.errors import EpochChanged, LakelogError, NotFound, OutcomeUnknown, SequenceRefused
from lakelog.model.message import Message, parse_message_id
from lakelog.model.partitioner import partition_of
from lakelog.model.position import Receipt
from lakelog.model.topic_info import TopicInfo, TopicRequest
from lakelog.wire.frames import PublishFrame
from lakelog.wire.operations.topics import DESCRIBE_TOPIC

if TYPE_CHECKING:
    from lakelog.client.publishing.columns import PartitionBatch

_FRESH_SECONDS = 30.0
"""How long the description of a topic is cached. A refused call reports an important change sooner."""


class AsyncTopicState:
    """The state of one topic in a client: its description, idle sessions, and the keyless partitioner."""

    def __init__(self, name: str, calls: AsyncCalls, pool: WorkerPool) -> None:
        self.name = name
        self.calls = calls
        self.pool = pool
        self.sessions = SessionPool()
        self.partitioner = KeylessPartitioner()
        self._info: TopicInfo | None = None
        self._fresh_until = 0.0
        self._database_time = DatabaseTime()

    @property
    def known(self) -> TopicInfo | None:
        """The last description, at any age."""
        return self._info

    async def info(self, *, fresh: bool = False) -> TopicInfo:
        info = self._info
        if fresh or info is None or time.monotonic() > self._fresh_until:
            info = await self.calls.call(DESCRIBE_TOPIC, TopicRequest(topic=self.name))
            self.remember(info)
        return info

    def remember(self, info: TopicInfo | None) -> None:
        known = self._info
        if known is not None and (info is None or info.incarnation != known.incarnation):
            # The sessions' sequences belong to partitions that no longer exist.
            self.sessions.clear()
        self._info = info
        if info is not None and info.now is not None:
            self._database_time.heard(info.now)
        self._fresh_until = time.monotonic() + _FRESH_SECONDS

    def forget(self) -> None:
        """Forget the description of the topic and the time of its database."""
        self.remember(None)
        self._fresh_until = 0.0
        self._database_time = DatabaseTime()

    async def time_after(self, duration: timedelta) -> datetime:
        """Return the time after a duration from now, in the time of the database."""
        if not self._database_time.known:
            await self.info(fresh=True)
        return self._database_time.after(duration)

    def choose(self, info: TopicInfo, message: Message) -> int:
        if message.partition is not None:
            return message.partition
        if message.key is not None:
            return partition_of(message.key, info.partitions)
        return self.partitioner.one(info.partitions)


async def publish_one(state: AsyncTopicState, message: Message) -> Receipt:
    """Publish one message, with its idempotency key if it has one, else in a session."""
    if message.idempotency_key is not None:

        async def once(left: float) -> Receipt:
            return only(await state.calls.transport.publish_messages(state.name, [message], None, None, left))

        return await state.calls.run(once, safe=True)
    session = state.sessions.take()
    try:
        receipt = await AsyncMessagePublish(state, message, session).run()
    except LakelogError as error:
        # After an unknown outcome or a cancellation, the session's next sequence is not known.
        if not may_be_written(error):
            state.sessions.give(session)
        raise
    state.sessions.give(session)
    return receipt


class AsyncMessagePublish:
    """The attempts to publish one message in a session."""

    def __init__(self, state: AsyncTopicState, message: Message, session: ProducerSession) -> None:
        self._state = state
        self._message = message
        self._session = session
        self._placed: Message | None = None
        self._epoch = 0
        self._rule = RetryRule()
        self._renewed = False
        self._changed = False

    async def run(self) -> Receipt:
        calls = self._state.calls
        attempts = Attempts(calls.policy)
        while True:
            try:
                receipt = await self._try(attempts)
            except LakelogError as error:
                if self._may_repeat(error) and await calls.pause(attempts, error):
                    continue
                if (final := self._rule.final(error)) is not error:
                    raise final from error
                raise
            else:
                calls.worked(attempts)
                return receipt

    async def _try(self, attempts: Attempts) -> Receipt:
        state, session = self._state, self._session
        if self._placed is None or self._changed:
            info = await state.info(fresh=self._changed)
            self._changed = False
            self._epoch = info.epoch
            self._placed = replace(self._message, partition=state.choose(info, self._message))
        placed = self._placed
        partition = placed.partition or 0
        number = (session.producer, session.sequence(partition))
        transport = state.calls.transport
        receipt = only(await transport.publish_messages(state.name, [placed], number, self._epoch, attempts.seconds()))
        session.written(partition, number[1])
        known = state.known
        if known is not None and parse_message_id(receipt.id)[0] != known.incarnation:
            state.remember(None)
        # The client's own repeat is not a duplicate of the caller's.
        return replace(receipt, duplicate=False) if receipt.duplicate else receipt

    def _may_repeat(self, error: LakelogError) -> bool:
        if isinstance(error, EpochChanged):
            # Stores look for a repeat before they check the epoch, so this message is certainly not in the log.
            self._changed, self._rule.is_unknown = True, False
            return True
        if isinstance(error, SequenceRefused) and not self._rule.is_unknown and not self._renewed:
            self._renewed = self._changed = True
            self._session.renew()
            return True
        if isinstance(error, NotFound):
            self._state.remember(None)
        return self._rule.allows(error)


def only(results: Sequence[Receipt | LakelogError]) -> Receipt:
    [result] = results
    if isinstance(result, LakelogError):
        raise result
    return result


class AsyncBatchPublish:
    """The attempts to publish the parts of one batch, until each has its result."""

    def __init__(self, state: AsyncTopicState, session: ProducerSession, limit_seconds: float | None = None) -> None:
        self._state = state
        self._session = session
        self._attempts = Attempts(state.calls.policy, limit_seconds=limit_seconds)
        self._renew = self._renewed = self._changed = False

    async def run(self, parts: Sequence[PartitionBatch]) -> list[PartitionBatch]:
        """Publish the parts. Return them with their results; they may have been split again."""
        settled: list[PartitionBatch] = []
        pending = list(parts)
        while pending:
            failure = await self._round(pending)
            if failure is not None:
                pending = await self._again(pending, failure)
            settled += [part for part in pending if part.result is not None]
            pending = [part for part in pending if part.result is None]
        if not any(isinstance(part.result, LakelogError) for part in settled):
            self._state.calls.worked(self._attempts)
        return settled

    async def _round(self, pending: Sequence[PartitionBatch]) -> LakelogError | None:
        """Send the first part of each partition in one request. Return an error to wait for if one must be repeated."""
        firsts = list({part.partition: part for part in reversed(pending)}.values())
        for part in firsts:
            part.number = part.number or (self._session.producer, self._session.sequence(part.partition))
        frames = [_frame(part) for part in firsts]
        answers: Sequence[Run | LakelogError]
        try:
            transport = self._state.calls.transport
            answers = await transport.publish_frames(self._state.name, frames, self._attempts.seconds())
        except LakelogError as error:
            answers = [error] * len(firsts)
        failure: LakelogError | None = None
        for part, answer in zip(firsts, answers, strict=True):
            if isinstance(answer, Run):
                self._written(part, answer)
            elif self._may_repeat(part, answer):
                failure = answer
            else:
                part.result = part.rule.final(answer)
        return failure

    def _written(self, part: PartitionBatch, run: Run) -> None:
        part.result = run.offset
        assert part.number is not None
        if part.number[0] == self._session.producer:
            self._session.written(part.partition, part.number[1])

    def _may_repeat(self, part: PartitionBatch, error: LakelogError) -> bool:
        if isinstance(error, EpochChanged):
            # Stores look for a repeat before they check the epoch, so this part is certainly not in the log.
            self._changed, part.rule.is_unknown = True, False
            return True
        if isinstance(error, SequenceRefused) and not part.rule.is_unknown and not self._renewed:
            # The topic may have been created again.
            self._renew = self._changed = True
            return True
        if isinstance(error, NotFound):
            self._state.remember(None)
        return part.rule.allows(error)

    async def _again(self, parts: Sequence[PartitionBatch], failure: LakelogError) -> list[PartitionBatch]:
        """Prepare the next attempt, or report the parts without a result as failed."""
        from lakelog.client.publishing.columns import moved

        pinned = [part for part in parts if part.rule.is_unknown or part.result is not None]
        free = [part for part in parts if not part.rule.is_unknown and part.result is None]
        if self._renew:
            # Parts that may have been written keep their numbers. Only parts that are split again belong to the new
            # producer.
            self._renew, self._renewed = False, True
            self._session.renew()
        if not await self._state.calls.pause(self._attempts, failure):
            _give_up(parts, failure)
        elif self._changed:
            self._changed = False
            try:
                info = await self._state.info(fresh=True)
            except LakelogError as error:
                _give_up(parts, error)
                return list(parts)
            return pinned + (await async_offload(moved, free, info, self._state.partitioner) if free else [])
        return list(parts)


def session_is_sound(parts: Sequence[PartitionBatch]) -> bool:
    """Return whether the next sequence of each partition is known."""
    return not any(part.rule.is_unknown and isinstance(part.result, LakelogError) for part in parts)


def _frame(part: PartitionBatch) -> PublishFrame:
    assert part.number is not None
    producer, sequence = part.number
    return PublishFrame(
        partition=part.partition,
        epoch=part.epoch,
        count=part.count,
        sequence=sequence,
        producer=producer,
        payload=part.payload,
    )


def _give_up(parts: Sequence[PartitionBatch], error: LakelogError) -> None:
    for part in parts:
        if part.result is None:
            part.result = OutcomeUnknown.after(error) if part.rule.is_unknown else error
