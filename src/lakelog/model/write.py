"""Writes: many messages that become visible by one decision, whoever staged them and how often.

Attempts stage batches; the decision names the attempts that count, and the first decision of a write id stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256

from lakelog.errors import InvalidRequest

MAX_WRITE_ID_BYTES = 512
MAX_ATTEMPT_BYTES = 120
MAX_ATTEMPTS = 100_000
MAX_STAGED_NUMBER = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StageWish:
    """Whose batches are staged, for which write; and the topic as it was when partitions were chosen."""

    write_id: str
    attempt: str
    incarnation: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePiece:
    """An encoded batch for one partition. Its number is its place among those of its attempt and partition."""

    partition: int
    number: int
    count: int
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DecideWish:
    """The attempts that shall count, in the order in which their messages go into the log, and how many those are."""

    write_id: str
    attempts: Sequence[str]
    count: int
    incarnation: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """How many messages the write has in the log, and whether these are the ones of the attempts that were named."""

    count: int
    won: bool


def check_write_id(text: str) -> str:
    return _checked("write id", text, MAX_WRITE_ID_BYTES)


def check_attempts(attempts: Sequence[str]) -> None:
    if len(attempts) > MAX_ATTEMPTS:
        raise InvalidRequest(f"A write has at most {MAX_ATTEMPTS} attempts that count, not {len(attempts)}.")
    if len(set(attempts)) != len(attempts):
        raise InvalidRequest("An attempt is named twice.")
    for attempt in attempts:
        _checked("attempt", attempt, MAX_ATTEMPT_BYTES)


def attempts_hash(attempts: Iterable[str]) -> bytes:
    """What tells one choice of attempts from another."""
    return sha256("\n".join(attempts).encode()).digest()


def writer_of(write_id: str) -> tuple[str, int]:
    """A write id such as `query/17` as its writer and number; any other is a writer of its own."""
    writer, _, number = write_id.rpartition("/")
    if writer and number.isascii() and number.isdigit() and len(number) <= 18:
        return writer, int(number)
    return write_id, 0


def _checked(what: str, text: str, limit: int) -> str:
    if not text.isprintable() or not 1 <= len(text.encode(errors="surrogatepass")) <= limit:
        raise InvalidRequest(f"A {what} is 1 to {limit} bytes of printable text.")
    return text
