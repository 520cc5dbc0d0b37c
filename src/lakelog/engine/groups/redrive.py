"""Redrive: publishes the message of a dead letter again to its partition, for its group only.

A redriven message carries its origin and the number of redrives (`<original id>#<n>`), so that a message that fails
repeatedly does not circulate forever. This module creates the messages and writes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lakelog.batches import decode, encode_messages, to_messages
from lakelog.engine.log.validators import Validators
from lakelog.errors import LakelogError, RedriveRefused
from lakelog.model.dead_letters import (
    DeadLetter,
    DeadLetterQuery,
    DeadLetterSelection,
    Redriven,
    RedriveRequest,
    RefusedDeadLetter,
    Repair,
)
from lakelog.model.filter import FilterInput
from lakelog.model.fingerprint import parse_fingerprint
from lakelog.model.kinds import DeadLetterState
from lakelog.model.limits import MAX_BODY_BYTES
from lakelog.model.message import Message, fault_of, message_id, partition_of_id
from lakelog.model.times import to_time
from lakelog.model.topic import Topic
from lakelog.storage.groups import DeadLetterKey, GroupStore, StoredDeadLetter
from lakelog.storage.store import Append, Payload

_SHOWN = 10
_PER_APPEND = 1000
_OF_MESSAGE = ("key", "content_type", "correlation_id", "created_at", "expires_at", "idempotency_key", "lineage")
_LINEAGE = re.compile(r"([0-9]+-[0-9]+-[0-9]+)#([0-9]{1,9})", re.ASCII)


class Tally:
    """The figures of a running redrive."""

    def __init__(self) -> None:
        self.redriven = 0
        self.refused = 0
        self._ids: list[str] = []
        self._refusals: list[RefusedDeadLetter] = []
        self.first: LakelogError | None = None
        """The first refusal."""

    def went(self, letters: Sequence[DeadLetter]) -> None:
        self.redriven += len(letters)
        self._ids += [letter.id for letter in letters[: _SHOWN - len(self._ids)]]

    def refuse(self, message_id: str, why: LakelogError) -> None:
        self.refused += 1
        self.first = self.first or why
        if len(self._refusals) < _SHOWN:
            self._refusals.append(RefusedDeadLetter(id=message_id, reason=why.detail))

    def total(self, *, dry_run: bool, has_more: bool) -> Redriven:
        return Redriven(
            dry_run=dry_run,
            redriven=self.redriven,
            refused=self.refused,
            ids=tuple(self._ids),
            refusals=tuple(self._refusals),
            has_more=has_more,
        )


@dataclass(frozen=True, slots=True)
class ChosenLetters:
    """The dead letters of a group in some partitions of a cell that a request chooses, before its filter."""

    group_id: int
    pids: Sequence[int]
    choice: DeadLetterQuery | DeadLetterSelection

    async def read(self, groups: GroupStore, after: DeadLetterKey | None, limit: int) -> list[StoredDeadLetter]:
        """Return the next ones after a key."""
        choice = self.choice
        return await groups.dead_list(
            self.group_id,
            self.pids,
            state=DeadLetterState(choice.state) if isinstance(choice, DeadLetterQuery) else DeadLetterState.DEAD,
            fingerprint=None if choice.fingerprint is None else parse_fingerprint(choice.fingerprint),
            after=after,
            limit=limit,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A dead letter and the message to publish for it."""

    letter: DeadLetter
    message: Message


def to_letter(stored: StoredDeadLetter, topic: Topic) -> DeadLetter:
    """Return a stored dead letter with its message decoded."""
    partition, offset, to = partition_of_id(stored.key.pid), stored.key.offset, stored.redriven_to
    without_message = stored.payload is None
    message = Message(value=None) if stored.payload is None else to_messages(decode(stored.payload))[0]
    return DeadLetter(
        id=message_id(topic.incarnation, partition, offset),
        topic=topic.name,
        partition=partition,
        offset=offset,
        epoch=stored.key.epoch,
        error=stored.reason,
        deliveries=stored.deliveries,
        failures=stored.failures,
        at=to_time(stored.at_ms),
        owner=stored.owner,
        state=stored.state,
        redriven_to=message_id(topic.incarnation, partition, to) if to is not None else None,
        traceback=stored.traceback,
        without_message=without_message,
        raw=message.value,
        headers=message.headers or {},
        **{name: getattr(message, name) for name in _OF_MESSAGE},
    )


def to_filter_input(letter: DeadLetter) -> FilterInput:
    """Return the dead letter as the input of a filter. Filters cannot use its traceback."""
    return FilterInput(
        key=letter.key,
        headers=letter.headers,
        value=letter.raw,
        content_type=letter.content_type,
        correlation_id=letter.correlation_id,
        offset=letter.offset,
        partition=letter.partition,
        error=letter.error,
        deliveries=letter.deliveries,
        failures=letter.failures,
    )


