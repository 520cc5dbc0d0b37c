"""A topic as a stream: as an ordinary source, and as the one member of a cursor group; over a real server and Spark."""

from __future__ import annotations

import contextlib
import itertools
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

import lakelog
from lakelog.errors import GroupNotFound
from tests.acceptance.cli_kit import Cli
from tests.kit.fleet import Fleet
from tests.kit.postgres import Cluster
from tests.kit.process import Process, Supervisor
from tests.kit.spark_tables import committed_table
from tests.kit.stream_driver import Driver, Query, stopped
from tests.kit.waiting import eventually

pytestmark = pytest.mark.timeout(600)
_numbers = itertools.count()


@dataclass(frozen=True, kw_only=True)
class Lake:
    """A server, a client, Spark, and a folder for checkpoints."""

    spark: SparkSession
    url: str
    folder: Path
    log: Any

    def topic(self, partitions: int = 3, messages: int = 0) -> Topic:
        """Create a topic with this number of messages."""
        name = f"stream-{next(_numbers)}"
        made = self.log.topic(name)
        made.create(partitions)
        topic = Topic(lake=self, name=name, made=made, partitions=partitions)
        topic.publish(messages)
        return topic


@dataclass(kw_only=True)
class Topic:
    """A topic that counts its published messages, and queries that write what they read to one Parquet table."""

    lake: Lake
    name: str
    made: Any
    partitions: int
    published: int = 0
    group: str = field(init=False)

    def __post_init__(self) -> None:
        self.group = f"group-{self.name}"

    def publish(self, count: int) -> None:
        numbers = range(self.published, self.published + count)
        self.made.publish_many([lakelog.Outgoing({"n": n}, partition=n % self.partitions) for n in numbers])
        self.published += count

    def stream(self, **options: str) -> DataFrame:
        return self.lake.spark.readStream.format("lakelog").options(
            topic=self.name, url=self.lake.url, **options
        ).load()  # fmt: skip

    def query(self, place: str = "one", **options: Any) -> StreamingQuery:
        """Start a query that runs until it is stopped."""
        return self._writer(place, options).start()

    def run(self, place: str = "one", **options: Any) -> StreamingQuery:
        """Run a query that reads the existing messages and ends."""
        query = self._writer(place, options).trigger(availableNow=True).start()
        assert query.awaitTermination(60)
        return query

    def numbers(self, place: str = "one") -> list[int]:
        """Return the rows of the table, sorted, so that a gap or a duplicate shows."""
        found = committed_table(self.folder(place) / "table", ["value"])["value"].to_pylist()
        return sorted(json.loads(value)["n"] for value in found)

    def committed(self) -> list[int]:
        try:
            positions = self.lake.log.group(self.group).positions(self.name)
        except GroupNotFound:
            return []
        return [positions[partition].offset for partition in sorted(positions)]

    def driver(self, name: str | None = None, **options: str) -> Driver:
        """Start the same query in a separate process."""
        folder = self.folder("one")
        query = Query(
            source={"topic": self.name, "url": self.lake.url, **options},
            checkpoint=str(folder / "checkpoint"),
            sink_options={"path": str(folder / "table")},
            name=name,
        )
        return Driver(queries=[query])

    def ends(self) -> list[int]:
        ends = self.lake.log.lake.watermarks(self.name).ends
        return [ends[partition] for partition in sorted(ends)]

    def read_all(self, place: str = "one") -> bool:
        return self.numbers(place) == list(range(self.published))

    def folder(self, place: str) -> Path:
        return self.lake.folder / self.name / place

    def _writer(self, place: str, options: dict[str, Any]) -> DataStreamWriter:
        folder = self.folder(place)
        return (
            self.stream(**options)
            .writeStream.format("parquet")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .option("path", str(folder / "table"))
        )


@pytest.fixture(scope="module")
def lake(cluster: Cluster, spark: SparkSession) -> Iterator[Lake]:
    with tempfile.TemporaryDirectory(prefix="lakelog-stream-") as folder, Fleet(cluster, servers=1) as fleet:
        url = f"http://127.0.0.1:{fleet.ports[0]}"
        with lakelog.connect(url) as log:
            yield Lake(spark=spark, url=url, folder=Path(folder), log=log)
            eventually(lambda: not sources(), within=60, what="the processes of stopped queries have ended")


