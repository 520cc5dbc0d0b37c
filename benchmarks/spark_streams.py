"""Sessions with and without `configure`, and queries that discard all rows, for the stream benchmarks."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lakelog.spark.configuring import LOCAL_SETTINGS, SETTINGS
from tests.kit.spark import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@contextmanager
def session(*, configured: bool) -> Iterator[SparkSession]:
    """Start a session with its own JVM. It keeps the progress of every micro-batch."""
    conf = {
        "spark.sql.streaming.numRecentProgressUpdates": "100000",
        **({**SETTINGS, **LOCAL_SETTINGS} if configured else {}),
    }
    with local_session(conf, quick=False) as spark:
        yield spark


@contextmanager
def streaming(spark: SparkSession, url: str, topic: str, group: str) -> Iterator[StreamingQuery]:
    """Start a query of the group from now on, and wait for the end of its first micro-batch."""
    with tempfile.TemporaryDirectory(prefix="lakelog-bench-stream-") as folder:
        frame = spark.readStream.format("lakelog").options(url=url, topic=topic, group=group).load()
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(Path(folder) / "checkpoint"))
        query = writer.start()
        try:
            query.processAllAvailable()
            yield query
        finally:
            query.stop()
