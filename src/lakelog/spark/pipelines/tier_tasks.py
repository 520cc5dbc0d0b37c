"""The tasks of tiering: one writes a hot range to a file, another reads a file again to verify it.

A task decides nothing: it returns a segment, or the reason why there is none. Each attempt uses a unique file name, so
a task that runs twice, or after its driver died, does no harm.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lakelog import failpoints
from lakelog.errors import LakelogError, ObjectNotFound, SegmentDamaged
from lakelog.model.lake import TierRange
from lakelog.model.segment import Segment
from lakelog.segments.layout import segment_path
from lakelog.segments.reader import verify
from lakelog.segments.writer import SegmentWriter
from lakelog.spark.pipelines.tasks import in_tasks
from lakelog.spark.reading.range_reader import ReadTarget, store_of
from lakelog.spark.session import client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TierResult:
    """The result of one task: a segment, or the reason for a failure."""

    segment: Segment | None = None
    error: str = ""
    is_damaged: bool = False
    """The file is missing or differs from what was sealed; a retry does not help."""


def write_all(
    spark: SparkSession, place: ReadTarget, environment_id: int, ranges: Sequence[TierRange]
) -> list[TierResult]:
    """Write each range to a file, in Spark tasks."""
    return in_tasks(spark, ranges, partial(_write, place, environment_id), TierResult)


def verify_all(spark: SparkSession, place: ReadTarget, segments: Sequence[Segment]) -> list[TierResult]:
    """Read each file again, in Spark tasks."""
    return in_tasks(spark, segments, partial(_verify, place), TierResult)


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
        with SegmentWriter(file, wanted.partition, columns=place.typed) as writer:
            for batch in lake.read_range(
                place.topic, wanted.partition, wanted.first, wanted.end, incarnation=place.incarnation
            ):
                writer.write(batch)
            sealed = writer.close()
        parts = (environment_id, place.incarnation, wanted.partition, wanted.first, wanted.end)
        path = segment_path(*parts, columns=place.columns_version)
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
            # A single mismatch may be a transmission error. If it repeats, the store has the wrong bytes.
            if attempt == _TRIES:
                return TierResult(segment=segment, error=error.detail, is_damaged=True)
        except LakelogError as error:
            return TierResult(segment=segment, error=error.detail)
    raise AssertionError("unreachable")
