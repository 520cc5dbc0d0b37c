"""spark-write: a DataFrame into a topic, exactly once, compared with the same into Parquet files and into Kafka."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from benchmarks import spark_kafka
from benchmarks.environment import Environment, Served
from benchmarks.filled_topics import fresh_topic, tables
from benchmarks.harness import OURS, Benchmark, BenchmarkPlan, Leg, Measured
from benchmarks.spark_lake import spark_session
from tests.kit.size import Size

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from benchmarks.kafka_broker import KafkaBroker

_FILES = 4
_WARM = 2


@contextmanager
def _legs(environment: Environment, plan: BenchmarkPlan) -> Iterator[Mapping[str, Leg]]:
    with (
        tempfile.TemporaryDirectory(prefix="lakelog-spark-write-") as folder,
        environment.serve({"LAKELOG_OBJECT_STORE": f"file://{folder}/store"}) as served,
        environment.kafka(wanted=plan.with_peers, fetch=plan.size is Size.FULL, connector=True) as kafka,
        spark_session(environment, connector=kafka is not None) as spark,
    ):
        _write_source(Path(folder) / "source", plan)
        frame = spark.read.parquet(str(Path(folder) / "source"))
        environment.notes["tasks"] = frame.rdd.getNumPartitions()

        def into_topic(url: str) -> Measured:
            with fresh_topic(served) as topic:
                start = perf_counter()
                frame.write.format("lakelog").mode("append").options(url=url, topic=topic.name, writeId="w").save()
                seconds = perf_counter() - start
                there = sum(info.high_watermark for info in topic.describe().partition_list)
            assert there == plan.messages, f"{there} of {plan.messages} messages are in the topic"
            return Measured(figure=plan.messages / seconds)

        legs: dict[str, Leg] = {
            OURS: lambda: into_topic(served.url),
            "parquet": lambda: _into_files(frame, plan, Path(folder) / "sink"),
            "load": lambda: _loaded(frame, plan, served),
            "ours_without_server": lambda: into_topic(served.database),
        }
        if kafka is not None:
            legs["kafka"] = lambda: _into_kafka(frame, plan, kafka)
        for leg in list(legs.values()) * _WARM:
            # Warm up: otherwise the JVM's compilation would be measured.
            leg()
        yield legs


def _write_source(folder: Path, plan: BenchmarkPlan) -> None:
    """Write the messages as files, so that no leg measures their generation."""
    folder.mkdir()
    share = -(-plan.messages // _FILES)
    for number in range(_FILES):
        with pq.ParquetWriter(folder / f"{number}.parquet", plan.corpus.table.schema) as writer:
            for table in tables(plan.corpus, min(share, plan.messages - number * share), len(plan.corpus)):
                writer.write_table(table)


def _into_files(frame: DataFrame, plan: BenchmarkPlan, folder: Path) -> Measured:
    start = perf_counter()
    frame.write.parquet(str(folder))
    seconds = perf_counter() - start
    shutil.rmtree(folder)
    return Measured(figure=plan.messages / seconds)


def _into_kafka(frame: DataFrame, plan: BenchmarkPlan, kafka: KafkaBroker) -> Measured:
    name = kafka.create_topic()
    start = perf_counter()
    spark_kafka.write(frame, kafka, name)
    seconds = perf_counter() - start
    assert kafka.messages(name) == plan.messages
    kafka.delete_topic(name)
    return Measured(figure=plan.messages / seconds)


def _loaded(frame: DataFrame, plan: BenchmarkPlan, served: Served) -> Measured:
    """Measure the backfill of an empty topic, which writes segments."""
    from lakelog.spark import backfill

    with fresh_topic(served) as topic:
        start = perf_counter()
        added = backfill(frame, topic.name, history=True, url=served.url).added
        seconds = perf_counter() - start
    assert added == plan.messages
    return Measured(figure=plan.messages / seconds)


BENCHMARK = Benchmark(
    name="spark-write",
    about="a DataFrame of keys and values of 200 bytes into a topic, through HTTP; peers: the same into Parquet, Kafka",
    unit="messages/s",
    legs=_legs,
    plans={
        Size.CI: BenchmarkPlan(size=Size.CI, rounds=1, messages=40_000, seconds=0),
        Size.FULL: BenchmarkPlan(size=Size.FULL, rounds=7, messages=2_000_000, seconds=0),
    },
    targets={"parquet": 0.85, "load/parquet": 0.6},
)
