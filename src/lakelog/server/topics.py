"""The routes about topics: create, list, describe, alter, delete, purge. What these mean is for the engine to say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import UNSET

from lakelog.engine import Described, Engine
from lakelog.errors import InvalidRequest
from lakelog.model.names import check_name
from lakelog.model.topic import Retention, Topic, TopicSettings
from lakelog.server.audit import given
from lakelog.server.bodies import answer_json, decoded_body
from lakelog.server.calls import Answer, Call
from lakelog.server.query import integer, known_query
from lakelog.wire import shapes

MAX_DURATION_MS = 100 * 365 * 86_400_000
MAX_FIELD_LENGTH = 1024

_CREATE = msgspec.json.Decoder(shapes.TopicCreate)
_ALTER = msgspec.json.Decoder(shapes.TopicAlter)
_MILLISECOND = timedelta(milliseconds=1)


class TopicRoutes:
    """Handles calls about topics."""

    def __init__(self, engine: Engine) -> None:
        self._topics = engine.topics

    async def create(self, call: Call) -> Answer:
        shape: shapes.TopicCreate = await decoded_body(call, _CREATE)
        call.parameters["topic"] = shape.name
        call.note(partitions=str(shape.partitions), **given(shape, "name", "partitions"))
        settings = TopicSettings(
            retention=_retention(shape.retention),
            key_field=_text("key_field", shape.key_field),
            idempotency_memory=_duration("idempotency_memory_ms", shape.idempotency_memory_ms),
            tags=_tags(shape.tags),
            metadata=_metadata(shape.metadata),
        )
        topic = await self._topics.create(
            call.scope, shape.name, shape.partitions, settings, if_missing=shape.if_missing
        )
        return answer_json(_shape(topic), status=201)

    async def list(self, call: Call) -> Answer:
        query = known_query(call, {"after", "limit"})
        limit = integer(query, "limit", 1000, 1, 1000)
        after = check_name("topic", query["after"]) if "after" in query else ""
        topics = await self._topics.list(call.scope, after=after, limit=limit)
        following = topics[-1].name if len(topics) == limit else None
        return answer_json(shapes.TopicList(topics=[_shape(topic) for topic in topics], next=following))

    async def describe(self, call: Call) -> Answer:
        known_query(call, frozenset())
        described = await self._topics.describe(call.scope, call.parameters["topic"])
        return answer_json(_shape(described.topic, _partitions(described), described.now))

    async def alter(self, call: Call) -> Answer:
        shape: shapes.TopicAlter = await decoded_body(call, _ALTER)
        call.note(**given(shape))
        changes = _changes(shape)
        partitions = None if shape.partitions is UNSET else shape.partitions
        topic = await self._topics.alter(
            call.scope,
            call.parameters["topic"],
            partitions=partitions,
            change=lambda settings: replace(settings, **changes),
        )
        return answer_json(_shape(topic))

    async def delete(self, call: Call) -> Answer:
        await self._topics.delete(call.scope, call.parameters["topic"])
        return Answer(204, b"")

    async def purge(self, call: Call) -> Answer:
        purge = await self._topics.purge(call.scope, call.parameters["topic"])
        call.note(messages=str(purge.removed))
        return answer_json(shapes.Purged(removed=purge.removed, partitions=_partitions(purge.described)))


def _changes(shape: shapes.TopicAlter) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if shape.retention is not UNSET:
        changes["retention"] = _retention(shape.retention)
    if shape.key_field is not UNSET:
        changes["key_field"] = _text("key_field", shape.key_field)
    if shape.idempotency_memory_ms is not UNSET:
        changes["idempotency_memory"] = _duration("idempotency_memory_ms", shape.idempotency_memory_ms)
    if shape.tags is not UNSET:
        changes["tags"] = _tags(shape.tags)
    if shape.metadata is not UNSET:
        changes["metadata"] = _metadata(shape.metadata)
    return changes


def _retention(shape: shapes.RetentionShape) -> Retention:
    max_age = None if shape.max_age_ms is None else _duration("max_age_ms", shape.max_age_ms)
    return Retention(max_age=max_age, max_count=shape.max_count, max_bytes=shape.max_bytes)


def _duration(name: str, ms: int) -> timedelta:
    if ms > MAX_DURATION_MS:
        raise InvalidRequest(f"`{name}` is at most {MAX_DURATION_MS} (100 years).")
    return timedelta(milliseconds=ms)


def _text(name: str, text: str | None) -> str | None:
    # PostgreSQL cannot store the character 0 in a text.
    if text is not None and ("\0" in text or len(text) > MAX_FIELD_LENGTH):
        raise InvalidRequest(f"`{name}` has the character 0, or more than {MAX_FIELD_LENGTH} characters.")
    return text


def _tags(tags: Sequence[str]) -> tuple[str, ...]:
    for tag in tags:
        _text("tags", tag)
    return tuple(tags)


def _metadata(metadata: Mapping[str, str]) -> Mapping[str, str]:
    if any("\0" in name or "\0" in text for name, text in metadata.items()):
        raise InvalidRequest("`metadata` has the character 0, which cannot be stored.")
    return metadata


def _shape(
    topic: Topic, partitions: Sequence[shapes.PartitionShape] | None = None, now: datetime | None = None
) -> shapes.TopicShape:
    settings = topic.settings
    retention = settings.retention
    return shapes.TopicShape(
        name=topic.name,
        incarnation=topic.incarnation,
        partitions=topic.partitions,
        epoch=topic.epoch,
        retention=shapes.RetentionShape(
            max_age_ms=None if retention.max_age is None else retention.max_age // _MILLISECOND,
            max_count=retention.max_count,
            max_bytes=retention.max_bytes,
        ),
        key_field=settings.key_field,
        idempotency_memory_ms=settings.idempotency_memory // _MILLISECOND,
        tags=list(settings.tags),
        metadata=dict(settings.metadata),
        created_at=topic.created_at,
        partition_list=None if partitions is None else list(partitions),
        now=now,
    )


def _partitions(described: Described) -> list[shapes.PartitionShape]:
    first = described.topic.pid(0)
    return [
        shapes.PartitionShape(
            partition=head.pid - first,
            log_start=head.log_start,
            high_watermark=head.next_offset,
            bytes=head.total_bytes,
            appended_at=head.appended_at,
        )
        for head in described.heads
    ]
