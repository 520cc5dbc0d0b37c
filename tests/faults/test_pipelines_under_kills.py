"""Backfill and key tables whose runs are killed three times at random points: each row is added once, no key is wrong.

A run is killed with its JVM and its tasks, at a fail point or a random time after it began, and then run again. Full
size: 5 million rows, and 5 million updates of 500,000 keys.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import lakelog
from lakelog.model.iceberg import TableKind
from lakelog.model.lake import Plan
from lakelog.model.pipeline import RunState
from lakelog.objectstore import ObjectStore, open_store
from lakelog.segments.iceberg.key_files import KeyTable
from lakelog.segments.layout import topic_folder
from lakelog.segments.load_receipts import read_receipts
from tests.acceptance.cli_kit import Cli
from tests.kit.fleet import Fleet
from tests.kit.postgres import Cluster
from tests.kit.progress import tell
from tests.kit.size import Size
from tests.kit.spark import environment, java_options
from tests.kit.waiting import NeverTrue, eventually

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600)]

KILLS = 3
START = 300
"""Seconds for a command that starts Spark on a busy machine."""
FIRST = datetime(2020, 3, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A server with an object store, and a command line that can be killed."""

    url: str
    folder: Path
    log: lakelog.Lakelog
    chance: random.Random
    size: Size

    @property
    def store(self) -> ObjectStore:
        return open_store(f"file://{self.folder / 'store'}")

    def cli(self, points: str = "") -> Cli:
        env = {"LAKELOG_URL": self.url, "JAVA_TOOL_OPTIONS": java_options(), "LAKELOG_FAILPOINTS": points}
        return Cli(folder=self.folder, env={**environment(), **env})

    def killed(self, pipeline: str, arguments: Sequence[str], points: Mapping[str, int]) -> str:
        """Run the pipeline, kill it at a random point, and return where. `points` has how often a run passes each."""
        point = self.chance.choice([*points, ""])
        hit = f"{point}=kill@{self.chance.randint(1, most)}" if (most := points.get(point, 0)) else ""
        known = {run.run_id for run in self.log.pipelines.list(pipeline)}
        process = self.cli(hit).process(pipeline, ["pipelines", "run", pipeline, *arguments], None).start()
        try:
            eventually(lambda: not process.running or self.begun(pipeline, known), within=START, every=0.01)
            wait = self.size.pick(ci=5.0, full=60.0)
            try:
                within = START * 4 if point else self.chance.uniform(0.0, wait)
                eventually(lambda: not process.running, within=within, every=0.01)
            except NeverTrue:
                assert not point, process.log_text()[-3000:]
        finally:
            process.kill9()
        for run in self.log.pipelines.list(pipeline):
            if run.state is RunState.RUNNING:
                self.log.pipelines.end(run, {}, failed=True)
        assert process.wait() in (0, -9), process.log_text()[-3000:]
        told = f"{hit or 'a random time'}: {process.wait()}"
        tell(f"{pipeline} was killed at {told}")
        return told

    def begun(self, pipeline: str, known: set[str]) -> bool:
        return any(run.run_id not in known for run in self.log.pipelines.list(pipeline))


