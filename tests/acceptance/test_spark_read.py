"""A topic as a table: `spark.read.format("lakelog")`, SQL, and `lakelog.spark.topic`, over a real server and Spark."""

from __future__ import annotations

import re
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pytest
from pyspark.sql import DataFrame, SparkSession

import lakelog
from lakelog.client.reading.columns import DEFAULT_COLUMNS
from lakelog.errors import InvalidRequest
from lakelog.spark import configure, topic
from lakelog.spark.configuring import SETTINGS
from lakelog.spark.source import spark_schema
from tests.kit.cold import tier_by_hand
from tests.kit.fleet import Fleet
from tests.kit.postgres import Cluster
from tests.kit.redriving import redrive_one

pytestmark = pytest.mark.timeout(180)


@dataclass(frozen=True, kw_only=True)
class Lake:
    """A server with an object store, a client, and Spark."""

    spark: SparkSession
    url: str
    store: Path
    log: Any

    def read(self, name: str, **options: str) -> DataFrame:
        return self.spark.read.format("lakelog").options(topic=name, url=self.url, **options).load()


@pytest.fixture(scope="module")
def lake(cluster: Cluster, spark: SparkSession) -> Iterator[Lake]:
    # The space is %20 in the URL of the store, which Hadoop does not decode.
    with tempfile.TemporaryDirectory(prefix="lakelog store-") as folder:
        env = {"LAKELOG_OBJECT_STORE": f"file://{quote(folder)}"}
        with Fleet(cluster, servers=1, env=env) as fleet:
            url = f"http://127.0.0.1:{fleet.ports[0]}"
            with lakelog.connect(url) as log:
                yield Lake(spark=spark, url=url, store=Path(folder), log=log)


def offsets(frame: DataFrame) -> list[tuple[int, int]]:
    """Return every (partition, offset), sorted, so that a gap or a duplicate shows."""
    return sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())


def dense(**ends: int) -> list[tuple[int, int]]:
    return [(int(name[1:]), offset) for name, end in ends.items() for offset in range(end)]


def test_a_topic_is_a_table(lake: Lake) -> None:
    orders = lake.log.topic("orders")
    orders.create(2)
    sent = [
        lakelog.Outgoing({"n": n}, key=f"k{n}", headers={"a": "b"} if n % 2 else None, partition=n % 2)
        for n in range(100)
    ]
    orders.publish_many(sent)
    assert lake.read("orders").columns == topic(lake.spark, "orders", url=lake.url).columns == [*DEFAULT_COLUMNS]
    frame = lake.read("orders", columns="*")
    assert frame.schema == spark_schema()
    rows = frame.orderBy("partition", "offset").collect()
    assert [(row.partition, row.offset) for row in rows] == dense(p0=50, p1=50)
    first = rows[50]
    assert (bytes(first.key), bytes(first.value), first.headers) == (b"k1", b'{"n":1}', {"a": "b"})
    assert first.content_type == "application/json"
    assert first.appended_at is not None and first.epoch == 0


def filled(lake: Lake, name: str, count: int, *, partitions: int = 2) -> Any:
    """Create a topic with this number of messages in each partition, published in batches."""
    made = lake.log.topic(name)
    made.create(partitions)
    append(made, count, partitions=partitions)
    return made


def append(made: Any, count: int, *, partitions: int = 2) -> None:
    for partition in range(partitions):
        values = [f"{partition}/{n}" for n in range(count)]
        for start in range(0, count, 100):
            made.publish_many([lakelog.Outgoing(value, partition=partition) for value in values[start : start + 100]])


def test_sql_reads_a_topic(lake: Lake) -> None:
    filled(lake, "in-sql", 30)
    options = f"""topic 'in-sql', url '{lake.url}', endOffsets '{{"1": 5}}'"""
    lake.spark.sql(f"CREATE OR REPLACE TEMP VIEW v USING lakelog OPTIONS ({options})")
    found = lake.spark.sql("SELECT partition, count(*) AS n, max(offset) AS last FROM v GROUP BY partition ORDER BY 1")
    assert [tuple(row) for row in found.collect()] == [(0, 30, 29), (1, 5, 4)]


def test_an_empty_topic_is_an_empty_table(lake: Lake) -> None:
    lake.log.topic("empty").create(2)
    assert lake.read("empty").collect() == []
    frame = topic(lake.spark, "empty", url=lake.url)
    assert (frame.collect(), frame.schema) == ([], spark_schema(DEFAULT_COLUMNS))


