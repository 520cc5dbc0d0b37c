"""The schema of a topic: the JSON Schema that servers validate its values by."""

from __future__ import annotations

from typing import Generic, TypeVar

from msgspec import UNSET

from lakelog.client._async.publishing import AsyncTopicState
from lakelog.client.publishing.codec import MessageBuilder
from lakelog.client.schemas import GivenSchema, check_mode, schema_of
from lakelog.model.schema import CheckSchemaRequest, SchemaCheck, SchemaQuery, SetSchemaRequest, TopicSchema
from lakelog.model.topic_info import TopicRequest
from lakelog.wire.operations import topics as operations

T = TypeVar("T")


class AsyncTopicSchemas(Generic[T]):
    """The methods of `AsyncTopic` for its schema."""

    _state: AsyncTopicState
    _builder: MessageBuilder[T]

    async def schema(self, version: int | None = None) -> TopicSchema:
        """Return the schema of the topic. Raise `SchemaNotFound` if it has none.

        Args:
            version: The version to return, from 1. Default: the newest.
        """
        request = SchemaQuery(topic=self._state.name, version=version)
        return await self._state.calls.call(operations.SHOW_SCHEMA, request)

    async def set_schema(self, schema: GivenSchema | None = None, *, compatibility: str | None = None) -> TopicSchema:
        """Set the schema of the topic, and return it. From then on, servers refuse values that do not match it.

        A schema that equals the newest version adds no version. Messages that are stored already are not validated.

        Args:
            schema: A JSON Schema (draft 2020-12) as a dict; a `pathlib.Path` of a JSON file with one; or `"from-type"`
                for the schema of the topic's `type`. At most 64 KiB, with references only to itself. Default: None,
                only the compatibility changes.
            compatibility: The rule for changes, this one and all later ones: `"backward"` (the new schema accepts the
                values of the previous one), `"forward"` (the other way round), `"full"` (both) or `"none"`. A change
                that breaks the rule, or that cannot be compared, raises `SchemaIncompatible`. Default: the current
                rule; `"backward"` for the first schema.
        """
        request = SetSchemaRequest(
            topic=self._state.name,
            schema=UNSET if schema is None else schema_of(schema, self._builder.codec.kind),
            compatibility=check_mode(compatibility),
        )
        return await self._state.calls.call(operations.SET_SCHEMA, request)

    async def check_schema(self, schema: GivenSchema, *, compatibility: str | None = None) -> SchemaCheck:
        """Return whether `set_schema` would accept a schema, and the reasons if not. Nothing is changed.

        Args:
            schema: The schema, as for `set_schema`.
            compatibility: The rule to compare by, as for `set_schema`. Default: the current one of the topic.
        """
        request = CheckSchemaRequest(
            topic=self._state.name,
            schema=schema_of(schema, self._builder.codec.kind),
            compatibility=check_mode(compatibility),
        )
        return await self._state.calls.call(operations.CHECK_SCHEMA, request)

    async def remove_schema(self) -> None:
        """Remove the schema of the topic: values are no longer validated. Its versions stay readable by number.

        A schema that is set later continues their numbers, and is not compared with them.
        """
        await self._state.calls.call(operations.REMOVE_SCHEMA, TopicRequest(topic=self._state.name))
