"""The operations of the table, bound to the engine's verbs. The server and the embedded client call these.

Each function takes the caller and the request of its operation, and returns the reply. It decides nothing.
"""

from __future__ import annotations

from datetime import timedelta

from msgspec import UNSET

from lakelog.engine.callers import Caller as Caller
from lakelog.engine.callers import Verbs as Verbs
from lakelog.engine.engine import Engine
from lakelog.engine.group_operations import bind_groups
from lakelog.engine.log.topic_info import partition_infos, topic_info
from lakelog.model import lake as model_lake
from lakelog.model import pipeline as model_pipeline
from lakelog.model.topic_info import (
    AlterTopicRequest,
    CreateTopicRequest,
    Purged,
    TopicInfo,
    TopicPage,
    TopicQuery,
    TopicRequest,
)
from lakelog.wire.operations import lake, pipelines, topics, writes


def bind(engine: Engine) -> Verbs:
    """Return all operations of the table that have a request, bound to this engine."""
    verbs = Verbs()
    _bind_topics(verbs, engine)
    bind_groups(verbs, engine)
    _bind_lake(verbs, engine)
    _bind_segments(verbs, engine)
    _bind_pipelines(verbs, engine)
    return verbs


def _bind_topics(verbs: Verbs, engine: Engine) -> None:
    async def create(caller: Caller, asked: CreateTopicRequest) -> TopicInfo:
        topic = await engine.topics.create(
            caller.scope, asked.topic, asked.partitions, asked.settings, if_missing=asked.if_missing
        )
        return topic_info(topic)

    async def page(caller: Caller, asked: TopicQuery) -> TopicPage:
        found = await engine.topics.list(caller.scope, after=asked.after or "", limit=asked.limit)
        following = found[-1].name if len(found) == asked.limit else None
        return TopicPage(topics=[topic_info(topic) for topic in found], next=following)

    async def describe(caller: Caller, asked: TopicRequest) -> TopicInfo:
        found = await engine.topics.describe(caller.scope, asked.topic)
        return topic_info(found.topic, found.heads, found.now)

    async def alter(caller: Caller, asked: AlterTopicRequest) -> TopicInfo:
        partitions = None if asked.partitions is UNSET else asked.partitions
        return topic_info(
            await engine.topics.alter(caller.scope, asked.topic, partitions=partitions, change=asked.changed)
        )

    async def purge(caller: Caller, asked: TopicRequest) -> Purged:
        found = await engine.topics.purge(caller.scope, asked.topic)
        return Purged(removed=found.removed, partitions=partition_infos(found.described.heads))

    verbs.bind(topics.CREATE_TOPIC, create)
    verbs.bind(topics.LIST_TOPICS, page)
    verbs.bind(topics.DESCRIBE_TOPIC, describe)
    verbs.bind(topics.ALTER_TOPIC, alter)
    verbs.bind(topics.DELETE_TOPIC, lambda caller, asked: engine.topics.delete(caller.scope, asked.topic))
    verbs.bind(topics.PURGE_TOPIC, purge)


def _bind_lake(verbs: Verbs, engine: Engine) -> None:
    verbs.bind(lake.PLAN, lambda caller, asked: engine.lake.plan(caller.scope, asked.topic, asked))
    verbs.bind(
        lake.WATERMARKS,
        lambda caller, asked: engine.lake.watermarks(caller.scope, asked.topic, asked.beyond, asked.wait_ms / 1000),
    )
    verbs.bind(writes.DECIDE, lambda caller, asked: engine.writes.decide(caller.scope, asked.topic, asked))


def _bind_segments(verbs: Verbs, engine: Engine) -> None:
    async def tierable(caller: Caller, asked: model_lake.TierableRequest) -> model_lake.Tierable:
        return model_lake.Tierable(ranges=await engine.lake.tierable(caller.scope, asked.topic, asked))

    async def register(caller: Caller, asked: model_lake.SegmentsRequest) -> model_lake.Registrations:
        found = await engine.lake.register(caller.scope, asked.topic, asked.segments)
        return model_lake.Registrations(results=found)

    async def verified(caller: Caller, asked: model_lake.SegmentsRequest) -> model_lake.SegmentResults:
        found = await engine.lake.verified(caller.scope, asked.topic, asked.segments)
        return model_lake.SegmentResults(results=found)

    async def unregister(caller: Caller, asked: model_lake.SegmentsRequest) -> model_lake.SegmentResults:
        found = await engine.lake.unregister(caller.scope, asked.topic, asked.segments)
        return model_lake.SegmentResults(results=found)

    async def unverified(caller: Caller, asked: model_lake.UnverifiedRequest) -> model_lake.Segments:
        return model_lake.Segments(segments=await engine.lake.unverified(caller.scope, asked.topic))

    async def find_orphans(caller: Caller, asked: model_lake.FindOrphansRequest) -> model_lake.Orphans:
        found = await engine.lake.look(caller.scope, asked.paths, timedelta(milliseconds=asked.min_age_ms))
        return model_lake.Orphans(paths=[path for path in asked.paths if path in found])

    verbs.bind(lake.TIERABLE, tierable)
    verbs.bind(lake.REGISTER_SEGMENTS, register)
    verbs.bind(lake.VERIFIED_SEGMENTS, verified)
    verbs.bind(lake.UNREGISTER_SEGMENTS, unregister)
    verbs.bind(lake.UNVERIFIED_SEGMENTS, unverified)
    verbs.bind(lake.FIND_ORPHANS, find_orphans)
    verbs.bind(lake.SWEPT, lambda caller, asked: engine.lake.swept(caller.scope, asked.paths))


def _bind_pipelines(verbs: Verbs, engine: Engine) -> None:
    async def end(caller: Caller, asked: model_pipeline.RunEnd) -> model_pipeline.PipelineRun:
        state = model_pipeline.RunState(asked.state)
        return await engine.pipelines.end(caller.scope, asked.run_id, state, asked.progress, asked.detail)

    async def runs(caller: Caller, asked: model_pipeline.RunQuery) -> model_pipeline.Runs:
        found = await engine.pipelines.list(caller.scope, pipeline=asked.pipeline, topic=asked.topic, limit=asked.limit)
        return model_pipeline.Runs(runs=found)

    verbs.bind(pipelines.BEGIN_RUN, lambda caller, asked: engine.pipelines.begin(caller.scope, asked))
    verbs.bind(
        pipelines.REPORT_RUN, lambda caller, asked: engine.pipelines.report(caller.scope, asked.run_id, asked.progress)
    )
    verbs.bind(pipelines.END_RUN, end)
    verbs.bind(pipelines.LIST_RUNS, runs)
