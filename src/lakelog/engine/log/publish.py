"""Publish: chooses the partition, reserves idempotency keys, passes the parts to the committer, and returns results.

A refusal because the topic changed (recreated, more partitions, missing heads) is definite, so the refused messages are
decided again with the current topic. A lost response of PostgreSQL is never retried here: only the caller can make a
retry safe, with its sequence or its idempotency key.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Generic, NamedTuple, TypeVar

from lakelog.batches import body_hash, key_hash, partition_of
from lakelog.engine.log.committer import AppendResult, Committer, PendingAppend
from lakelog.engine.log.reserver import Reserver
from lakelog.engine.log.scheduler import Scheduler
from lakelog.engine.log.topics import Topics, no_partition
from lakelog.engine.log.validators import Validators, named
from lakelog.errors import EpochChanged, IdempotencyConflict, InvalidRequest, LakelogError, SequenceRefused, Unavailable
from lakelog.model.limits import MAX_DELAY_MS
from lakelog.model.message import Message, fault_of, message_id, partition_of_id
from lakelog.model.position import Receipt
from lakelog.model.topic import Scope, Topic
from lakelog.storage.store import Payload, Refusal, Reservation, Verdict

_TRIES = 5
_MESSAGE_OVERHEAD = 200
_MAX_TURNS = 10_000

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbered:
    """A producer's number for a batch in one partition: the same number is a retry, the next one continues."""

    producer: bytes
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """An encoded and validated batch for one partition."""

    partition: int
    payload: Payload
    numbered: Numbered | None = None
    epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameReceipt:
    """The position of the first message of a frame. The other messages follow."""

    incarnation: int
    partition: int
    offset: int
    count: int
    duplicate: bool = False


class Submitted(NamedTuple):
    """A message that waits for its commit."""

    topic: Topic
    partition: int
    done: asyncio.Future[AppendResult]

    def receipt(self, outcome: AppendResult) -> Receipt | None:
        """Return the position of the message; None if nothing was written because the topic changed."""
        if outcome.refusal is not None:
            return None
        return Receipt(
            id=message_id(self.topic.incarnation, self.partition, outcome.base),
            partition=self.partition,
            offset=outcome.base,
            duplicate=outcome.duplicate,
        )


@dataclass(slots=True)
class _Round(Generic[Answer]):
    """One attempt to publish the items that have no result yet."""

    topic: Topic
    answers: dict[int, Answer | LakelogError] = field(default_factory=dict)
    changed: dict[int, Refusal] = field(default_factory=dict)
    """Items that were refused because the topic changed; none of them is written."""


