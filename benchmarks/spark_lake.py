"""A Spark session like a user's, and a topic whose history is partly in segments, for all Spark benchmarks."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import lakelog
from benchmarks import spark_kafka
from benchmarks.corpus import PARTITIONS, Corpus
from benchmarks.environment import Environment
from benchmarks.filled_topics import tables
from benchmarks.harness import BenchmarkPlan, Measured, to_stderr
from tests.kit.cold import tier_by_hand
from tests.kit.spark import local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "orders"
COLD_SHARE = 0.75
_SESSION: Mapping[str, str] = {"spark.driver.memory": "3g"}


@dataclass(frozen=True, kw_only=True)
class SparkLake:
    """A running server, a session, and the topic: `cold` messages up to `cold_ends`, then hot ones."""

    spark: SparkSession
    url: str
    files: tuple[str, ...]
    """The segments, as Spark names them."""
    cold: int
    cold_ends: Mapping[int, int]
    messages: int

    def read(self, frame: Callable[[], DataFrame], messages: int) -> Measured:
        """Measure a read of every column of every row, including planning. Rows are discarded."""
        start = perf_counter()
        frame().write.format("noop").mode("overwrite").save()
        return Measured(figure=messages / (perf_counter() - start))

    def count(self, frame: Callable[[], DataFrame], messages: int) -> Measured:
        start = perf_counter()
        found = frame().count()
        seconds = perf_counter() - start
        assert found == messages, f"counted {found} of {messages} messages"
        return Measured(figure=seconds * 1000)


@contextmanager
def spark_session(environment: Environment, *, connector: bool = False) -> Iterator[SparkSession]:
    """Start a session on all cores, without options that shorten the start of the JVM.

    With `connector`, it has Spark's connector for Kafka.
    """
    settings = {**_SESSION, **(spark_kafka.session_settings() if connector else {})}
    with local_session(settings, quick=False) as spark:
        environment.notes["spark"] = f"{spark.version}, local[2]"
        yield spark


@contextmanager
def spark_lake(
    environment: Environment,
    plan: BenchmarkPlan,
    *,
    cold_share: float = COLD_SHARE,
    columns: Mapping[str, Any] | None = None,
    corpus: Corpus | None = None,
    connector: bool = False,
) -> Iterator[SparkLake]:
    """Start a server and a session, and fill the topic. `columns` are its typed columns."""
    corpus = corpus or plan.corpus
    with tempfile.TemporaryDirectory(prefix="lakelog-store-") as folder:
        store = f"file://{folder}"
        with environment.serve({"LAKELOG_OBJECT_STORE": store}) as served, lakelog.connect(served.url) as log:
            topic = log.topic(TOPIC)
            topic.create(partitions=PARTITIONS, columns=columns)
            cold = int(plan.messages * cold_share)
            _fill(topic, corpus, cold)
            segments = tier_by_hand(log, TOPIC)
            environment.notes["segments"] = len(segments)
            environment.notes["segment_bytes_per_message"] = round(sum(one.bytes for one in segments) / cold, 1)
            cold_ends = {info.partition: info.high_watermark for info in topic.describe().partition_list}
            _fill(topic, corpus, plan.messages - cold)
            to_stderr(f"{cold:,} messages in {len(segments)} segments, {plan.messages - cold:,} hot")
            with spark_session(environment, connector=connector) as spark:
                yield SparkLake(
                    spark=spark,
                    url=served.url,
                    files=tuple(str(Path(folder) / one.path) for one in segments),
                    cold=cold,
                    cold_ends=cold_ends,
                    messages=plan.messages,
                )


def _fill(topic: Any, corpus: Corpus, messages: int) -> None:
    for table in tables(corpus, messages, len(corpus)):
        topic.publish_columns(table.append_column("content_type", pa.repeat("application/json", table.num_rows)))
