"""spark-typed: the sum of a field, from typed columns in files and from JSON. One value of 100 is no JSON.

All messages are cold.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any

from benchmarks.corpus import Corpus
from benchmarks.environment import Environment
from benchmarks.harness import OURS, Benchmark, BenchmarkPlan, Leg, Measured
from benchmarks.spark_lake import TOPIC, spark_lake
from tests.kit.size import Size

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BROKEN = 100
_COLUMNS: Mapping[str, Any] = {
    "type": "object",
    "properties": {"account": {"type": "string"}, "cents": {"type": "integer"}, "status": {"type": "string"}},
}


@contextmanager
def _legs(environment: Environment, plan: BenchmarkPlan) -> Iterator[Mapping[str, Leg]]:
    from lakelog.spark import topic

    with spark_lake(environment, plan, cold_share=1.0, columns=_COLUMNS, corpus=_broken(plan.corpus)) as lake:
        sums: set[int] = set()

        def summed(frame: DataFrame, field: str) -> Measured:
            start = perf_counter()
            sums.add(frame.selectExpr(f"sum({field})").collect()[0][0])
            seconds = perf_counter() - start
            assert len(sums) == 1, f"different sums: {sums}"
            return Measured(figure=plan.messages / seconds)

        def typed() -> Measured:
            return summed(topic(lake.spark, TOPIC, typed=True, url=lake.url), "v.cents")

        def from_json() -> Measured:
            cents = "cast(get_json_object(cast(value AS string), '$.cents') AS long)"
            return summed(topic(lake.spark, TOPIC, url=lake.url), cents)

        legs = {OURS: typed, "json": from_json}
        for leg in legs.values():
            # Warm up: otherwise the JVM's compilation would be measured.
            leg()
        yield legs


def _broken(corpus: Corpus) -> Corpus:
    """Return the corpus with values that are no JSON."""
    values = [value if number % _BROKEN else b"no JSON" for number, value in enumerate(corpus.values)]
    return dataclasses.replace(corpus, values=values)


BENCHMARK = Benchmark(
    name="spark-typed",
    about="sum(v.cents) over cold history with typed columns; peer: get_json_object of the same values",
    unit="messages/s",
    legs=_legs,
    plans={
        Size.CI: BenchmarkPlan(size=Size.CI, rounds=1, messages=40_000, seconds=0),
        Size.FULL: BenchmarkPlan(size=Size.FULL, rounds=5, messages=5_000_000, seconds=0),
    },
    targets={"json": 5.0},
)
