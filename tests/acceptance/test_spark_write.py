"""Writing to a topic from Spark, exactly once (S22): batches, streams, retries, copies of tasks, re-runs; two cells."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

import lakelog
from lakelog.batches import partition_of
from lakelog.errors import Conflict, EpochChanged, InvalidRequest
from lakelog.spark import write
from lakelog.spark.writing.sink import BatchWriter
from lakelog.storage.postgres import migrate
from tests.kit.fleet import LAKELOG
from tests.kit.ports import free_port
from tests.kit.postgres import Cluster
from tests.kit.process import Supervisor
from tests.kit.spark import local_session

pytestmark = pytest.mark.timeout(180)


@dataclass(frozen=True, kw_only=True)
class Sink:
    """A server over two cells, a client, and Spark."""

    spark: SparkSession
    url: str
    log: Any

    def write(self, frame: DataFrame, topic: str, **options: str) -> None:
        frame.write.format("lakelog").mode("append").options(url=self.url, topic=topic, **options).save()

    def writer(self, topic: str, write_id: str, schema: str = "key string, value string") -> BatchWriter:
        """Return the writer as Spark creates it on the driver."""
        parsed = StructType.fromDDL(schema)
        return BatchWriter({"url": self.url, "topic": topic, "writeId": write_id}, parsed, False)

    def read(self, topic: str) -> list[Any]:
        return list(self.log.topic(topic).read())

    def values(self, topic: str) -> list[str]:
        return sorted(bytes(message.raw).decode() for message in self.read(topic))


@pytest.fixture(scope="module")
def sink(cluster: Cluster, second_cluster: Cluster) -> Iterator[Sink]:
    database, second = cluster.create_database(), second_cluster.create_database()
    asyncio.run(migrate(database, {"b": second}))
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    env = {"LAKELOG_CELLS": json.dumps({"b": second})}
    argv = [LAKELOG, "serve", "--port", str(port), "--database-url", database, "--no-auth"]
    with Supervisor() as supervisor, local_session(master="local[2,3]") as spark:
        supervisor.start(argv, env=env, ready=f"{url}/readyz", name="server")
        with lakelog.connect(url) as log:
            yield Sink(spark=spark, url=url, log=log)


def rows(spark: SparkSession, count: int, *, parts: int = 4) -> DataFrame:
    return spark.range(0, count, 1, parts).selectExpr("concat('k', id % 37) AS key", "concat('v', id) AS value")


def batch(*values: str) -> pa.RecordBatch:
    return pa.record_batch({"key": [value[:1] for value in values], "value": list(values)})


def test_written_rows_are_read_back(sink: Sink) -> None:
    sink.log.topic("all").create(4)
    frame = sink.spark.range(0, 1000, 1, 3).selectExpr(
        "encode(concat('k', id % 7), 'UTF-8') AS key",
        "encode(cast(id AS string), 'UTF-8') AS value",
        "map('n', cast(id AS string)) AS headers",
        "'text/plain' AS content_type",
        "concat('c', id) AS correlation_id",
        "timestamp_micros(1700000000000001 + id) AS created_at",
        "cast(NULL AS timestamp) AS expires_at",
    )
    sink.write(frame, "all")
    found = {message.value: message for message in sink.read("all")}
    assert sorted(found, key=int) == [str(n) for n in range(1000)]
    message = found["12"]
    assert (message.key, message.headers, message.correlation_id) == (b"k5", {"n": "12"}, "c12")
    assert (message.content_type, message.expires_at) == ("text/plain", None)
    assert message.created_at.timestamp() == pytest.approx(1_700_000_000.000013)


def test_keys_are_where_the_client_puts_them_over_two_cells(sink: Sink) -> None:
    sink.log.topic("keyed").create(5)
    sink.write(rows(sink.spark, 5000), "keyed")
    read = sink.read("keyed")
    assert len(read) == 5000
    assert all(message.partition == partition_of(message.key, 5) for message in read)
    assert len({message.partition for message in read}) == 5


def test_messages_of_a_key_keep_the_order_of_their_task(sink: Sink) -> None:
    sink.log.topic("order").create(3)
    sink.write(rows(sink.spark, 40_000, parts=1), "order")
    last: dict[bytes, int] = {}
    for message in sink.read("order"):
        number = int(bytes(message.raw).decode()[1:])
        assert number > last.get(message.key, -1)
        last[message.key] = number


def test_without_keys_rows_are_spread_and_a_partition_column_decides(sink: Sink) -> None:
    sink.log.topic("spread").create(4)
    sink.write(sink.spark.range(0, 20_000, 1, 2).selectExpr("cast(id AS string) AS value"), "spread")
    counts = [info.high_watermark - info.log_start for info in sink.log.topic("spread").describe().partition_list]
    assert sum(counts) == 20_000 and min(counts) >= 2000
    sink.log.topic("named").create(4)
    sink.write(sink.spark.range(10).selectExpr("cast(id AS string) AS value", "3 AS partition"), "named")
    assert {message.partition for message in sink.read("named")} == {3}


def test_s22_a_task_that_is_tried_again_adds_nothing(sink: Sink) -> None:
    """The first attempt dies when it has staged some messages."""
    sink.log.topic("flaky").create(4)

    def once_more(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        seen = 0
        for each in batches:
            yield each
            seen += each.num_rows
            if seen >= 50_000 and context is not None and context.attemptNumber() == 0:
                raise RuntimeError("the first attempt fails")

    wide = sink.spark.range(0, 120_000, 1, 2).selectExpr("cast(id AS string) AS key", "repeat(uuid(), 24) AS value")
    sink.write(wide.mapInArrow(once_more, "key string, value string"), "flaky")
    assert sorted(int(message.key) for message in sink.read("flaky")) == list(range(120_000))


def test_s22_of_two_copies_of_a_task_one_counts(sink: Sink) -> None:
    sink.log.topic("copies").create(2)
    writer = sink.writer("copies", "copies-1")
    first, copy = (writer.write(iter([batch("a", "b", "c")])) for _ in range(2))
    other = writer.write(iter([batch("d"), batch("e")]))
    assert sink.values("copies") == []
    writer.commit([copy, other, None])
    assert sink.values("copies") == ["a", "b", "c", "d", "e"]
    writer.commit([first, other])
    assert sink.values("copies") == ["a", "b", "c", "d", "e"]


def test_s22_the_first_write_of_a_write_id_is_final_and_another_count_is_an_error(sink: Sink) -> None:
    sink.log.topic("again").create(3)
    for _ in range(2):
        sink.write(rows(sink.spark, 100), "again", writeId="night-1")
    with pytest.raises(PySparkException, match=r"decided before with 100 messages\. This run has 1, and added nothing"):
        sink.write(sink.spark.sql("SELECT 'other' AS value"), "again", writeId="night-1")
    assert sink.values("again") == sorted(f"v{n}" for n in range(100))
    sink.write(sink.spark.sql("SELECT 'next' AS value"), "again", writeId="night-2")
    assert len(sink.values("again")) == 101


def test_a_write_of_no_rows_is_a_write(sink: Sink) -> None:
    sink.log.topic("empty").create(2)
    for _ in range(2):
        sink.write(rows(sink.spark, 10).where("false"), "empty", writeId="w")
    with pytest.raises(PySparkException, match=r"decided before with 0 messages\. This run has 10"):
        sink.write(rows(sink.spark, 10), "empty", writeId="w")
    assert sink.values("empty") == []


def test_a_write_of_which_some_rows_name_their_partition_is_refused_whole_if_partitions_are_added(sink: Sink) -> None:
    topic = sink.log.topic("grown")
    topic.create(2)
    schema = "key string, value string, partition int"
    rows = pa.record_batch({"key": ["a", "a"], "value": ["a", "b"], "partition": pa.array([1, None], pa.int32())})
    writer = sink.writer("grown", "w", schema)
    staged = writer.write(iter([rows]))
    topic.alter(partitions=3)
    with pytest.raises(EpochChanged, match="name the partition of every row"):
        writer.commit([staged])
    assert sink.values("grown") == []
    again = sink.writer("grown", "w", schema)
    again.commit([again.write(iter([rows]))])
    assert sink.values("grown") == ["a", "b"]


def test_a_write_to_a_recreated_topic_is_refused(sink: Sink) -> None:
    topic = sink.log.topic("anew")
    topic.create(2)
    writer = sink.writer("anew", "w")
    staged = writer.write(iter([batch("a")]))
    topic.delete()
    topic.create(2)
    with pytest.raises(Conflict, match="created again"):
        writer.commit([staged])


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (["'a' AS value", "1 AS price"], "A message has no column 'price'. Known columns: value, key"),
        (["'a' AS key"], "'value' is missing"),
        (["id AS value"], "Cast it"),
        (["'a' AS value", "'k' AS idempotency_key"], "write id"),
        (["'a' AS value", "map('a', 1) AS headers"], "map<string,string>"),
    ],
)
def test_rows_that_are_no_messages_are_refused_with_what_to_do(sink: Sink, columns: list[str], said: str) -> None:
    sink.log.topic("strict").create(1, if_missing=True)
    with pytest.raises(Exception, match=said):
        sink.write(sink.spark.range(1).selectExpr(*columns), "strict")
    assert sink.values("strict") == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"writeld": "x"}, "Unknown option `writeld` for a write. Did you mean `writeId`?"),
        ({"topic": "nowhere"}, "lakelog topics create nowhere"),
        ({"writeKind": "micro"}, "Option `writeKind` must be batch or stream, not 'micro'."),
        ({"writeKind": "stream", "writeId": "a"}, "The write id of a stream is a name and the number"),
        ({"topic": ""}, "Option `topic` is missing."),
    ],
)
def test_save_refuses_what_cannot_be_written_in_one_line(sink: Sink, options: dict[str, str], said: str) -> None:
    sink.log.topic("strict").create(1, if_missing=True)
    given = {"topic": "strict", "url": sink.url, **options}
    with pytest.raises(PySparkException) as caught:
        rows(sink.spark, 1).write.format("lakelog").mode("append").options(**given).save()
    [line, *rest] = caught.value.getMessage().splitlines()
    assert said in line
    assert [each.strip() for each in rest] == ["SQLSTATE: 38000"]


def test_a_row_that_does_not_match_the_schema_is_refused_with_its_reason(sink: Sink) -> None:
    schema = {"type": "object", "properties": {"id": {"type": "integer", "maximum": 98}}, "required": ["id"]}
    sink.log.topic("checked").create(3, schema=schema)
    values = sink.spark.range(100).selectExpr("to_json(named_struct('id', id)) AS value")
    with pytest.raises(Exception, match=r"at /id does not match schema version 1 of topic 'checked'.*maximum"):
        sink.write(values.selectExpr("value", "'application/json' AS content_type"), "checked")
    with pytest.raises(Exception, match="no content type, and must be application/json"):
        sink.write(values, "checked")
    assert sink.values("checked") == []
    sink.write(values.limit(10).selectExpr("value", "'application/json' AS content_type"), "checked")
    assert len(sink.values("checked")) == 10


def test_rows_of_a_topic_are_written_to_another_as_they_are(sink: Sink) -> None:
    """Columns about where a row was read do not determine where it is written: keys choose the partition."""
    sink.log.topic("from").create(5)
    sink.write(rows(sink.spark, 500), "from")
    sink.log.topic("copy").create(2)
    source = sink.spark.read.format("lakelog").options(url=sink.url, topic="from").load()
    sink.write(source, "copy")
    assert sink.values("copy") == sink.values("from")
    assert all(message.partition == partition_of(message.key, 2) for message in sink.read("copy"))


def test_a_topic_is_never_overwritten(sink: Sink) -> None:
    with pytest.raises(InvalidRequest, match="append"):
        BatchWriter({"url": sink.url, "topic": "strict"}, StructType.fromDDL("value string"), True)


def test_s22_a_repeated_micro_batch_of_foreach_batch_is_written_once(sink: Sink, tmp_path: Path) -> None:
    sink.log.topic("each").create(2)
    files = Files(sink, tmp_path, "each")
    files.put(0, "a", "b")
    files.put(1, "c")

    def unnamed(frame: DataFrame, batch: int) -> None:
        sink.write(frame, "each")

    with pytest.raises(StreamingQueryException, match=r"lakelog\.spark\.write\(df, topic, query='a name', batch"):
        files.run_each(unnamed)
    assert sink.values("each") == []

    def named(frame: DataFrame, batch: int) -> None:
        write(frame, "each", query="copies", batch=batch, url=sink.url)

    for _ in range(2):
        files.run_each(named)
        assert sink.values("each") == ["a", "b", "c"]
        files.forget_last_commit()


def test_a_batch_write_continues_if_partitions_are_added_under_it_and_keeps_the_order_of_keys(sink: Sink) -> None:
    sink.log.topic("under").create(2)
    frame = rows(sink.spark, 90_000, parts=2).mapInArrow(growing(sink.url, "under", 3), "key string, value string")
    for _ in range(2):
        sink.write(frame, "under", writeId="grows")
    found: dict[bytes, list[int]] = {}
    for message in sink.read("under"):
        assert message.partition == partition_of(message.key, 3)
        found.setdefault(message.key, []).append(int(bytes(message.raw)[1:]))
    assert all(numbers == sorted(numbers) for numbers in found.values())
    assert sorted(number for numbers in found.values() for number in numbers) == list(range(90_000))


def test_rows_that_name_their_partition_stay_there_if_partitions_are_added_under_the_write(sink: Sink) -> None:
    sink.log.topic("stay").create(2)
    frame = sink.spark.range(0, 100, 1, 2).selectExpr("cast(id AS string) AS key", "'v' AS value", "1 AS partition")
    columns = "key string, value string, partition int"
    sink.write(frame.mapInArrow(growing(sink.url, "stay", 3), columns), "stay")
    assert [message.partition for message in sink.read("stay")] == [1] * 100


def growing(url: str, topic: str, partitions: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a step of a frame that adds partitions after the first rows of the first task were staged."""

    def grow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        if context is not None and context.partitionId() == 0:
            with lakelog.connect(url) as log:
                log.topic(topic).alter(partitions=partitions)

    return grow


