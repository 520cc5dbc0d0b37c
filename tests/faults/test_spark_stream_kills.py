"""Streams of a topic to a table and to another topic over two cells, while their driver and executors are killed.

A producer runs. The driver is killed at each point where its work is half done: planned, read, staged, decided,
promoted or committed. Afterwards every message is there exactly once, and the positions of the groups agree (S22). Full
size: 2 million messages, a kill at every point, five executors. In CI a few points: a driver starts slowly. 2026-11-15,
2 cores: 715 s at full size, every message once in both.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

import lakelog
from lakelog import failpoints
from lakelog.storage.postgres import migrate
from tests.kit.fleet import LAKELOG
from tests.kit.ports import free_port
from tests.kit.postgres import Cluster
from tests.kit.process import Process, Supervisor
from tests.kit.size import Size
from tests.kit.spark import SparkCluster
from tests.kit.spark_tables import committed_table
from tests.kit.stream_driver import Driver, Query, stopped
from tests.kit.waiting import eventually

SOURCE, SINK = "orders", "features"
GROUPS = ("to-table", "to-topic")
PARTITIONS = 4

DRIVER_POINTS = [
    "spark.before_planning",
    "spark.after_planning",
    "spark.in_task",
    "spark.after_staging",
    "spark.after_commit",
    "spark.before_group_commit",
    "spark.after_group_commit",
]
TASK_POINTS = ["spark.in_task", "spark.after_staging"]
SERVER_POINTS = ["writes.after_decision", "writes.between_cells"]
CI_POINTS = ["writes.between_cells"]
START_SECONDS = 240.0


class Scene:
    """Servers over two cells, a Spark cluster, the topics, and a producer."""

    def __init__(self, database: str, second: str, folder: Path, spark: SparkCluster, supervisor: Supervisor) -> None:
        self.folder, self.spark, self._supervisor = folder, spark, supervisor
        cells = {"LAKELOG_CELLS": json.dumps({"b": second})}
        self.server, self.url = self._serve(database, cells)
        self.sink_server, self.sink_url = self._serve(database, cells)
        """Only the sink uses this server: it is killed in the middle of its calls."""
        self.log = lakelog.connect(self.url)
        for topic in (SOURCE, SINK):
            self.log.topic(topic).create(PARTITIONS)
        self.published = 0
        self._lock = threading.Lock()

    def _serve(self, database: str, env: dict[str, str]) -> tuple[Process, str]:
        port = free_port()
        argv = [LAKELOG, "serve", "--port", str(port), "--database-url", database, "--no-auth"]
        url = f"http://127.0.0.1:{port}"
        return self._supervisor.start(argv, env=env, ready=f"{url}/readyz", name="server"), url

    def publish(self, count: int) -> None:
        with self._lock:
            topic = self.log.topic(SOURCE)
            for first in range(self.published, self.published + count, 10_000):
                numbers = range(first, min(first + 10_000, self.published + count))
                topic.publish_many([lakelog.Outgoing({"n": n}, key=f"k{n % 997}") for n in numbers])
            self.published += count

    @contextmanager
    def producing(self) -> Iterator[None]:
        """Publish some messages all the time, beside those of the tests."""
        done = threading.Event()

        def produce() -> None:
            while not done.wait(0.1):
                self.publish(10)

        thread = threading.Thread(target=produce)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def driver(self, *, most: int, available_now: bool = False, in_tasks: bool = False) -> Driver:
        """With `in_tasks`, tasks read small micro-batches too."""
        source = {"topic": SOURCE, "start": "earliest", "sessionMs": "3000", "maxMessagesPerTrigger": str(most)}
        if in_tasks:
            source["handOverBytes"] = "0"
        table = Query(
            source={**source, "url": self.url, "group": GROUPS[0]},
            checkpoint=str(self.folder / "table-checkpoint"),
            sink_options={"path": str(self.folder / "table")},
            columns=["partition", "offset", "value"],
        )
        topic = Query(
            source={**source, "url": self.url, "group": GROUPS[1]},
            checkpoint=str(self.folder / "topic-checkpoint"),
            sink="lakelog",
            sink_options={"topic": SINK, "url": self.sink_url},
            columns=["key", "encode(concat(partition, '-', offset), 'UTF-8') AS value"],
        )
        conf = {"spark.executor.memory": "1g", "spark.task.maxFailures": "8"}
        return Driver(queries=[table, topic], master=self.spark.url, available_now=available_now, conf=conf)

    def kill_at(self, point: str, *, most: int) -> None:
        """Run the driver until a process has stopped at the point; then kill the driver and all stopped processes."""
        # Each worker counts for itself, and few of them reach the point twice.
        text = f"{point}=stop" if point in TASK_POINTS else f"{point}=stop@2"
        on_server = point in SERVER_POINTS
        if on_server:
            self._arm(text)
        process = self.driver(most=most, in_tasks=point == "spark.in_task").start(
            self._supervisor, points="" if on_server else text
        )

        def standing() -> list[psutil.Process]:
            _keep_up(process)
            trees = [process, *self.spark.workers, self.sink_server]
            return stopped(child for tree in trees for child in [psutil.Process(tree.pid), *tree.children()])

        eventually(standing, within=START_SECONDS, what=f"a process stopped at {point}")
        process.kill9()
        if on_server:
            self._arm("")
        eventually(self._without_executors, within=START_SECONDS, what="the executors have ended")

    def _without_executors(self) -> bool:
        """Wait for the processes to end with their driver; stopped ones have to be killed."""
        for each in stopped(child for worker in self.spark.workers for child in worker.children()):
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        return not self._executors()

    def _arm(self, points: str) -> None:
        command = self.sink_server.command
        self.sink_server.command = replace(command, env={**command.env, failpoints.ENVIRONMENT_VARIABLE: points})
        self.sink_server.restart()

    def kill_executors(self, times: int, *, most: int) -> Process:
        """Return the driver, still running, after this number of its executors were killed."""
        process = self.driver(most=most).start(self._supervisor)
        for _ in range(times):
            eventually(self._executors, within=START_SECONDS, what="an executor")[0].kill()
            self._await_progress(process)
        return process

    def _await_progress(self, process: Process) -> None:
        before = self.positions()

        def goes_on() -> bool:
            _keep_up(process)
            return self.positions() != before

        eventually(goes_on, within=START_SECONDS, what="the queries go on")

    def _executors(self) -> list[psutil.Process]:
        children = [child for worker in self.spark.workers for child in worker.children()]
        return [child for child in children if "CoarseGrainedExecutorBackend" in " ".join(_command(child))]

    def positions(self) -> list[dict[int, int]]:
        """Return the lag of both groups."""
        found = []
        for group in GROUPS:
            positions = self.log.group(group).positions(SOURCE)
            found.append({partition: position.offset for partition, position in sorted(positions.items())})
        return found

    def ends(self, topic: str) -> dict[int, int]:
        return dict(sorted(self.log.lake.watermarks(topic).ends.items()))

    def check(self) -> None:
        ends = self.ends(SOURCE)
        expected = {(partition, offset) for partition, end in ends.items() for offset in range(end)}
        assert len(expected) == self.published
        assert self.positions() == [ends, ends]
        table = committed_table(self.folder / "table", ["partition", "offset"]).to_pydict()
        _exactly_once(Counter(zip(table["partition"], table["offset"], strict=True)), expected)
        copied: Counter[tuple[int, ...]] = Counter()
        for partition, end in self.ends(SINK).items():
            for batch in self.log.lake.read_range(SINK, partition, 0, end):
                for value in batch.column("value").to_pylist():
                    copied[tuple(map(int, value.decode().split("-")))] += 1
        _exactly_once(copied, expected)


def _keep_up(process: Process) -> None:
    """Spark gives a Python process ten seconds to start, which a busy machine may exceed: then repeat once."""
    if not process.running:
        said = process.log_text()
        assert "worker to connect back" in said, said
        process.log_path.write_text("")
        process.start()


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []


def _exactly_once(found: Counter[Any], expected: set[tuple[int, int]]) -> None:
    twice = [place for place, count in found.items() if count > 1]
    assert not twice, f"{len(twice)} messages twice, such as {sorted(twice)[:5]}"
    missing = expected - found.keys()
    assert not missing, f"{len(missing)} messages missing, such as {sorted(missing)[:5]}"
    assert not found.keys() - expected


@pytest.fixture
def scene(cluster: Cluster, second_cluster: Cluster) -> Iterator[Scene]:
    database, second = cluster.create_database(), second_cluster.create_database()
    asyncio.run(migrate(database, {"b": second}))
    with (
        tempfile.TemporaryDirectory(prefix="lakelog-kills-") as folder,
        SparkCluster(workers=2) as spark,
        Supervisor() as supervisor,
    ):
        made = Scene(database, second, Path(folder), spark, supervisor)
        try:
            yield made
        finally:
            made.log.close()


@pytest.mark.timeout(3600)
def test_s22_a_table_and_a_topic_have_every_message_once_whatever_is_killed(scene: Scene, size: Size) -> None:
    points = size.pick(ci=CI_POINTS, full=[*DRIVER_POINTS, *SERVER_POINTS])
    total, executors = size.pick(ci=20_000, full=2_000_000), size.pick(ci=1, full=5)
    share = total // (len(points) + 1)
    most = share // 4
    with scene.producing():
        for point in points:
            scene.publish(share)
            scene.kill_at(point, most=most)
        scene.publish(share)
        process = scene.kill_executors(executors, most=most)
    eventually(lambda: scene.positions() == [scene.ends(SOURCE)] * 2, within=size.pick(ci=240, full=900))
    # Idle: everything is read and committed.
    process.kill9()
    scene.publish(1000)
    last = scene.driver(most=most, available_now=True).start(scene._supervisor)
    assert last.wait(timeout=size.pick(ci=240, full=900)) == 0, last.log_text()
    scene.check()
