"""The requests and replies about topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from lakelog.model.columns import TopicColumns, widened
from lakelog.model.kinds import Compatibility
from lakelog.model.limits import MAX_DURATION_MS, MAX_PARTITIONS
from lakelog.model.masks import check_masks
from lakelog.model.schema import SchemaSetting
from lakelog.model.structs import Duration, Name, Positive, Request, Value
from lakelog.model.topic import IDEMPOTENCY_MEMORY, Retention, TopicSettings

MAX_TOPICS = 1000
"""The largest number of topics in one reply."""
_MILLISECOND = timedelta(milliseconds=1)

PartitionCount = Annotated[int, Meta(ge=1, le=MAX_PARTITIONS)]


class RetentionLimits(Request, frozen=True, kw_only=True):
    """A `Retention` in JSON.

    Attributes:
        max_age_ms: Messages older than this are removed, in milliseconds.
        max_count: The number of messages to keep in each partition.
        max_bytes: The stored bytes to keep in each partition.
    """

    max_age_ms: Duration | None = None
    max_count: Positive | None = None
    max_bytes: Positive | None = None

    @classmethod
    def of(cls, retention: Retention) -> RetentionLimits:
        """Return the limits of a retention.

        Args:
            retention: The retention to convert.
        """
        age = retention.max_age
        return cls(
            max_age_ms=None if age is None else age // _MILLISECOND,
            max_count=retention.max_count,
            max_bytes=retention.max_bytes,
        )

    @property
    def retention(self) -> Retention:
        """Return the retention with these limits."""
        age = None if self.max_age_ms is None else self.max_age_ms * _MILLISECOND
        return Retention(max_age=age, max_count=self.max_count, max_bytes=self.max_bytes)


class CreateTopicRequest(Request, frozen=True, kw_only=True):
    """A request to create a topic."""

    topic: Name = msgspec.field(name="name")
    partitions: PartitionCount = 1
    retention: RetentionLimits = RetentionLimits()
    key_field: str | None = None
    idempotency_memory_ms: Positive = IDEMPOTENCY_MEMORY // _MILLISECOND
    tags: list[str] = msgspec.field(default_factory=list)
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    schema: dict[str, Any] | bool | UnsetType = UNSET
    compatibility: Compatibility = Compatibility.BACKWARD
    columns: dict[str, Any] | UnsetType = UNSET
    masks: list[str] | UnsetType = UNSET
    if_missing: bool = False

    @property
    def settings(self) -> TopicSettings:
        """Return the settings of the new topic."""
        return TopicSettings(
            retention=self.retention.retention,
            key_field=self.key_field,
            idempotency_memory=_duration(self.idempotency_memory_ms),
            tags=tuple(self.tags),
            metadata=self.metadata,
            schema=None if self.schema is UNSET else SchemaSetting(version=1, compatibility=self.compatibility),
            columns=None if self.columns is UNSET else widened(None, self.columns),
            masks=() if self.masks is UNSET else check_masks(self.masks),
        )


class AlterTopicRequest(Request, frozen=True, kw_only=True):
    """A request to change settings of a topic. Omitted settings do not change."""

    topic: Name
    partitions: PartitionCount | UnsetType = UNSET
    retention: RetentionLimits | UnsetType = UNSET
    key_field: str | UnsetType | None = UNSET
    idempotency_memory_ms: Positive | UnsetType = UNSET
    tags: list[str] | UnsetType = UNSET
    metadata: dict[str, str] | UnsetType = UNSET
    columns: dict[str, Any] | UnsetType = UNSET
    masks: list[str] | UnsetType = UNSET

    def changed(self, settings: TopicSettings) -> TopicSettings:
        """Return the settings after the change."""
        changes: dict[str, Any] = {}
        if self.retention is not UNSET:
            changes["retention"] = self.retention.retention
        if self.key_field is not UNSET:
            changes["key_field"] = self.key_field
        if self.idempotency_memory_ms is not UNSET:
            changes["idempotency_memory"] = _duration(self.idempotency_memory_ms)
        if self.tags is not UNSET:
            changes["tags"] = tuple(self.tags)
        if self.metadata is not UNSET:
            changes["metadata"] = self.metadata
        if self.columns is not UNSET:
            changes["columns"] = widened(settings.columns, self.columns)
        if self.masks is not UNSET:
            changes["masks"] = check_masks(self.masks)
        return replace(settings, **changes)


class TopicRequest(Request, frozen=True, kw_only=True):
    """A request that needs only the name of a topic."""

    topic: Name


class TopicQuery(Request, frozen=True, kw_only=True):
    """A request for topics, by name."""

    after: Annotated[Name, Meta(description="Only topics after this name: the `next` of the previous page.")] | None = (
        None
    )
    limit: Annotated[int, Meta(ge=1, le=MAX_TOPICS, description="The largest number of topics to return.")] = MAX_TOPICS
    group: Annotated[Name, Meta(description="Only topics that this group reads.")] | None = None


class PartitionInfo(Value, frozen=True, kw_only=True):
    """The ends of a partition.

    Attributes:
        partition: The number of the partition, from 0.
        log_start: The offset of the oldest message.
        high_watermark: The offset of the next message to be published.
        bytes: Stored bytes, compressed.
        appended_at: When the newest message was appended; None if there never was one.
    """

    partition: int
    log_start: int
    high_watermark: int
    bytes: int
    appended_at: datetime | None = None


class TopicInfo(Value, frozen=True, kw_only=True):
    """The description of a topic.

    Attributes:
        name: The name of the topic.
        incarnation: A number that a topic recreated under the same name does not share. Message ids begin with it.
        partitions: The number of partitions.
        epoch: The number of times that partitions were added.
        retention: Which messages are kept.
        key_field: The field of JSON values that is the key of a message without one, or None.
        idempotency_memory: How long idempotency keys are remembered.
        tags: Texts for display.
        metadata: Text by name, for display.
        created_at: When the topic was created, in UTC.
        schema_version: The version of the schema that values must match; None if the topic has no schema.
        compatibility: The rule for changes of the schema; None if the topic has no schema.
        columns: The typed columns of the values; None if the topic has none.
        masks: The fields of messages that the console and `lakelog mcp` show masked.
        partition_list: The ends of each partition. Empty in lists of topics.
        now: The database's time at the description, in UTC. None in lists of topics.
        limits: The retention, with its age in milliseconds.
        idempotency_memory_ms: How long idempotency keys are remembered, in milliseconds.
        described: As `partition_list`, but None in lists of topics.
    """

    name: str
    incarnation: int
    partitions: int
    epoch: int
    limits: RetentionLimits = msgspec.field(name="retention")
    key_field: str | None
    idempotency_memory_ms: int
    tags: tuple[str, ...]
    metadata: Mapping[str, str]
    created_at: datetime
    schema_version: int | None = None
    compatibility: Compatibility | None = None
    columns: TopicColumns | None = None
    masks: tuple[str, ...] = ()
    described: tuple[PartitionInfo, ...] | None = msgspec.field(default=None, name="partition_list")
    now: datetime | None = None

    @property
    def retention(self) -> Retention:
        """Return which messages are kept."""
        return self.limits.retention

    @property
    def idempotency_memory(self) -> timedelta:
        """Return how long idempotency keys are remembered."""
        return self.idempotency_memory_ms * _MILLISECOND

    @property
    def partition_list(self) -> tuple[PartitionInfo, ...]:
        """Return the ends of each partition; none in lists of topics."""
        return self.described or ()

    def __repr__(self) -> str:
        shown = f"name={self.name!r}, partitions={self.partitions}, retention={self.retention!r}"
        return f"TopicInfo({shown}, key_field={self.key_field!r})"


class TopicPage(Value, frozen=True, kw_only=True):
    """Topics by name. `next` is the `after` of the next page; None at the end."""

    topics: list[TopicInfo]
    next: str | None = None


class Purged(Value, frozen=True, kw_only=True):
    """The result of a purge.

    Attributes:
        removed: How many messages were removed.
        partitions: The ends of each partition after the purge.
    """

    removed: int
    partitions: tuple[PartitionInfo, ...]

    def __repr__(self) -> str:
        return f"Purged(removed={self.removed})"


def _duration(ms: int) -> timedelta:
    # More than the longest duration is refused by the settings, more than a timedelta holds here.
    return min(ms, 2 * MAX_DURATION_MS) * _MILLISECOND
