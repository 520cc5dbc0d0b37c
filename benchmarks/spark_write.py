"""spark-write: a DataFrame into a topic, exactly once, compared with the same DataFrame into Parquet files."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from benchmarks.environment import Environment
from benchmarks.filled_topics import fresh_topic, tables
from benchmarks.harness import OURS, Benchmark, BenchmarkPlan, Leg, Measured
from benchmarks.spark_lake import spark_session
from tests.kit.size import Size

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FILES = 4
_WARM = 2


@contextmanager
def _legs(environment: Environment, plan: BenchmarkPlan) -> Iterator[Mapping[str, Leg]]:
    with (
        tempfile.TemporaryDirectory(prefix="lakelog-spark-write-") as folder,
        environment.serve() as served,
        spark_session(environment) as spark,
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
            "ours_without_server": lambda: into_topic(served.database),
        }
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


BENCHMARK = Benchmark(
    name="spark-write",
    about="a DataFrame of keys and values of 200 bytes into a topic, through HTTP; its peer: the same into Parquet",
    unit="messages/s",
    legs=_legs,
    plans={
        Size.CI: BenchmarkPlan(size=Size.CI, rounds=1, messages=40_000, seconds=0),
        Size.FULL: BenchmarkPlan(size=Size.FULL, rounds=7, messages=2_000_000, seconds=0),
    },
    targets={"parquet": 0.8},
)
