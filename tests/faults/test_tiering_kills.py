"""Tiering to S3 under kills, beside producers, readers, workers and Spark: each offset in one place, nothing lost.

The driver is killed at each of six points, two drivers work on the same ranges, hot tables are dropped without grace
period by a process that is killed too, and the store fails in four ways. Full size: 5 million messages. 2026-11-16, 2
cores: 714 s, 77 calls refused, 80 responses lost, 96 cut short by the store; nothing lost or duplicated.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import asyncpg
import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import lakelog
from lakelog.model.segment import Segment
from lakelog.objectstore import ObjectStore, open_store
from lakelog.segments.hashing import ContentHash
from lakelog.segments.reader import verify
from lakelog.segments.schema import conform
from lakelog.spark import topic as topic_frame
from lakelog.storage.postgres import open_cells
from tests.faults import hot_dropper, tier_driver
from tests.faults.tier_load import Background, Producer, Reader, Workers, names_of, wait_for
from tests.kit.fleet import Fleet
from tests.kit.postgres import Cluster
from tests.kit.process import Process, Supervisor
from tests.kit.s3 import S3Server
from tests.kit.s3_faults import S3FaultProxy, S3Faults
from tests.kit.size import Size
from tests.kit.spark import local_session
from tests.kit.waiting import eventually

TOPIC, PARTITIONS, PRODUCERS = "tiered", 3, 2

# A point in the driver ends it there. A point in a task stops the task there, and the test ends the driver.
DRIVER_POINTS = ("tier.written=kill", "tier.registered=kill", "tier.before_verified=kill", "tier.verified=kill@2")
TASK_POINTS = {"before PUT": "tier.before_put=stop", "between PUTs": "tier.before_put=stop@2"}


@dataclass(frozen=True, kw_only=True)
class Scene:
    """The installation of the scenario."""

    fleet: Fleet
    s3: S3Server
    faults: S3FaultProxy
    supervisor: Supervisor
    folder: Path
    segment_bytes: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.fleet.ports[0]}"

    def driver(self, points: str = "", stop: str = "never") -> Process:
        plan = tier_driver.Plan(
            topic=TOPIC, url=self.url, segment_bytes=self.segment_bytes, min_age=0.5, stop=str(self.folder / stop)
        )
        return tier_driver.start(self.supervisor, plan, proxied(self.s3, self.faults), points)

    def store(self) -> ObjectStore:
        """Return the object store without faults."""
        return open_store(self.s3.url, self.s3.options)


def proxied(s3: S3Server, faults: S3FaultProxy) -> dict[str, str]:
    return {**s3.env, "AWS_ENDPOINT_URL": faults.endpoint}


@pytest.fixture
def scene(cluster: Cluster, size: Size, tmp_path: Path) -> Iterator[Scene]:
    with S3Server() as s3, S3FaultProxy(s3.port) as faults, Supervisor() as supervisor:
        damaged = size.pick(ci=0.15, full=0.06)
        faults.faults = S3Faults(refused=0.08, lost=0.08, truncated=damaged, shortened=damaged)
        env = {**proxied(s3, faults), "LAKELOG_OBJECT_STORE": s3.url}
        with Fleet(cluster, servers=1, env=env) as fleet:
            yield Scene(
                fleet=fleet,
                s3=s3,
                faults=faults,
                supervisor=supervisor,
                folder=tmp_path,
                segment_bytes=size.pick(ci=20_000, full=4 << 20),
            )


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_kills_at_every_point_lose_and_double_nothing(scene: Scene, size: Size) -> None:
    """S3, S20, S21, S22."""
    count = size.pick(ci=30_000, full=5_000_000)
    scene.fleet.create_topic(TOPIC, PARTITIONS)
    producers = [
        Producer(scene.url, TOPIC, number, count // PRODUCERS, size.pick(ci=0.3, full=0.01))
        for number in range(PRODUCERS)
    ]
    readers = [Reader(scene.url, TOPIC, partition) for partition in range(PARTITIONS)]
    threads: list[Background] = [*producers, *readers]
    for thread in threads:
        thread.start()
    workers = Workers(scene.url, TOPIC, "lagging")
    dropper = hot_dropper.start(scene.supervisor, scene.fleet.url)
    with local_session({**scene.s3.spark_conf, "spark.lakelog.url": scene.url}) as spark:
        for _ in range(size.pick(ci=1, full=2)):
            kill_drivers(scene, threads, size)
            if workers not in threads:
                # It starts late, so that it reads much of the topic from files.
                threads.append(workers)
                workers.start()
            spark_reads_whole(scene, spark)
        kill_dropper(scene, dropper)
        two_drivers(scene, producers, threads)
        scene.faults.faults = S3Faults()
        for reader in readers:
            reader.end()
        acked = wait_for(lambda: workers.lag() == 0, threads)
        eventually(acked, within=size.pick(ci=120, full=1800), every=0.5, what="all is acked")
        workers.end()
        dropped = asyncio.run(drop_all(scene.fleet.url))
        assert dropped, "all but the newest hot tables are retired"
        spark_reads_whole(scene, spark)
    check(scene, producers, readers, workers)
    assert {"refused", "lost", "truncated", "shortened"} <= set(scene.faults.happened)
    print(f"{sum(p.count for p in producers)} messages; faults {dict(scene.faults.happened)}")


def kill_drivers(scene: Scene, threads: list[Background], size: Size) -> None:
    """Run one driver after another, each of which dies at its point; the next starts while the one before still works.

    At CI size only some of the points: the laboratory draws others each time.
    """
    tasks = size.pick(ci=[*TASK_POINTS.items()][1:], full=[*TASK_POINTS.items()])
    waiting = [(f"{name} ({points})", scene.driver(points)) for name, points in tasks]
    for name, driver in waiting:
        eventually(wait_for(lambda d=driver: at_its_point(d), threads), within=240, every=0.05, what=name)  # type: ignore[misc]
        assert driver.running, driver.log_text()[-3000:]
        driver.kill9()
    for pair in size.pick(ci=(DRIVER_POINTS[1:3],), full=(DRIVER_POINTS[:2], DRIVER_POINTS[2:])):
        dying = [(points, scene.driver(points)) for points in pair]
        for name, driver in dying:
            eventually(wait_for(lambda d=driver: not d.running, threads), within=240, every=0.05, what=name)  # type: ignore[misc]
            assert driver.wait() == -9, driver.log_text()[-3000:]
            driver.kill9()


def at_its_point(driver: Process) -> bool:
    """Return whether one of its tasks has stopped itself."""
    assert driver.running, driver.log_text()[-3000:]
    states = []
    for child in driver.children():
        try:
            states.append(child.status())
        except psutil.NoSuchProcess:
            continue
    return psutil.STATUS_STOPPED in states


def kill_dropper(scene: Scene, dropper: Process) -> None:
    """Before a drop and during it: while it waits for the lock on a table that is being read."""
    eventually(lambda: dropped_rolls(dropper) > 0, within=60, what="hot tables are dropped while all goes on")
    dropper.kill9()
    before = hot_dropper.start(scene.supervisor, scene.fleet.url, "rolls.before_drop=kill")
    assert before.wait(timeout=60) == -9
    within = hot_dropper.start(scene.supervisor, scene.fleet.url)
    asyncio.run(until_in_drop(scene.fleet.url))
    within.kill9()


async def until_in_drop(url: str) -> None:
    """Read all hot tables in an open transaction, until a drop waits for it."""
    reader, watcher = await asyncpg.connect(url), await asyncpg.connect(url)
    try:
        for _ in range(200):
            tables = await watcher.fetch("select roll from lakelog.roll")
            await reader.execute("begin")
            for row in tables:
                await reader.execute("savepoint s")
                try:
                    await reader.fetch(f"select 1 from lakelog.hot_{row['roll']} limit 1")
                except asyncpg.UndefinedTableError:
                    await reader.execute("rollback to savepoint s")
            for _ in range(20):
                waits = "select 1 from pg_stat_activity where query like '%roll_drop%' and wait_event_type = 'Lock'"
                if await watcher.fetch(waits):
                    return
                await asyncio.sleep(0.02)
            await reader.execute("rollback")
        raise AssertionError("no drop waited for a lock")
    finally:
        await reader.close()
        await watcher.close()


def dropped_rolls(dropper: Process) -> int:
    return len(re.findall(r"^dropped( \d+)+$", dropper.log_text(), re.MULTILINE))


def two_drivers(scene: Scene, producers: list[Producer], threads: list[Background]) -> None:
    """Run both on the same ranges, to the end."""
    pair = [scene.driver(stop="stop") for _ in range(2)]
    done = wait_for(lambda: not any(producer.is_alive() for producer in producers), threads)
    eventually(done, within=1800, every=0.2, what="everything is published")
    with lakelog.connect(scene.url) as log:

        def is_cold() -> bool:
            for driver in pair:
                assert driver.running, driver.log_text()[-3000:]
            return all(part.hot_from == part.high_watermark for part in log.lake.plan(TOPIC).partitions)

        eventually(wait_for(is_cold, threads), within=600, every=0.5, what="everything is cold")
    (scene.folder / "stop").touch()
    for driver in pair:
        assert driver.wait(timeout=120) == 0, driver.log_text()[-3000:]


async def drop_all(url: str) -> list[int]:
    store = (await open_cells(url))[0]
    try:
        await store.roll()
        dropped: list[int] = []
        for _ in range(20):
            dropped += await store.rolls_drop(grace=timedelta(0))
            if len(await _rolls(url)) == 1:
                return dropped
            await asyncio.sleep(0.2)
        raise AssertionError("hot tables are left although everything in them is cold")
    finally:
        await store.close()


async def _rolls(url: str) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(url)
    try:
        return list(await connection.fetch("select roll from lakelog.roll"))
    finally:
        await connection.close()


def spark_reads_whole(scene: Scene, spark: SparkSession) -> None:
    """Natively and by the data source: no gap and no duplicate during tiering (S22)."""
    options = {"topic": TOPIC, "url": scene.url, **{f"store.{name}": text for name, text in scene.s3.options.items()}}
    for frame in (topic_frame(spark, TOPIC), spark.read.format("lakelog").options(**options).load()):
        rows = frame.groupBy("partition").agg(
            F.count("*").alias("count"),
            F.count_distinct("offset").alias("distinct"),
            F.min("offset").alias("first"),
            F.max("offset").alias("last"),
        )
        for row in rows.collect():
            assert (row["first"], row["count"], row["distinct"]) == (0, row["last"] + 1, row["last"] + 1), row


def check(scene: Scene, producers: list[Producer], readers: list[Reader], workers: Workers) -> None:
    store = scene.store()
    with lakelog.connect(scene.url) as log:
        plan = log.lake.plan(TOPIC)
        assert log.lake.unverified(TOPIC) == []
        names = []
        for part, reader in zip(plan.partitions, readers, strict=True):
            exactly_one_place(part.segments, part.high_watermark)
            assert reader.next == part.high_watermark
            found, content = independent_read(store, part.segments)
            assert content == reader.hash, "the files hold what readers saw (S3)"
            served = ContentHash()
            for batch in log.lake.read_range(TOPIC, part.partition, 0, part.high_watermark):
                served.update(conform(batch))
            assert served.hexdigest() == content
            assert np.array_equal(workers.seen(part.partition), found)
            names.append(found)
    together = np.sort(np.concatenate(names))
    wanted = [np.arange(producer.count) + (number << 40) for number, producer in enumerate(producers)]
    assert np.array_equal(together, np.sort(np.concatenate(wanted))), "each message once, and none is missing"


def exactly_one_place(segments: tuple[Segment, ...], end: int) -> None:
    """S20."""
    edges = [0, *(segment.end for segment in segments)]
    assert [segment.first for segment in segments] == edges[:-1] and edges[-1] == end


def independent_read(store: ObjectStore, segments: tuple[Segment, ...]) -> tuple[np.ndarray, str]:
    """Return the names in the files, and the hash of the messages, read with Parquet only."""
    content = ContentHash()
    names = []
    for segment in segments:
        verify(store, segment)
        table = pq.read_table(store.open_file(segment.path))
        assert table.num_rows == segment.end - segment.first
        for batch in table.combine_chunks().to_batches():
            content.update(conform(batch))
            names.append(names_of(batch))
    return np.concatenate(names), content.hexdigest()
