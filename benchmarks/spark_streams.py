"""What the benchmarks of streams share: sessions with and without `configure`, and queries that throw all away."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lakelog.spark.configuring import SETTINGS
from tests.kit.spark import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@contextmanager
def session(*, configured: bool) -> Iterator[SparkSession]:
    """A session of its own JVM. It keeps the progress of every micro-batch."""
    conf = {"spark.sql.streaming.numRecentProgressUpdates": "100000", **(SETTINGS if configured else {})}
    with local_session(conf, quick=False) as spark:
        yield spark


@contextmanager
def streaming(spark: SparkSession, url: str, topic: str, group: str) -> Iterator[StreamingQuery]:
    """A query of the group from now on, once its first micro-batch is over."""
    with tempfile.TemporaryDirectory(prefix="lakelog-bench-stream-") as folder:
        frame = spark.readStream.format("lakelog").options(url=url, topic=topic, group=group).load()
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(Path(folder) / "checkpoint"))
        query = writer.start()
        try:
            query.processAllAvailable()
            yield query
        finally:
            query.stop()