def test_ranges_of_offsets_and_times(lake: Lake) -> None:
    made = filled(lake, "ranged", 100)
    ends = '{"0": 20, "1": 7}'
    expected = [(0, n) for n in range(5, 20)] + [(1, n) for n in range(7)]
    assert offsets(lake.read("ranged", startOffsets='{"0": 5}', endOffsets=ends)) == expected
    between = topic(lake.spark, "ranged", start_offsets={0: 5}, end_offsets={0: 20, 1: 7}, url=lake.url)
    assert offsets(between) == expected
    at = made.fetch_arrow(0, offset=99).column("appended_at")[0].as_py() + timedelta(microseconds=1)
    append(made, 50)
    for frame in (lake.read("ranged", since=at.isoformat()), topic(lake.spark, "ranged", since=at, url=lake.url)):
        assert [row for row in offsets(frame) if row[0] == 0] == [(0, n) for n in range(100, 150)]
    until = topic(lake.spark, "ranged", until=at, url=lake.url)
    assert [row for row in offsets(until) if row[0] == 0] == [(0, n) for n in range(100)]
    assert topic(lake.spark, "ranged", since="1 hour", url=lake.url).count() == 300


def test_a_frame_is_one_moment_of_the_topic_s22(lake: Lake) -> None:
    """The result is the same at every use while a producer runs; and each new read is dense up to some offset."""
    made = filled(lake, "growing", 100)
    frame = topic(lake.spark, "growing", url=lake.url)
    stop = threading.Event()

    def produce() -> None:
        while not stop.is_set():
            append(made, 20)

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        for _ in range(3):
            assert offsets(frame) == dense(p0=100, p1=100)
            found = offsets(lake.read("growing"))
            counts = Counter(partition for partition, _ in found)
            assert found == dense(p0=counts[0], p1=counts[1])
            joined = frame.alias("a").join(frame.alias("b"), ["partition", "offset"])
            assert joined.count() == 200
    finally:
        stop.set()
        producer.join(30)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topic": "no-such-topic"}, "no-such-topic"),
        ({"topic": "orders", "startOffset": "{}"}, "Did you mean `startOffsets`?"),
        ({"topic": "orders", "group": "g"}, "It is an option of spark.readStream."),
        ({"topic": "orders", "since": "yesterday"}, "such as '1 day' or '90 min'"),
        ({"topic": "orders", "endOffsets": '{"0": 1000000}'}, "1000000 is outside"),
        ({"topic": "orders", "endOffsets": '{"9": 1}'}, "has partitions 0 to 1, not 9"),
        ({}, "Option `topic` is missing."),
    ],
)
def test_invalid_options_are_refused_with_what_to_do(lake: Lake, options: dict[str, str], said: str) -> None:
    if "orders" in options.values():
        lake.log.topic("orders").create(2, if_missing=True)
    with pytest.raises(Exception, match=re.escape(said)):
        lake.spark.read.format("lakelog").options(url=lake.url, **options).load().collect()


def test_without_a_url_it_says_where_to_put_one(lake: Lake) -> None:
    with pytest.raises(Exception, match="LAKELOG_URL"):
        lake.spark.read.format("lakelog").option("topic", "orders").load().collect()
    with pytest.raises(InvalidRequest, match=r"configure\(SparkSession\.builder"):
        topic(lake.spark, "orders")


def test_the_session_s_configuration_says_where_topics_are(lake: Lake) -> None:
    filled(lake, "configured", 10)
    lake.spark.conf.set("spark.lakelog.url", lake.url)
    try:
        assert topic(lake.spark, "configured").count() == 20
    finally:
        lake.spark.conf.unset("spark.lakelog.url")


def test_configure_sets_what_was_measured_and_nothing_else() -> None:
    made = configure(SparkSession.builder.appName("mine"), url="http://x")
    assert getattr(made, "_options") == {"spark.app.name": "mine", **SETTINGS, "spark.lakelog.url": "http://x"}  # noqa: B009


