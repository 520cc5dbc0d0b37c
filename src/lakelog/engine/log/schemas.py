"""The schemas of topics: show, set, check and remove. Values are validated in `validators`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import msgspec
from msgspec import UNSET

from lakelog.engine.log.threads import INLINE_BYTES, Threads
from lakelog.engine.log.topics import Topics
from lakelog.engine.log.validators import compiled
from lakelog.errors import Conflict, InvalidRequest, SchemaIncompatible, SchemaNotFound
from lakelog.model.kinds import Compatibility
from lakelog.model.levels import FeatureLevel, check_level
from lakelog.model.schema import (
    CheckSchemaRequest,
    SchemaChange,
    SchemaCheck,
    SchemaQuery,
    SchemaRecord,
    SchemaSetting,
    SetSchemaRequest,
    TopicSchema,
    schema_text,
)
from lakelog.model.schema_comparison import differences
from lakelog.model.schema_nodes import fingerprint
from lakelog.model.topic import Scope, Topic
from lakelog.storage.store import Catalog

_TRIES = 5
_SHOWN_CHANGES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class _Proposal:
    """A schema to set, and how it compares with the newest version."""

    text: str
    check: SchemaCheck


class Schemas:
    """The schemas of the topics of all scopes; one per engine."""

    def __init__(self, catalog: Catalog, topics: Topics, threads: Threads) -> None:
        self._catalog = catalog
        self._topics = topics
        self._threads = threads

    async def prepare(self, schema: object) -> str:
        """Return a schema for a new topic as JSON. Raise an error if it cannot be set."""
        check_level(self._catalog.level, FeatureLevel.FOURTH, "Schemas of topics")
        text = schema_text(schema)
        # Compiling a large schema takes milliseconds.
        await self._threads.run(INLINE_BYTES + 1, compiled, text)
        return text

    async def show(self, scope: Scope, asked: SchemaQuery) -> TopicSchema:
        """Return a version of the schema of a topic, by default the newest."""
        return await self._shown(await self._topics.refresh(scope, asked.topic), asked.version)

    async def set(self, scope: Scope, asked: SetSchemaRequest) -> TopicSchema:
        """Set the schema of a topic, or the rule for its changes. An equal schema adds no version."""
        for _ in range(_TRIES):
            topic = await self._topics.refresh(scope, asked.topic)
            setting, text = await self._decided(topic, asked)
            if setting == topic.settings.schema:
                return await self._shown(topic, None)
            try:
                topic = await self._topics.write_schema(topic, setting, text)
            except Conflict:
                continue  # The topic was altered since it was read: decide again.
            return await self._shown(topic, None)
        raise Conflict(f"Topic '{asked.topic}' kept changing during the call; try again.", topic=asked.topic)

    async def check(self, scope: Scope, asked: CheckSchemaRequest) -> SchemaCheck:
        """Compare a schema with the newest version of a topic, and change nothing."""
        topic = await self._topics.refresh(scope, asked.topic)
        return (await self._proposal(topic, asked.schema, asked.compatibility)).check

    async def remove(self, scope: Scope, name: str) -> None:
        """Remove the schema of a topic. Its versions are kept, and a new schema continues their numbers."""
        for _ in range(_TRIES):
            topic = await self._topics.refresh(scope, name)
            if topic.settings.schema is None:
                _no_schema(topic)
            try:
                await self._topics.write_schema(topic, None, None)
                return
            except Conflict:
                continue
        raise Conflict(f"Topic '{name}' kept changing during the call; try again.", topic=name)

    async def _decided(self, topic: Topic, asked: SetSchemaRequest) -> tuple[SchemaSetting, str | None]:
        """Return the new setting of a topic, and the schema of a new version."""
        present = topic.settings.schema
        if asked.schema is UNSET:
            if present is None:
                _no_schema(topic)
            if asked.compatibility is None:
                raise InvalidRequest("Give a `schema`, a `compatibility`, or both.")
            return SchemaSetting(version=present.version, compatibility=asked.compatibility), None
        check_level(self._catalog.level, FeatureLevel.FOURTH, "Schemas of topics")
        found = await self._proposal(topic, asked.schema, asked.compatibility)
        check = found.check
        if not check.compatible:
            raise _incompatible(topic, check)
        if present is not None and not check.changed:
            return SchemaSetting(version=present.version, compatibility=check.compatibility), None
        versions = await self._catalog.schema_versions(topic.incarnation, limit=1)
        version = versions[-1].version + 1 if versions else 1
        return SchemaSetting(version=version, compatibility=check.compatibility), found.text

    async def _proposal(self, topic: Topic, schema: object, mode: Compatibility | None) -> _Proposal:
        text = await self.prepare(schema)
        present = topic.settings.schema
        if present is None:
            return _Proposal(
                text=text, check=SchemaCheck(compatible=True, compatibility=mode or Compatibility.BACKWARD)
            )
        mode = mode or present.compatibility
        old = await self._record(topic, present.version)
        changed, found = await self._threads.run(INLINE_BYTES + 1, _changes, old.text, text, mode)
        check = SchemaCheck(
            compatible=not found, compatibility=mode, version=present.version, changed=changed, changes=tuple(found)
        )
        return _Proposal(text=text, check=check)

    async def _shown(self, topic: Topic, version: int | None) -> TopicSchema:
        present = topic.settings.schema
        if present is None and version is None:
            _no_schema(topic)
        newest = version if present is None else version or present.version
        assert newest is not None
        record = await self._record(topic, newest)
        return TopicSchema(
            topic=topic.name,
            version=record.version,
            compatibility=Compatibility.BACKWARD if present is None else present.compatibility,
            schema=msgspec.json.decode(record.text),
            created_at=record.created_at,
            versions=tuple(await self._catalog.schema_versions(topic.incarnation)),
        )

    async def _record(self, topic: Topic, version: int) -> SchemaRecord:
        record = await self._catalog.schema_find(topic.incarnation, version)
        if record is None:
            raise SchemaNotFound(
                f"Topic '{topic.name}' has no version {version} of its schema.", topic=topic.name, version=version
            )
        return record


def _changes(old: str, new: str, mode: Compatibility) -> tuple[bool, list[SchemaChange]]:
    """Return whether two schemas differ, and the reasons why the change is refused."""
    before, after = msgspec.json.decode(old), msgspec.json.decode(new)
    if fingerprint(before) == fingerprint(after):
        return False, []
    found = differences(before, after, mode)
    return True, [
        SchemaChange(path=each.path, rule=each.rule, reason=each.reason, decided=each.is_decided)
        for each in found[:_SHOWN_CHANGES]
    ]


def _incompatible(topic: Topic, check: SchemaCheck) -> SchemaIncompatible:
    shown = "; ".join(str(each) for each in check.changes)
    return SchemaIncompatible(
        f"The schema is not {check.compatibility.value} compatible with version {check.version} of topic "
        f"'{topic.name}': {shown}. To set it nevertheless, use the compatibility `none`.",
        topic=topic.name,
        schema_version=check.version,
        compatibility=check.compatibility.value,
        field=check.changes[0].path,
        rule=check.changes[0].rule,
    )


def _no_schema(topic: Topic) -> NoReturn:
    raise SchemaNotFound(
        f"Topic '{topic.name}' has no schema. Set one with `lakelog topics schema set {topic.name} FILE`.",
        topic=topic.name,
    )
