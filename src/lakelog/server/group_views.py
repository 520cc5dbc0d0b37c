"""Groups as JSON shows them: the engine's values to the shapes of answers."""

from __future__ import annotations

from collections.abc import Iterable

from lakelog.engine.groups.progress import TopicStats
from lakelog.engine.leasing.consuming import GroupInfo, GroupSummary, MemberInfo, PartitionProgress
from lakelog.model.group import Group
from lakelog.server.bodies import time_of, time_or_none
from lakelog.server.members import plain
from lakelog.server.wishes import settings_shape
from lakelog.wire import group_shapes as shapes


def group_shape(group: Group) -> shapes.GroupShape:
    return shapes.GroupShape(
        group_id=group.name,
        kind=group.kind.value,
        settings=settings_shape(group.settings),
        version=group.version,
        paused=sorted(group.paused),
        created_at=group.created_at,
    )


def summary_shape(summary: GroupSummary) -> shapes.GroupSummary:
    group = summary.group
    return shapes.GroupSummary(
        group_id=group.name,
        kind=group.kind.value,
        settings=settings_shape(group.settings),
        version=group.version,
        paused=sorted(group.paused),
        created_at=group.created_at,
        status=summary.status,
        lag=summary.lag,
        oldest_at=time_or_none(summary.oldest_ms),
        member_count=summary.members,
        dead_letters=summary.dead_letters,
    )


def described(info: GroupInfo) -> shapes.GroupDescribed:
    group, members = info.group, info.members
    return shapes.GroupDescribed(
        group_id=group.name,
        kind=group.kind.value,
        settings=settings_shape(group.settings),
        version=group.version,
        paused=sorted(group.paused),
        created_at=group.created_at,
        status=info.status,
        state=members.state,
        generation=members.generation,
        members=[_member(each) for each in members.members],
        idle=list(members.idle),
        rebalances=members.rebalances,
        last_rebalance_at=time_or_none(members.last_rebalance_ms),
        rebalancing_ms=members.rebalancing_ms,
        progress=[progress_shape(each) for each in info.progress],
        dead_letters=info.dead_letters,
    )


def progress_shape(progress: PartitionProgress) -> shapes.ProgressShape:
    return shapes.ProgressShape(
        topic=progress.topic,
        partition=progress.partition,
        committed=progress.committed,
        frontier=progress.frontier,
        log_start=progress.log_start,
        high_watermark=progress.high_watermark,
        epoch=progress.epoch,
        lag=progress.lag,
        leased=progress.leased,
        waiting=progress.waiting,
        skipped=progress.skipped,
        acked=progress.acked,
        dead=progress.dead,
        discarded=progress.discarded,
        filtered=progress.filtered,
        expired=progress.expired,
        cut=progress.cut,
        status=progress.status,
        oldest_at=time_or_none(progress.oldest_ms),
        next_due_at=time_or_none(progress.next_due_ms),
        reason=progress.reason,
    )


def held_shapes(progress: Iterable[PartitionProgress]) -> list[shapes.HeldShape]:
    return [
        shapes.HeldShape(
            topic=each.topic,
            partition=each.partition,
            token=lease.token,
            owner=lease.owner,
            offsets=[[first, end - 1] for first, end in lease.offsets],
            granted_at=time_of(lease.granted_ms),
            expires_at=time_of(lease.expires_ms),
            suspect=lease.suspect,
        )
        for each in progress
        for lease in each.leases
    ]


def stats_shape(stats: TopicStats) -> shapes.TopicStats:
    groups = [
        shapes.GroupStats(
            group_id=each.group,
            kind=each.kind.value,
            lag=each.lag,
            pending=each.pending,
            dead_letters=each.dead_letters,
            committed=dict(each.committed),
        )
        for each in stats.groups
    ]
    return shapes.TopicStats(
        topic=stats.topic,
        messages=stats.messages,
        partitions=stats.partitions,
        oldest_at=time_or_none(stats.oldest_ms),
        newest_at=time_or_none(stats.newest_ms),
        dead_letters=stats.dead_letters,
        groups=groups,
    )


def _member(member: MemberInfo) -> shapes.MemberShape:
    return shapes.MemberShape(
        member_id=member.member_id,
        client_host=member.client_host,
        assigned_partitions=plain(member.assigned),
        topics=list(member.topics),
        session_timeout_ms=member.session_ms,
        seen_at=time_of(member.seen_ms),
    )
