"""Comfort over a real server and Spark: typed values, views, Kafka's option names, a start by time, and `messages`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import lakelog
from lakelog.errors import InvalidRequest
from lakelog.spark import attach, messages, read, stream, topic, watch
from tests.acceptance.client_kit import ThreadServer
from tests.kit.waiting import eventually

pytestmark = pytest.mark.timeout(600)


@dataclass
class Order:
    id: str
    total: int
    tags: list[str]


@pytest.fixture(scope="module")
def log(spark_server: ThreadServer) -> Iterator[Any]:
    with lakelog.connect(spark_server.url) as log:
        orders = log.topic("eu.orders")
        orders.create(1)
        orders.publish_many([{"id": f"o{n}", "total": n, "tags": ["a", str(n)]} for n in range(5)])
        orders.publish(b"not JSON")
        yield log


def rows_of(frame: DataFrame, *, folder: Path) -> list[Any]:
    """Return the rows that a stream of the existing messages writes."""
    name = f"rows_{folder.name}"
    query = (
        frame.writeStream.format("memory")
        .queryName(name)
        .option("checkpointLocation", str(folder / name))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)
    return frame.sparkSession.table(name).collect()


@pytest.mark.parametrize("kind", [Order, "id STRING, total BIGINT, tags ARRAY<STRING>"])
def test_a_typed_value_has_the_fields_of_its_type(spark: SparkSession, log: Any, kind: Any) -> None:
    for frame in (topic(spark, "eu.orders", value=kind), read(spark, "eu.orders", value=kind)):
        found = frame.orderBy("offset").select("offset", "value.id", "value.total", "value.tags").collect()
        assert [tuple(row) for row in found[3:]] == [
            (3, "o3", 3, ["a", "3"]),
            (4, "o4", 4, ["a", "4"]),
            (5, None, None, None),
        ]
    with pytest.raises(InvalidRequest, match="needs the column 'value'"):
        topic(spark, "eu.orders", columns="key", value=kind)


def test_the_columns_of_a_topic_are_a_typed_value(spark: SparkSession, log: Any, tmp_path: Path) -> None:
    typed = log.topic("typed")
    typed.create(1)
    with pytest.raises(InvalidRequest, match="topics alter typed --columns FILE"):
        topic(spark, "typed", typed=True)
    at = {"type": "string", "format": "date-time"}
    items = {"type": "array", "items": {"properties": {"sku": {"type": "string"}}}}
    counts = {"type": "object", "additionalProperties": {"type": "integer"}}
    typed.alter(columns={"properties": {"total": {"type": "integer"}, "at": at, "items": items, "counts": counts}})
    typed.publish({"total": 3, "at": "2026-01-31T12:00:00Z", "items": [{"sku": "a"}], "counts": {"a": 1}})
    typed.publish_many([{}, None, b"not JSON", {"total": "3"}])
    frame = topic(spark, "typed", typed=True, columns="offset")
    assert frame.columns == ["offset", "v", "v_error"]
    found = frame.orderBy("offset").selectExpr(
        "v IS NULL", "v.total", "date(v.at)", "v.items[0].sku", "v.counts['a']", "v_error"
    )
    rows = [tuple(row) for row in found.collect()]
    assert rows[:3] == [
        (False, 3, date(2026, 1, 31), "a", 1, None),
        (False, None, None, None, None, None),
        (True, None, None, None, None, None),
    ]
    assert [row[0] for row in rows[3:]] == [True, True]
    assert rows[3][5].startswith("JSON is malformed")
    assert rows[4][5] == "Expected `int | null`, got `str` - at `$.total`"
    assert frame.selectExpr("sum(v.total)").collect()[0][0] == 3
    later = read(spark, "typed", typed=True).orderBy("offset").select("v.total", "v_error")
    assert [row.total for row in later.collect()] == [3, None, None, None, None]
    live = stream(spark, "typed", typed=True, start="earliest").selectExpr("v.total", "v_error IS NULL")
    assert sorted(tuple(row) for row in rows_of(live.na.fill(0), folder=tmp_path)) == [
        *[(0, False)] * 2,
        *[(0, True)] * 2,
        (3, True),
    ]
    with pytest.raises(InvalidRequest, match="need the column 'value'"):
        read(spark, "typed", typed=True, columns="key")
    typed.delete()


def test_a_stream_of_variants_from_a_time_on(spark: SparkSession, log: Any, tmp_path: Path) -> None:
    at = log.topic("eu.orders").fetch_arrow(0, offset=4).column("appended_at")[-1].as_py()
    log.topic("eu.orders").publish({"id": "later", "total": 7})
    frame = stream(spark, "eu.orders", value="json", start=at + timedelta(microseconds=1))
    found = rows_of(frame.selectExpr("offset", "variant_get(value, '$.total', 'int') AS total"), folder=tmp_path)
    assert [tuple(row) for row in found] == [(6, 7)]


def test_kafka_s_names_read_the_same_messages(spark: SparkSession, log: Any, tmp_path: Path) -> None:
    given = {"subscribe": "eu.orders", "url": spark.conf.get("spark.lakelog.url") or ""}
    ends = '{"eu.orders": {"0": 4}}'
    table = spark.read.format("lakelog").options(**given, startingOffsets="earliest", endingOffsets=ends).load()
    assert [row.offset for row in table.collect()] == [0, 1, 2, 3]
    frame = (
        spark.readStream.format("lakelog")
        .options(**given, startingOffsets='{"eu.orders": {"0": 3}}', maxOffsetsPerTrigger="2")
        .load()
    )
    assert [row.offset for row in rows_of(frame, folder=tmp_path)][:3] == [3, 4, 5]


def test_every_topic_is_a_view(spark: SparkSession, log: Any) -> None:
    log.topic("users").create(1, if_missing=True)
    views = attach(spark)
    assert views == {"lakelog_eu_orders": "eu.orders", "lakelog_users": "users"}
    counts = "SELECT (SELECT count(*) FROM lakelog_eu_orders WHERE offset < 5), (SELECT count(*) FROM lakelog_users)"
    assert [tuple(row) for row in spark.sql(counts).collect()] == [(5, 0)]
    log.topic("eu-orders").create(1)
    with pytest.raises(InvalidRequest, match="would both be the view"):
        attach(spark)
    log.topic("eu-orders").delete()


def test_messages_are_what_can_be_written_back(spark: SparkSession, log: Any) -> None:
    log.topic("copy").create(1)
    typed = topic(spark, "eu.orders", value=Order, end_offsets={0: 2}).selectExpr("*", "value.total AS total")
    made = messages(typed)
    assert made.columns == ["key", "value", "headers", "content_type"]
    made.write.format("lakelog").mode("append").options(topic="copy", url=spark.conf.get("spark.lakelog.url")).save()
    assert [message.value["total"] for message in log.topic("copy").read()] == [0, 1]
    with pytest.raises(InvalidRequest, match="'value' is missing"):
        messages(typed.drop("value"))


def test_a_micro_batch_waits_for_enough_messages_and_the_lag_shows_it(
    spark: SparkSession, log: Any, tmp_path: Path
) -> None:
    log.topic("slow").create(1)
    frame = stream(spark, "slow", start="earliest", minMessagesPerTrigger=10, maxTriggerDelay="1h")
    writer = frame.writeStream.queryName("slow").format("noop")
    watcher = watch(spark)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    lag = f'lakelog_spark_lag_messages{{query="slow",id="{query.id}",topic="slow"}}'
    try:
        query.processAllAvailable()
        log.topic("slow").publish_many([{"n": n} for n in range(9)])
        eventually(lambda: f"{lag} 9\n" in watcher.metrics(), within=60)
        query.processAllAvailable()
        log.topic("slow").publish({"n": 9})
        eventually(lambda: f"{lag} 0\n" in watcher.metrics(), within=60)
        sizes = [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
    finally:
        query.stop()
        watcher.stop()
    assert sizes == [10]
