"""The operations of the table, bound to the engine's verbs. The server and the embedded client call them.

Each function takes the caller and the request of its operation, and returns the reply. The module decides nothing.
"""

from __future__ import annotations

from msgspec import UNSET

from lakelog.engine.callers import Caller as Caller
from lakelog.engine.engine import Engine
from lakelog.engine.group_operations import bind_groups
from lakelog.engine.log.topics import partition_infos, topic_info
from lakelog.engine.verbs import Verbs as Verbs
from lakelog.model.inventory import Inventory, InventoryRequest
from lakelog.model.levels import FeatureLevel, check_level
from lakelog.model.topic_info import (
    AlterTopicRequest,
    CreateTopicRequest,
    Purged,
    TopicInfo,
    TopicPage,
    TopicQuery,
    TopicRequest,
)
from lakelog.wire.operations import (
    audit,
    iceberg,
    inventory,
    lake,
    marks,
    outbox,
    pipelines,
    scheduled,
    tokens,
    topics,
    writes,
)


def bind(engine: Engine) -> Verbs:
    """Return all operations of the table that have a request, bound to this engine."""
    verbs = Verbs(engine.audit)
    _bind_topics(verbs, engine)
    bind_groups(verbs, engine)
    _bind_lake(verbs, engine)
    _bind_pipelines(verbs, engine)
    _bind_outbox(verbs, engine)
    _bind_tokens(verbs, engine)
    verbs.bind_scoped(audit.LIST_AUDIT, engine.audit.list)
    verbs.bind(marks.CREATE_MARK, engine.marks.create)
    verbs.bind_scoped(marks.LIST_MARKS, engine.marks.list)
    return verbs


def _check_level(engine: Engine, asked: CreateTopicRequest | AlterTopicRequest) -> None:
    if asked.columns is not UNSET:
        check_level(engine.catalog.level, FeatureLevel.FOURTH, "Columns of topics")
    if asked.masks:
        check_level(engine.catalog.level, FeatureLevel.FOURTH, "Masks of topics")


def _bind_topics(verbs: Verbs, engine: Engine) -> None:
    async def create(caller: Caller, asked: CreateTopicRequest) -> TopicInfo:
        schema = None if asked.schema is UNSET else await engine.schemas.prepare(asked.schema)
        _check_level(engine, asked)
        topic = await engine.topics.create(
            caller.scope, asked.topic, asked.partitions, asked.settings, schema=schema, if_missing=asked.if_missing
        )
        return topic_info(topic)

    async def page(caller: Caller, asked: TopicQuery) -> TopicPage:
        if asked.group is None:
            found = await engine.topics.list(caller.scope, after=asked.after or "", limit=asked.limit)
        else:
            found = await engine.groups.topics(caller.scope, asked.group, after=asked.after or "", limit=asked.limit)
        following = found[-1].name if len(found) == asked.limit else None
        return TopicPage(topics=[topic_info(topic) for topic in found], next=following)

    async def describe(caller: Caller, asked: TopicRequest) -> TopicInfo:
        found = await engine.topics.describe(caller.scope, asked.topic)
        return topic_info(found.topic, found.heads, found.now)

    async def alter(caller: Caller, asked: AlterTopicRequest) -> TopicInfo:
        partitions = None if asked.partitions is UNSET else asked.partitions
        _check_level(engine, asked)
        return topic_info(
            await engine.topics.alter(caller.scope, asked.topic, partitions=partitions, change=asked.changed)
        )

    async def names(caller: Caller, asked: InventoryRequest) -> Inventory:
        return await engine.catalog.inventory_read(caller.scope)

    async def purge(caller: Caller, asked: TopicRequest) -> Purged:
        found = await engine.topics.purge(caller.scope, asked.topic)
        return Purged(removed=found.removed, partitions=partition_infos(found.described.heads))

    verbs.bind(topics.CREATE_TOPIC, create)
    verbs.bind(topics.LIST_TOPICS, page)
    verbs.bind(inventory.INVENTORY, names)
    verbs.bind(topics.DESCRIBE_TOPIC, describe)
    verbs.bind(topics.ALTER_TOPIC, alter)
    verbs.bind(topics.DELETE_TOPIC, lambda caller, asked: engine.topics.delete(caller.scope, asked.topic))
    verbs.bind(topics.PURGE_TOPIC, purge)
    verbs.bind_scoped(scheduled.LIST_SCHEDULED, engine.scheduler.list)
    verbs.bind_scoped(scheduled.CANCEL_SCHEDULED, engine.scheduler.cancel)
    verbs.bind_scoped(topics.SHOW_SCHEMA, engine.schemas.show)
    verbs.bind_scoped(topics.SET_SCHEMA, engine.schemas.set)
    verbs.bind_scoped(topics.CHECK_SCHEMA, engine.schemas.check)
    verbs.bind(topics.REMOVE_SCHEMA, lambda caller, asked: engine.schemas.remove(caller.scope, asked.topic))


