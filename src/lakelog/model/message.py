"""A message before it is published, and the ids of partitions and messages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from lakelog.errors import InvalidRequest, LakelogError, TooLarge
from lakelog.model import limits
from lakelog.model.arguments import check_texts

PARTITION_BITS = 16
MAX_MESSAGE_ID_LENGTH = 120
_SCHEDULED_ID = re.compile(r"([0-9]{1,19})-([0-9]{1,5})-s([0-9a-f]{32})", re.ASCII)


MARK_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When a delayed message is published: after a delay, or at a time.

    Attributes:
        delay_ms: The delay in milliseconds on the database's clock, or None.
        deliver_at: The time, or None.
        mark: 16 bytes by which a repeated call recognises the message, or None. The hash of an idempotency key is used
            instead if the message has one.
    """

    delay_ms: int | None = None
    deliver_at: datetime | None = None
    mark: bytes | None = None


@dataclass(slots=True, kw_only=True)
class Message:
    """A message that is being published. `on_error` of a producer gets it and must not change it.

    Attributes:
        value: The encoded value, or None.
        key: The key, or None.
        headers: Text by name, or None.
        content_type: The content type of the value, or None.
        correlation_id: A text that readers see beside the value, or None.
        created_at: When the message was created, or None.
        expires_at: When the message expires, or None.
        expires_ms: When the message expires, in milliseconds after its commit on the database's clock, or None.
        partition: The chosen partition, or None if the key chooses it.
        idempotency_key: A text that identifies the message in its topic, or None.
        target_group: The only group that gets a redriven message, or None.
        lineage: The id of the message that was redriven, or None.
        schedule: When a delayed message is published, or None for a message that is published at once.
    """

    # Not frozen, unlike other values: one is created per request, and freezing triples the cost.

    value: bytes | None
    key: bytes | None = None
    headers: Mapping[str, str] | None = None
    content_type: str | None = None
    correlation_id: str | None = None
    created_at: datetime | None = None
    expires_at: datetime | None = None
    expires_ms: int | None = None
    partition: int | None = None
    idempotency_key: str | None = None
    target_group: str | None = None
    lineage: str | None = None
    schedule: Schedule | None = None

    def __repr__(self) -> str:
        size = None if self.value is None else len(self.value)
        stated = [f"key={self.key!r}", f"bytes={size}"]
        if self.partition is not None:
            stated.append(f"partition={self.partition}")
        if self.idempotency_key is not None:
            stated.append(f"idempotency_key={self.idempotency_key!r}")
        return f"Message({', '.join(stated)})"


def fault_of(message: Message) -> LakelogError | None:
    """Return the error of an invalid message, or None. A message is checked before it joins a batch."""
    if message.value is not None and len(message.value) > limits.MAX_MESSAGE_BYTES:
        return TooLarge(f"The value has {len(message.value)} bytes; at most {limits.MAX_MESSAGE_BYTES} are allowed.")
    if message.key is not None and len(message.key) > limits.MAX_KEY_BYTES:
        return TooLarge(f"The key has {len(message.key)} bytes; at most {limits.MAX_KEY_BYTES} are allowed.")
    return fault_of_texts(message.headers, message.idempotency_key, message.content_type, message.correlation_id)


def fault_of_texts(headers: Mapping[str, str] | None, *texts: str | None) -> LakelogError | None:
    """Return the error of invalid headers or texts of a message, or None."""
    try:
        if headers:
            if len(headers) > limits.MAX_HEADERS:
                return TooLarge(f"There are {len(headers)} headers; at most {limits.MAX_HEADERS} are allowed.")
            for name, header in headers.items():
                if len(name.encode()) > limits.MAX_HEADER_BYTES or len(header.encode()) > limits.MAX_HEADER_BYTES:
                    return TooLarge(f"A header has more than {limits.MAX_HEADER_BYTES} bytes: {name[:40]!r}.")
        for text in texts:
            if text is not None and len(text.encode()) > limits.MAX_IDEMPOTENCY_KEY_BYTES:
                return TooLarge(
                    f"Keys, ids and content types must be at most {limits.MAX_IDEMPOTENCY_KEY_BYTES} bytes."
                )
    except UnicodeEncodeError as error:
        # If only the encoder found it, it would fail the commit of other messages.
        return InvalidRequest(f"A text of this message is not valid Unicode ({error.reason}). Send bytes as the value.")
    except (AttributeError, TypeError):
        return _fault_of_types(headers, texts)
    return None


def _fault_of_types(headers: object, texts: Sequence[object]) -> LakelogError:
    try:
        if headers:
            check_texts("headers", headers)
    except InvalidRequest as error:
        return error
    wrong = next((text for text in texts if text is not None and not isinstance(text, str)), None)
    return InvalidRequest(f"Idempotency keys, correlation ids and content types must be text, not {wrong!r}.")


def partition_id(incarnation: int, partition: int) -> int:
    """Return the number that keys everything a partition owns. A recreated topic never shares rows with the old one."""
    return incarnation << PARTITION_BITS | partition


def partition_of_id(pid: int) -> int:
    """Return the number of the partition within its topic."""
    return pid & ((1 << PARTITION_BITS) - 1)


def message_id(incarnation: int, partition: int, offset: int) -> str:
    """Return the id of a message. It contains the position, so that finding the message needs no index."""
    return f"{incarnation}-{partition}-{offset}"


def parse_message_id(text: str) -> tuple[int, int, int]:
    """Return the incarnation, partition and offset of a message id."""
    parts = text.split("-")
    # A limit of the length, because `int` refuses texts of thousands of digits.
    is_id = len(text) <= MAX_MESSAGE_ID_LENGTH and len(parts) == 3
    if not is_id or not all(part.isascii() and part.isdigit() for part in parts):
        raise InvalidRequest(f"{text[:120]!r} is not a message id. A message id looks like 12-3-4567.")
    incarnation, partition, offset = (int(part) for part in parts)
    return incarnation, partition, offset


def scheduled_id(incarnation: int, partition: int, mark: bytes) -> str:
    """Return the id of a delayed message. It differs from the id that the message has when it is published."""
    return f"{incarnation}-{partition}-s{mark.hex()}"


def is_scheduled_id(text: str) -> bool:
    """Return whether the text is the id of a delayed message."""
    return _SCHEDULED_ID.fullmatch(text) is not None


def parse_scheduled_id(text: str) -> tuple[int, int, bytes]:
    """Return the incarnation, partition and mark of the id of a delayed message."""
    match = _SCHEDULED_ID.fullmatch(text)
    if match is None:
        raise InvalidRequest(
            f"{text[:120]!r} is not the id of a delayed message, which looks like "
            "12-3-s0f1e2d3c4b5a69788796a5b4c3d2e1f0."
        )
    return int(match[1]), int(match[2]), bytes.fromhex(match[3])
