"""`lakelog.spark.topic`: a topic as a DataFrame, with history and the newest messages in one consistent read.

The driver plans once. Spark reads the segments itself, as Parquet; the hot rest comes from the server, for exactly the
offsets that follow. Messages published later are not included, even if the DataFrame is used several times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from lakelog.model.lake import Plan, PlanOptions
from lakelog.spark.options import PINNED
from lakelog.spark.reading.planning import ReadRange, ranges_of, require_whole
from lakelog.spark.reading.ranges import ResolvedRanges, Time, offsets_of, time_of
from lakelog.spark.session import ConnectionSettings, announced, client, connection_to
from lakelog.spark.source import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_PATH_NOT_FOUND = "PATH_NOT_FOUND"
_TRIES = 3


def topic(
    spark: SparkSession,
    name: str,
    *,
    since: Time | None = None,
    until: Time | None = None,
    start_offsets: Mapping[int, int] | None = None,
    end_offsets: Mapping[int, int] | None = None,
    url: str | None = None,
    token: str | None = None,
) -> DataFrame:
    """Return the messages of a topic as a DataFrame, such as `topic(spark, "orders", since="1 day")`.

    Segment files outside the range are not opened.

    Args:
        spark: The session.
        name: The name of the topic.
        since: Read messages appended at this time or later: an aware datetime, ISO 8601, or how long ago, such as "1
            day". Default: from the log start.
        until: Read messages appended before this time, written like `since`. Default: up to the newest message.
        start_offsets: The first offset by partition. Other partitions are read from their log start.
        end_offsets: The end offset by partition, not included. Other partitions are read up to their high watermark.
        url: The URL of the server. Default: that of the session, then `LAKELOG_URL`, then the server of `lakelog dev`.
        token: The token. Default: that of the session, then `LAKELOG_TOKEN`, then the token of `lakelog dev`.

    Raises:
        TopicNotFound: If the topic does not exist.
        OffsetOutOfRange: If a named offset does not exist.
    """
    connection = connection_to(url, token, spark)
    options = PlanOptions(
        starts=offsets_of(start_offsets, "start_offsets"),
        ends=offsets_of(end_offsets, "end_offsets"),
        since=time_of(since, "since"),
        until=time_of(until, "until"),
    )
    with announced(connection):
        plan = client(connection).lake.plan(name, options)
    require_whole(plan, options.starts, options.ends)
    return planned_frame(spark, connection, plan)


def planned_frame(spark: SparkSession, connection: ConnectionSettings, plan: Plan) -> DataFrame:
    """Return the DataFrame of a plan. If a file was replaced since, plan the same offsets again."""
    for _ in range(_TRIES - 1):
        try:
            return frame_of(spark, connection, plan)
        except AnalysisException as exc:
            if exc.getCondition() != _PATH_NOT_FOUND:
                raise
            # The same offsets are in another file now.
            plan = _again(connection, plan)
    return frame_of(spark, connection, plan)


def frame_of(spark: SparkSession, connection: ConnectionSettings, plan: Plan) -> DataFrame:
    """Return the DataFrame of a plan: whole files, files that extend beyond the range, and the hot rest."""
    whole: list[ReadRange] = []
    partly: list[ReadRange] = []
    rest: list[ReadRange] = []
    for read_range in ranges_of(plan):
        if read_range.segment is None or not _is_readable(plan.store):
            rest.append(read_range)
        else:
            (whole if read_range.is_whole else partly).append(read_range)
    frames = []
    if whole:
        frames.append(_parquet(spark, plan, whole))
    if partly:
        # One filter for all of them, on the partition and offset of each row.
        frames.append(_parquet(spark, plan, partly).where(_any(map(_within, partly))))
    if rest or not frames:
        frames.append(_hot(spark, connection, plan, rest))
    return reduce(lambda left, right: left.unionAll(right), frames)


def _parquet(spark: SparkSession, plan: Plan, read_ranges: Iterable[ReadRange]) -> DataFrame:
    paths = sorted(
        {_address(plan.store or "", read_range.segment.path) for read_range in read_ranges if read_range.segment}
    )
    # A session may be configured to ignore missing files, which would be a silent gap here.
    strict = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false", "recursiveFileLookup": "false"}
    return spark.read.options(**strict).schema(spark_schema()).parquet(*paths)


def _hot(
    spark: SparkSession, connection: ConnectionSettings, plan: Plan, read_ranges: Iterable[ReadRange]
) -> DataFrame:
    ranges: dict[int, tuple[int, int]] = {}
    for read_range in read_ranges:
        first, _ = ranges.get(read_range.partition, (read_range.first, 0))
        ranges[read_range.partition] = (first, read_range.end)
    pinned = ResolvedRanges(incarnation=plan.incarnation, ranges=ranges)
    options = {**connection.options, "topic": plan.topic, PINNED: pinned.text()}
    return spark.read.format("lakelog").options(**options).load()


def _again(connection: ConnectionSettings, plan: Plan) -> Plan:
    starts = {partition.partition: partition.start for partition in plan.partitions}
    ends = {partition.partition: partition.end for partition in plan.partitions}
    options = PlanOptions(starts=starts, ends=ends, incarnation=plan.incarnation)
    found = client(connection).lake.plan(plan.topic, options)
    require_whole(found, starts, ends)
    # Partitions that were added since the first plan are not part of this read.
    return replace(found, partitions=tuple(one for one in found.partitions if one.partition in starts))


def _within(read_range: ReadRange) -> Column:
    return (F.col("partition") == read_range.partition) & F.col("offset").between(read_range.first, read_range.end - 1)


def _any(conditions: Iterable[Column]) -> Column:
    """Return the conditions joined pairwise: a chain of a thousand would be too deep for Spark's optimizer."""
    left = list(conditions)
    while len(left) > 1:
        left = [reduce(or_, left[at : at + 2]) for at in range(0, len(left), 2)]
    return left[0]


def _is_readable(store: str | None) -> bool:
    """Return whether Spark can read the store; an in-memory store exists only in the server's process."""
    return store is not None and not store.startswith("memory:")


def _address(store: str, path: str) -> str:
    """Return the address as Hadoop writes it: its S3 file system is s3a."""
    root = store.rstrip("/")
    return f"s3a{root.removeprefix('s3')}/{path}" if root.startswith("s3:") else f"{root}/{path}"
