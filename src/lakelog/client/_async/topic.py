"""The topic of a client, and the methods for its settings.

The modules `topic_*` have those for publishing, reading and groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

from msgspec import UNSET

from lakelog.client._async.publishing import AsyncTopicState
from lakelog.client._async.reading import AsyncTopicReading
from lakelog.client._async.topic_arrow import AsyncTopicArrow
from lakelog.client._async.topic_groups import AsyncTopicGroups
from lakelog.client._async.topic_publishing import AsyncTopicPublishing
from lakelog.client._async.topic_replay import AsyncTopicReplay
from lakelog.client._async.topic_scheduling import AsyncTopicScheduling
from lakelog.client._async.topic_schemas import AsyncTopicSchemas
from lakelog.client.publishing.codec import MessageBuilder
from lakelog.client.schemas import GivenSchema, check_mode, columns_schema, schema_of
from lakelog.model.arguments import check_text, check_texts
from lakelog.model.kinds import Compatibility
from lakelog.model.masks import check_masks
from lakelog.model.topic import (
    IDEMPOTENCY_MEMORY,
    Retention,
    TopicSettings,
    check_memory,
    check_partitions,
    check_tags,
)
from lakelog.model.topic_info import (
    AlterTopicRequest,
    CreateTopicRequest,
    Purged,
    RetentionLimits,
    TopicInfo,
    TopicRequest,
)
from lakelog.wire.operations import topics as operations

T = TypeVar("T")
_KEEP: Any = object()


class AsyncTopic(
    AsyncTopicPublishing[T],
    AsyncTopicScheduling,
    AsyncTopicReading[T],
    AsyncTopicArrow,
    AsyncTopicReplay[T],
    AsyncTopicGroups[T],
    AsyncTopicSchemas[T],
):
    """A topic, made by `log.topic(name)`. It contacts a server only when one of its methods needs one."""

    def __init__(self, state: AsyncTopicState, builder: MessageBuilder[T]) -> None:
        self._state = state
        self._builder = builder

    @property
    def name(self) -> str:
        """The name of the topic."""
        return self._state.name

    async def create(
        self,
        partitions: int = 1,
        *,
        key_field: str | None = None,
        max_age: timedelta | None = None,
        max_count: int | None = None,
        max_bytes: int | None = None,
        idempotency_memory: timedelta | None = None,
        tags: Sequence[str] = (),
        metadata: Mapping[str, str] | None = None,
        schema: GivenSchema | None = None,
        compatibility: str | None = None,
        columns: GivenSchema | None = None,
        masks: Sequence[str] = (),
        if_missing: bool = False,
    ) -> TopicInfo:
        """Create the topic. Return its description.

        Args:
            partitions: The number of partitions, from 1 to 10,000. Default: 1. `alter` can raise it later, not lower
                it.
            key_field: The field of JSON values that is the key of a message without one. Default: none.
            max_age: Messages older than this are removed; at least a millisecond. Default: none, messages stay.
            max_count: Messages to keep in each partition, 1 or more. Default: no limit.
            max_bytes: Stored bytes to keep in each partition, 1 or more. Default: no limit.
            idempotency_memory: How long idempotency keys are remembered; at least a minute. Default: 24 hours.
            tags: At most 64 texts of 1 to 120 characters, for display. Default: none.
            metadata: Text by name, at most 16 KiB in total, for display. Default: none.
            schema: A JSON Schema (draft 2020-12) that the values of messages must match: a dict, a `pathlib.Path` of a
                JSON file, or `"from-type"` for the schema of the topic's `type`. Default: none, every value is stored.
            compatibility: The rule for changes of the schema: `"backward"`, `"forward"`, `"full"` or `"none"`, as for
                `set_schema`. Default: `"backward"`.
            columns: The typed columns of the values, as for `alter`. Default: none.
            masks: The fields of messages that people see masked, as for `alter`. Default: none.
            if_missing: Return the description of a topic that exists already, and leave it unchanged. Default: False,
                which raises `TopicExists`.
        """
        settings = TopicSettings(
            retention=Retention(max_age=max_age, max_count=max_count, max_bytes=max_bytes),
            key_field=key_field,
            idempotency_memory=IDEMPOTENCY_MEMORY if idempotency_memory is None else idempotency_memory,
            tags=check_tags(tags),
            metadata={} if metadata is None else metadata,
            masks=check_masks(masks),
        )
        request = CreateTopicRequest(
            topic=self.name,
            partitions=check_partitions(partitions),
            retention=RetentionLimits.of(settings.retention),
            key_field=settings.key_field,
            idempotency_memory_ms=settings.idempotency_memory // timedelta(milliseconds=1),
            tags=list(settings.tags),
            metadata=dict(settings.metadata),
            schema=UNSET if schema is None else schema_of(schema, self._builder.codec.kind),
            compatibility=check_mode(compatibility) or Compatibility.BACKWARD,
            columns=UNSET if columns is None else columns_schema(columns, self._builder.codec.kind),
            masks=list(settings.masks) or UNSET,
            if_missing=if_missing,
        )
        info = await self._state.calls.call(operations.CREATE_TOPIC, request, is_repeatable=if_missing)
        self._state.remember(info)
        return info

    async def describe(self) -> TopicInfo:
        """Return the settings of the topic, and how far each partition reaches."""
        return await self._state.info(fresh=True)

    async def alter(
        self,
        *,
        partitions: int | None = None,
        key_field: str | None = _KEEP,
        max_age: timedelta | None = _KEEP,
        max_count: int | None = _KEEP,
        max_bytes: int | None = _KEEP,
        idempotency_memory: timedelta | None = None,
        tags: Sequence[str] | None = None,
        metadata: Mapping[str, str] | None = None,
        columns: GivenSchema | None = None,
        masks: Sequence[str] | None = None,
    ) -> TopicInfo:
        """Change settings of the topic. Return its new description. Omitted settings stay unchanged.

        Args:
            partitions: The new number of partitions, not lower than the current one. New messages of a key may then go
                to another partition than older ones.
            key_field: The field of JSON values that is the key of a message without one; None removes the setting.
            max_age: Messages older than this are removed; None removes the limit.
            max_count: Messages to keep in each partition; None removes the limit.
            max_bytes: Stored bytes to keep in each partition; None removes the limit.
            idempotency_memory: How long idempotency keys are remembered; at least a minute.
            tags: The new tags, which replace all current ones.
            metadata: The new metadata, which replaces all current metadata.
            columns: The typed columns of the values, by which Spark reads them with `typed=True`: a JSON Schema of an
                object as a dict, a `pathlib.Path` of a JSON file, or `"from-type"` for the topic's `type`. Columns only
                become wider: fields are added, `int` becomes `long`, and `float` becomes `double`.
            masks: The fields of messages in whose place the console and `lakelog mcp` show `•••`, such as `key`,
                `value.card.number` or `headers.authorization`; they replace all current ones. At most 100. Programs get
                messages unchanged.
        """
        limits = {"max_age": max_age, "max_count": max_count, "max_bytes": max_bytes}
        given: dict[str, Any] = {name: limit for name, limit in limits.items() if limit is not _KEEP}
        # Checked here, so that the error names the argument.
        if key_field is not None and key_field is not _KEEP:
            check_text("key_field", key_field)
        memory = None if idempotency_memory is None else check_memory(idempotency_memory)
        request = AlterTopicRequest(
            topic=self.name,
            partitions=UNSET if partitions is None else check_partitions(partitions),
            retention=RetentionLimits.of(replace((await self.describe()).retention, **given)) if given else UNSET,
            key_field=UNSET if key_field is _KEEP else key_field,
            idempotency_memory_ms=UNSET if memory is None else memory // timedelta(milliseconds=1),
            tags=UNSET if tags is None else list(check_tags(tags)),
            metadata=UNSET if metadata is None else dict(check_texts("metadata", metadata)),
            columns=UNSET if columns is None else columns_schema(columns, self._builder.codec.kind),
            masks=UNSET if masks is None else list(check_masks(masks)),
        )
        request.changed(TopicSettings())
        info = await self._state.calls.call(operations.ALTER_TOPIC, request)
        self._state.remember(info)
        return info

    async def delete(self) -> None:
        """Delete the topic with all its messages. A new topic with the same name starts empty, at offset 0."""
        await self._state.calls.call(operations.DELETE_TOPIC, TopicRequest(topic=self.name))
        self._state.remember(None)

    async def purge(self) -> Purged:
        """Remove all messages published so far. Return how many. New messages continue at the next offsets."""
        return await self._state.calls.call(operations.PURGE_TOPIC, TopicRequest(topic=self.name))

    def __repr__(self) -> str:
        kind = self._builder.codec.kind
        typed = "" if kind is None else f", type={getattr(kind, '__name__', kind)}"
        return f"AsyncTopic({self.name!r}{typed}, url={self._state.calls.place!r})"