class Publisher:
    """Publishes to all topics; one per engine."""

    def __init__(
        self,
        topics: Topics,
        committers: dict[int, Committer],
        reservers: dict[tuple[int, bool], Reserver],
        scheduler: Scheduler,
        validators: Validators,
    ) -> None:
        self._topics = topics
        self._validators = validators
        self._committers = committers
        self._reservers = reservers
        self._scheduler = scheduler
        self._turns: dict[int, int] = {}

    async def messages(
        self,
        scope: Scope,
        name: str,
        messages: Sequence[Message],
        *,
        numbered: Numbered | None = None,
        epoch: int | None = None,
    ) -> list[Receipt | LakelogError]:
        """Publish messages, and return a receipt or a refusal for each; all or nothing per partition.

        Delayed messages are scheduled, and have a `ScheduledReceipt`.
        """
        if len(messages) == 1 and (answer := await self._one(scope, name, messages[0], numbered, epoch)):
            return [answer]
        faults = {index: fault for index, message in enumerate(messages) if (fault := fault_of(message))}
        if numbered:
            if any(message.partition is None for message in messages):
                # Another server, or this one after partitions were added, might choose another partition and not find
                # the batch there.
                raise InvalidRequest("A sequence numbers the batches of one partition. Give each message's partition.")
            if any(message.idempotency_key is not None for message in messages):
                raise InvalidRequest("Give a sequence or idempotency keys, not both: either makes a retry safe.")
            if any(message.schedule is not None for message in messages):
                raise InvalidRequest(
                    "A delayed message has no sequence. Send it without `producer`; an idempotency key makes a retry "
                    "safe."
                )
            if faults:
                # A numbered batch is one unit: a retry must find all of it or nothing.
                raise next(iter(faults.values()))

        async def once(topic: Topic, indexes: Sequence[int]) -> _Round[Receipt]:
            return await self._messages_once(topic, {index: messages[index] for index in indexes}, numbered, epoch)

        good = [index for index in range(len(messages)) if index not in faults]
        highest = max((message.partition or 0 for message in messages), default=0)
        topic = await self._topics.find(scope, name, partition=highest)
        answers = await self._until_settled(topic, dict.fromkeys(good, epoch), once)
        return [faults.get(index) or answers[index] for index in range(len(messages))]

    async def frames(self, scope: Scope, name: str, frames: Sequence[Frame]) -> list[FrameReceipt | LakelogError]:
        """Publish frames, and return a receipt or a refusal for each."""

        async def once(topic: Topic, indexes: Sequence[int]) -> _Round[FrameReceipt]:
            return await self._frames_once(topic, {index: frames[index] for index in indexes})

        epochs = {index: frame.epoch for index, frame in enumerate(frames)}
        highest = max((frame.partition for frame in frames), default=0)
        topic = await self._topics.find(scope, name, partition=highest)
        answers = await self._until_settled(topic, epochs, once)
        return [answers[index] for index in range(len(frames))]

    async def _one(
        self, scope: Scope, name: str, message: Message, numbered: Numbered | None, epoch: int | None
    ) -> Receipt | LakelogError | None:
        """Publish one plain message on a faster path.

        Return None, with nothing written, if it needs the normal path.
        """
        submitted = self.submit_one(scope, name, message, numbered, epoch)
        if submitted is None:
            return None
        try:
            return submitted.receipt(await submitted.done)
        except LakelogError as error:
            return error

    def submit_one(
        self, scope: Scope, name: str, message: Message, numbered: Numbered | None = None, epoch: int | None = None
    ) -> Submitted | None:
        """Submit one plain message to a cached topic.

        Return None, with no effect, if the caller must use `messages`.
        """
        partition = message.partition
        topic = self._topics.cached(scope, name)
        if (
            topic is None
            or message.idempotency_key is not None
            or message.schedule is not None
            or (numbered and partition is None)
            or fault_of(message)
            or (topic.settings.schema is not None and not self._validators.accepts(topic, message))
        ):
            return None
        if partition is None:
            partition = self._choose(topic, message)
        if not 0 <= partition < topic.partitions or (epoch is not None and epoch > topic.epoch):
            return None
        part = PendingAppend(
            pid=topic.pid(partition),
            epoch=topic.epoch if epoch is None else epoch,
            size=_size(message),
            messages=(message,),
            producer=(numbered.producer, numbered.sequence) if numbered else None,
            environment=topic.scope.environment_id,
        )
        return Submitted(topic, partition, self._committers[topic.cells[partition]].submit(part))

    def take_turns(self, topic: Topic, count: int) -> int:
        """Return the turn of the first of the topic's next `count` messages without a key.

        Turns are counted per topic, because callers that alternate between topics would always hit the same partitions.
        """
        if len(self._turns) >= _MAX_TURNS:
            self._turns.clear()
        turn = self._turns.get(topic.incarnation)
        if turn is None:
            turn = secrets.randbelow(1 << 16)
        self._turns[topic.incarnation] = turn + count
        return turn

    async def _until_settled(
        self,
        topic: Topic,
        epochs: dict[int, int | None],
        once: Callable[[Topic, Sequence[int]], Awaitable[_Round[Answer]]],
    ) -> dict[int, Answer | LakelogError]:
        """Retry items that were refused because the topic changed.

        `epochs` are the epochs by which callers chose partitions.

        A caller's epoch is passed to the store unchanged. The store checks first whether a numbered batch is a retry: a
        retry whose caller had to choose again would be written twice.
        """
        answers: dict[int, Answer | LakelogError] = {}
        refused: LakelogError
        try:
            for _ in range(_TRIES):
                if any(_is_ahead(epoch, topic) for epoch in epochs.values()):
                    topic = await self._topics.refresh(topic.scope, topic.name)
                    # The store would take an epoch that never existed for the newest one, and refuse all others.
                    ahead = [index for index, epoch in epochs.items() if _is_ahead(epoch, topic)]
                    answers.update(dict.fromkeys(ahead, _epoch_changed(topic)))
                found = await once(topic, [index for index in epochs if index not in answers])
                answers.update(found.answers)
                epochs = {index: epochs[index] for index in found.changed}
                if not epochs:
                    return answers
                topic = await self._topics.refresh(topic.scope, topic.name)
                answers.update(_outdated(found, topic, epochs))
                if Refusal.MISSING in found.changed.values():
                    await self._topics.ensure_heads(topic)
            refused = Unavailable(
                f"Topic '{topic.name}' kept changing during the publish; try again.", topic=topic.name
            )
        except LakelogError as error:
            if not answers:
                raise
            # Some messages were written; an error for all would claim that none were.
            refused = error
        return {**dict.fromkeys(epochs, refused), **answers}

    async def _messages_once(
        self, topic: Topic, messages: dict[int, Message], numbered: Numbered | None, epoch: int | None
    ) -> _Round[Receipt]:
        found: _Round[Receipt] = _Round(topic)
        chosen: dict[int, int] = {}
        if topic.settings.schema is not None:
            refused = await self._validators.refusals(topic, messages)
            if len(messages) > 1:
                refused = {index: named(error, index) for index, error in refused.items()}
            if refused and numbered:
                # A numbered batch is one unit: a retry must find all of it or nothing.
                refused = dict.fromkeys(messages, next(iter(refused.values())))
            found.answers.update(refused)
            messages = {index: message for index, message in messages.items() if index not in refused}
        for index, message in messages.items():
            partition = self._choose(topic, message)
            if 0 <= partition < topic.partitions:
                chosen[index] = partition
            else:
                found.answers[index] = no_partition(topic, partition)
        hashes = await self._reserve(topic, messages, chosen, found)
        if any(messages[index].schedule is not None for index in chosen):
            await self._schedule(found, messages, chosen, hashes, epoch)
        parts = _parts(topic, messages, chosen, hashes)
        if numbered and len(parts) > 1:
            raise InvalidRequest(
                "A sequence numbers the batches of one partition, but these messages go to several: "
                "give each message's partition, or use idempotency keys."
            )
        for part, _ in parts:
            part.producer = (numbered.producer, numbered.sequence) if numbered else None
            part.epoch = topic.epoch if epoch is None else epoch
        outcomes = await self._commit(topic, [part for part, _ in parts])
        for (part, indexes), outcome in zip(parts, outcomes, strict=True):
            _answer_messages(found, part, indexes, outcome)
        return found

    async def _schedule(
        self,
        found: _Round[Receipt],
        messages: dict[int, Message],
        chosen: dict[int, int],
        hashes: dict[int, bytes],
        epoch: int | None,
    ) -> None:
        """Schedule the delayed messages. Only those whose time has passed remain in `chosen`, with their marks."""
        delayed = {index: messages[index] for index in chosen if messages[index].schedule is not None}
        outcome = await self._scheduler.schedule(found.topic, delayed, chosen, hashes, epoch)
        found.answers.update(outcome.answers)
        found.changed.update(outcome.changed)
        hashes.update(outcome.past)
        for index in delayed.keys() - outcome.past.keys():
            del chosen[index]

    async def _frames_once(self, topic: Topic, frames: dict[int, Frame]) -> _Round[FrameReceipt]:
        found: _Round[FrameReceipt] = _Round(topic)
        parts: dict[int, PendingAppend] = {}
        if topic.settings.schema is not None:
            payloads = {index: frame.payload for index, frame in frames.items()}
            found.answers.update(await self._validators.batch_refusals(topic, payloads))
            frames = {index: frame for index, frame in frames.items() if index not in found.answers}
        for index, frame in frames.items():
            if not 0 <= frame.partition < topic.partitions:
                found.answers[index] = no_partition(topic, frame.partition)
                continue
            producer = (frame.numbered.producer, frame.numbered.sequence) if frame.numbered else None
            parts[index] = PendingAppend(
                pid=topic.pid(frame.partition),
                epoch=topic.epoch if frame.epoch is None else frame.epoch,
                size=len(frame.payload.data),
                payload=frame.payload,
                producer=producer,
                environment=topic.scope.environment_id,
            )
        outcomes = await self._commit(topic, list(parts.values()))
        for index, outcome in zip(parts, outcomes, strict=True):
            frame = frames[index]
            if isinstance(outcome, LakelogError):
                found.answers[index] = outcome
            elif isinstance(outcome.refusal, Refusal):
                found.changed[index] = outcome.refusal
            elif outcome.refusal is not None:
                found.answers[index] = _sequence_refused(topic, frame.partition, outcome.refusal)
            else:
                found.answers[index] = FrameReceipt(
                    incarnation=topic.incarnation,
                    partition=frame.partition,
                    offset=outcome.base,
                    count=frame.payload.count,
                    duplicate=outcome.duplicate,
                )
        return found

    def _choose(self, topic: Topic, message: Message) -> int:
        if message.partition is not None:
            return message.partition
        if message.key is not None:
            return partition_of(message.key, topic.partitions)
        return self.take_turns(topic, 1) % topic.partitions

    async def _reserve(
        self, topic: Topic, messages: dict[int, Message], chosen: dict[int, int], found: _Round[Receipt]
    ) -> dict[int, bytes]:
        """Return hashes of idempotency keys by message, and move messages to the partition of their key's first use."""
        wanted: dict[tuple[int, bool], dict[int, Reservation]] = defaultdict(dict)
        for index, partition in chosen.items():
            text = messages[index].idempotency_key
            if text is None:
                continue
            hashed = key_hash(text)
            home = topic.slot_cell(hashed)
            reservation = Reservation(
                incarnation=topic.incarnation,
                key_hash=hashed,
                body_hash=body_hash(messages[index]),
                partition=partition,
                memory=topic.settings.idempotency_memory + _delay(messages[index]),
            )
            # If both are in one cell, the message's own durable commit makes the reservation durable too. Another
            # server may have chosen another partition before, so only a topic with one cell can be sure.
            wanted[home, len(set(topic.cells)) > 1][index] = reservation
        hashes: dict[int, bytes] = {}
        for place, reservations in wanted.items():
            held = await self._reservers[place].reserve(list(reservations.values()))
            for (index, mine), winner in zip(reservations.items(), held, strict=True):
                if winner.body_hash != mine.body_hash:
                    found.answers[index] = _conflict(topic.name, messages[index].idempotency_key or "")
                    del chosen[index]
                elif winner.partition >= topic.partitions:
                    # The partition was added after this topic was read.
                    found.changed[index] = Refusal.MISSING
                    del chosen[index]
                else:
                    chosen[index] = winner.partition
                    hashes[index] = mine.key_hash
        return hashes

    async def _commit(self, topic: Topic, parts: Sequence[PendingAppend]) -> list[AppendResult | LakelogError]:
        futures = [self._committers[topic.cells[partition_of_id(part.pid)]].submit(part) for part in parts]
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        results: list[AppendResult | LakelogError] = []
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, LakelogError):
                raise outcome
            results.append(outcome)
        return results


