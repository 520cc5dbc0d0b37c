"""`latest`: keeps the newest message of each key of a topic as a table, `orders__latest`.

A run reads the messages that the table does not cover, and writes the files of the buckets with their keys again. It
commits all new files at once, with the covered offsets, so a run can be killed at any point: the next one begins where
the table is. A message with a null value deletes its key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from lakelog import failpoints
from lakelog.batches import partitions_of
from lakelog.errors import NotFound, Unavailable
from lakelog.model.arguments import check_whole
from lakelog.model.iceberg import IcebergChanges, TableKind
from lakelog.model.lake import Plan, PlanOptions
from lakelog.objectstore import open_store
from lakelog.segments.iceberg.key_files import Covered, KeyFile, KeyTable
from lakelog.segments.schema import SCHEMA
from lakelog.spark.pipelines.latest_tasks import BUCKET, write_buckets
from lakelog.spark.pipelines.runs import RunRecorder, recorded
from lakelog.spark.pipelines.tiering import no_store
from lakelog.spark.reading.range_reader import ReadTarget
from lakelog.spark.reading.topics import address_of, planned_frame
from lakelog.spark.reading.typed_values import ValueType, with_value
from lakelog.spark.session import ConnectionSettings, client, connection_to, parallelism, store_options
from lakelog.spark.source import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from lakelog import Lakelog

PIPELINE = "latest"
BUCKETS = 16
MAX_BUCKETS = 10_000
_TRIES = 3
_NAMES = [field.name for field in SCHEMA]


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestSummary:
    """The result of bringing a key table to its topic.

    Attributes:
        topic: The topic.
        version: The version of the table.
        messages: Messages that this run read.
        retired: Messages that retention removed before a run read them; the table may lack their changes.
        rewritten: Buckets that this run wrote again.
        keys: Keys in the table.
        covered: The end of the messages by partition that the table takes into account.
        as_of: The time, in UTC, when they were all messages of the topic.
    """

    topic: str
    version: int = 0
    messages: int = 0
    retired: int = 0
    rewritten: int = 0
    keys: int = 0
    covered: Mapping[int, int] = field(default_factory=dict)
    as_of: datetime | None = None

    def figures(self) -> dict[str, int]:
        """Return the numbers of the summary, by name."""
        return {name: getattr(self, name) for name in ("version", "messages", "retired", "rewritten", "keys")}


def latest(
    spark: SparkSession,
    topic: str,
    *,
    value: ValueType | None = None,
    url: str | None = None,
    token: str | None = None,
) -> DataFrame:
    """Return the newest message of each key, as of the last run of `update_latest`, with all columns of a message.

    Keys whose newest message has a null value are not included.

    Args:
        spark: The session.
        topic: The topic.
        value: The type of the values: a class, a schema such as "total INT, id STRING", or "json" for variants. A value
            that does not fit becomes null or has null fields. Default: bytes.
        url: The URL of the server. Default: that of the session, then `LAKELOG_URL`, then the server of `lakelog dev`.
        token: The token. Default: that of the session, then `LAKELOG_TOKEN`, then the token of `lakelog dev`.

    Raises:
        NotFound: If the topic has no key table.
        TopicNotFound: If the topic does not exist.
    """
    changes = client(connection_to(url, token, spark)).lake.iceberg_changes(topic, TableKind.LATEST)
    if not changes.version or changes.store is None:
        raise NotFound(
            f"Topic '{topic}' has no key table. Create it with `lakelog pipelines run latest {topic}`.", topic=topic
        )
    table = KeyTable(open_store(changes.store, store_options(spark)), changes, BUCKETS)
    return with_value(_stored(spark, changes, table.files), value)


def update_latest(
    spark: SparkSession,
    topic: str,
    *,
    buckets: int = BUCKETS,
    url: str | None = None,
    token: str | None = None,
) -> LatestSummary:
    """Bring the key table of a topic to its newest messages, and create it if there is none.

    Messages without a key are left out. A repeated call reads only what was published since, and writes only the
    buckets that changed. Read the table with `latest`, or as `<topic>__latest` of the Iceberg catalog.

    Args:
        spark: The session.
        topic: The topic.
        buckets: The number of files of a new table, from 1 to 10,000, between which keys are distributed by hash. It
            cannot be changed later. Default: 16.
        url: The URL of the server. Default: that of the session, then `LAKELOG_URL`, then the server of `lakelog dev`.
        token: The token. Default: that of the session, then `LAKELOG_TOKEN`, then the token of `lakelog dev`.

    Raises:
        ConfigurationError: If the server has no object store.
        PipelineBusy: If another run of the topic is active.
    """
    check_whole("buckets", buckets, 1, MAX_BUCKETS)
    return run_latest(connection_to(url, token, spark), lambda: spark, topic, buckets, store_options(spark))


def run_latest(
    connection: ConnectionSettings,
    session: Callable[[], SparkSession],
    topic: str,
    buckets: int = BUCKETS,
    options: Mapping[str, str] | None = None,
) -> LatestSummary:
    """Run the pipeline once. `session` returns the Spark session, and is called only if there are new messages.

    `options` configure the object store. Without them, the environment does.
    """
    log = client(connection)
    if log.lake.plan(topic).store is None:
        raise no_store()
    with recorded(log, PIPELINE, topic) as recorder:
        changes = log.lake.iceberg_changes(topic, TableKind.LATEST)
        assert changes.store is not None
        table = KeyTable(open_store(changes.store, options), changes, buckets)
        return _updated(connection, session, changes, table, recorder)


def uncovered(log: Lakelog, topic: str) -> int | None:
    """Return the number of messages that the key table of a topic does not cover, or None if there is no table."""
    changes = log.lake.iceberg_changes(topic, TableKind.LATEST)
    if not changes.version or changes.store is None:
        return None
    covered = KeyTable(open_store(changes.store), changes, BUCKETS).covered
    known = {} if covered is None else covered.ends
    marks = log.lake.watermarks(topic)
    return sum(max(0, end - known.get(part, marks.starts[part])) for part, end in marks.ends.items())


def _updated(
    connection: ConnectionSettings,
    session: Callable[[], SparkSession],
    changes: IcebergChanges,
    table: KeyTable,
    recorder: RunRecorder,
) -> LatestSummary:
    log, topic = client(connection), changes.topic
    known = {} if table.covered is None else table.covered.ends
    plan, as_of = planned(log, topic, known, changes.incarnation)
    covered = Covered(ends={each.partition: each.end for each in plan.partitions}, epoch=plan.epoch, as_of=as_of)
    count = sum(each.end - each.start for each in plan.partitions)
    retired = sum(max(0, each.start - known[each.partition]) for each in plan.partitions if each.partition in known)
    keys = sum(each.rows for each in table.files)
    done = LatestSummary(
        topic=topic,
        version=changes.version,
        messages=count,
        retired=retired,
        keys=keys,
        covered=covered.ends,
        as_of=as_of,
    )
    if not count and not retired and changes.version:
        return done
    made, touched = ([], []) if not count else _merge(session(), connection, plan, changes, table)
    failpoints.hit("latest.written")
    commit = table.next_version(made, touched, covered)
    stored = log.lake.commit_iceberg(commit)
    failpoints.hit("latest.committed")
    kept = sum(each.rows for each in table.files if each.bucket not in touched)
    done = LatestSummary(
        topic=topic,
        version=stored.version,
        messages=count,
        retired=retired,
        rewritten=len(touched),
        keys=kept + sum(each.rows for each in made),
        covered=covered.ends,
        as_of=as_of,
    )
    recorder.update(done.figures())
    return done


def planned(log: Lakelog, topic: str, known: Mapping[int, int], incarnation: int) -> tuple[Plan, datetime]:
    """Return a plan of the messages from the known offsets on, and a time when they were all messages.

    If partitions were added, a key may have moved to another one. All plans therefore have the epoch that the topic has
    after the plan: a message of the new epoch is then never covered before an older one of the same key.
    """
    for _ in range(_TRIES):
        as_of = log.lake.watermarks(topic).now
        plan = log.lake.plan(topic, PlanOptions(starts=dict(known), incarnation=incarnation))
        if log.lake.watermarks(topic).epoch == plan.epoch:
            return plan, as_of
    raise Unavailable(f"Partitions are being added to topic '{topic}'. Run it again.", topic=topic)


def _merge(
    spark: SparkSession, connection: ConnectionSettings, plan: Plan, changes: IcebergChanges, table: KeyTable
) -> tuple[list[KeyFile], list[int]]:
    """Write the buckets with new keys again. Return their files, and the buckets."""
    new = planned_frame(spark, connection, plan).where("key IS NOT NULL AND target_group IS NULL")
    # Spark does not combine the small partitions of a shuffle in a frame that is kept: each would be a task.
    fresh = _newest(new).coalesce(2 * parallelism(spark)).withColumn(BUCKET, _bucket(table.buckets)).persist()
    try:
        touched = sorted(row[BUCKET] for row in fresh.select(BUCKET).distinct().collect())
        old = [each for each in table.files if each.bucket in touched]
        stored = _stored(spark, changes, old).withColumn(BUCKET, _bucket(table.buckets))
        rows = _newest(stored.unionByName(fresh), BUCKET).where("value IS NOT NULL")
        tasks = max(1, min(len(touched), 2 * parallelism(spark)))
        ordered = rows.repartition(tasks, BUCKET).sortWithinPartitions(BUCKET, "key")
        place = ReadTarget.of(connection, plan, store_options(spark))
        return write_buckets(ordered, place, plan.environment_id), touched
    finally:
        fresh.unpersist()


def _newest(rows: DataFrame, *more: str) -> DataFrame:
    """Return the newest message of each key: of the newest epoch, and there the one with the newest time and offset."""
    message = F.struct(*_NAMES, *more)
    found = rows.groupBy(F.col("key").alias("_key")).agg(
        F.max_by(message, F.struct("epoch", "appended_at", "offset")).alias("_newest")
    )
    return found.select("_newest.*")


def _bucket(buckets: int) -> Column:
    @F.arrow_udf("int")  # type: ignore[attr-defined, untyped-decorator]
    def bucket(keys: pa.Array) -> pa.Array:
        return pa.array(partitions_of(keys.cast(pa.binary()), buckets), pa.int32())

    found: Column = bucket("key")
    return found


def _stored(spark: SparkSession, changes: IcebergChanges, files: Sequence[KeyFile]) -> DataFrame:
    if not files:
        return spark.createDataFrame([], spark_schema())
    strict = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false", "recursiveFileLookup": "false"}
    paths = sorted(address_of(changes.store or "", each.path) for each in files)
    return spark.read.options(**strict).schema(spark_schema()).parquet(*paths)