def test_history_and_the_newest_second_in_one_read_s22(lake: Lake) -> None:
    """Cold, hot, and a file that is read in part: the same messages in every way."""
    made = filled(lake, "tiered", 300)
    before = {row.offset: row.value for row in lake.read("tiered").where("partition = 0").collect()}
    segments = tier_by_hand(lake.log, "tiered", segment_bytes=1)
    assert len(segments) >= 4, "several files for each partition"
    append(made, 40)
    frame = topic(lake.spark, "tiered", url=lake.url)
    assert frame.schema == spark_schema(DEFAULT_COLUMNS)
    assert offsets(frame) == offsets(lake.read("tiered")) == dense(p0=340, p1=340)
    some = topic(lake.spark, "tiered", columns=["value", "offset"], start_offsets={0: 150}, url=lake.url)
    assert (some.columns, some.count()) == (["value", "offset"], 190 + 340)
    assert lake.read("tiered", columns="value").agg({"value": "count"}).collect()[0][0] == 680
    cold = {row.offset: row.value for row in frame.where("partition = 0 and offset < 300").collect()}
    assert cold == before
    starts, ends = {0: 150, 1: 299}, {0: 310, 1: 301}
    expected = [(0, n) for n in range(150, 310)] + [(1, n) for n in range(299, 301)]
    assert offsets(topic(lake.spark, "tiered", start_offsets=starts, end_offsets=ends, url=lake.url)) == expected
    options = {"startOffsets": '{"0": 150, "1": 299}', "endOffsets": '{"0": 310, "1": 301}'}
    assert offsets(lake.read("tiered", **options)) == expected


def test_what_is_behind_a_segment_that_does_not_count_is_read_from_its_files_s22(lake: Lake) -> None:
    """Cold, hot, and cold again: each message once."""
    made = filled(lake, "holed", 300)
    segments = tier_by_hand(lake.log, "holed", segment_bytes=1, unverified={1})
    append(made, 10)
    frame = topic(lake.spark, "holed", url=lake.url)
    assert len(frame.inputFiles()) == len(segments) - 1
    assert offsets(frame) == offsets(lake.read("holed")) == dense(p0=310, p1=310)
    part = topic(lake.spark, "holed", start_offsets={0: 150}, end_offsets={0: 305, 1: 0}, url=lake.url)
    assert offsets(part) == [(0, offset) for offset in range(150, 305)]


def test_only_files_of_the_range_are_opened(lake: Lake) -> None:
    made = filled(lake, "pruned", 300, partitions=1)
    segments = tier_by_hand(lake.log, "pruned", segment_bytes=1)
    at = made.fetch_arrow(0, offset=200).column("appended_at")[0].as_py()
    assert len(segments) == 3

    def files(**wish: Any) -> list[str]:
        frame = topic(lake.spark, "pruned", url=lake.url, **wish)
        return sorted(Path(unquote(urlsplit(file).path)).name for file in frame.inputFiles())

    names = [Path(segment.path).name for segment in segments]
    assert files() == names
    assert files(start_offsets={0: 100}) == names[1:]
    assert files(start_offsets={0: 120}, end_offsets={0: 130}) == [names[1]]
    assert files(since=at) == [names[2]]
    assert files(until=at) == names[:2]


def test_spark_looks_for_files_in_a_few_tasks(lake: Lake) -> None:
    """With a task for each file, which is Spark's default, starting tasks takes most of the time."""
    append(filled(lake, "many", 900, partitions=1), 900, partitions=1)
    files = len(tier_by_hand(lake.log, "many", segment_bytes=1))
    context, name = lake.spark.sparkContext, "spark.sql.sources.parallelPartitionDiscovery"
    before = lake.spark.conf.get(f"{name}.parallelism")
    lake.spark.conf.set(f"{name}.threshold", "1")
    try:
        context.setJobGroup("listing", "")
        topic(lake.spark, "many", url=lake.url)
    finally:
        lake.spark.conf.unset(f"{name}.threshold")
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(each) for each in tracker.getJobIdsForGroup("listing")]
    stages = [tracker.getStageInfo(each) for job in jobs if job is not None for each in job.stageIds]
    tasks = [stage.numTasks for stage in stages if stage is not None]
    assert files > 8 and tasks == [4 * context.defaultParallelism]
    assert lake.spark.conf.get(f"{name}.parallelism") == before


