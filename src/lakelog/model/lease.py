"""Answers of an owner to leased messages, and their results."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from lakelog.errors import InvalidRequest
from lakelog.model.group import DEFAULT_LEASE_MS, MAX_LEASE_MS, MAX_REASON_BYTES, MIN_LEASE_MS, NewGroupSettings
from lakelog.model.limits import MAX_BATCH_MESSAGES, MAX_WAIT_MS
from lakelog.model.structs import Identity, Name, Natural, PartitionNumber, Request, Text, Value

MAX_DELAY_MS = 7 * 86_400_000
"""The longest time for which a nack or a release delays the next delivery: one week."""

LeaseMs = Annotated[int, Meta(ge=MIN_LEASE_MS, le=MAX_LEASE_MS)]
WaitMs = Annotated[int, Meta(ge=0, le=MAX_WAIT_MS)]
MaxMessages = Annotated[int, Meta(ge=1, le=MAX_BATCH_MESSAGES)]
DelayMs = Annotated[int, Meta(ge=0, le=MAX_DELAY_MS)]
# Not tuple[Natural, Natural]: in a union with a constrained number, that crashes msgspec's decoder.
OffsetRange = Annotated[tuple[Natural, ...], Meta(min_length=2, max_length=2)]
"""The first and the last offset, both included."""
Offsets = Annotated[tuple[Natural | OffsetRange, ...], Meta(min_length=1, max_length=MAX_BATCH_MESSAGES)]
OnceValues = dict[Natural, Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]]
Ranges = Sequence[tuple[int, int]]
"""Offsets as (first, end) pairs, the end not included; ascending."""


class Verb(StrEnum):
    """The kind of an answer to leased messages."""

    ACK = "ack"
    ACK_THROUGH = "ack_through"
    """Finish all messages of the lease up to and including the offset."""
    NACK = "nack"
    RELEASE = "release"
    """Give messages back without counting a failure: the owner shuts down."""
    FAIL = "fail"
    """A nack without a retry: the message becomes a dead letter immediately."""
    DISCARD = "discard"
    FILTER_REPEATS = "filter_repeats"
    """Finish the messages whose value in `once` repeats one that the group accepted. Leave the others open."""
    EXTEND = "extend"


class LeaseAnswer(Request, frozen=True, kw_only=True):
    """An answer to messages of one lease. Fields that a verb does not have are ignored.

    Attributes:
        verb: The verb of the answer.
        partition: The partition of the messages.
        token: The number of the lease. Without it, the owner's lease that holds the first offset is meant.
        offsets: The messages. An extend with a token needs none.
        delay_ms: The time until the next delivery after a nack or a release, at most one week. Default for a nack: the
            delay of the group's retry policy; for a release: none.
        reason: The reason, for the dead letter; at most 4096 bytes are kept.
        traceback: The traceback of a failure; at most 8 KiB are kept.
        lease_ms: The time for which an extend prolongs the lease.
        alone: True in an extend if the suspect of the lease now runs alone in its process.
        once: For an ack or filter_repeats: by offset, the hash of a value of which the group accepts one run in 24
            hours, 32 hexadecimal digits. Messages that repeat a value are finished as filtered.
    """

    verb: Verb
    partition: PartitionNumber
    token: Natural | None = None
    offsets: Offsets = ()
    delay_ms: DelayMs | None = None
    reason: Text = ""
    traceback: Text | None = None
    lease_ms: LeaseMs = DEFAULT_LEASE_MS
    alone: bool = False
    once: OnceValues = {}  # noqa: RUF012 - msgspec copies it

    def value_hashes(self) -> dict[int, bytes]:
        """Return `once` as bytes. Raise `InvalidRequest` for offsets that the answer does not name."""
        ranges = self.ranges
        for offset in self.once:
            if not any(first <= offset < end for first, end in ranges):
                raise InvalidRequest(f"`once` has offset {offset}, which is not among the offsets of the answer.")
        return {offset: bytes.fromhex(value) for offset, value in self.once.items()}

    @property
    def ranges(self) -> Ranges:
        """The messages as ascending ranges."""
        offsets = self.offsets
        if len(offsets) == 1 and isinstance(first := offsets[0], int):
            return [(first, first + 1)]
        return _merged(
            sorted((each, each + 1) if isinstance(each, int) else (each[0], each[1] + 1) for each in offsets)
        )

    def compact(self) -> LeaseAnswer:
        """Return the answer with ranges of offsets instead of single offsets, so that bodies are small."""
        if len(self.offsets) < 2:
            return self
        runs = ((first, end - 1) for first, end in self.ranges)
        return replace(self, offsets=tuple(first if first == last else (first, last) for first, last in runs))

    def check_offsets(self) -> None:
        """Raise `InvalidRequest` if the answer does not say which messages it is about."""
        if not self.offsets and (self.verb is not Verb.EXTEND or self.token is None):
            raise InvalidRequest("Every answer needs `offsets`, except an extend with a `token`.")


ONCE_VERBS = frozenset({Verb.ACK, Verb.FILTER_REPEATS})
"""The verbs that use `LeaseAnswer.once`."""
LeaseAnswers = Annotated[tuple[LeaseAnswer, ...], Meta(min_length=1, max_length=MAX_BATCH_MESSAGES)]


class ConsumeRequest(NewGroupSettings, frozen=True, kw_only=True):
    """One call for messages. A repeat with the same owner and request id gets the leases of the first call again.

    Attributes:
        topic: The name of the topic.
        group: The name of the group.
        owner: The consumer that leases the messages, and answers for them.
        max_messages: The largest number of messages, from 1 to 10,000.
        lease_ms: How long the leases last.
        wait_ms: How long to wait for the first message. Default: 0.
        member_id: The member of the group that consumes, if the owner is one.
        generation: The last generation that the member received.
        request_id: The id of the call, chosen by the caller. Without it, a call cannot be repeated.
        isolates: True if the owner runs a suspect alone, and confirms it with an extend (`alone`). Only then does the
            loss of the owner count as a failure of the message.
        answers: Answers for leases that the owner holds. They are decided first, in the commit that leases messages. A
            call with answers does not wait for messages.
    """

    topic: Name
    group: Name
    owner: Identity
    max_messages: MaxMessages = 1
    lease_ms: LeaseMs = DEFAULT_LEASE_MS
    wait_ms: WaitMs = 0
    member_id: Identity | None = None
    generation: Natural | None = None
    request_id: Identity | None = None
    isolates: bool = False
    answers: LeaseAnswers = ()

    @property
    def stated_topics(self) -> tuple[str, ...]:
        """The topic of the call."""
        return (self.topic,)


class AnswersRequest(Request, frozen=True, kw_only=True):
    """Answers of one owner for leases that it holds."""

    topic: Name
    group: Name
    owner: Identity
    answers: LeaseAnswers
    generation: Natural | None = None


class Answered(Value, frozen=True, kw_only=True):
    """The result of an answer.

    Attributes:
        expires_ms: After an extend, when the lease ends, in milliseconds since 1970.
        dead: The offsets that the answer made dead letters.
        retry_in_ms: After a nack, the time until the next delivery of the first of its messages.
        max_attempts: After a nack, the number of failures after which the group's retry policy ends a message.
        filtered: The offsets with values in `once` that were finished as filtered, because they repeat a value.
    """

    expires_ms: int | None = None
    dead: Sequence[int] = ()
    retry_in_ms: int | None = None
    max_attempts: int | None = None
    filtered: Sequence[int] = ()


def kept_reason(text: str) -> str:
    """Return a reason in its stored form. A nack must not fail because of its reason."""
    if len(text) <= MAX_REASON_BYTES and text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "").encode()[:MAX_REASON_BYTES].decode(errors="ignore")


def _merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for first, end in ranges:
        if end <= first:
            raise InvalidRequest("A pair of offsets must be the first and the last offset, the smaller one first.")
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((first, end))
    return merged