def _bind_outbox(verbs: Verbs, engine: Engine) -> None:
    verbs.bind_scoped(outbox.LIST_REJECTED, engine.rejected.list)
    verbs.bind_scoped(outbox.RETRY_REJECTED, engine.rejected.retry)
    verbs.bind_scoped(outbox.DISCARD_REJECTED, engine.rejected.discard)
    verbs.bind_scoped(outbox.FIND_MESSAGE, engine.message_positions.find)
    verbs.bind_scoped(outbox.MESSAGE_STORY, engine.stories.tell)


def _bind_tokens(verbs: Verbs, engine: Engine) -> None:
    verbs.bind(tokens.CREATE_TOKEN, engine.tokens.create)
    verbs.bind(tokens.LIST_TOKENS, engine.tokens.list)
    verbs.bind(tokens.REVOKE_TOKEN, engine.tokens.revoke)


def _bind_lake(verbs: Verbs, engine: Engine) -> None:
    verbs.bind_scoped(lake.PLAN, engine.lake.plan)
    verbs.bind_scoped(lake.WATERMARKS, engine.lake.watermarks)
    verbs.bind_scoped(lake.TIERABLE, engine.lake.tierable)
    verbs.bind_scoped(lake.REGISTER_SEGMENTS, engine.lake.register)
    verbs.bind_scoped(lake.VERIFIED_SEGMENTS, engine.lake.verified)
    verbs.bind_scoped(lake.UNREGISTER_SEGMENTS, engine.lake.unregister)
    verbs.bind_scoped(lake.REPLACE_SEGMENTS, engine.lake.replace)
    verbs.bind_scoped(lake.UNVERIFIED_SEGMENTS, engine.lake.unverified)
    verbs.bind_scoped(lake.LOAD, engine.loads.load)
    verbs.bind_scoped(lake.FIND_LOAD, engine.loads.find)
    verbs.bind_scoped(lake.FIND_ORPHANS, engine.lake.find_orphans)
    verbs.bind_scoped(lake.SWEPT, engine.lake.swept)
    verbs.bind_scoped(iceberg.ICEBERG_CHANGES, engine.iceberg.changes)
    verbs.bind_scoped(iceberg.COMMIT_ICEBERG, engine.iceberg.commit)
    verbs.bind(writes.DECIDE, lambda caller, asked: engine.writes.decide(caller.scope, asked.topic, asked))


def _bind_pipelines(verbs: Verbs, engine: Engine) -> None:
    verbs.bind_scoped(pipelines.BEGIN_RUN, engine.pipelines.begin)
    verbs.bind_scoped(pipelines.REPORT_RUN, engine.pipelines.report)
    verbs.bind_scoped(pipelines.END_RUN, engine.pipelines.end)
    verbs.bind_scoped(pipelines.LIST_RUNS, engine.pipelines.list)
