"""Between what the engine gives about groups and the client's values."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

from lakelog.client import group_values as values
from lakelog.engine.groups.redrive import DeadLetter
from lakelog.engine.leasing import consuming
from lakelog.model.ranges import to_ranges
from lakelog.model.times import to_time
from lakelog.wire.leases import LeaseHead, LeasesHead, PieceHead

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def consumed_of(found: consuming.ConsumeResult) -> values.Consumed:
    heads = [_lease_head(leased) for leased in found.leases]
    head = LeasesHead(incarnation=found.topic.incarnation, leases=heads, generation=found.generation)
    return values.Consumed(
        head=head,
        payloads=[piece.batch.payload for leased in found.leases for piece in leased.pieces],
        answered=found.answered or (),
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
        at=to_time(letter.at_ms),
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
