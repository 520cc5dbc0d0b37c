"""Between the client's values and the shapes of HTTP, and between those and what the engine answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from msgspec import UNSET

from lakelog.client.values import PartitionInfo, TopicChange, TopicInfo
from lakelog.model.message import PARTITION_BITS
from lakelog.model.topic import Retention, Topic, TopicSettings
from lakelog.wire import shapes

if TYPE_CHECKING:
    from lakelog.storage.store import Head

_MILLISECOND = timedelta(milliseconds=1)


def create_shape(name: str, partitions: int, settings: TopicSettings, if_missing: bool) -> shapes.TopicCreate:
    return shapes.TopicCreate(
        name=name,
        partitions=partitions,
        retention=_retention_shape(settings.retention),
        key_field=settings.key_field,
        idempotency_memory_ms=settings.idempotency_memory // _MILLISECOND,
        tags=list(settings.tags),
        metadata=dict(settings.metadata),
        if_missing=if_missing,
    )


def alter_shape(change: TopicChange) -> shapes.TopicAlter:
    keep = change.key_field is None and not change.drop_key_field
    memory = change.idempotency_memory
    return shapes.TopicAlter(
        partitions=UNSET if change.partitions is None else change.partitions,
        retention=UNSET if change.retention is None else _retention_shape(change.retention),
        key_field=UNSET if keep else change.key_field,
        idempotency_memory_ms=UNSET if memory is None else memory // _MILLISECOND,
        tags=UNSET if change.tags is None else list(change.tags),
        metadata=UNSET if change.metadata is None else dict(change.metadata),
    )


def changed(settings: TopicSettings, change: TopicChange) -> TopicSettings:
    """The settings after the change."""
    memory = change.idempotency_memory
    return replace(
        settings,
        retention=settings.retention if change.retention is None else change.retention,
        key_field=None if change.drop_key_field else change.key_field or settings.key_field,
        idempotency_memory=settings.idempotency_memory if memory is None else memory,
        tags=settings.tags if change.tags is None else change.tags,
        metadata=settings.metadata if change.metadata is None else change.metadata,
    )


def info_of(shape: shapes.TopicShape) -> TopicInfo:
    limits = shape.retention
    age = None if limits.max_age_ms is None else limits.max_age_ms * _MILLISECOND
    return TopicInfo(
        name=shape.name,
        incarnation=shape.incarnation,
        partitions=shape.partitions,
        epoch=shape.epoch,
        retention=Retention(max_age=age, max_count=limits.max_count, max_bytes=limits.max_bytes),
        key_field=shape.key_field,
        idempotency_memory=shape.idempotency_memory_ms * _MILLISECOND,
        tags=tuple(shape.tags),
        metadata=shape.metadata,
        created_at=shape.created_at,
        partition_list=tuple(map(partition_of_shape, shape.partition_list or ())),
        now=shape.now,
    )


def partition_of_shape(shape: shapes.PartitionShape) -> PartitionInfo:
    return PartitionInfo(
        partition=shape.partition,
        log_start=shape.log_start,
        high_watermark=shape.high_watermark,
        bytes=shape.bytes,
        appended_at=shape.appended_at,
    )


def info_of_topic(topic: Topic, heads: Sequence[Head] = (), now: datetime | None = None) -> TopicInfo:
    settings = topic.settings
    return TopicInfo(
        name=topic.name,
        incarnation=topic.incarnation,
        partitions=topic.partitions,
        epoch=topic.epoch,
        retention=settings.retention,
        key_field=settings.key_field,
        idempotency_memory=settings.idempotency_memory,
        tags=settings.tags,
        metadata=settings.metadata,
        created_at=topic.created_at,
        partition_list=tuple(map(partition_of_head, heads)),
        now=now,
    )


def partition_of_head(head: Head) -> PartitionInfo:
    return PartitionInfo(
        partition=head.pid & (1 << PARTITION_BITS) - 1,
        log_start=head.log_start,
        high_watermark=head.next_offset,
        bytes=head.total_bytes,
        appended_at=head.appended_at if head.next_offset else None,
    )


def _retention_shape(retention: Retention) -> shapes.RetentionShape:
    age = None if retention.max_age is None else retention.max_age // _MILLISECOND
    return shapes.RetentionShape(max_age_ms=age, max_count=retention.max_count, max_bytes=retention.max_bytes)
