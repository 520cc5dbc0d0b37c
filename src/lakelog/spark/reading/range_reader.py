"""Reads the ranges of a plan inside a task: segments from the object store, everything else through the server.

A plan may be outdated: a file was replaced, or retention removed messages. Then the rest of that range is planned
again. A range is read completely, or the read fails.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakelog.client.reading.columns import ALL_COLUMNS, Columns
from lakelog.client.reading.group_view import VIEW_COLUMNS, GroupView
from lakelog.client.reading.read_ranges import ReadRange, ranges_of, require_whole
from lakelog.errors import LakelogError, ObjectNotFound, Unavailable
from lakelog.model.columns import TopicColumns
from lakelog.model.lake import Plan, PlanOptions
from lakelog.objectstore import ObjectStore, open_store
from lakelog.segments.reader import opened
from lakelog.spark.session import ConnectionSettings, client

if TYPE_CHECKING:
    from lakelog import Lakelog


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTarget:
    """The source of the ranges of one topic. It is plain data, because Spark sends it to tasks."""

    connection: ConnectionSettings
    topic: str
    incarnation: int
    columns: Columns = ALL_COLUMNS
    """The columns that Spark gets."""
    store: str | None = None
    # It contains credentials, so printing a task must not print it.
    store_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    view: GroupView | None = None
    """The view of the group that reads; None for every message."""
    typed: TopicColumns | None = None
    """The topic's columns, by which new files get typed columns of values."""
    skips_removed: bool = False
    """Continue at the log start if messages are removed after the plan. Otherwise, the read fails."""

    @classmethod
    def of(
        cls,
        connection: ConnectionSettings,
        plan: Plan,
        store_options: Mapping[str, str],
        columns: Columns = ALL_COLUMNS,
    ) -> ReadTarget:
        return cls(
            connection=connection,
            topic=plan.topic,
            incarnation=plan.incarnation,
            columns=columns,
            store=plan.store,
            store_options=store_options,
        )

    @property
    def columns_version(self) -> int:
        """Return the version of the topic's columns that new files get; 0 for none."""
        return 0 if self.typed is None else self.typed.version


def writing_target(
    log: Lakelog, connection: ConnectionSettings, plan: Plan, store_options: Mapping[str, str]
) -> ReadTarget:
    """Return the target of tasks that also write files of the topic: with its columns, if it has any."""
    info = log.topic(plan.topic).describe()
    typed = info.columns if info.incarnation == plan.incarnation else None
    return replace(ReadTarget.of(connection, plan, store_options), typed=typed)


_stores: dict[tuple[str, tuple[tuple[str, str], ...]], ObjectStore] = {}


def read_piece(place: ReadTarget, wanted: ReadRange) -> Iterator[pa.RecordBatch]:
    """Yield every message of the range in order. The batches have at least the columns that Spark gets."""
    pending = deque([wanted])
    missing: set[str] = set()
    while pending:
        read_range = pending.popleft()
        at, cause = read_range.first, None
        try:
            for batch in _batches(place, read_range):
                _expect(place, read_range, at, batch)
                at += batch.num_rows
                yield batch
        except ObjectNotFound as exc:
            cause = exc
        if at < read_range.end:
            pending.extendleft(reversed(_again(place, read_range, at, missing, cause)))


def _batches(place: ReadTarget, read_range: ReadRange) -> Iterator[pa.RecordBatch]:
    if read_range.segment is None or place.store is None:
        lake = client(place.connection).lake
        yield from lake.read_range(
            place.topic, read_range.partition, read_range.first, read_range.end, incarnation=place.incarnation
        )
        return
    with opened(store_of(place.store, place.store_options), read_range.segment) as file:
        # The offsets are checked even where Spark does not get them.
        needed = {*place.columns, *(VIEW_COLUMNS if place.view else ()), "offset"}
        yield from file.read(read_range.first, read_range.end, [*needed])


def _expect(place: ReadTarget, read_range: ReadRange, at: int, batch: pa.RecordBatch) -> None:
    """Check that the batch continues at the expected offset; checking the first and the last offset costs nothing."""
    if not batch.num_rows:
        return
    offsets = batch.column("offset")
    if (offsets[0].as_py(), offsets[-1].as_py()) != (
        at,
        at + batch.num_rows - 1,
    ) or at + batch.num_rows > read_range.end:
        raise Unavailable(
            f"Partition {read_range.partition} of {place.topic!r} was read from offset {offsets[0].as_py()} on, "
            f"but offset {at} should follow.",
            topic=place.topic,
            partition=read_range.partition,
            offset=at,
        )


def _again(
    place: ReadTarget, read_range: ReadRange, at: int, missing: set[str], cause: LakelogError | None
) -> list[ReadRange]:
    """Return the ranges to read instead of the rest of a range that is not where the plan says."""
    path = read_range.segment.path if read_range.segment else ""
    if path in missing:
        raise Unavailable(
            f"{path!r} is still in the plan of {place.topic!r}, but was not found whole in {place.store}: tasks and "
            "server must see the same object store.",
            topic=place.topic,
            partition=read_range.partition,
            offset=at,
        ) from cause
    missing.add(path)
    starts, ends = {read_range.partition: at}, {read_range.partition: read_range.end}
    options = PlanOptions(starts=starts, ends=ends, incarnation=place.incarnation)
    plan = client(place.connection).lake.plan(place.topic, options)
    require_whole(plan, starts, ends)
    return [found for found in ranges_of(plan) if found.partition == read_range.partition]


def store_of(url: str, options: Mapping[str, str]) -> ObjectStore:
    """Return the object store of this process, which keeps its connections."""
    place = (url, tuple(sorted(options.items())))
    if place not in _stores:
        _stores[place] = open_store(url, options)
    return _stores[place]
