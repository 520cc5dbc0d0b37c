"""Encodes leases in three forms: JSON, an Arrow stream, and stored payloads after a head. It leases nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec
import pyarrow as pa

from lakelog.batches import FETCH, encode, rows, with_positions
from lakelog.engine.leasing.consuming import ConsumeResult, Leased, LeasedBatch
from lakelog.engine.leasing.lease_heads import lease_head, piece_head
from lakelog.model.message import message_id
from lakelog.model.times import to_time
from lakelog.server.large_values import LargeValues
from lakelog.server.messages import COLUMNS, shown_as
from lakelog.wire import consume_shapes as shapes
from lakelog.wire.frames import ARROW_MEDIA_TYPE
from lakelog.wire.leases import MEDIA_TYPE, LeasesHead, PieceHead, write_leases
from lakelog.wire.problems import problem_of

WHOLE_SHARE = 4
"""A stored batch is sent whole if at least one in this many of its messages is leased, which avoids decoding it."""
LEASES = pa.schema(
    [
        *FETCH,
        pa.field("token", pa.int64()),
        pa.field("delivery", pa.int32()),
        pa.field("failures", pa.int32()),
    ]
)
"""The columns of the Arrow form: those of a fetch, and the lease of each message."""
ANSWERED = "lakelog.answered"
"""A key in the metadata of the Arrow schema: the outcomes of the call's answers, as JSON."""
ERROR = "lakelog.error"
"""A key in the metadata of the Arrow schema: the error that prevented a lease, as JSON."""

_encode = msgspec.json.Encoder().encode

Form = Callable[[ConsumeResult], bytes]


def stored_bytes(consumed: ConsumeResult) -> int:
    """Return the memory of the stored payloads."""
    return sum(len(piece.batch.payload) for leased in consumed.leases for piece in leased.pieces)


def message_count(consumed: ConsumeResult) -> int:
    return sum(len(leased.offsets) for leased in consumed.leases)


def leased_rows(leased: Leased) -> Iterator[tuple[int, tuple[Any, ...], datetime]]:
    """Yield offset, row of `COLUMNS` and time of each message, in the order in which to run them."""
    found = {
        offset: (row, piece.batch.appended_at)
        for piece in leased.pieces
        for offset, row in zip(piece.offsets, rows(_wanted(piece), COLUMNS), strict=True)
    }
    for offset in leased.offsets:
        row, appended_at = found[offset]
        yield offset, row, appended_at


def _outcomes(consumed: ConsumeResult) -> dict[str, Any]:
    """Return the outcomes of the call's answers, and why there is no lease; nothing for a call without answers."""
    if consumed.answered is None:
        return {}
    found: dict[str, Any] = {"answered": [shapes.AnswerResult.of(each) for each in consumed.answered]}
    return found if consumed.refusal is None else {**found, "error": problem_of(consumed.refusal)}


def as_json(consumed: ConsumeResult) -> bytes:
    incarnation, large = consumed.topic.incarnation, LargeValues()
    leases = [
        shapes.LeaseShape(
            token=leased.token,
            partition=leased.partition,
            expires_at=to_time(leased.expires_ms),
            suspect=leased.suspect,
            messages=_messages(leased, incarnation, large),
        )
        for leased in consumed.leases
    ]
    reply = shapes.ConsumeReply(leases=leases, generation=consumed.generation, **_outcomes(consumed))
    return large.join(_encode(reply))


def as_arrow(consumed: ConsumeResult) -> bytes:
    sink = pa.BufferOutputStream()
    told = {f"lakelog.{name}": _encode(each) for name, each in _outcomes(consumed).items()}
    schema = LEASES.with_metadata(told) if told else LEASES
    with pa.ipc.new_stream(sink, schema) as writer:
        for leased in consumed.leases:
            for piece in _in_order(leased):
                writer.write_batch(piece)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def as_leases(consumed: ConsumeResult) -> bytes:
    heads, payloads = [], []
    for leased in consumed.leases:
        pieces = []
        for piece in leased.pieces:
            payload, described = _piece(piece)
            payloads.append(payload)
            pieces.append(described)
        heads.append(lease_head(leased, pieces))
    head = LeasesHead(
        incarnation=consumed.topic.incarnation,
        leases=heads,
        generation=consumed.generation,
        **_outcomes(consumed),
    )
    return write_leases(head, payloads)


def nothing(media_type: str) -> bytes:
    """Return the body of a response without a lease, for which the topic need not be known."""
    if media_type == MEDIA_TYPE:
        return write_leases(LeasesHead(incarnation=0, leases=[]), ())
    if media_type == ARROW_MEDIA_TYPE:
        sink = pa.BufferOutputStream()
        pa.ipc.new_stream(sink, LEASES).close()
        body: bytes = sink.getvalue().to_pybytes()
        return body
    return _encode(shapes.ConsumeReply(leases=[]))


def _messages(leased: Leased, incarnation: int, large: LargeValues) -> list[shapes.LeasedShape]:
    partition, deliveries, failures = leased.partition, leased.deliveries, leased.failures
    return [
        shown_as(
            shapes.LeasedShape,
            row,
            message_id(incarnation, partition, offset),
            offset,
            large,
            appended_at=appended_at,
            delivery=deliveries.get(offset, 1),
            failures=failures.get(offset, 0),
        )
        for offset, row, appended_at in leased_rows(leased)
    ]


def _wanted(piece: LeasedBatch) -> pa.RecordBatch:
    """Return only the leased rows."""
    base, offsets = piece.batch.base, piece.offsets
    batch = piece.decoded
    if offsets[-1] - offsets[0] + 1 == len(offsets):
        return batch.slice(offsets[0] - base, len(offsets))
    return batch.take(pa.array([offset - base for offset in offsets], pa.int64()))


def _in_order(leased: Leased) -> Iterator[pa.RecordBatch]:
    parts = [
        _with_lease(
            with_positions(_wanted(piece), leased.partition, piece.offsets[0], piece.batch.appended_at),
            piece.offsets,
            leased,
        )
        for piece in leased.pieces
    ]
    ascending = [offset for piece in leased.pieces for offset in piece.offsets]
    if ascending == list(leased.offsets):
        return iter(parts)
    places = {offset: place for place, offset in enumerate(ascending)}
    order = pa.array([places[offset] for offset in leased.offsets], pa.int64())
    return iter(pa.Table.from_batches(parts).take(order).to_batches())


def _with_lease(part: pa.RecordBatch, offsets: Sequence[int], leased: Leased) -> pa.RecordBatch:
    columns = part.columns
    columns[1] = pa.array(offsets, pa.int64())
    more = [
        pa.array([leased.token] * len(offsets), pa.int64()),
        pa.array([leased.deliveries.get(offset, 1) for offset in offsets], pa.int32()),
        pa.array([leased.failures.get(offset, 0) for offset in offsets], pa.int32()),
    ]
    return pa.RecordBatch.from_arrays([*columns, *more], schema=LEASES)


def _piece(piece: LeasedBatch) -> tuple[bytes, PieceHead]:
    is_whole = len(piece.offsets) * WHOLE_SHARE >= piece.batch.count
    rows = None if is_whole else encode(_wanted(piece))
    return piece.batch.payload if rows is None else rows, piece_head(piece, rows)


FORMS: dict[str, Form] = {"application/json": as_json, MEDIA_TYPE: as_leases, ARROW_MEDIA_TYPE: as_arrow}
