"""The task of compaction: it writes new files for some segments, and reads them back.

A task decides nothing: it returns the new segments, or the reason why there are none. Each attempt uses unique file
names, so a task that runs twice, or after its driver died, does no harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lakelog import failpoints
from lakelog.errors import LakelogError
from lakelog.model.segment import SealedSegment, Segment
from lakelog.segments.layout import segment_path
from lakelog.segments.merging import merge, verify_merged
from lakelog.spark.pipelines.compact_plan import Replaced
from lakelog.spark.pipelines.tasks import in_tasks
from lakelog.spark.reading.range_reader import ReadTarget, store_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactResult:
    """The result of one task: the new segments, or the reason for a failure."""

    segments: list[Segment]
    error: str = ""


def merge_all(
    spark: SparkSession, place: ReadTarget, environment_id: int, parts: Sequence[Replaced]
) -> list[CompactResult]:
    """Write each part to new files that are read back, in Spark tasks."""
    return in_tasks(spark, parts, partial(_merge, place, environment_id), CompactResult)


def _merge(place: ReadTarget, environment_id: int, old: Replaced) -> CompactResult:
    for attempt in range(1, _TRIES + 1):
        try:
            return CompactResult(segments=_merged(place, environment_id, old))
        except LakelogError as error:
            # A mismatch may be a transmission error, so it is tried again too.
            if attempt == _TRIES:
                return CompactResult(segments=[], error=error.detail)
    raise AssertionError("unreachable")


def _merged(place: ReadTarget, environment_id: int, old: Replaced) -> list[Segment]:
    assert place.store is not None
    store = store_of(place.store, place.store_options)

    def put(sealed: SealedSegment, file: Path) -> Segment:
        parts = (environment_id, place.incarnation, sealed.partition, sealed.first, sealed.end)
        path = segment_path(*parts, columns=place.columns_version)
        failpoints.hit("compact.before_put")
        store.put(path, file)
        failpoints.hit("compact.after_put")
        return sealed.segment(path)

    new = merge(store, old, put, place.typed)
    failpoints.hit("compact.before_verify")
    verify_merged(store, old, new)
    return new
