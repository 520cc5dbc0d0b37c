"""Reads the ranges of a plan inside a task: segments from the object store, everything else through the server.

A plan may be outdated: a file was replaced, or retention removed messages. Then the rest of that range is planned
again. A range is read completely, or the read fails.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from lakelog.errors import LakelogError, ObjectNotFound, Unavailable
from lakelog.model.lake import PlanOptions
from lakelog.objectstore import ObjectStore, open_store
from lakelog.segments import opened
from lakelog.spark.reading.planning import ReadRange, pieces_of, require_whole
from lakelog.spark.session import ConnectionSettings, client


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTarget:
    """The source of the ranges of one topic. It is plain data, because Spark sends it to tasks."""

    connection: ConnectionSettings
    topic: str
    incarnation: int
    store: str | None = None
    # It contains credentials, so printing a task must not print it.
    store_options: Mapping[str, str] = field(default_factory=dict, repr=False)


_stores: dict[tuple[str, tuple[tuple[str, str], ...]], ObjectStore] = {}


def read_piece(place: ReadTarget, wanted: ReadRange) -> Iterator[pa.RecordBatch]:
    """Yield every message of the range in order, as columns of a segment."""
    pending = deque([wanted])
    missing: set[str] = set()
    while pending:
        piece = pending.popleft()
        at, cause = piece.first, None
        try:
            for batch in _batches(place, piece):
                _expect(place, piece, at, batch)
                at += batch.num_rows
                yield batch
        except ObjectNotFound as exc:
            cause = exc
        if at < piece.end:
            pending.extendleft(reversed(_again(place, piece, at, missing, cause)))


def _batches(place: ReadTarget, piece: ReadRange) -> Iterator[pa.RecordBatch]:
    if piece.segment is None or place.store is None:
        lake = client(place.connection).lake
        yield from lake.read_range(place.topic, piece.partition, piece.first, piece.end, incarnation=place.incarnation)
        return
    with opened(store_of(place.store, place.store_options), piece.segment) as file:
        yield from file.read(piece.first, piece.end)


def _expect(place: ReadTarget, piece: ReadRange, at: int, batch: pa.RecordBatch) -> None:
    """Check that the batch continues at the expected offset; checking the first and the last offset costs nothing."""
    if not batch.num_rows:
        return
    offsets = batch.column("offset")
    if (offsets[0].as_py(), offsets[-1].as_py()) != (at, at + batch.num_rows - 1) or at + batch.num_rows > piece.end:
        raise Unavailable(
            f"Partition {piece.partition} of {place.topic!r} was read from offset {offsets[0].as_py()} on, "
            f"where {at} should follow.",
            topic=place.topic,
            partition=piece.partition,
            offset=at,
        )


def _again(
    place: ReadTarget, piece: ReadRange, at: int, missing: set[str], cause: LakelogError | None
) -> list[ReadRange]:
    """Return the ranges to read instead of the rest of a range that is not where the plan says."""
    path = piece.segment.path if piece.segment else ""
    if path in missing:
        raise Unavailable(
            f"{path!r} is still in the plan of {place.topic!r}, but was not found whole in {place.store}: tasks and "
            "server must see the same object store.",
            topic=place.topic,
            partition=piece.partition,
            offset=at,
        ) from cause
    missing.add(path)
    starts, ends = {piece.partition: at}, {piece.partition: piece.end}
    wish = PlanOptions(starts=starts, ends=ends, incarnation=place.incarnation)
    plan = client(place.connection).lake.plan(place.topic, wish)
    require_whole(plan, starts, ends)
    return [found for found in pieces_of(plan) if found.partition == piece.partition]


def store_of(url: str, options: Mapping[str, str]) -> ObjectStore:
    """Return the object store of this process, which keeps its connections."""
    place = (url, tuple(sorted(options.items())))
    if place not in _stores:
        _stores[place] = open_store(url, options)
    return _stores[place]
