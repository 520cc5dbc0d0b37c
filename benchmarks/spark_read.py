"""spark-read: a topic in Spark compared with its own files, all columns. Three quarters are cold, a quarter is hot."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from benchmarks.environment import Environment
from benchmarks.harness import OURS, Benchmark, BenchmarkPlan, Leg
from benchmarks.spark_lake import TOPIC, SparkLake, spark_lake
from tests.kit.size import Size


@contextmanager
def _legs(environment: Environment, plan: BenchmarkPlan) -> Iterator[Mapping[str, Leg]]:
    with spark_lake(environment, plan) as lake:
        legs = _made(lake)
        for leg in legs.values():
            # Warm up: otherwise the JVM's compilation would be measured.
            leg()
        yield legs


def _made(lake: SparkLake) -> Mapping[str, Leg]:
    from lakelog.spark import topic

    spark, url = lake.spark, lake.url
    source = spark.read.format("lakelog").options(topic=TOPIC, url=url, endOffsets=json.dumps(lake.cold_ends))
    hot = lake.messages - lake.cold
    return {
        OURS: lambda: lake.read(lambda: topic(spark, TOPIC, end_offsets=lake.cold_ends, url=url), lake.cold),
        "parquet": lambda: lake.read(lambda: spark.read.parquet(*lake.files), lake.cold),
        "source": lambda: lake.read(source.load, lake.cold),
        "hot": lambda: lake.read(lambda: topic(spark, TOPIC, start_offsets=lake.cold_ends, url=url), hot),
        "whole": lambda: lake.read(lambda: topic(spark, TOPIC, url=url), lake.messages),
    }


BENCHMARK = Benchmark(
    name="spark-read",
    about="the cold part of a topic through lakelog.spark.topic, all columns; peers: its files, the data source",
    unit="messages/s",
    legs=_legs,
    plans={
        Size.CI: BenchmarkPlan(size=Size.CI, rounds=1, messages=40_000, seconds=0),
        Size.FULL: BenchmarkPlan(size=Size.FULL, rounds=5, messages=8_000_000, seconds=0),
    },
    targets={"parquet": 0.9, "source/parquet": 0.5},
)