def made_ready(letter: DeadLetter, request: RedriveRequest) -> Ready:
    """Return the message to publish, or raise the refusal."""
    if letter.state is not DeadLetterState.DEAD:
        now = f" as {letter.redriven_to}" if letter.redriven_to else ""
        raise RedriveRefused(f"Dead letter {letter.id} was {letter.state} already{now}.", id=letter.id)
    origin, redrives = _origin(letter)
    if not request.force and redrives >= request.max_redrives:
        raise RedriveRefused(
            f"Dead letter {letter.id} was redriven {redrives} times already (first: "
            f"{origin}); fix the "
            "cause, then force the redrive, or discard the dead letter.",
            id=letter.id,
        )
    repair = (request.repaired or {}).get(letter.id)
    if letter.without_message and (repair is None or repair.value is None):
        raise RedriveRefused(
            f"The bytes of dead letter {letter.id} could not be read when it died. Redrive it with a repaired value.",
            id=letter.id,
        )
    message = Message(
        value=letter.raw,
        key=letter.key,
        headers=letter.headers or None,
        content_type=letter.content_type,
        correlation_id=letter.correlation_id,
        created_at=letter.created_at,
        target_group=request.group,
        lineage=f"{origin}#{redrives + 1}",
    )
    if repair is not None:
        message = _repaired(message, repair)
    fault = fault_of(message)
    if fault is not None:
        raise fault
    return Ready(letter=letter, message=message)


def _repaired(message: Message, repair: Repair) -> Message:
    if repair.value is not None:
        content_type = repair.content_type or message.content_type
        message = replace(message, value=repair.value, content_type=content_type)
    return message if repair.headers is None else replace(message, headers=dict(repair.headers))


def is_ready(letter: DeadLetter, request: RedriveRequest) -> bool:
    try:
        made_ready(letter, request)
    except LakelogError:
        return False
    return True


def shares(ready: Sequence[Ready]) -> list[list[Ready]]:
    """Return the messages in parts, each of one partition and small enough for one append."""
    found: list[list[Ready]] = []
    size = 0
    for one in ready:
        weight = len(one.message.value or b"")
        last = found[-1] if found else None
        place = (one.letter.topic, one.letter.partition)
        if last is None or place != (last[0].letter.topic, last[0].letter.partition):
            last = None
        if last is None or len(last) >= _PER_APPEND or size + weight > MAX_BODY_BYTES:
            found.append([one])
            size = weight
        else:
            last.append(one)
            size += weight
    return found


def to_append(topic: Topic, share: Sequence[Ready]) -> Append:
    """Return a part from `shares` as one append with one batch."""
    data = encode_messages([one.message for one in share])
    pid = topic.pid(share[0].letter.partition)
    return Append(pid=pid, epoch=topic.epoch, payloads=[Payload(data=data, count=len(share))])


def to_key(topic: Topic, letter: DeadLetter) -> DeadLetterKey:
    return DeadLetterKey(pid=topic.pid(letter.partition), offset=letter.offset, epoch=letter.epoch)


def _origin(letter: DeadLetter) -> tuple[str, int]:
    """Return the id of the first published message, and the number of redrives since."""
    match = _LINEAGE.fullmatch(letter.lineage or "")
    return (match[1], int(match[2])) if match else (letter.id, 0)


def still_dead(share: Sequence[Ready], are_dead: Sequence[bool], tally: Tally) -> list[Ready]:
    """Return the messages whose dead letters wait for a decision. Refuse the others."""
    for one, is_dead in zip(share, are_dead, strict=True):
        if not is_dead:
            refusal = RedriveRefused(f"Dead letter {one.letter.id} was redriven or discarded during the call.")
            tally.refuse(one.letter.id, refusal)
    return [one for one, is_dead in zip(share, are_dead, strict=True) if is_dead]


async def valid(
    validators: Validators, topics: Mapping[str, Topic], ready: Sequence[Ready], request: RedriveRequest, tally: Tally
) -> list[Ready]:
    """Return the messages whose repaired values match the schemas of their topics. Refuse the others.

    Values that are published unchanged were accepted before, and are not validated again.
    """
    refused: set[str] = set()
    for one in ready:
        topic = topics[one.letter.topic]
        if topic.settings.schema is not None and one.letter.id in (request.repaired or ()):
            for refusal in (await validators.refusals(topic, {0: one.message})).values():
                tally.refuse(one.letter.id, refusal)
                refused.add(one.letter.id)
    return [one for one in ready if one.letter.id not in refused]
