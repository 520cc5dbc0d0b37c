"""`lakelog.spark.topic`: a topic as a DataFrame, with history and the newest messages in one consistent read.

The driver plans once. Spark reads the segments itself, as Parquet; the hot rest comes from the server, for exactly the
offsets that follow. Messages published later are not included, even if the DataFrame is used several times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lakelog.client.reading.columns import ALL_COLUMNS, Columns, columns_of
from lakelog.client.reading.group_view import VIEW_COLUMNS, GroupView
from lakelog.client.reading.limits import Time, offsets_of, time_of
from lakelog.client.reading.read_ranges import Ranges, ReadRange, ranges_of, require_whole
from lakelog.model.lake import Plan, PlanOptions
from lakelog.model.names import check_name
from lakelog.segments.layout import columns_of_file
from lakelog.segments.schema import TYPED
from lakelog.spark.options import PINNED
from lakelog.spark.reading.batch_reader import group_view
from lakelog.spark.reading.planning import hot_layers
from lakelog.spark.reading.ranges import ResolvedRanges
from lakelog.spark.reading.typed_values import ValueType, columns_of_topic, spark_typed, with_typed, with_value
from lakelog.spark.session import ConnectionSettings, announced, client, connection_to
from lakelog.spark.source import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from lakelog.model.columns import TopicColumns

_PATH_NOT_FOUND = "PATH_NOT_FOUND"
_TRIES = 3
_LISTING_TASKS = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_LISTING_TASKS_PER_CORE = 4
"""Tasks that look for files."""


def topic(
    spark: SparkSession,
    name: str,
    *,
    since: Time | None = None,
    until: Time | None = None,
    start_offsets: Mapping[int, int] | None = None,
    end_offsets: Mapping[int, int] | None = None,
    columns: str | Sequence[str] | None = None,
    value: ValueType | None = None,
    typed: bool = False,
    for_group: str | None = None,
    url: str | None = None,
    token: str | None = None,
) -> DataFrame:
    """Return the messages of a topic as a DataFrame, such as `topic(spark, "orders", since="1 day")`.

    Segment files outside the range are not opened. Without `for_group`, the DataFrame has every message of the log,
    including expired messages and copies that were redriven for a group.

    Args:
        spark: The session.
        name: The name of the topic.
        since: Read messages appended at this time or later: an aware datetime, ISO 8601, or how long ago, such as "1
            day". Default: from the log start.
        until: Read messages appended before this time, written like `since`. Default: up to the newest message.
        start_offsets: The first offset by partition. Other partitions are read from their log start.
        end_offsets: The end offset by partition, not included. Other partitions are read up to their high watermark.
        columns: The columns, as names or as text with commas, or "*" for all. Default: partition, offset, appended_at,
            key, value, headers and content_type.
        value: The type of the values: a class, such as a dataclass, a msgspec.Struct or a pydantic model; a schema,
            such as "total INT, id STRING"; or "json" for variants. A value that does not fit becomes null or has null
            fields. Default: bytes.
        typed: Add the column `v`, a struct with the topic's columns, and `v_error`, the reason why a value has no `v`.
            Default: False.
        for_group: Leave out the messages that this group does not get: copies that were redriven for other groups, and
            messages that are expired when this function is called. Default: all messages.
        url: The URL of the server. Default: that of the session, then `LAKELOG_URL`, then the server of `lakelog dev`.
        token: The token. Default: that of the session, then `LAKELOG_TOKEN`, then the token of `lakelog dev`.

    Raises:
        TopicNotFound: If the topic does not exist.
        InvalidRequest: If `typed` is set and the topic has no columns.
        OffsetOutOfRange: If a named offset does not exist.
    """
    connection = connection_to(url, token, spark)
    selected = columns_of(columns)
    options = PlanOptions(
        starts=offsets_of(start_offsets, "start_offsets"),
        ends=offsets_of(end_offsets, "end_offsets"),
        since=time_of(since, "since"),
        until=time_of(until, "until"),
    )
    with announced(connection):
        log = client(connection)
        lake = log.lake
        typing = columns_of_topic(log.topic(name).describe()) if typed else None
        plan = lake.plan(name, options)
        view = group_view(lake, name, None if for_group is None else check_name("for_group", for_group))
    require_whole(plan, options.starts, options.ends)
    # A value without typed columns gets them here.
    needed = (*selected, *(() if typing is None else ("value",)), *(() if view is None else VIEW_COLUMNS))
    frame = planned_frame(spark, connection, plan, tuple(dict.fromkeys(needed)), typing)
    if view is not None:
        frame = frame.where(_is_seen(view))
    return with_value(frame.select(*selected, *(() if typing is None else TYPED)), value)


def _is_seen(view: GroupView) -> Column:
    target, expires = (F.col(name) for name in VIEW_COLUMNS)
    return (target.isNull() | (target == view.group)) & (expires.isNull() | (expires > F.lit(view.at)))


def planned_frame(
    spark: SparkSession,
    connection: ConnectionSettings,
    plan: Plan,
    columns: Columns = ALL_COLUMNS,
    typing: TopicColumns | None = None,
) -> DataFrame:
    """Return the DataFrame of a plan. If a file was replaced since, plan the same offsets again.

    Args:
        spark: The session.
        connection: The server.
        plan: The plan.
        columns: The columns of the messages.
        typing: The topic's columns, by which the typed columns of values follow. `columns` then has the value.
    """
    for _ in range(_TRIES - 1):
        try:
            return frame_of(spark, connection, plan, columns, typing)
        except AnalysisException as exc:
            if exc.getCondition() != _PATH_NOT_FOUND:
                raise
            # The same offsets are in another file now.
            plan = _again(connection, plan)
    return frame_of(spark, connection, plan, columns, typing)


def frame_of(
    spark: SparkSession,
    connection: ConnectionSettings,
    plan: Plan,
    columns: Columns = ALL_COLUMNS,
    typing: TopicColumns | None = None,
) -> DataFrame:
    """Return the DataFrame of a plan: whole files, files that extend beyond the range, and the hot rest.

    With `typing`, the typed columns come from the files that were written with this version of the topic's columns, and
    are computed for all other messages.
    """
    filled: list[ReadRange] = []
    plain: list[ReadRange] = []
    rest: list[ReadRange] = []
    for read_range in ranges_of(plan):
        if read_range.segment is None or not _is_readable(plan.store):
            rest.append(read_range)
        elif typing is not None and columns_of_file(read_range.segment.path) == typing.version:
            filled.append(read_range)
        else:
            plain.append(read_range)
    frames = _of_files(spark, plan, plain, spark_schema(), columns)
    frames += [_hot(spark, connection, plan, ranges, columns) for ranges in hot_layers(rest)]
    if not frames and not filled:
        frames.append(_hot(spark, connection, plan, {}, columns))
    if typing is None:
        return _united(frames)
    computed = [with_typed(_united(frames), typing)] if frames else []
    schema = StructType([*spark_schema().fields, *spark_typed(typing).fields])
    return _united([*_of_files(spark, plan, filled, schema, (*columns, *TYPED)), *computed])


def _united(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(lambda left, right: left.unionAll(right), frames)


def _of_files(
    spark: SparkSession, plan: Plan, read_ranges: Sequence[ReadRange], schema: StructType, columns: Sequence[str]
) -> list[DataFrame]:
    whole = [each for each in read_ranges if each.is_whole]
    partly = [each for each in read_ranges if not each.is_whole]
    frames = []
    if whole:
        frames.append(_parquet(spark, plan, whole, schema).select(*columns))
    if partly:
        # One filter for all of them, on the partition and offset of each row.
        frames.append(_parquet(spark, plan, partly, schema).where(_any(map(_within, partly))).select(*columns))
    return frames


def _parquet(spark: SparkSession, plan: Plan, read_ranges: Iterable[ReadRange], schema: StructType) -> DataFrame:
    paths = sorted(
        {address_of(plan.store or "", read_range.segment.path) for read_range in read_ranges if read_range.segment}
    )
    # A session may be configured to ignore missing files, which would be a silent gap here.
    strict = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false", "recursiveFileLookup": "false"}
    with _listing(spark):
        return spark.read.options(**strict).schema(schema).parquet(*paths)


@contextmanager
def _listing(spark: SparkSession) -> Iterator[None]:
    """Let Spark look for the files in a few tasks.

    Its default is up to 10,000 tasks, nearly one per file, and starting them takes most of the time.
    """
    try:
        tasks = _LISTING_TASKS_PER_CORE * int(spark.sparkContext.defaultParallelism)
    except PySparkException:
        # A client of Spark Connect looks for files later, and has no context.
        yield
        return
    before = str(spark.conf.get(_LISTING_TASKS))
    spark.conf.set(_LISTING_TASKS, str(min(int(before), tasks)))
    try:
        yield
    finally:
        spark.conf.set(_LISTING_TASKS, before)


def _hot(
    spark: SparkSession, connection: ConnectionSettings, plan: Plan, ranges: Ranges, columns: Columns
) -> DataFrame:
    pinned = ResolvedRanges(incarnation=plan.incarnation, ranges=ranges)
    options = {**connection.options, "topic": plan.topic, "columns": ",".join(columns), PINNED: pinned.text()}
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


def address_of(store: str, path: str) -> str:
    """Return the address as Hadoop writes it: its S3 file system is s3a, and it does not decode `%20` in a path."""
    root = unquote(store.rstrip("/")) if store.startswith("file:") else store.rstrip("/")
    return f"s3a{root.removeprefix('s3')}/{path}" if root.startswith("s3:") else f"{root}/{path}"