class Files:
    """A stream of text files, one per micro-batch."""

    def __init__(self, sink: Sink, folder: Path, topic: str) -> None:
        self._sink, self._topic = sink, topic
        self._source, self.checkpoint = folder / "in", folder / "checkpoint"
        self._source.mkdir()

    def put(self, number: int, *lines: str) -> None:
        file = self._source / f"{number:04}.txt"
        file.write_text("".join(f"{line}\n" for line in lines))
        # Spark orders files by time only, so files of the same millisecond would be read in any order.
        os.utime(file, (number, number))

    def run(self, change: Callable[[DataFrame], DataFrame] = lambda frame: frame) -> None:
        stream = self._sink.spark.readStream.option("maxFilesPerTrigger", 1).text(str(self._source))
        query = (
            change(stream)
            .writeStream.format("lakelog")
            .options(url=self._sink.url, topic=self._topic, checkpointLocation=str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def run_each(self, function: Callable[[DataFrame, int], None]) -> None:
        stream = self._sink.spark.readStream.option("maxFilesPerTrigger", 1).text(str(self._source))
        writer = stream.writeStream.foreachBatch(function).option("checkpointLocation", str(self.checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    def forget_last_commit(self) -> None:
        """Restore the state that a driver leaves if it is killed between the sink's commit and Spark's own."""
        last = max((path for path in (self.checkpoint / "commits").iterdir() if path.name.isdigit()), key=_number)
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


def _number(path: Path) -> int:
    return int(path.name)


def test_s22_a_stream_continues_from_its_checkpoint_without_gap_or_duplicate(sink: Sink, tmp_path: Path) -> None:
    sink.log.topic("stream").create(4)
    files = Files(sink, tmp_path, "stream")
    sent: list[str] = []
    for run in range(3):
        for number in range(3 * run, 3 * run + 3):
            lines = [f"{number}-{line}" for line in range(20)]
            files.put(number, *lines)
            sent += lines
        files.run()
        assert sink.values("stream") == sorted(sent)
        files.forget_last_commit()
        # The micro-batch runs again and finds other rows: the rows of its first run count.
        last = 3 * run + 2
        files.put(last, *["other"] * 25)
        with pytest.raises(StreamingQueryException, match=rf"/{last}'.* with 20 messages\. This run has 25, and added"):
            files.run()
        assert sink.values("stream") == sorted(sent)
        files.put(last, *["other"] * 20)
        files.run()
        assert sink.values("stream") == sorted(sent)


def test_s22_a_stream_continues_if_partitions_are_added_under_a_micro_batch(sink: Sink, tmp_path: Path) -> None:
    sink.log.topic("wider").create(2)
    files = Files(sink, tmp_path, "wider")
    for number in range(3):
        files.put(number, *(f"{number}-{line}" for line in range(20)))
    grow = growing(sink.url, "wider", 4)
    files.run(lambda frame: frame.selectExpr("value AS key", "value").mapInArrow(grow, "key string, value string"))
    assert sink.values("wider") == sorted(f"{number}-{line}" for number in range(3) for line in range(20))
    assert all(message.partition == partition_of(message.key, 4) for message in sink.read("wider"))
