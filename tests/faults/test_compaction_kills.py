"""Compaction under kill -9 of its driver at each step, and two drivers at once, while others publish, read and tier.

Full size runs the tasks on Spark. 2026-11-19, 2 cores and other work: a million messages passed in 433 s.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

import lakelog
from lakelog.model.lake import Plan
from lakelog.objectstore import open_store
from lakelog.segments.hashing import ContentHash
from lakelog.segments.reader import verify
from lakelog.segments.schema import conform
from lakelog.spark import sweep
from tests.faults import compact_driver
from tests.faults.test_tiering_kills import at_its_point, drop_all, exactly_one_place, independent_read
from tests.faults.tier_load import Background, Producer, Reader, wait_for
from tests.kit.cold import tier_by_hand
from tests.kit.fleet import Fleet
from tests.kit.postgres import Cluster
from tests.kit.process import Process, Supervisor
from tests.kit.size import Size
from tests.kit.waiting import eventually

TOPIC, PARTITIONS = "compacted", 2
POINTS = (
    "compact.planned",
    "compact.before_put",
    "compact.after_put",
    "compact.before_verify",
    "compact.written",
    "compact.before_replace",
    "compact.after_replace",
)
TASK_POINTS = POINTS[1:4]
"""Points in a task. On Spark a task is a process of its own: it stops there, and the test ends the driver."""
PAIRS = (POINTS[:2], POINTS[2:4], POINTS[4:6], POINTS[6:])


@dataclass(frozen=True, kw_only=True)
class Scene:
    """The installation of the scenario."""

    fleet: Fleet
    supervisor: Supervisor
    folder: Path
    size: Size
    spark: bool
    """Whether tasks run on Spark."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.fleet.ports[0]}"

    @property
    def store_url(self) -> str:
        return f"file://{self.folder / 'store'}"

    def driver(self, points: str = "") -> Process:
        plan = compact_driver.Plan(
            topic=TOPIC,
            url=self.url,
            file_bytes=self.size.pick(ci=200_000, full=4 << 20),
            stop=str(self.folder / "stop"),
            spark=self.spark,
        )
        return compact_driver.start(self.supervisor, plan, points)

    def files(self) -> set[str]:
        root = self.folder / "store"
        return {str(path.relative_to(root)) for path in root.rglob("*.parquet")}


class Tiering(Background):
    """Tiers everything that was published, in small segments, again and again; `pause` is in seconds."""

    def __init__(self, scene: Scene, pause: float = 0.1) -> None:
        super().__init__("tiering")
        self._scene, self._pause = scene, pause
        self.segments = 0

    def work(self) -> None:
        with lakelog.connect(self._scene.url, timeout=120) as log:
            while True:
                is_last = self._ended.is_set()
                self.segments += len(tier_by_hand(log, TOPIC, segment_bytes=20_000))
                if is_last:
                    return
                self._ended.wait(self._pause)


@pytest.fixture
def scene(cluster: Cluster, size: Size, tmp_path: Path) -> Iterator[Scene]:
    env = {"LAKELOG_OBJECT_STORE": f"file://{tmp_path / 'store'}"}
    with Fleet(cluster, servers=1, env=env) as fleet, Supervisor() as supervisor:
        yield Scene(fleet=fleet, supervisor=supervisor, folder=tmp_path, size=size, spark=size is Size.FULL)


