"""What the tasks of tiering do: one reads a hot range and stores it as a file, one reads a stored file again.

A task decides nothing: it answers a segment, or why there is none. Each attempt has a name of its own, so that a task
that runs twice, or after its driver died, harms nobody.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from lakelog import failpoints
from lakelog.errors import LakelogError, ObjectNotFound, SegmentDamaged
from lakelog.model.lake import TierRange
from lakelog.model.segment import Segment
from lakelog.segments import SegmentWriter, segment_path, verify
from lakelog.spark.reading.range_reader import ReadTarget, store_of
from lakelog.spark.session import client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ANSWERS = pa.schema([("number", pa.int64()), ("answer", pa.string())])
_SPARK_ANSWERS = "number bigint, answer string"
_TRIES = 3

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class TierResult:
    """What became of one piece of work: a segment, or the reason why not."""

    segment: Segment | None = None
    error: str = ""
    is_damaged: bool = False
    """The file is not what was sealed, or not there: to try again is no use."""

    def text(self) -> str:
        plain = asdict(self)
        if self.segment is not None:
            times = {name: getattr(self.segment, name).isoformat() for name in ("first_at", "last_at")}
            plain["segment"] = {**asdict(self.segment), **times}
        return json.dumps(plain)

    @classmethod
    def of(cls, text: str) -> TierResult:
        plain = json.loads(text)
        found = plain["segment"]
        if found is not None:
            times = {name: datetime.fromisoformat(found[name]) for name in ("first_at", "last_at")}
            plain["segment"] = Segment(**{**found, **times})
        return cls(**plain)


def write_all(
    spark: SparkSession, place: ReadTarget, environment_id: int, ranges: Sequence[TierRange]
) -> list[TierResult]:
    """Stores each range as a file, in tasks."""
    return _in_tasks(spark, ranges, partial(_write, place, environment_id))


def verify_all(spark: SparkSession, place: ReadTarget, segments: Sequence[Segment]) -> list[TierResult]:
    """Reads each file again, in tasks."""
    return _in_tasks(spark, segments, partial(_verify, place))


def _in_tasks(spark: SparkSession, items: Sequence[Item], work: Callable[[Item], TierResult]) -> list[TierResult]:
    """One item a task, answers in their order. By mapInArrow, which works on clusters without RDDs too."""
    if not items:
        return []

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                answer = work(items[number]).text()
                yield pa.RecordBatch.from_arrays([pa.array([number]), pa.array([answer])], schema=_ANSWERS)

    numbers = spark.range(0, len(items), 1, len(items))
    rows = numbers.mapInArrow(run, _SPARK_ANSWERS).collect()
    return [TierResult.of(row["answer"]) for row in sorted(rows, key=lambda row: row["number"])]


def _write(place: ReadTarget, environment_id: int, wanted: TierRange) -> TierResult:
    for attempt in range(1, _TRIES + 1):
        try:
            return TierResult(segment=_written(place, environment_id, wanted))
        except LakelogError as error:
            if not error.retryable or attempt == _TRIES:
                return TierResult(error=error.detail)
    raise AssertionError("unreachable")


def _written(place: ReadTarget, environment_id: int, wanted: TierRange) -> Segment:
    assert place.store is not None
    with tempfile.TemporaryDirectory(prefix="lakelog-tier-") as folder:
        file = Path(folder) / "segment.parquet"
        lake = client(place.connection).lake
        with SegmentWriter(file, wanted.partition) as writer:
            for batch in lake.read_range(
                place.topic, wanted.partition, wanted.first, wanted.end, incarnation=place.incarnation
            ):
                writer.write(batch)
            sealed = writer.close()
        path = segment_path(environment_id, place.incarnation, wanted.partition, wanted.first, wanted.end)
        failpoints.hit("tier.before_put")
        store_of(place.store, place.store_options).put(path, file)
        failpoints.hit("tier.after_put")
        return sealed.segment(path)


def _verify(place: ReadTarget, segment: Segment) -> TierResult:
    assert place.store is not None
    failpoints.hit("tier.before_verify")
    for attempt in range(1, _TRIES + 1):
        try:
            verify(store_of(place.store, place.store_options), segment)
            return TierResult(segment=segment)
        except (SegmentDamaged, ObjectNotFound) as error:
            # Once may be a faulty line: a store that gives the wrong bytes every time has the wrong bytes.
            if attempt == _TRIES:
                return TierResult(segment=segment, error=error.detail, is_damaged=True)
        except LakelogError as error:
            return TierResult(segment=segment, error=error.detail)
    raise AssertionError("unreachable")
