"""Describes leases as the head of their binary format: which messages, of which stored batches.

The head holds no messages. `lakelog.wire.leases` defines the format.
"""

from __future__ import annotations

from lakelog.engine.leasing.consuming import ConsumeResult, Leased, LeasedBatch
from lakelog.model.ranges import rises, to_ranges
from lakelog.model.times import EPOCH, MICROSECOND
from lakelog.wire.leases import LeaseHead, LeasesHead, PieceHead


def leases_head(result: ConsumeResult) -> LeasesHead:
    """Return the head for payloads that are whole stored batches."""
    heads = [lease_head(leased, [piece_head(stored) for stored in leased.pieces]) for leased in result.leases]
    return LeasesHead(incarnation=result.topic.incarnation, leases=heads, generation=result.generation)


def lease_head(leased: Leased, pieces: list[PieceHead]) -> LeaseHead:
    """Return the head of one lease."""
    offsets = leased.offsets
    return LeaseHead(
        token=leased.token,
        partition=leased.partition,
        expires_ms=leased.expires_ms,
        suspect=leased.suspect,
        order=None if rises(offsets) else to_ranges(offsets),
        deliveries=dict(leased.deliveries),
        failures=dict(leased.failures),
        pieces=pieces,
    )


def piece_head(stored: LeasedBatch, rows: bytes | None = None) -> PieceHead:
    """Return the head of one payload: the whole batch, or `rows` with the leased messages only."""
    batch = stored.batch
    return PieceHead(
        base=batch.base,
        count=batch.count,
        appended_us=(batch.appended_at - EPOCH) // MICROSECOND,
        offsets=to_ranges(stored.offsets),
        size=len(batch.payload if rows is None else rows),
        whole=rows is None,
    )
