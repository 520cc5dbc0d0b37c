"""Sixty days in small files, compacted while drivers are killed: the messages stay, and reading costs less.

The tasks of compaction run in their drivers; `test_compaction_kills` has them on Spark. Full size: 4 million messages
in 20,160 files of 16 partitions, beside a producer, tiering, readers and workers. It measures a scan of the history
before and after, and the bytes that Spark, PyIceberg and DuckDB read for one day.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import lakelog
from benchmarks.corpus import corpus
from lakelog.client.verifying.verification import verify_topics
from lakelog.model.lake import Plan
from lakelog.model.load import LoadRequest, LoadStatus, PartitionLoad
from lakelog.model.segment import Segment
from lakelog.segments.layout import segment_path
from lakelog.segments.writer import SegmentWriter
from lakelog.spark import sweep
from lakelog.spark import topic as topic_frame
from lakelog.spark.pipelines.iceberg import iceberg_topic
from tests.faults.test_compaction_kills import PAIRS, TOPIC, Scene, Tiering, kill, scene
from tests.faults.test_tiering_kills import exactly_one_place
from tests.faults.tier_load import Background, Producer, Reader, Workers, wait_for
from tests.kit.engines import NAMESPACE, duckdb_with_iceberg, pyiceberg_catalog
from tests.kit.progress import tell
from tests.kit.size import Size
from tests.kit.spark import local_session
from tests.kit.waiting import eventually

__all__ = ["scene"]
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(7200)]

FIRST = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
READ_PARTITIONS = 2
"""Partitions with a reader."""


@dataclass(frozen=True, kw_only=True)
class History:
    """The shape of the history: files of a day in one partition, and messages of a file."""

    partitions: int
    days: int
    files: int
    rows: int

    @property
    def segments(self) -> int:
        return self.partitions * self.days * self.files

    @property
    def end(self) -> int:
        """The offset after the last message, in each partition."""
        return self.days * self.files * self.rows


def test_history_in_small_files_becomes_few_files_that_are_read_faster(
    scene: Scene, size: Size, tmp_path: Path
) -> None:
    """S3, S20, S21, S22, S25, S26."""
    scene = replace(scene, spark=False)
    history = size.pick(
        ci=History(partitions=2, days=8, files=16, rows=20),
        full=History(partitions=16, days=60, files=21, rows=200),
    )
    with lakelog.connect(scene.url, timeout=300) as log:
        load(log, scene.folder / "store", history)
        tell(iceberg_topic(log, TOPIC))
        small = stored(log)
        with session(scene) as spark:
            before, slow = scan(spark, history)
        tell(f"a scan takes {slow:.1f} s")
        compact_beside_load(scene, log, history)
        tell(iceberg_topic(log, TOPIC))
        for _ in range(2):
            swept = sweep(url=scene.url, min_age=timedelta(0))
        assert swept.deleted, "the files of killed drivers"
        found = verify_topics(log, (TOPIC,))
        assert not found.problems, found
        table_is_whole(scene, log)
        files, total = len(of_history(log, history)), stored(log)
        with session(scene) as spark:
            after, fast = scan(spark, history)
            read = one_day(scene, spark, history, tmp_path)
    shares = {name: round(count / total, 4) for name, count in read.items()}
    tell(f"{history.segments} files, {small} bytes; now {files} files, {total} bytes with new messages")
    tell(f"a scan took {slow:.1f} s, now {fast:.1f} s: {slow / fast:.1f} x faster; one day reads {shares}")
    assert after == before
    assert files * 15 <= history.segments
    if size is Size.FULL:
        assert slow >= 2 * fast
        assert all(shares[name] <= 0.02 for name in ("Spark", "PyIceberg", "DuckDB"))


def load(log: lakelog.Lakelog, root: Path, history: History) -> None:
    """Load the history, each partition at once."""
    log.topic(TOPIC).create(partitions=history.partitions)
    plan = log.lake.plan(TOPIC)
    with ProcessPoolExecutor(2) as pool:
        written = pool.map(partial(files_of, plan, root, history), range(history.partitions))
        for partition, segments in enumerate(written):
            part = PartitionLoad(partition=partition, first=0, segments=segments, fingerprint="0a")
            request = LoadRequest(topic=TOPIC, name="history", incarnation=plan.incarnation, parts=[part])
            assert [each.status for each in log.lake.load(request)] == [LoadStatus.LOADED]
            tell(f"partition {partition} is loaded")


def files_of(plan: Plan, root: Path, history: History, partition: int) -> tuple[Segment, ...]:
    """Write the files of a partition: its messages are spread evenly over each day.

    The files are not flushed, as an object store would: that takes a third of the time.
    """
    table, found = corpus().table.combine_chunks(), []
    step_us = DAY / timedelta(microseconds=history.files * history.rows)
    for start in range(0, history.end, history.rows):
        offsets = np.arange(start, start + history.rows)
        times = int(FIRST.timestamp() * 1e6) + (offsets * step_us).astype(np.int64)
        messages = table.take(pa.array((offsets * history.partitions + partition) % len(table))).combine_chunks()
        columns = {
            "partition": pa.array(np.full(history.rows, partition, np.int32)),
            "offset": pa.array(offsets),
            "appended_at": pa.array(times, pa.timestamp("us", "UTC")),
            "epoch": pa.array(np.full(history.rows, plan.epoch, np.int32)),
            "key": messages.column("key").chunk(0),
            "value": pc.binary_join_element_wise(heads(partition, offsets), messages.column("value").chunk(0), b""),
        }
        sink = io.BytesIO()
        with SegmentWriter(sink, partition, is_loaded=True) as writer:
            writer.write(pa.RecordBatch.from_pydict(columns))
            sealed = writer.close()
        path = segment_path(plan.environment_id, plan.incarnation, partition, sealed.first, sealed.end)
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(sink.getvalue())
        found.append(sealed.segment(path))
    return tuple(found)


def heads(partition: int, offsets: np.ndarray) -> pa.Array:
    """Return the first bytes of values, by which the load recognises messages: as of a producer of each partition."""
    packed = np.empty(len(offsets), dtype=[("producer", ">u4"), ("number", ">u8")])
    packed["producer"], packed["number"] = partition + 1, offsets
    return pa.Array.from_buffers(pa.binary(12), len(packed), [None, pa.py_buffer(packed.tobytes())]).cast(pa.binary())


def compact_beside_load(scene: Scene, log: lakelog.Lakelog, history: History) -> None:
    """Kill drivers at each point, then let two finish, while others publish, tier, read and work."""
    producer = Producer(scene.url, TOPIC, 0, 1_000_000, 1)
    tiering = Tiering(scene, pause=scene.size.pick(ci=1, full=10))
    readers = [Reader(scene.url, TOPIC, partition) for partition in range(READ_PARTITIONS)]
    workers = Workers(scene.url, TOPIC, "history")
    threads: list[Background] = [producer, tiering, *readers, workers]
    for thread in threads:
        thread.start()
    for points in PAIRS:
        kill(scene, points, threads)
        tell(f"killed at {points}: {len(of_history(log, history))} files")
    pair = [scene.driver() for _ in range(2)]

    def is_compact() -> bool:
        files = len(of_history(log, history))
        tell(f"{files} files, {producer.done} new messages, readers at {[each.next for each in readers]}")
        return files * 15 <= history.segments

    every = scene.size.pick(ci=0.5, full=15)
    eventually(wait_for(is_compact, threads), within=3600, every=every, what="it is compact")
    (scene.folder / "stop").touch()
    for driver in pair:
        assert driver.wait(timeout=600) == 0, driver.log_text()[-3000:]
    for thread in threads:
        thread.end(within=1800)
    check(scene, log, history, readers, workers)


def check(scene: Scene, log: lakelog.Lakelog, history: History, readers: list[Reader], workers: Workers) -> None:
    """What readers and workers got while files were replaced is what the topic has, in one place each."""
    plan = log.lake.plan(TOPIC)
    for part in plan.partitions:
        exactly_one_place(part.segments, part.segments[-1].end)
    for number, reader in enumerate(readers):
        again = Reader(scene.url, TOPIC, number)
        again.start()
        again.end(within=1800)
        assert (again.next, again.hash) == (reader.next, reader.hash)
    granted = [workers.seen(partition)[: history.end] for partition in range(history.partitions)]
    for partition, names in enumerate(granted):
        assert np.array_equal(names, ((partition + 1) << 40) + np.arange(len(names)))
    tell(f"workers were granted {sum(map(len, granted))} messages of the history")


def table_is_whole(scene: Scene, log: lakelog.Lakelog) -> None:
    """Every file of a snapshot exists, and the newest one has the segments of the log."""
    table = pyiceberg_catalog(scene.url, None).load_table((NAMESPACE, TOPIC))
    for snapshot in table.snapshots():
        scanned = table.scan(snapshot_id=snapshot.snapshot_id).plan_files()
        paths = {unquote(urlsplit(each.file.file_path).path) for each in scanned}
        assert all(Path(path).exists() for path in paths)
        tell(f"snapshot {snapshot.snapshot_id}: {len(paths)} files")
    segments = [segment for part in log.lake.plan(TOPIC).partitions for segment in part.segments]
    assert paths == {str(scene.folder / "store" / segment.path) for segment in segments}


def of_history(log: lakelog.Lakelog, history: History) -> list[Segment]:
    """Return the segments of the history."""
    parts = log.lake.plan(TOPIC).partitions
    return [segment for part in parts for segment in part.segments if segment.first < history.end]


def stored(log: lakelog.Lakelog) -> int:
    return sum(segment.bytes for part in log.lake.plan(TOPIC).partitions for segment in part.segments)


def session(scene: Scene) -> AbstractContextManager[SparkSession]:
    return local_session({"spark.lakelog.url": scene.url, "spark.driver.memory": "3g"}, quick=scene.size is Size.CI)


def scan(spark: SparkSession, history: History) -> tuple[list[Any], float]:
    """Return counts and a sum of hashes by partition, and the seconds to read them, without planning."""
    digest = F.sum(F.xxhash64("offset", "appended_at", "key", "value").cast("decimal(38,0)"))

    def totals(frame: DataFrame) -> list[Any]:
        rows = frame.where(F.col("offset") < history.end).groupBy("partition")
        return sorted(rows.agg(F.count("*"), F.min("offset"), F.max("offset"), digest).collect())

    totals(topic_frame(spark, TOPIC, since=FIRST, until=FIRST + DAY))
    frame = topic_frame(spark, TOPIC)
    began = time.perf_counter()
    return totals(frame), time.perf_counter() - began


def one_day(scene: Scene, spark: SparkSession, history: History, folder: Path) -> dict[str, int]:
    """Return the bytes that engines read for one day of all partitions, by engine."""
    since = FIRST + (history.days // 2) * DAY
    until, expected = since + DAY, history.partitions * history.files * history.rows
    table = pyiceberg_catalog(scene.url, None).load_table((NAMESPACE, TOPIC))
    duck = duckdb_with_iceberg(folder)
    duck.execute("SET TimeZone = 'UTC'")
    where = f"appended_at >= '{since.isoformat()}' AND appended_at < '{until.isoformat()}'"
    python = psutil.Process()
    jvm = next(each for each in python.children(recursive=True) if "java" in each.name())

    def by_spark(frame: DataFrame) -> int:
        found = frame.agg(F.count("*"), F.max(F.xxhash64("offset", "key", "value"))).first()
        assert found is not None
        return int(found[0])

    def by_pyiceberg() -> int:
        return int(table.scan(row_filter=where).to_arrow().num_rows)

    def by_duckdb() -> int:
        rows = f"iceberg_scan('{table.metadata_location}') WHERE {where}"
        found = duck.execute(f'SELECT count(*), max(hash("offset", key, value)) FROM {rows}').fetchone()
        assert found is not None
        return int(found[0])

    def read(process: psutil.Process, query: Callable[[], int]) -> int:
        # The first query loads code.
        assert query() == expected
        before = process.io_counters().read_chars
        assert query() == expected
        return int(process.io_counters().read_chars - before)

    try:
        return {
            "Spark, by a filter": read(jvm, lambda: by_spark(topic_frame(spark, TOPIC).where(where))),
            "Spark": read(jvm, lambda: by_spark(topic_frame(spark, TOPIC, since=since, until=until))),
            "PyIceberg": read(python, by_pyiceberg),
            "DuckDB": read(python, by_duckdb),
        }
    finally:
        duck.close()