def _parts(
    topic: Topic, messages: dict[int, Message], chosen: dict[int, int], hashes: dict[int, bytes]
) -> list[tuple[PendingAppend, list[int]]]:
    """Return one part per partition, and a separate part for each repeat of an idempotency key within the call."""
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    repeats: dict[bytes, int] = defaultdict(int)
    for index, partition in chosen.items():
        repeat = 0
        if index in hashes:
            repeat = repeats[hashes[index]]
            repeats[hashes[index]] += 1
        groups[repeat, partition].append(index)
    parts = []
    for (_, partition), indexes in groups.items():
        share = [messages[index] for index in indexes]
        part = PendingAppend(
            pid=topic.pid(partition),
            epoch=topic.epoch,
            size=sum(_size(message) for message in share),
            messages=share,
            key_hashes={place: hashes[index] for place, index in enumerate(indexes) if index in hashes},
            key_memory=topic.settings.idempotency_memory,
            environment=topic.scope.environment_id,
        )
        parts.append((part, indexes))
    return parts


def _answer_messages(
    found: _Round[Receipt], part: PendingAppend, indexes: Sequence[int], outcome: AppendResult | LakelogError
) -> None:
    topic, partition = found.topic, partition_of_id(part.pid)
    if isinstance(outcome, LakelogError):
        found.answers.update(dict.fromkeys(indexes, outcome))
    elif isinstance(outcome.refusal, Refusal):
        found.changed.update(dict.fromkeys(indexes, outcome.refusal))
    elif outcome.refusal is not None:
        found.answers.update(dict.fromkeys(indexes, _sequence_refused(topic, partition, outcome.refusal)))
    else:
        offset = outcome.base
        for place, index in enumerate(indexes):
            earlier = part.duplicates.get(place)
            at = offset if earlier is None else earlier
            offset += earlier is None
            found.answers[index] = Receipt(
                id=message_id(topic.incarnation, partition, at),
                partition=partition,
                offset=at,
                duplicate=outcome.duplicate or earlier is not None,
            )


