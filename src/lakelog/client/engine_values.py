"""Between what the engine gives about groups and the client's values."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from lakelog.client import group_values as values
from lakelog.engine.groups.redrive import DeadLetter
from lakelog.engine.leasing import consuming
from lakelog.errors import LakelogError
from lakelog.model.group import DEFAULT_LEASE_MS, Group
from lakelog.wire.leases import LeaseHead, LeasesHead, PieceHead, to_ranges

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def consumed_of(found: consuming.Consumed) -> values.Consumed:
    heads = [_lease_head(leased) for leased in found.leases]
    head = LeasesHead(incarnation=found.topic.incarnation, leases=heads, generation=found.generation)
    return values.Consumed(
        head=head,
        payloads=[piece.batch.payload for leased in found.leases for piece in leased.pieces],
        answered=[answered_of(each) for each in found.answered or ()],
    )


def _lease_head(leased: consuming.Leased) -> LeaseHead:
    rises = all(first < second for first, second in pairwise(leased.offsets))
    return LeaseHead(
        token=leased.token,
        partition=leased.partition,
        expires_ms=leased.expires_ms,
        suspect=leased.suspect,
        order=None if rises else to_ranges(leased.offsets),
        deliveries=dict(leased.deliveries),
        failures=dict(leased.failures),
        pieces=[
            PieceHead(
                base=piece.batch.base,
                count=piece.batch.count,
                appended_us=round((piece.batch.appended_at - _EPOCH).total_seconds() * 1_000_000),
                offsets=to_ranges(piece.offsets),
                size=len(piece.batch.payload),
            )
            for piece in leased.pieces
        ],
    )


def said_of(answer: values.Answer) -> consuming.Answer:
    return consuming.Answer(
        verb=consuming.Verb(answer.verb),
        partition=answer.partition,
        token=answer.token,
        ranges=[(first, last + 1) for first, last in to_ranges(answer.offsets)],
        delay_ms=answer.delay_ms,
        reason=answer.reason,
        traceback=answer.traceback,
        alone=answer.alone,
        lease_ms=answer.lease_ms or DEFAULT_LEASE_MS,
    )


def answered_of(found: consuming.Answered | LakelogError) -> values.Answered | LakelogError:
    if isinstance(found, LakelogError):
        return found
    return values.Answered(
        expires_ms=found.expires_ms,
        dead=tuple(found.dead),
        retry_in_ms=found.retry_in_ms,
        max_attempts=found.max_attempts,
    )


def membership_of(found: consuming.Membership) -> values.Membership:
    return values.Membership(
        member_id=found.member_id,
        generation=found.generation,
        assigned=found.assigned,
        revoked=found.revoked,
        heartbeat_ms=found.heartbeat_ms,
        skipped_at_start=found.skipped_at_start,
    )


def group_of(group: Group) -> values.GroupInfo:
    return values.GroupInfo(**_group(group))


def summary_of(found: consuming.GroupSummary) -> values.GroupSummary:
    return values.GroupSummary(
        **_group(found.group),
        status=found.status,
        lag=found.lag,
        oldest_at=time_of(found.oldest_ms),
        member_count=found.members,
        dead_letters=found.dead_letters,
    )


def _group(group: Group) -> dict[str, Any]:
    return {
        "name": group.name,
        "kind": group.kind,
        "settings": group.settings,
        "version": group.version,
        "paused": group.paused,
        "created_at": group.created_at,
    }


def description_of(info: consuming.GroupInfo) -> values.GroupDescription:
    return values.GroupDescription(
        group=group_of(info.group),
        status=info.status,
        state=info.members.state,
        generation=info.members.generation,
        members=tuple(
            values.MemberInfo(
                member_id=member.member_id,
                client_host=member.client_host,
                topics=tuple(member.topics),
                assigned=member.assigned,
                session_ms=member.session_ms,
                seen_at=time_of(member.seen_ms),
            )
            for member in info.members.members
        ),
        idle=tuple(info.members.idle),
        progress=tuple(progress_of(each) for each in info.progress),
        dead_letters=info.dead_letters,
        rebalances=info.members.rebalances,
    )


_SAME = (
    *(
        "topic",
        "partition",
        "committed",
        "frontier",
        "log_start",
        "high_watermark",
        "epoch",
        "lag",
        "leased",
        "waiting",
    ),
    *("skipped", "acked", "dead", "discarded", "filtered", "expired", "cut", "status", "reason"),
)


def progress_of(found: consuming.PartitionProgress) -> values.PartitionProgress:
    return values.PartitionProgress(
        **{name: getattr(found, name) for name in _SAME},
        oldest_at=time_of(found.oldest_ms),
        next_due_at=time_of(found.next_due_ms),
        leases=tuple(
            values.LeaseInfo(
                token=lease.token,
                owner=lease.owner,
                offsets=tuple((first, end - 1) for first, end in lease.offsets),
                granted_at=time_of(lease.granted_ms),
                expires_at=time_of(lease.expires_ms),
                suspect=lease.suspect,
            )
            for lease in found.leases
        ),
    )


def letter_of(letter: DeadLetter) -> values.DeadLetter:
    message = letter.message
    return values.DeadLetter(
        id=letter.id,
        topic=letter.topic,
        partition=letter.partition,
        offset=letter.offset,
        error=letter.error,
        deliveries=letter.deliveries,
        failures=letter.failures,
        at=time_of(letter.at_ms),
        owner=letter.owner,
        state=letter.state.value,
        key=message.key if message else None,
        raw=message.value if message else None,
        headers=(message.headers if message else None) or {},
        content_type=message.content_type if message else None,
        correlation_id=message.correlation_id if message else None,
        created_at=message.created_at if message else None,
        epoch=letter.epoch,
        lineage=letter.lineage,
        redriven_to=letter.redriven_to,
        traceback=letter.traceback,
    )


def time_of(ms: int | None) -> datetime | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)