@pytest.fixture
def scene(cluster: Cluster, size: Size, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    env = {"LAKELOG_OBJECT_STORE": f"file://{tmp_path / 'store'}"}
    with Fleet(cluster, servers=1, env=env) as fleet:
        url = f"http://127.0.0.1:{fleet.ports[0]}"
        with lakelog.connect(url, timeout=120) as log:
            yield Scene(url=url, folder=tmp_path, log=log, chance=random.Random(request.node.name), size=size)


@pytest.mark.parametrize("way", ["--load", "--publish"])
def test_each_row_of_a_backfill_is_added_once(scene: Scene, way: str) -> None:
    count = scene.size.pick(ci=150_000, full=5_000_000)
    scene.log.topic("sold").create(partitions=6)
    files = sold_orders(scene.folder / "sold", count)
    tell(f"{count} rows are in files")
    arguments = ("sold", str(files), "--key", "customer", "--time", "sold_at", "--name", "old", way)
    points = {"backfill.written": 1, "backfill.loaded": 2} if way == "--load" else {"backfill.published": 1}
    told = [scene.killed("backfill", arguments, points) for _ in range(KILLS)]
    done = scene.cli().spawn("pipelines", "run", "backfill", *arguments, "--json", timeout=4 * START).json
    tell(f"the last run ended: {done}")
    assert (done["messages"], done["remaining"]) == (count, 0), told
    assert any(each.endswith("-9") for each in told), told
    seen = np.zeros(count, np.int64)
    plan = scene.log.lake.plan("sold")
    time_column = "appended_at" if way == "--load" else "created_at"
    # Each message of loaded history has its own time, and is a batch if a server returns it. This reads the files.
    for batch in scene.log.topic("sold").scan_arrow(columns=["value", time_column]):
        found = pc.extract_regex(batch.column("value").cast(pa.string()), r'"id":(?P<id>\d+)')
        ids = pc.struct_field(found, "id").cast(pa.int64()).to_numpy(zero_copy_only=False)
        np.add.at(seen, ids, 1)
        times = batch.column(time_column)
        assert times.type == pa.timestamp("us", "UTC")
        assert np.array_equal(times.cast(pa.int64()).to_numpy(), (ids + int(FIRST.timestamp())) * 1_000_000)
    tell(f"{seen.sum()} messages are read")
    assert (seen == 1).all(), (told, np.flatnonzero(seen != 1)[:10])
    if way == "--load":
        all_loads_have_receipts(scene, plan)


def all_loads_have_receipts(scene: Scene, plan: Plan) -> None:
    found = read_receipts(scene.store, topic_folder(plan.environment_id, plan.incarnation))
    assert sorted((each.partition, each.first, each.end, *sorted(each.paths)) for each in found) == [
        (part.partition, 0, part.high_watermark, *sorted(segment.path for segment in part.segments))
        for part in plan.partitions
    ]


def sold_orders(folder: Path, count: int) -> Path:
    """Write orders of two days and more to files, with a key and a time."""
    folder.mkdir()
    for number, ids in enumerate(np.array_split(np.random.default_rng(7).permutation(count), 4)):
        table = {
            "id": pa.array(ids),
            "customer": pa.array([f"c{each % 1_000}" for each in ids]),
            "sold_at": pa.array([FIRST + timedelta(seconds=int(each)) for each in ids], pa.timestamp("us", "UTC")),
        }
        pq.write_table(pa.table(table), folder / f"{number}.parquet")
    return folder


def test_a_key_table_has_the_newest_value_of_each_key(scene: Scene) -> None:
    rounds, updates = scene.size.pick(ci=(4, 2_000), full=(20, 250_000))
    topic, expected = scene.log.topic("prices"), dict[str, int | None]()
    topic.create(partitions=8)
    told = []
    for number in range(rounds):
        if number == rounds // 2:
            topic.alter(partitions=12)
        sent = [
            (f"k{scene.chance.randrange(updates * 2)}", scene.chance.choice([n, n, n, None])) for n in range(updates)
        ]
        expected |= dict(sent)
        for first in range(0, updates, 5_000):
            topic.publish_many([lakelog.Outgoing(n, key=key) for key, n in sent[first : first + 5_000]])
        tell(f"{(number + 1) * updates} updates are published")
        if number % (rounds // 4 or 1) == 0 and len(told) < KILLS:
            told.append(scene.killed("latest", ["prices"], {"latest.written": 1, "latest.committed": 1}))
    done = scene.cli().spawn("pipelines", "run", "latest", "prices", "--json", timeout=4 * START).json
    tell(f"the last run ended: {done}")
    kept = {key: n for key, n in expected.items() if n is not None}
    assert done["keys"] == len(kept), told
    assert any(each.endswith("-9") for each in told), told
    changes = scene.log.lake.iceberg_changes("prices", TableKind.LATEST)
    found: list[tuple[str, int]] = []
    for file in KeyTable(scene.store, changes, 16).files:
        rows = pq.read_table(scene.folder / "store" / file.path, columns=["key", "value"], partitioning=None)
        found += [(row["key"].decode(), json.loads(row["value"])) for row in rows.to_pylist()]
    assert len(found) == len(dict(found)), "each key once"
    assert dict(found) == kept, told
