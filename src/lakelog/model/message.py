"""A message as it is published, and the ids that name it afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from lakelog.errors import InvalidRequest

PARTITION_BITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What a publisher hands over. Which partition and offset it gets is decided later."""

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


def partition_id(incarnation: int, partition: int) -> int:
    """The one number that keys everything a partition owns: a recreated topic can never meet the old one's rows."""
    return incarnation << PARTITION_BITS | partition


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
