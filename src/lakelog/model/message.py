"""A message as it is published, and the ids that name it afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from lakelog.errors import InvalidRequest, LakelogError, TooLarge
from lakelog.model import limits

PARTITION_BITS = 16


@dataclass(slots=True, kw_only=True)
class Message:
    """What a publisher hands over. Which partition and offset it gets is decided later.

    A value like the others, and not to be changed; only it is not frozen, because one is made for every request, and
    freezing triples what that costs.
    """

    value: bytes | None
    key: bytes | None = None
    headers: Mapping[str, str] | None = None
    content_type: str | None = None
    correlation_id: str | None = None
    created_at: datetime | None = None
    expires_at: datetime | None = None
    partition: int | None = None
    idempotency_key: str | None = None
    target_group: str | None = None
    lineage: str | None = None


def fault_of(message: Message) -> LakelogError | None:
    """What is wrong with the message by itself, if anything: said before it shares a batch with good ones."""
    if message.value is not None and len(message.value) > limits.MAX_MESSAGE_BYTES:
        return TooLarge(f"The value has {len(message.value)} bytes; at most {limits.MAX_MESSAGE_BYTES} are allowed.")
    if message.key is not None and len(message.key) > limits.MAX_KEY_BYTES:
        return TooLarge(f"The key has {len(message.key)} bytes; at most {limits.MAX_KEY_BYTES} are allowed.")
    return fault_of_texts(message.headers, message.idempotency_key, message.content_type, message.correlation_id)


def fault_of_texts(headers: Mapping[str, str] | None, *texts: str | None) -> LakelogError | None:
    """The same for what a message says besides its key and value."""
    try:
        if headers:
            if len(headers) > limits.MAX_HEADERS:
                return TooLarge(f"There are {len(headers)} headers; at most {limits.MAX_HEADERS} are allowed.")
            for name, header in headers.items():
                if len(name.encode()) > limits.MAX_HEADER_BYTES or len(header.encode()) > limits.MAX_HEADER_BYTES:
                    return TooLarge(f"A header is over {limits.MAX_HEADER_BYTES} bytes: {name[:40]!r}.")
        for text in texts:
            if text is not None and len(text.encode()) > limits.MAX_IDEMPOTENCY_KEY_BYTES:
                return TooLarge(f"Keys, ids and content types are at most {limits.MAX_IDEMPOTENCY_KEY_BYTES} bytes.")
    except UnicodeEncodeError as error:
        # Found only by the encoder, it would fail the commit of others.
        return InvalidRequest(f"A text of this message is not valid Unicode ({error.reason}); send bytes as the value.")
    except AttributeError as error:
        return InvalidRequest(f"Headers, ids and content types are text: {error}.")
    return None


def partition_id(incarnation: int, partition: int) -> int:
    """The one number that keys everything a partition owns: a recreated topic can never meet the old one's rows."""
    return incarnation << PARTITION_BITS | partition


def partition_of_id(pid: int) -> int:
    """Which partition of its topic that is."""
    return pid & ((1 << PARTITION_BITS) - 1)


def message_id(incarnation: int, partition: int, offset: int) -> str:
    """The message's id: it says where the message is, so that finding it needs no index."""
    return f"{incarnation}-{partition}-{offset}"


def parse_message_id(text: str) -> tuple[int, int, int]:
    """Incarnation, partition and offset of a message id."""
    parts = text.split("-")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() for part in parts):
        raise InvalidRequest(f"{text[:120]!r} is not a message id; one looks like 12-3-4567.")
    incarnation, partition, offset = (int(part) for part in parts)
    return incarnation, partition, offset