def _delay(message: Message) -> timedelta:
    """Return about how long after its reservation the message is appended."""
    schedule = message.schedule
    if schedule is None:
        return timedelta(0)
    if schedule.deliver_at is not None:
        return max(timedelta(0), schedule.deliver_at - datetime.now(UTC))
    return timedelta(milliseconds=min(schedule.delay_ms or 0, MAX_DELAY_MS))


def _size(message: Message) -> int:
    return len(message.value or b"") + len(message.key or b"") + _MESSAGE_OVERHEAD


def _is_ahead(epoch: int | None, topic: Topic) -> bool:
    return epoch is not None and epoch > topic.epoch


def _epoch_changed(topic: Topic) -> EpochChanged:
    return EpochChanged(topic=topic.name, epoch=topic.epoch, partitions=topic.partitions)


def _outdated(found: _Round[Answer], topic: Topic, epochs: dict[int, int | None]) -> dict[int, LakelogError]:
    """Return the items whose callers must choose partitions again, because the topic changed."""
    recreated = topic.incarnation != found.topic.incarnation
    return {
        index: _epoch_changed(topic)
        for index, refusal in found.changed.items()
        if epochs[index] is not None and (recreated or refusal is Refusal.EPOCH)
    }


def _sequence_refused(topic: Topic, partition: int, verdict: Verdict) -> SequenceRefused:
    if verdict is Verdict.UNKNOWN_PRODUCER:
        detail = (
            "This partition does not know the producer or has forgotten it. Start with a new producer id, at "
            "sequence 0."
        )
    else:
        detail = "The sequence does not continue the producer's last batch here; an earlier batch is missing."
    return SequenceRefused(detail, topic=topic.name, partition=partition, reason=verdict.name.lower())


def _conflict(topic: str, key: str) -> IdempotencyConflict:
    return IdempotencyConflict(
        f"Idempotency key {key[:120]!r} was used in topic {topic!r} for a message with other content. "
        "Use a new key for a new message.",
        topic=topic,
        idempotency_key=key,
    )
