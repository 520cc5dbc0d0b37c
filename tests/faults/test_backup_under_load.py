"""A backup of PostgreSQL beside producers, workers, tiering, compaction and sweeps; then PostgreSQL is lost.

PostgreSQL is killed while all of them run. It starts once more to tell what the log had; the restore does not see that.
Full size: 2 million messages before the loss.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

import lakelog
from lakelog.errors import PipelineBusy
from lakelog.model.lake import Plan
from lakelog.spark.pipelines import compact_tasks
from lakelog.spark.pipelines.compacting import compact
from lakelog.spark.pipelines.iceberg import iceberg_topic
from lakelog.spark.pipelines.sweeping import sweep_of
from tests.acceptance.cli_kit import Cli
from tests.faults.compact_driver import in_this_process
from tests.faults.tier_load import Background, Producer, Workers, names_of, wait_for
from tests.kit.cold import tier_by_hand
from tests.kit.fleet import Fleet
from tests.kit.postgres import Cluster
from tests.kit.progress import tell
from tests.kit.size import Size
from tests.kit.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600)]

TOPIC, PARTITIONS, PRODUCERS, GROUP = "saved", 3, 2, "handled"
LONG = 3_000
"""Seconds for what takes minutes on a busy machine."""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """An installation whose database is lost."""

    cluster: Cluster
    fleet: Fleet
    folder: Path
    size: Size

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.fleet.ports[0]}"

    @property
    def cli(self) -> Cli:
        return Cli(folder=self.folder, env={"LAKELOG_URL": self.url, "LAKELOG_OBJECT_STORE": self.store})

    @property
    def store(self) -> str:
        return (self.folder / "store").as_uri()

    def producers(self, first: int, count: int) -> list[Producer]:
        wait = self.size.pick(ci=20.0, full=60.0)
        return [Producer(self.url, TOPIC, first + number, count, 0.01, wait) for number in range(PRODUCERS)]

    def lose(self, threads: list[Background]) -> tuple[Plan, Mapping[int, np.ndarray]]:
        """Kill PostgreSQL and the server, and return what the log had."""
        self.cluster.kill9()
        self.fleet.servers[0].kill9()
        for thread in threads:
            thread.end(300, is_cut_off=True)
        self.cluster.start()
        with lakelog.connect(self.fleet.url, object_store=self.store) as log:
            return log.lake.plan(TOPIC), contents(log)


class Keeping(Background):
    """Tiers in small segments, compacts, updates the Iceberg table, and deletes unused files, again and again."""

    def __init__(self, scene: Scene) -> None:
        super().__init__("keeping")
        self._scene = scene
        self.rounds = self.segments = self.replaced = self.swept = 0

    def work(self) -> None:
        with lakelog.connect(self._scene.url, timeout=60) as log:
            while not self._ended.is_set():
                size = self._scene.size
                self.segments += len(tier_by_hand(log, TOPIC, segment_bytes=size.pick(ci=50_000, full=256 << 10)))
                file_bytes = size.pick(ci=200_000, full=8 << 20)
                done = compact(None, TOPIC, file_bytes=file_bytes, min_age=0, url=self._scene.url)  # type: ignore[arg-type]
                self.replaced += done.replaced
                iceberg_topic(log, TOPIC)
                self.swept += sweep_of(log, min_age=timedelta(0)).deleted
                self.rounds += 1
                self._ended.wait(0.1)


@pytest.fixture
def scene(size: Size, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(compact_tasks, "in_tasks", in_this_process)
    env = {"LAKELOG_OBJECT_STORE": (tmp_path / "store").as_uri()}
    with Cluster() as cluster, Fleet(cluster, servers=1, env=env) as fleet:
        yield Scene(cluster=cluster, fleet=fleet, folder=tmp_path, size=size)


def test_a_restored_log_has_what_was_acknowledged_before_the_backup_or_is_in_files(scene: Scene) -> None:
    count = scene.size.pick(ci=40_000, full=2_000_000)
    scene.fleet.create_topic(TOPIC, PARTITIONS)
    producers, workers, keeping = scene.producers(0, 1 << 40), Workers(scene.url, TOPIC, GROUP), Keeping(scene)
    threads: list[Background] = [*producers, workers, keeping]
    for thread in threads:
        thread.start()

    def published(share: float) -> None:
        is_there = wait_for(lambda: sum(each.done for each in producers) >= share * count, threads)
        eventually(is_there, within=LONG, every=0.05, what=f"{share:.0%} is published")
        tell(f"{sum(each.done for each in producers)} messages; {keeping.segments} segments")

    published(0.2)
    eventually(wait_for(lambda: keeping.swept > 0, threads), within=LONG, every=0.05, what="files were deleted")
    published(0.4)
    scene.cli.run("backup", "begin", "nightly", "--database-url", scene.fleet.url)
    acknowledged = [each.done for each in producers]
    with contextlib.closing(Cluster(primary=scene.cluster)) as backup:
        rounds = keeping.rounds
        during = sum(each.done for each in producers) - sum(acknowledged)
        tell(f"PostgreSQL is backed up; {during} messages in this time")
        assert during > 0
        published(1)
        eventually(wait_for(lambda: keeping.rounds > rounds + 1, threads), within=LONG, every=0.05, what="newer files")
        before, lost = scene.lose(threads)
        scene.cluster.close()
        tell(f"PostgreSQL is lost; {sum(map(len, lost.values()))} messages, {keeping.replaced} files replaced")
        backup.port = scene.cluster.port
        backup.start(within=300)
        backup.promote(within=300)
        restored = restore(scene, before, lost)
        for number, end in enumerate(acknowledged):
            found = np.concatenate([names[names >> 40 == number] & ((1 << 40) - 1) for names in restored.values()])
            assert np.array_equal(np.sort(found)[:end], np.arange(end)), "acknowledged before the backup"
        go_on(scene, workers, lost, restored)


def restore(scene: Scene, before: Plan, lost: Mapping[int, np.ndarray]) -> Mapping[int, np.ndarray]:
    """Continue the log with the files. Return its messages: those of the lost log, at least up to its newest files."""
    said = scene.cli.spawn("backup", "restore", "--database-url", scene.fleet.url, "--json", timeout=LONG)
    (done,) = said.json["topics"]
    tell(f"restored: {done}; {said.err}")
    assert done["messages"] > 0
    assert (done["lost"], done["ignored"]) == (0, [])
    scene.fleet.servers[0].start(within=120)
    with lakelog.connect(scene.url, timeout=120) as log:
        restored = contents(log)
    for part in before.partitions:
        found, all_names = restored[part.partition], lost[part.partition]
        assert part.hot_from <= len(found) <= len(all_names)
        assert np.array_equal(found, all_names[: len(found)]), "no offset has two contents"
    is_clean(scene)
    return restored


def go_on(scene: Scene, before: Workers, lost: Mapping[int, np.ndarray], restored: Mapping[int, np.ndarray]) -> None:
    """Publish, handle and tier after the restore. Nothing that was restored changes, and the group gets the rest."""
    count = scene.size.pick(ci=2_000, full=100_000)
    producers, workers = scene.producers(PRODUCERS, count), Workers(scene.url, TOPIC, GROUP)
    for thread in (*producers, workers):
        thread.start()
    for producer in producers:
        eventually(wait_for(lambda each=producer: each.done == count, [producer]), within=LONG)  # type: ignore[misc]
        producer.end()
    eventually(wait_for(lambda: workers.lag() == 0, [workers]), within=LONG, every=0.5, what="all is handled")
    workers.end()
    with lakelog.connect(scene.url, timeout=120) as log:
        tier_by_hand(log, TOPIC)
        with contextlib.suppress(PipelineBusy):
            iceberg_topic(log, TOPIC)
        now = contents(log)
    for partition, names in now.items():
        kept = len(restored[partition])
        assert np.array_equal(names[:kept], restored[partition])
        offsets, found = before.deliveries(partition)
        assert np.array_equal(found, lost[partition][offsets])
        more, found = workers.deliveries(partition)
        assert np.array_equal(found, names[more])
        assert np.array_equal(np.union1d(offsets[offsets < kept], more), np.arange(len(names))), "all is delivered"
    new = np.sort(np.concatenate([names[len(restored[partition]) :] for partition, names in now.items()]))
    wanted = [np.arange(count) + (number + PRODUCERS << 40) for number in range(PRODUCERS)]
    assert np.array_equal(new, np.concatenate(wanted)), "each new message once"
    is_clean(scene)


def contents(log: lakelog.Lakelog) -> dict[int, np.ndarray]:
    """Return the name of each message, by partition and offset."""
    found = {}
    for part in log.lake.plan(TOPIC).partitions:
        batches = log.lake.read_range(TOPIC, part.partition, 0, part.high_watermark)
        names = [names_of(batch) for batch in batches]
        found[part.partition] = np.concatenate(names) if names else np.empty(0, np.int64)
        assert len(found[part.partition]) == part.high_watermark
    return found


def is_clean(scene: Scene) -> None:
    done = scene.cli.spawn("verify", "--json", timeout=LONG).json
    tell(f"verified: {done}")
    assert done["problems"] == []