def test_all_columns_are_the_same_from_either_place(lake: Lake) -> None:
    made = lake.log.topic("columns")
    made.create(1)
    with made.producer() as producer:
        for n in range(50):
            producer.send({"n": n}, key=str(n), headers={"a": str(n), "b": "x"}, correlation_id=f"c{n}")
    made.publish_many([lakelog.Outgoing(b"", idempotency_key=f"i{n}") for n in range(5)])
    hot = lake.read("columns", columns="*").orderBy("offset").collect()
    assert (len(hot), hot[7].correlation_id, hot[7].headers) == (55, "c7", {"a": "7", "b": "x"})
    tier_by_hand(lake.log, "columns")
    frame = topic(lake.spark, "columns", columns="*", url=lake.url)
    assert len(frame.inputFiles()) == 1
    assert frame.orderBy("offset").collect() == hot
    assert lake.read("columns", columns="*").orderBy("offset").collect() == hot


@pytest.mark.parametrize(
    ("condition", "matching", "read"),
    [
        ("partition = 1 AND offset >= 90", 210, 210),
        ("partition = 0 AND offset < 5", 5, 5),
        ("key = X'6B31' AND partition = 0", 100, 100),
        ("key IN (cast('k1' AS binary), cast('k9' AS binary))", 200, 200),
        ("appended_at >= '{at}'", 300, 300),
        ("appended_at < '{at}' AND partition <> 0", 150, 300),
        ("cast(key AS string) = 'k1'", 200, 600),
        ("appended_at > '{at}' AND appended_at < '{at}'", 0, 0),
    ],
)
def test_filters_are_pushed_down_where_spark_allows_it(
    lake: Lake, filterable: datetime, condition: str, matching: int, read: int
) -> None:
    condition = condition.format(at=filterable.isoformat())
    assert rows_read(lake.read("filterable").where(condition)) == (matching, 600)
    lake.spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        assert rows_read(lake.read("filterable").where(condition)) == (matching, read)
    finally:
        lake.spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.fixture(scope="module")
def filterable(lake: Lake) -> datetime:
    """A topic with 300 messages in each partition and three keys. Return the time before the second half."""
    made = lake.log.topic("filterable")
    made.create(2)
    for half in range(2):
        if half:
            tier_by_hand(lake.log, "filterable")
        made.publish_many(
            [lakelog.Outgoing(str(n), key=f"k{n % 3}", partition=p) for p in range(2) for n in range(150)]
        )
    return min(made.fetch_arrow(p, offset=150).column("appended_at")[0].as_py() for p in range(2))


def rows_read(frame: DataFrame) -> tuple[int, int]:
    """Return the number of rows that match, and of rows that tasks handed to Spark."""
    matching = len(frame.collect())
    metrics = frame._jdf.queryExecution().executedPlan().collectLeaves().head().metrics()
    return matching, metrics.get("numOutputRows").get().value()


def test_a_plan_older_than_its_files_is_never_read_short_s21(lake: Lake) -> None:
    """Reading a missing file is an error, even if the session is set to ignore it."""
    filled(lake, "gone", 100, partitions=1)
    frame = topic(lake.spark, "gone", url=lake.url)
    (segment,) = tier_by_hand(lake.log, "gone")
    assert frame.count() == 100, "planned as hot, read wherever it is"
    frame = topic(lake.spark, "gone", url=lake.url)
    (lake.store / segment.path).rename(lake.store / "elsewhere")
    lake.spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        with pytest.raises(Exception, match=r"FILE_NOT_EXIST|does not exist"):
            frame.count()
        with pytest.raises(Exception, match="the same object store"):
            lake.read("gone").collect()
    finally:
        lake.spark.conf.unset("spark.sql.files.ignoreMissingFiles")
        (lake.store / "elsewhere").rename(lake.store / segment.path)
    assert frame.count() == lake.read("gone").count() == 100


def test_a_table_for_a_group_has_no_copies_for_other_groups_and_no_expired_messages(lake: Lake) -> None:
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    made = filled(lake, "for-group", 10, partitions=1)
    redrive_one(lake.log, "for-group", "billing")
    made.publish("cold", expires=long_ago)
    tier_by_hand(lake.log, "for-group")
    made.publish("hot", expires=long_ago)
    redrive_one(lake.log, "for-group", "email")
    for group, copies in ((None, [10, 11, 12, 13]), ("billing", [10]), ("email", [13])):
        expected = dense(p0=10) + [(0, offset) for offset in copies]
        options = {} if group is None else {"forGroup": group}
        assert offsets(lake.read("for-group", **options)) == expected
        assert offsets(topic(lake.spark, "for-group", for_group=group, url=lake.url)) == expected
