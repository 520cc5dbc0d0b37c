"""spark-read: a topic in Spark, three quarters cold and one quarter hot.

Its peers are its own files, the same rows written by Spark, and the same messages in Kafka.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks import spark_kafka
from benchmarks.environment import Environment
from benchmarks.harness import OURS, Benchmark, BenchmarkPlan, Leg
from benchmarks.spark_lake import TOPIC, SparkLake, spark_lake
from lakelog.client.reading.columns import DEFAULT_COLUMNS
from tests.kit.size import Size

if TYPE_CHECKING:
    from benchmarks.kafka_broker import KafkaBroker


@contextmanager
def _legs(environment: Environment, plan: BenchmarkPlan) -> Iterator[Mapping[str, Leg]]:
    with (
        environment.kafka(wanted=plan.with_peers, fetch=plan.size is Size.FULL, connector=True) as kafka,
        spark_lake(environment, plan, connector=kafka is not None) as lake,
        TemporaryDirectory(prefix="lakelog-spark-read-") as folder,
    ):
        legs = dict(_made(lake, folder))
        if kafka is not None:
            legs["kafka"] = _in_kafka(lake, kafka)
        for leg in legs.values():
            # Warm up: otherwise the JVM's compilation would be measured.
            leg()
        yield legs


def _made(lake: SparkLake, folder: str) -> Mapping[str, Leg]:
    from lakelog.spark import topic

    spark, url = lake.spark, lake.url
    written = f"{folder}/written"
    topic(spark, TOPIC, end_offsets=lake.cold_ends, url=url).write.parquet(written)
    source = spark.read.format("lakelog").options(topic=TOPIC, url=url, endOffsets=json.dumps(lake.cold_ends))
    hot = lake.messages - lake.cold
    return {
        OURS: lambda: lake.read(lambda: topic(spark, TOPIC, end_offsets=lake.cold_ends, url=url), lake.cold),
        "parquet": lambda: lake.read(lambda: spark.read.parquet(*lake.files), lake.cold),
        "written": lambda: lake.read(lambda: spark.read.parquet(written), lake.cold),
        "source": lambda: lake.read(source.load, lake.cold),
        "few_columns": lambda: lake.read(lambda: spark.read.parquet(*lake.files).select(*DEFAULT_COLUMNS), lake.cold),
        "hot": lambda: lake.read(lambda: topic(spark, TOPIC, start_offsets=lake.cold_ends, url=url), hot),
        "whole": lambda: lake.read(lambda: topic(spark, TOPIC, url=url), lake.messages),
    }


def _in_kafka(lake: SparkLake, kafka: KafkaBroker) -> Leg:
    """Return the leg that reads the cold messages from a topic of Kafka, which this fills."""
    from lakelog.spark import topic

    name = kafka.create_topic()
    spark_kafka.write(topic(lake.spark, TOPIC, end_offsets=lake.cold_ends, url=lake.url), kafka, name)
    assert kafka.messages(name) == lake.cold
    return lambda: lake.read(lambda: spark_kafka.read(lake.spark, kafka, name), lake.cold)


BENCHMARK = Benchmark(
    name="spark-read",
    about="the cold part of a topic through lakelog.spark.topic, all columns; peers: files, the data source, Kafka",
    unit="messages/s",
    legs=_legs,
    plans={
        Size.CI: BenchmarkPlan(size=Size.CI, rounds=1, messages=40_000, seconds=0),
        Size.FULL: BenchmarkPlan(size=Size.FULL, rounds=5, messages=8_000_000, seconds=0),
    },
    targets={"parquet": 0.95, "written": 0.95, "kafka": 3.0, "source/few_columns": 0.65},
)
