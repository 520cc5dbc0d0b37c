"""Redrive: publishes the message of a dead letter again to its partition, for its group only.

A redriven message carries its origin and the number of redrives (`<original id>#<n>`), so that a message that fails
repeatedly does not circulate forever. This module creates the messages and writes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lakelog.batches import decode, encode_messages, to_messages
from lakelog.errors import LakelogError, RedriveRefused
from lakelog.model.filter import FilterInput
from lakelog.model.kinds import DeadLetterState
from lakelog.model.limits import MAX_BODY_BYTES
from lakelog.model.message import Message, fault_of, message_id, partition_of_id
from lakelog.model.repair import Repair
from lakelog.model.topic import Topic
from lakelog.storage.groups import DeadLetterKey, StoredDeadLetter
from lakelog.storage.store import Append, Payload

MAX_REDRIVES = 3
_SHOWN = 10
_PER_APPEND = 1000
_LINEAGE = re.compile(r"([0-9]+-[0-9]+-[0-9]+)#([0-9]{1,9})", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A dead letter of a group. Without `message`, its bytes could not be read when it died.

    `error` is the reason of its last failure, `redriven_to` the id of the message that was published for it.
    """

    id: str
    topic: str
    partition: int
    offset: int
    epoch: int
    message: Message | None
    error: str
    deliveries: int
    failures: int
    at_ms: int
    owner: str
    state: DeadLetterState
    redriven_to: str | None
    traceback: str | None = None
    """The traceback of the last failure, if the caller sent one. Filters cannot use it."""

    @property
    def lineage(self) -> str | None:
        return self.message.lineage if self.message else None

    @property
    def redrives(self) -> int:
        """The number of redrives before it died here."""
        return _origin(self)[1]

    def subject(self) -> FilterInput:
        """Return the dead letter as a filter reads it."""
        message = self.message or Message(value=None)
        return FilterInput(
            key=message.key,
            headers=message.headers,
            value=message.value,
            content_type=message.content_type,
            correlation_id=message.correlation_id,
            offset=self.offset,
            partition=self.partition,
            error=self.error,
            deliveries=self.deliveries,
            failures=self.failures,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Redriven:
    """The result of a redrive, or of a dry run."""

    redriven: int
    refused: int
    """Selected but not redriven: unknown, already gone, redriven too often, or without their bytes."""
    ids: Sequence[str]
    """The first ids of redriven dead letters."""
    refusals: Sequence[tuple[str, str]]
    """The first refused ids, each with the reason."""
    has_more: bool
    """Whether the limit was reached; repeat the call for the rest."""


class Tally:
    """The figures of a running redrive."""

    def __init__(self) -> None:
        self.redriven = 0
        self.refused = 0
        self._ids: list[str] = []
        self._refusals: list[tuple[str, str]] = []
        self.first: LakelogError | None = None
        """The first refusal."""

    def went(self, letters: Sequence[DeadLetter]) -> None:
        self.redriven += len(letters)
        self._ids += [letter.id for letter in letters[: _SHOWN - len(self._ids)]]

    def refuse(self, message_id: str, why: LakelogError) -> None:
        self.refused += 1
        self.first = self.first or why
        if len(self._refusals) < _SHOWN:
            self._refusals.append((message_id, why.detail))

    def total(self, *, has_more: bool) -> Redriven:
        return Redriven(
            redriven=self.redriven,
            refused=self.refused,
            ids=self._ids,
            refusals=self._refusals,
            has_more=has_more,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A dead letter and the message to publish for it."""

    letter: DeadLetter
    message: Message


def to_letter(stored: StoredDeadLetter, topic: Topic) -> DeadLetter:
    partition, offset = partition_of_id(stored.key.pid), stored.key.offset
    to = stored.redriven_to
    return DeadLetter(
        id=message_id(topic.incarnation, partition, offset),
        topic=topic.name,
        partition=partition,
        offset=offset,
        epoch=stored.key.epoch,
        message=to_messages(decode(stored.payload))[0] if stored.payload is not None else None,
        error=stored.reason,
        deliveries=stored.deliveries,
        failures=stored.failures,
        at_ms=stored.at_ms,
        owner=stored.owner,
        state=stored.state,
        redriven_to=message_id(topic.incarnation, partition, to) if to is not None else None,
        traceback=stored.traceback,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The options of a redrive: the repairs by id, and the largest number of earlier redrives."""

    group: str
    repaired: Mapping[str, Repair]
    max_redrives: int | None = MAX_REDRIVES
    """The largest number of earlier redrives; None if forced."""


def made_ready(letter: DeadLetter, terms: Terms) -> Ready:
    """Return the message to publish, or raise the refusal."""
    if letter.state is not DeadLetterState.DEAD:
        now = f" as {letter.redriven_to}" if letter.redriven_to else ""
        raise RedriveRefused(f"Dead letter {letter.id} was {letter.state} already{now}.", id=letter.id)
    origin, redrives = _origin(letter)
    if terms.max_redrives is not None and redrives >= terms.max_redrives:
        raise RedriveRefused(
            f"Dead letter {letter.id} was redriven {redrives} times already (first: {origin}); mend what makes it "
            "fail, then force it, or discard it.",
            id=letter.id,
        )
    message = letter.message
    repair = terms.repaired.get(letter.id)
    if repair is not None and (message is not None or repair.value is not None):
        message = _repaired(message or Message(value=None), repair)
    if message is None:
        raise RedriveRefused(
            f"The message of dead letter {letter.id} was out of reach when it died; give it a repaired value.",
            id=letter.id,
        )
    fault = fault_of(message)
    if fault is not None:
        raise fault
    lineage = f"{origin}#{redrives + 1}"
    return Ready(
        letter=letter,
        message=replace(
            message, expires_at=None, partition=None, idempotency_key=None, target_group=terms.group, lineage=lineage
        ),
    )


def _repaired(message: Message, repair: Repair) -> Message:
    if repair.value is not None:
        content_type = repair.content_type or message.content_type
        message = replace(message, value=repair.value, content_type=content_type)
    return message if repair.headers is None else replace(message, headers=dict(repair.headers))


def is_ready(letter: DeadLetter, terms: Terms) -> bool:
    try:
        made_ready(letter, terms)
    except LakelogError:
        return False
    return True


def shares(ready: Sequence[Ready]) -> list[list[Ready]]:
    """Yield shares of one partition that each fit into one append."""
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
    """Return a share as one append with one batch."""
    data = encode_messages([one.message for one in share])
    pid = topic.pid(share[0].letter.partition)
    return Append(pid=pid, epoch=topic.epoch, payloads=[Payload(data=data, count=len(share))])


def to_key(topic: Topic, letter: DeadLetter) -> DeadLetterKey:
    return DeadLetterKey(pid=topic.pid(letter.partition), offset=letter.offset, epoch=letter.epoch)


def _origin(letter: DeadLetter) -> tuple[str, int]:
    """Return the id of the first published message, and the number of redrives since."""
    match = _LINEAGE.fullmatch(letter.lineage or "")
    return (match[1], int(match[2])) if match else (letter.id, 0)
