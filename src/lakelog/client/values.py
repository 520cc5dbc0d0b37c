"""What the client's calls take and give: plain frozen values. Messages that were read are in `messages`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from lakelog.model.topic import Retention

if TYPE_CHECKING:
    from lakelog.client.messages import ReceivedMessage
    from lakelog.wire.frames import FetchFrame

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInfo:
    """How far a partition reaches: from `log_start` up to, not including, `high_watermark`."""

    partition: int
    log_start: int
    high_watermark: int
    bytes: int
    appended_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """A topic as it is described; `partition_list` only where one topic was asked for."""

    name: str
    incarnation: int
    partitions: int
    epoch: int
    retention: Retention
    key_field: str | None
    idempotency_memory: timedelta
    tags: tuple[str, ...]
    metadata: Mapping[str, str]
    created_at: datetime
    partition_list: tuple[PartitionInfo, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Purged:
    """How many messages a purge put out of reach, and the partitions after it."""

    removed: int
    partitions: tuple[PartitionInfo, ...]


@dataclass(frozen=True, slots=True)
class Outgoing(Generic[T]):
    """One message for `publish_many`, where a bare value does not say enough."""

    value: T
    key: str | bytes | int | None = field(default=None, kw_only=True)
    headers: Mapping[str, str] | None = field(default=None, kw_only=True)
    partition: int | None = field(default=None, kw_only=True)
    idempotency_key: str | None = field(default=None, kw_only=True)
    correlation_id: str | None = field(default=None, kw_only=True)
    content_type: str | None = field(default=None, kw_only=True)
    expires: timedelta | datetime | None = field(default=None, kw_only=True)


class Run(NamedTuple):
    """Messages that lie one after the other in a partition."""

    partition: int
    offset: int
    count: int  # type: ignore[assignment]  # shadows tuple.count, which nobody asks of a run


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResult(Generic[T]):
    """Messages of one partition; read on at `next_offset`."""

    messages: Sequence[ReceivedMessage[T]]
    next_offset: int
    log_start: int
    high_watermark: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A fetch before it is decoded: whole stored batches, of which `start` up to `until` was asked for."""

    incarnation: int
    partition: int
    start: int
    until: int
    log_start: int
    high_watermark: int
    frames: Sequence[FetchFrame]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchWish:
    """How much a fetch may bring, and how long it may wait for the first message."""

    limit: int = 1000
    max_bytes: int | None = None
    wait_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChange:
    """What to change of a topic; None stays as it is."""

    partitions: int | None = None
    retention: Retention | None = None
    key_field: str | None = None
    drop_key_field: bool = False
    idempotency_memory: timedelta | None = None
    tags: tuple[str, ...] | None = None
    metadata: Mapping[str, Any] | None = None