@pytest.mark.timeout(1800)
def test_kills_at_every_step_lose_and_double_nothing(scene: Scene, size: Size) -> None:
    scene.fleet.create_topic(TOPIC, PARTITIONS)
    count = size.pick(ci=12_000, full=1_000_000)
    producer = Producer(scene.url, TOPIC, 0, count, size.pick(ci=0.1, full=0.01))
    readers = [Reader(scene.url, TOPIC, partition) for partition in range(PARTITIONS)]
    tiering = Tiering(scene)
    threads: list[Background] = [producer, tiering, *readers]
    for thread in threads:
        thread.start()
    eventually(wait_for(lambda: tiering.segments > 8, threads), within=60, every=0.05, what="there are segments")
    with lakelog.connect(scene.url) as log:
        early = log.lake.plan(TOPIC)
    # Drivers that die before they replace anything leave the work to the others.
    for points in size.pick(ci=[("compact.after_put", "compact.before_replace", "compact.after_replace")], full=PAIRS):
        kill(scene, points, threads)
    pair = [scene.driver() for _ in range(2)]
    eventually(wait_for(lambda: producer.done == count, threads), within=600, every=0.1, what="all is published")
    for thread in (producer, tiering, *readers):
        thread.end()
    eventually(lambda: is_compact(scene, tiering.segments), within=120, every=0.1, what="all is compacted")
    (scene.folder / "stop").touch()
    for driver in pair:
        assert driver.wait(timeout=60) == 0, driver.log_text()[-3000:]
    assert sum(int(found) for driver in pair for found in re.findall(r"^(\d+) replaced", driver.log_text(), re.M))
    early_files_are_readable(scene, early)
    assert asyncio.run(drop_all(scene.fleet.url)), "all but the newest hot tables are retired"
    check(scene, readers, count)
    only_registered_files_are_left(scene, readers)


def kill(scene: Scene, points: Iterable[str], threads: list[Background]) -> None:
    """Start a driver for each point, where it dies."""
    stops = TASK_POINTS if scene.spark else ()
    started = [(point, scene.driver(f"{point}={'stop' if point in stops else 'kill'}")) for point in points]
    for point, driver in started:
        if point in stops:
            stopped = wait_for(lambda d=driver: at_its_point(d), threads)  # type: ignore[misc]
            eventually(stopped, within=240, every=0.05, what=f"stopped at {point}")
            driver.kill9()
        dies = wait_for(lambda d=driver: not d.running, threads)  # type: ignore[misc]
        eventually(dies, within=240, every=0.05, what=f"killed at {point}")
        assert driver.wait() == -9, driver.log_text()[-3000:]


def is_compact(scene: Scene, written: int) -> bool:
    """Return whether there are many fewer segments than were written."""
    with lakelog.connect(scene.url) as log:
        segments = sum(len(part.segments) for part in log.lake.plan(TOPIC).partitions)
    return segments * 4 < written


def early_files_are_readable(scene: Scene, early: Plan) -> None:
    """A reader with an old plan finds all of its files, with the sealed bytes."""
    for part in early.partitions:
        for segment in part.segments:
            verify(open_store(scene.store_url), segment)


def check(scene: Scene, readers: list[Reader], count: int) -> None:
    store = open_store(scene.store_url)
    total = 0
    with lakelog.connect(scene.url) as log:
        plan = log.lake.plan(TOPIC)
        for part, reader in zip(plan.partitions, readers, strict=True):
            exactly_one_place(part.segments, part.high_watermark)
            assert reader.next == part.high_watermark
            names, content = independent_read(store, part.segments)
            assert content == reader.hash, "the files hold what readers saw (S3)"
            served = ContentHash()
            for batch in log.lake.read_range(TOPIC, part.partition, 0, part.high_watermark):
                served.update(conform(batch))
            assert served.hexdigest() == content
            total += len(set(names.tolist()))
    assert total == count, "each message once, and none is missing"


def only_registered_files_are_left(scene: Scene, readers: list[Reader]) -> None:
    """The files of killed drivers and of replaced segments are swept at the second look, and no other file."""
    with lakelog.connect(scene.url) as log:
        kept = {segment.path for part in log.lake.plan(TOPIC).partitions for segment in part.segments}
    unused = scene.files() - kept
    assert unused
    assert sweep(url=scene.url).deleted == 0, "a first look deletes nothing"
    assert scene.files() == kept | unused
    assert sweep(url=scene.url, min_age=timedelta(0)).deleted == len(unused)
    assert scene.files() == kept
    check(scene, readers, sum(reader.next for reader in readers))
