"""The operations about groups and members, bound to the engine's verbs. The module decides nothing."""

from __future__ import annotations

from lakelog.engine.callers import Caller
from lakelog.engine.engine import Engine
from lakelog.engine.verbs import Verbs
from lakelog.model import progress, seek
from lakelog.model.dead_letters import DeadLetterRequest, DiscardRequest
from lakelog.model.group import AlterGroupRequest, GroupInfo
from lakelog.wire.operations import dead_letters, groups


def bind_groups(verbs: Verbs, engine: Engine) -> None:
    """Bind the operations that read groups and those that change them."""
    _bind_reads(verbs, engine)
    _bind_changes(verbs, engine)
    _bind_positions(verbs, engine)
    _bind_dead_letters(verbs, engine)
    verbs.bind(groups.JOIN, lambda caller, asked: engine.members.join(caller.scope, asked, caller.host))
    verbs.bind_scoped(groups.HEARTBEAT, engine.members.heartbeat)
    verbs.bind_scoped(groups.LEAVE, engine.members.leave)


def _bind_reads(verbs: Verbs, engine: Engine) -> None:
    async def listed(caller: Caller, asked: progress.GroupQuery) -> progress.GroupPage:
        found = await engine.groups.list(
            caller.scope,
            asked.after or "",
            asked.limit,
            contains=asked.contains,
            with_lags=asked.lags,
            explained=asked.explained,
        )
        return progress.GroupPage(groups=found, next=found[-1].name if len(found) == asked.limit else None)

    async def lag(caller: Caller, asked: progress.GroupTopicQuery) -> progress.GroupLag:
        found = await engine.groups.lag(caller.scope, asked.group, asked.topic)
        return progress.GroupLag(group_id=asked.group, lag=sum(each.lag for each in found), partitions=found)

    async def leases(caller: Caller, asked: progress.GroupTopicQuery) -> progress.LeaseList:
        found = await engine.groups.lag(caller.scope, asked.group, asked.topic)
        return progress.LeaseList(group_id=asked.group, leases=[lease for each in found for lease in each.leases])

    verbs.bind(groups.LIST_GROUPS, listed)
    verbs.bind(groups.DESCRIBE_GROUP, lambda caller, asked: engine.groups.describe(caller.scope, asked.group))
    verbs.bind(groups.LAG, lag)
    verbs.bind(groups.LEASES, leases)
    verbs.bind_scoped(groups.GROUP_HISTORY, engine.timeline.read)
    verbs.bind(
        groups.TOPIC_STATS,
        lambda caller, asked: engine.groups.stats(caller.scope, asked.topic, described=asked.described),
    )


def _bind_changes(verbs: Verbs, engine: Engine) -> None:
    async def alter(caller: Caller, asked: AlterGroupRequest) -> GroupInfo:
        return (await engine.groups.alter(caller.scope, asked)).info()

    async def pause(caller: Caller, asked: progress.PauseRequest) -> GroupInfo:
        return (await engine.groups.pause(caller.scope, asked.group, asked.topic)).info()

    async def resume(caller: Caller, asked: progress.PauseRequest) -> GroupInfo:
        return (await engine.groups.resume(caller.scope, asked.group, asked.topic)).info()

    async def pause_topic(caller: Caller, asked: progress.TopicGroupsRequest) -> progress.GroupList:
        found = await engine.groups.pause_topic(caller.scope, asked.topic)
        return progress.GroupList(groups=[group.info() for group in found])

    async def resume_topic(caller: Caller, asked: progress.TopicGroupsRequest) -> progress.GroupList:
        found = await engine.groups.resume_topic(caller.scope, asked.topic)
        return progress.GroupList(groups=[group.info() for group in found])

    verbs.bind(groups.ALTER_GROUP, alter)
    verbs.bind(groups.DELETE_GROUP, lambda caller, asked: engine.groups.delete(caller.scope, asked.group))
    verbs.bind(groups.PAUSE_GROUP, pause)
    verbs.bind(groups.RESUME_GROUP, resume)
    verbs.bind(groups.PAUSE_TOPIC, pause_topic)
    verbs.bind(groups.RESUME_TOPIC, resume_topic)


def _bind_positions(verbs: Verbs, engine: Engine) -> None:
    async def move(caller: Caller, asked: seek.SeekRequest) -> seek.SeekResult:
        moved = await engine.groups.seek(
            caller.scope, asked.group, asked.topic, asked.target, partition=asked.partition, dry_run=asked.dry_run
        )
        return seek.SeekResult(dry_run=asked.dry_run, partitions=moved)

    async def positions(caller: Caller, asked: seek.PositionsRequest) -> seek.GroupPositions:
        found = await engine.groups.positions(caller.scope, asked.group, asked.topic)
        return seek.GroupPositions(topic=asked.topic, positions=found)

    verbs.bind(groups.SEEK, move)
    verbs.bind(groups.POSITIONS, positions)
    verbs.bind(
        groups.SKIP,
        lambda caller, asked: engine.groups.skip(
            caller.scope, asked.group, asked.topic, asked.partition, asked.offset, dry_run=asked.dry_run
        ),
    )
    verbs.bind_scoped(groups.COMMIT, engine.groups.commit)


def _bind_dead_letters(verbs: Verbs, engine: Engine) -> None:
    async def delete(caller: Caller, asked: DeadLetterRequest) -> None:
        await dead.discard(caller.scope, DiscardRequest(group=asked.group, message_ids=(asked.message_id,)))

    dead = engine.dead_letters
    verbs.bind(dead_letters.LIST_DEAD_LETTERS, lambda caller, asked: dead.list(caller.scope, asked))
    verbs.bind_scoped(dead_letters.DEAD_LETTER_CLUSTERS, engine.clusters.list)
    verbs.bind(dead_letters.REDRIVE, lambda caller, asked: dead.redrive(caller.scope, asked))
    verbs.bind(dead_letters.DISCARD_DEAD_LETTERS, lambda caller, asked: dead.discard(caller.scope, asked))
    verbs.bind(dead_letters.PURGE_DEAD_LETTERS, lambda caller, asked: dead.purge(caller.scope, asked))
    verbs.bind(dead_letters.DESCRIBE_DEAD_LETTER, lambda caller, asked: dead.find(caller.scope, asked))
    verbs.bind(dead_letters.RETRY_DEAD_LETTER, lambda caller, asked: dead.retry(caller.scope, asked))
    verbs.bind(dead_letters.DELETE_DEAD_LETTER, delete)
