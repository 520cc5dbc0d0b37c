"""spark-count: the time Spark takes to count cold history, through a topic and directly from its files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from benchmarks.environment import Environment
from benchmarks.harness import OURS, Benchmark, BenchmarkPlan, Leg
from benchmarks.spark_lake import TOPIC, spark_lake
from tests.kit.size import Size


@contextmanager
def _legs(environment: Environment, plan: BenchmarkPlan) -> Iterator[Mapping[str, Leg]]:
    from lakelog.spark import topic

    with spark_lake(environment, plan, cold_share=1.0) as lake:
        legs: dict[str, Leg] = {
            OURS: lambda: lake.count(lambda: topic(lake.spark, TOPIC, url=lake.url), lake.cold),
            "parquet": lambda: lake.count(lambda: lake.spark.read.parquet(*lake.files), lake.cold),
        }
        for leg in legs.values():
            # Warm up: otherwise the JVM's compilation would be measured.
            leg()
        yield legs


BENCHMARK = Benchmark(
    name="spark-count",
    about="count() of cold history through lakelog.spark.topic; its peer: count() of the same files",
    unit="ms",
    legs=_legs,
    plans={
        Size.CI: BenchmarkPlan(size=Size.CI, rounds=1, messages=40_000, seconds=0),
        Size.FULL: BenchmarkPlan(size=Size.FULL, rounds=7, messages=8_000_000, seconds=0),
    },
    targets={"parquet": 0.5},
    less_is_better=True,
)