def sources() -> list[psutil.Process]:
    """Return the Python processes of running queries."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "pyspark.sql.streaming.python_streaming_source_runner" in child.cmdline():
                found.append(child)
    return found


def failure(query: StreamingQuery, seconds: float = 180) -> str:
    """Return the error that ended the query."""
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination(int(seconds))
        raise AssertionError("the query goes on")
    return str(caught.value)


# Without a group ------------------------------------------------------------------------------------------------------


def test_available_now_reads_exactly_the_existing_messages_and_a_restart_continues(lake: Lake) -> None:
    topic = lake.topic(messages=1000)
    topic.run(start="earliest")
    assert topic.read_all()
    topic.publish(10)
    topic.run(start="earliest")
    assert topic.read_all()


def test_a_new_stream_begins_at_the_latest_message_and_keeps_that_in_its_checkpoint(lake: Lake) -> None:
    topic = lake.topic(messages=100)
    topic.run()
    assert topic.numbers() == []
    topic.publish(5)
    topic.run()
    assert topic.numbers() == [100, 101, 102, 103, 104]


def test_a_stream_may_begin_at_offsets(lake: Lake) -> None:
    topic = lake.topic(partitions=2, messages=20)
    topic.run(start="earliest", startOffsets='{"0": 8}')
    assert topic.numbers() == [1, 3, 5, 7, 9, 11, 13, 15, 16, 17, 18, 19]


def test_the_rate_is_limited_and_every_micro_batch_is_full(lake: Lake) -> None:
    topic = lake.topic(messages=100)
    query = topic.run(start="earliest", maxMessagesPerTrigger="30")
    assert [progress["numInputRows"] for progress in query.recentProgress] == [30, 30, 30, 10]
    assert topic.read_all()


def test_the_size_of_a_micro_batch_is_limited(lake: Lake) -> None:
    topic = lake.topic(messages=100)
    size = sum(lake.log.lake.watermarks(topic.name).bytes.values())
    query = topic.run(start="earliest", maxBytesPerTrigger=str(size // 4))
    assert len(query.recentProgress) in (4, 5)
    assert topic.read_all()


def test_removed_messages_end_the_query_unless_its_options_say_otherwise_and_are_counted(lake: Lake) -> None:
    topic = lake.topic(messages=90)
    topic.run(start="earliest")
    topic.publish(30)
    topic.made.purge()
    topic.publish(9)
    assert ".option('failOnDataLoss', 'false')" in failure(topic.query())
    query = topic.run(failOnDataLoss="false")
    assert topic.numbers() == [*range(90), *range(120, 129)]
    assert json.loads(query.recentProgress[-1]["sources"][0]["endOffset"])["lost"] == 30


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"grup": "x"}, "Unknown option `grup` for spark.read and spark.readStream. Did you mean `group`?"),
        ({"start": "yesterday"}, "`start` must be earliest, latest or a time such as"),
        ({"topic": "nowhere"}, "lakelog topics create nowhere"),
    ],
)
def test_load_refuses_what_cannot_be_read_in_one_line(lake: Lake, options: dict[str, str], said: str) -> None:
    given = {"topic": lake.topic().name, "url": lake.url, **options}
    with pytest.raises(AnalysisException) as caught:
        lake.spark.readStream.format("lakelog").options(**given).load()
    [line, *rest] = caught.value.getMessage().splitlines()
    assert said in line
    assert [each.strip() for each in rest] == ["SQLSTATE: 38000"]


def test_a_recreated_topic_is_not_read_as_the_old_one(lake: Lake) -> None:
    topic = lake.topic(messages=10)
    topic.run(start="earliest")
    topic.made.delete()
    topic.made.create(3)
    topic.publish(20)
    assert "created again" in failure(topic.query(start="earliest"))


# As a member of a group -----------------------------------------------------------------------------------------------


def test_the_position_of_the_group_is_what_was_read(lake: Lake) -> None:
    topic = lake.topic(messages=1000)
    topic.run(group=topic.group, start="earliest")
    assert topic.read_all()
    assert topic.committed() == topic.ends()
    topic.publish(500)
    topic.run(group=topic.group, maxMessagesPerTrigger="200")
    assert topic.read_all()
    assert topic.committed() == topic.ends()
    assert lake.log.group(topic.group).lag() == 0
    eventually(lambda: lake.log.group(topic.group).describe().members == ())


def test_a_query_reads_new_messages_and_added_partitions(lake: Lake) -> None:
    topic = lake.topic(messages=10)
    query = topic.query(group=topic.group, start="earliest")
    try:
        eventually(lambda: topic.read_all(), within=180)
        topic.made.alter(partitions=5)
        topic.partitions = 5
        topic.publish(100)
        eventually(lambda: topic.read_all(), within=180)
        eventually(lambda: topic.committed() == topic.ends())
        [member] = lake.log.group(topic.group).describe().members
        assert member.client_host == f"127.0.0.1 (spark: id {query.id})"
        assert member.member_id.startswith("spark-")
    finally:
        query.stop()
    eventually(lambda: lake.log.group(topic.group).describe().members == ())


def test_a_second_query_on_the_group_replaces_the_first_which_says_so(lake: Lake) -> None:
    """S17: later calls of the first query are refused."""
    topic = lake.topic(messages=10)
    first = topic.query("one", group=topic.group, start="earliest", sessionMs="6000")
    eventually(lambda: topic.read_all("one"), within=180)
    eventually(lambda: topic.committed() == topic.ends())
    second = topic.query("two", group=topic.group)
    try:
        said = failure(first)
        [member] = lake.log.group(topic.group).describe().members
        # A task of the second query may have reported its id by then.
        assert f"replaced by {member.member_id} on 127.0.0.1 (spark" in said
        topic.publish(5)
        eventually(lambda: topic.numbers("two") == [10, 11, 12, 13, 14], within=180)
        assert topic.numbers("one") == list(range(10))
        eventually(lambda: topic.committed() == topic.ends())
    finally:
        second.stop()
    said = failure(topic.query("one", group=topic.group))
    assert "new checkpoint" in said
    assert "lakelog groups seek" in said


def test_a_seek_ends_the_running_query_and_its_checkpoint_is_refused_after_it(lake: Lake) -> None:
    topic = lake.topic(messages=30)
    query = topic.query(group=topic.group, start="earliest")
    eventually(lambda: topic.read_all(), within=180)
    eventually(lambda: topic.committed() == topic.ends())
    topic.made.seek(topic.group, to="earliest")
    topic.publish(1)
    assert "moved by a seek while this query ran" in failure(query)
    assert topic.committed() == [0, 0, 0]
    assert "is at offset 0 of partition 0" in failure(topic.query(group=topic.group))
    topic.run("again", group=topic.group)
    assert topic.read_all("again")


@pytest.mark.nightly
def test_a_kill_in_the_first_micro_batch_loses_nothing(lake: Lake) -> None:
    """It starts at the latest message, once: messages published while it is killed are read."""
    topic = lake.topic(messages=10)
    kill_at("spark.after_initial_offset", topic.driver(group=topic.group, sessionMs="1000"))
    assert topic.committed() == []
    for point in ("spark.before_planning", "spark.after_planning"):
        kill_at(point, topic.driver(group=topic.group, sessionMs="1000"))
        topic.publish(5)
        assert topic.committed() == [4, 3, 3]
    topic.run(group=topic.group)
    assert topic.numbers() == list(range(10, 20))
    assert topic.committed() == topic.ends()


def test_a_stream_from_topic_to_topic_leaves_no_group_behind_until_its_target_exists(lake: Lake) -> None:
    source = lake.topic(messages=30)
    target = lake.log.topic(f"{source.name}-copy")

    def copy() -> StreamingQuery:
        return (
            source.stream(group=source.group, start="earliest")
            .writeStream.format("lakelog")
            .options(url=lake.url, topic=target.name, checkpointLocation=str(source.folder("checkpoint")))
            .trigger(availableNow=True)
            .start()
        )

    [line, *_] = failure(copy()).splitlines()
    assert f"lakelog topics create {target.name}" in line
    eventually(lambda: source.committed() == [], within=30)
    target.create(2)
    assert copy().awaitTermination(120)
    assert sorted(message.value["n"] for message in target.read()) == list(range(30))
    assert source.committed() == source.ends()


def test_describe_shows_a_query_beside_workers_with_true_lag_and_misses_it_when_killed(
    lake: Lake, tmp_path: Path
) -> None:
    topic = lake.topic(messages=30)
    cli = Cli(folder=tmp_path, env={"LAKELOG_URL": lake.url})
    with Supervisor() as supervisor, lakelog.connect(lake.url) as log:

        @log.topic(topic.name).subscribe(group=f"workers-{topic.name}", start_from="earliest")
        def handle(value: Any) -> None:
            pass

        log.start()
        process = topic.driver(name="counts", group=topic.group, start="earliest", sessionMs="8000").start(supervisor)
        eventually(lambda: topic.committed() == [10, 10, 10], within=180)
        process.stop()
        topic.publish(12)
        shown = eventually(lambda: lagging(cli, topic.group, 12))
        [member] = shown["members"]
        identity = json.loads((topic.folder("one") / "checkpoint" / "metadata").read_text())["id"]
        assert member["client_host"] == f"127.0.0.1 (spark: counts, id {identity})"
        assert member["client_host"] in cli.run("groups", "describe", topic.group).out
        assert shown["kind"] == "cursor"
        process.kill9()
        killed = time.monotonic()
        eventually(lambda: not described(cli, topic.group)["members"])
        assert time.monotonic() - killed < 20, "the session has 8 s, and the command takes its time"
        assert described(cli, topic.group)["lag"] == 12
        eventually(lambda: lagging(cli, f"workers-{topic.name}", 0), within=20)


def lagging(cli: Cli, group: str, lag: int) -> Any:
    shown = described(cli, group)
    return shown if shown["lag"] == lag else None


def described(cli: Cli, group: str) -> Any:
    return cli.run("groups", "describe", group, "--json").json


def kill_at(point: str, driver: Driver) -> None:
    """Run the query until one of its processes has stopped itself at the fail point; then kill all of them."""
    with Supervisor() as supervisor:
        process = driver.start(supervisor, points=f"{point}=stop")
        eventually(lambda: has_stopped(process), within=180, what=f"stopped at {point}")
        process.kill9()


def has_stopped(process: Process) -> bool:
    assert process.running, process.log_text()
    return bool(stopped(process.children()))
