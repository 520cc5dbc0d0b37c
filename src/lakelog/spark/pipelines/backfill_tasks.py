"""The task of a backfill: it writes rows of one partition after another to segment files, and reads them back.

A task decides nothing: it returns the new segments, or the reason why there are none. Each attempt uses unique file
names, so a task that runs twice, or after its driver died, does no harm.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakelog.batches import check_limits
from lakelog.errors import LakelogError
from lakelog.model.limits import MAX_BATCH_MESSAGES
from lakelog.model.segment import Segment
from lakelog.segments.day_files import DayFiles
from lakelog.segments.schema import conform
from lakelog.spark.pipelines.backfill_rows import AT, PLACE
from lakelog.spark.pipelines.tasks import decoded, encoded
from lakelog.spark.reading.range_reader import ReadTarget, store_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ANSWERS = pa.schema([("answer", pa.string())])


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryResult:
    """A segment that was written, or the reason for a failure."""

    segment: Segment | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryTarget:
    """Where a task writes.

    Attributes:
        place: The topic and its object store.
        environment_id: The id of the environment.
        epoch: The epoch of the topic.
        firsts: The first offset of the history, by partition.
        file_bytes: The size from which a file is closed.
    """

    place: ReadTarget
    environment_id: int
    epoch: int
    firsts: Mapping[int, int]
    file_bytes: int


def write_history(rows: DataFrame, target: HistoryTarget) -> list[HistoryResult]:
    """Write sorted rows to files, in Spark tasks."""
    found = rows.mapInArrow(partial(_written, target), "answer string").collect()
    return [decoded(row["answer"], HistoryResult) for row in found]


def _written(target: HistoryTarget, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for result in _results(target, batches):
        yield pa.RecordBatch.from_arrays([pa.array([encoded(result)])], schema=_ANSWERS)


def _results(target: HistoryTarget, batches: Iterator[pa.RecordBatch]) -> Iterator[HistoryResult]:
    with tempfile.TemporaryDirectory(prefix="lakelog-backfill-") as folder:
        files = HistoryFiles(target, Path(folder))
        try:
            for batch in batches:
                for segment in files.add(batch):
                    yield HistoryResult(segment=segment)
            for segment in files.close():
                yield HistoryResult(segment=segment)
        except LakelogError as error:
            yield HistoryResult(error=error.detail)


class HistoryFiles:
    """Writes rows, sorted by partition and time, to one file after another: each has one partition and day in UTC."""

    def __init__(self, target: HistoryTarget, folder: Path) -> None:
        place = target.place
        assert place.store is not None
        self._target = target
        self._next: dict[int, int] = {}
        self._files = DayFiles(
            store=store_of(place.store, place.store_options),
            environment_id=target.environment_id,
            incarnation=place.incarnation,
            folder=folder,
            file_bytes=target.file_bytes,
            columns=place.typed,
        )

    def add(self, rows: pa.RecordBatch) -> Iterator[Segment]:
        """Write rows, and yield the segments that are complete."""
        for partition, part in _by_partition(rows):
            yield from self._files.add(partition, self._messages(partition, part))

    def close(self) -> Iterator[Segment]:
        """Seal, store and read back the open file, and yield its segment."""
        return self._files.close()

    def _messages(self, partition: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with the columns of a segment and the next offsets, after a check of their limits."""
        count, first = rows.num_rows, self._next.get(partition, self._target.firsts[partition])
        self._next[partition] = first + count
        columns = {
            "partition": pa.array(np.full(count, partition, np.int32)),
            "offset": pa.array(np.arange(first, first + count, dtype=np.int64)),
            "appended_at": rows.column(AT),
            "epoch": pa.array(np.full(count, self._target.epoch, np.int32)),
            **{name: rows.column(name) for name in rows.schema.names if name not in (AT, PLACE, "partition")},
        }
        found = conform(pa.RecordBatch.from_pydict(columns))
        for start in range(0, count, MAX_BATCH_MESSAGES):
            check_limits(found.slice(start, MAX_BATCH_MESSAGES))
        return found


def _by_partition(rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    places = rows.column(PLACE).to_numpy()
    edges = [0, *(np.flatnonzero(np.diff(places)) + 1).tolist(), rows.num_rows]
    for start, end in pairwise(edges):
        if end > start:
            yield int(places[start]), rows.slice(start, end - start)
