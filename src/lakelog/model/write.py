"""Writes: many messages that become visible by one decision.

Attempts stage batches; the decision names the attempts that count. The first decision of a write id is final.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Annotated

from msgspec import Meta

from lakelog.errors import InvalidRequest
from lakelog.model.structs import Name, Natural, Request, Value

MAX_WRITE_ID_BYTES = 512
MAX_ATTEMPT_BYTES = 120
MAX_ATTEMPTS = 100_000
MAX_STAGED_NUMBER = 2**31 - 1

WriteId = Annotated[str, Meta(min_length=1, max_length=MAX_WRITE_ID_BYTES)]
Attempt = Annotated[str, Meta(min_length=1, max_length=MAX_ATTEMPT_BYTES)]
Epoch = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class WriteKind(StrEnum):
    """The kind of a write, which determines how long its decision is remembered after it has finished."""

    BATCH = "batch"
    """A write with its own id. Its decision is remembered for a year."""
    STREAM = "stream"
    """A micro-batch, with an id such as `query/17`. The newest decision of a query is remembered for a year, older
    ones for 30 days: a stream repeats only its last micro-batch.
    """


class GrowthRule(StrEnum):
    """The rule for a decision if partitions were added after the partitions of its messages were chosen."""

    REFUSE = "refuse"
    """Decide nothing, and raise `EpochChanged`."""
    KEEP = "keep"
    """Leave the messages in their partitions. It is for messages whose partition the caller named."""
    MOVE = "move"
    """Move messages with a key to the partition of the key, and leave the others."""


class StageOptions(Request, frozen=True, kw_only=True):
    """The write and the attempt that stages batches, and the topic as it was when partitions were chosen."""

    write_id: WriteId
    attempt: Attempt
    incarnation: Natural
    epoch: Epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePiece:
    """An encoded batch for one partition. Its number is its position among the batches of its attempt and partition."""

    partition: int
    number: int
    count: int
    payload: bytes


class DecideOptions(Request, frozen=True, kw_only=True):
    """The attempts that count, in the order in which their messages go into the log, and the number of messages.

    Attributes:
        write_id: The id of the write.
        attempts: The attempts.
        count: The number of messages that they staged.
        incarnation: The topic as it was when partitions were chosen.
        epoch: The number of times that partitions had been added then.
        kind: "batch", or "stream" for a micro-batch, whose id must be like `query/17`. Default: "batch".
        growth: If partitions were added since: "refuse", "keep" the messages in their partitions, or "move" messages
            with a key to the partition of the key. Default: "refuse".
    """

    write_id: WriteId
    attempts: Annotated[list[Attempt], Meta(max_length=MAX_ATTEMPTS)]
    count: Natural
    incarnation: Natural
    epoch: Epoch
    kind: WriteKind = WriteKind.BATCH
    growth: GrowthRule = GrowthRule.REFUSE


class DecideRequest(DecideOptions, frozen=True, kw_only=True):
    """A decision about a write into a topic."""

    topic: Name


class Written(Value, frozen=True, kw_only=True):
    """The result of a decision about a write.

    Attributes:
        count: How many messages the write has in the log.
        won: True if the messages are those of the attempts that the call named.
    """

    count: int
    won: bool


def check_write_id(text: str, kind: WriteKind = WriteKind.BATCH) -> str:
    _checked("write id", text, MAX_WRITE_ID_BYTES)
    if kind is WriteKind.STREAM and _micro_batch(text) is None:
        raise InvalidRequest(
            f"The write id of a stream is a name and the number of a micro-batch: query/17, not {text!r}."
        )
    return text


def check_attempts(attempts: Sequence[str]) -> None:
    if len(attempts) > MAX_ATTEMPTS:
        raise InvalidRequest(f"A write can have at most {MAX_ATTEMPTS} attempts that count, not {len(attempts)}.")
    if len(set(attempts)) != len(attempts):
        raise InvalidRequest("An attempt is named twice.")
    for attempt in attempts:
        _checked("attempt", attempt, MAX_ATTEMPT_BYTES)


def attempts_hash(attempts: Iterable[str]) -> bytes:
    """Return a digest that identifies a choice of attempts."""
    return sha256("\n".join(attempts).encode()).digest()


def writer_of(write_id: str, kind: WriteKind) -> tuple[str, int]:
    """Return the query and the number of a micro-batch. A batch write is its own writer, with the number 0."""
    found = _micro_batch(write_id) if kind is WriteKind.STREAM else None
    return found or (write_id, 0)


def _micro_batch(write_id: str) -> tuple[str, int] | None:
    writer, _, number = write_id.rpartition("/")
    if writer and number.isascii() and number.isdigit() and len(number) <= 18:
        return writer, int(number)
    return None


def _checked(what: str, text: str, limit: int) -> str:
    if not text.isprintable() or not 1 <= len(text.encode(errors="surrogatepass")) <= limit:
        raise InvalidRequest(f"A {what} must be 1 to {limit} bytes of printable text.")
    return text
