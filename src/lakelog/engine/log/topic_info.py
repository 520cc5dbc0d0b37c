"""The descriptions of topics that callers receive, from the catalog's record and the heads of the partitions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from lakelog.model.message import partition_of_id
from lakelog.model.topic import Topic
from lakelog.model.topic_info import PartitionInfo, RetentionLimits, TopicInfo
from lakelog.storage.store import Head


def topic_info(topic: Topic, heads: Sequence[Head] | None = None, now: datetime | None = None) -> TopicInfo:
    """Return the description of a topic, with its partitions if their heads are given."""
    settings = topic.settings
    return TopicInfo(
        name=topic.name,
        incarnation=topic.incarnation,
        partitions=topic.partitions,
        epoch=topic.epoch,
        limits=RetentionLimits.of(settings.retention),
        key_field=settings.key_field,
        idempotency_memory_ms=settings.idempotency_memory // timedelta(milliseconds=1),
        tags=settings.tags,
        metadata=settings.metadata,
        created_at=topic.created_at,
        described=None if heads is None else partition_infos(heads),
        now=now,
    )


def partition_infos(heads: Sequence[Head]) -> tuple[PartitionInfo, ...]:
    """Return the ends of partitions. The head of an empty log has the time of its creation, which is not shown."""
    return tuple(
        PartitionInfo(
            partition=partition_of_id(head.pid),
            log_start=head.log_start,
            high_watermark=head.next_offset,
            bytes=head.total_bytes,
            appended_at=head.appended_at if head.next_offset else None,
        )
        for head in heads
    )
