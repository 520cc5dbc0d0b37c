"""Tiering and sweeping, from Python and by command, on real Spark: history moves to files and reads the same."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

import lakelog
from lakelog import failpoints
from lakelog.errors import Conflict, InvalidRequest, NotFound, ObjectStoreUnavailable, PipelineBusy, Unavailable
from lakelog.model.lake import PlanOptions, RegisterStatus, TierRange
from lakelog.model.partitioner import partition_of
from lakelog.model.pipeline import RunState
from lakelog.objectstore import open_store
from lakelog.segments.hashing import ContentHash
from lakelog.segments.layout import columns_of_file, topic_folder
from lakelog.segments.load_receipts import read_receipts
from lakelog.segments.schema import conform
from lakelog.spark import backfill, compact, copy, latest, sweep, tier, topic, update_latest
from lakelog.spark.pipelines import backfilling
from lakelog.spark.pipelines.compacting import CompactSummary
from lakelog.spark.pipelines.tier_tasks import write_all
from lakelog.spark.pipelines.tiering import TierSummary
from lakelog.spark.reading.range_reader import ReadTarget
from lakelog.spark.session import ConnectionSettings
from lakelog.storage.postgres import open_cells
from tests.acceptance.cli_kit import Cli
from tests.kit.fleet import Fleet
from tests.kit.postgres import Cluster
from tests.kit.size import Size
from tests.kit.spark import environment, java_options, local_session
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(600)

MESSAGES = 3_000
SLOW = 240
"""Seconds for a command that starts Spark on a busy machine."""
SMALL = 20_000
"""Bytes of a segment: a few thousand messages make several."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def fleet(cluster: Cluster, folder: Path) -> Iterator[Fleet]:
    with Fleet(cluster, servers=1, env={"LAKELOG_OBJECT_STORE": f"file://{folder}"}) as started:
        yield started


@pytest.fixture(scope="module")
def spark(fleet: Fleet) -> Iterator[SparkSession]:
    with local_session({"spark.lakelog.url": url_of(fleet)}) as session:
        yield session


@pytest.fixture
def cli(fleet: Fleet, tmp_path: Path) -> Cli:
    return Cli(
        folder=tmp_path, env={"LAKELOG_URL": url_of(fleet), "JAVA_TOOL_OPTIONS": java_options(), **environment()}
    )


@pytest.fixture
def log(fleet: Fleet) -> Iterator[lakelog.Lakelog]:
    with lakelog.connect(url_of(fleet)) as opened:
        yield opened
        for topic in opened.topics():
            opened.topic(topic.name).delete()


def url_of(fleet: Fleet) -> str:
    return f"http://127.0.0.1:{fleet.ports[0]}"


def publish(log: lakelog.Lakelog, topic: str, count: int = MESSAGES) -> None:
    handle = log.topic(topic)
    handle.create(partitions=2, if_missing=True)
    for first in range(0, count, 100):
        handle.publish_many(
            [
                lakelog.Outgoing({"n": n, "text": f"{n:064d}"}, key=f"k{n % 7}", headers={"n": str(n)})
                for n in range(first, min(first + 100, count))
            ]
        )


def contents(log: lakelog.Lakelog, topic: str) -> dict[int, tuple[int, int, str]]:
    """Return start, end and hash of each partition, as a new reader sees them."""
    found = {}
    for part in log.topic(topic).describe().partition_list:
        content = ContentHash()
        for batch in log.lake.read_range(topic, part.partition, part.log_start, part.high_watermark):
            content.update(conform(batch))
        found[part.partition] = (part.log_start, part.high_watermark, content.hexdigest())
    return found


def cold_ends(log: lakelog.Lakelog, topic: str) -> list[tuple[int, int]]:
    """Return the end of the verified segments of each partition, and the high watermark."""
    plan = log.lake.plan(topic, PlanOptions())
    return [(part.hot_from, part.high_watermark) for part in plan.partitions]


def drop_hot(url: str) -> list[int]:
    async def drop() -> list[int]:
        stores = await open_cells(url)
        try:
            await stores[0].roll()
            return await stores[0].rolls_drop(grace=timedelta(0))
        finally:
            await stores[0].close()

    return asyncio.run(drop())


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*.parquet")}


def test_a_tiered_topic_reads_the_same_without_its_hot_tables(
    spark: SparkSession, log: lakelog.Lakelog, fleet: Fleet
) -> None:
    """S20, S22."""
    publish(log, "moved")
    before = contents(log, "moved")
    told: list[TierSummary] = []
    done = tier(spark, "moved", segment_bytes=SMALL, min_age=0, on_progress=told.append)
    assert (done.messages, done.taken, done.dropped, done.settled) == (MESSAGES, 0, 0, 0)
    assert done.segments == done.planned_segments > 4
    assert told[-1] == done and [each.messages for each in told] == sorted(each.messages for each in told)
    assert all(hot_from == high for hot_from, high in cold_ends(log, "moved"))
    assert drop_hot(fleet.url), "everything in the old hot tables is in segments"
    assert contents(log, "moved") == before
    assert tier(spark, "moved", min_age=0).segments == 0, "there is nothing left"
    run = log.pipelines.list("tier", "moved")[-1]
    assert (run.state, run.progress["messages"], run.progress["segments"]) == (RunState.DONE, MESSAGES, done.segments)


def test_young_and_small_ranges_are_not_tiered(spark: SparkSession, log: lakelog.Lakelog) -> None:
    publish(log, "young")
    assert tier(spark, "young").messages == 0
    part = tier(spark, "young", segment_bytes=SMALL)
    assert 0 < part.messages < MESSAGES
    rest = tier(spark, "young", segment_bytes=SMALL, min_bytes=1)
    assert part.messages + rest.messages == MESSAGES


def test_a_dry_run_changes_nothing(log: lakelog.Lakelog, cli: Cli, folder: Path) -> None:
    publish(log, "planned", 500)
    there = files(folder)
    line = cli.run("pipelines", "run", "tier", "--topic", "planned", "--min-age", "0s", "--dry-run", "--json").json
    assert (line["messages"], line["segments"], line["dry_run"]) == (500, 2, True)
    said = cli.run("pipelines", "run", "tier", "--topic", "planned", "--min-age", "0s", "--dry-run").out
    assert "would be tiered 500 messages in 2 segments" in said
    ranges = cli.run("pipelines", "plan", "tier", "--topic", "planned", "--min-age", "0s", "--json").json["ranges"]
    assert sum(each["end"] - each["first"] for each in ranges) == 500
    assert "MESSAGES" in cli.run("pipelines", "plan", "tier", "--topic", "planned", "--min-age", "0s").out
    why = (
        "planned: nothing to tier yet: 500 messages in PostgreSQL, less than a segment of 128.0 MiB and younger than "
        "5m; to move them now, use --min-age 0s"
    )
    assert cli.run("pipelines", "plan", "tier", "--topic", "planned").err.strip() == why
    assert cli.run("pipelines", "run", "tier", "--topic", "planned").out.strip() == why
    assert files(folder) == there
    assert log.pipelines.list("tier", "planned") == []


def test_the_command_tiers_and_shows_its_run(log: lakelog.Lakelog, cli: Cli) -> None:
    publish(log, "shown", 500)
    wanted = ("--topic", "shown", "--min-age", "0s", "--master", "local[2]", "--json")
    done = cli.spawn("pipelines", "run", "tier", *wanted, timeout=SLOW)
    assert done.json["messages"] == 500, done.err
    assert " WARN " not in done.err
    assert all(hot_from == high for hot_from, high in cold_ends(log, "shown"))
    (run,) = cli.run("pipelines", "runs", "tier", "--topic", "shown", "--json").json["runs"]
    assert (run["state"], run["progress"]["messages"]) == ("done", 500)
    table = cli.run("pipelines", "runs").out
    assert "shown" in table and "500 messages" in table and "done" in table
    again = cli.run("pipelines", "run", "tier", "--topic", "shown", "--min-age", "0s").out
    assert again.strip() == "shown: nothing to tier: files hold all 500 messages already"


def test_a_second_run_of_a_topic_is_refused(spark: SparkSession, log: lakelog.Lakelog, cli: Cli) -> None:
    publish(log, "busy", 200)
    first = log.pipelines.begin("tier", "busy", host="another-host")
    with pytest.raises(PipelineBusy, match="another-host"):
        tier(spark, "busy", min_age=0)
    assert all(hot_from == 0 for hot_from, _ in cold_ends(log, "busy"))
    listed = cli.run("pipelines", "runs", "--topic", "busy").out
    assert "running" in listed and "on another-host" in listed
    log.pipelines.end(first, {})
    assert tier(spark, "busy", min_age=0).messages == 200


@pytest.mark.parametrize("point", ["tier.planned", "tier.written", "tier.registered", "tier.before_verified"])
def test_a_run_that_failed_anywhere_is_gone_on_with(
    spark: SparkSession, log: lakelog.Lakelog, folder: Path, point: str
) -> None:
    """S20, S21: the next run completes registered segments, and leaves unused files to the sweep."""
    topic = point.replace("_", "-")
    publish(log, topic, 600)
    before = contents(log, topic)
    failpoints.arm(f"{point}=error")
    try:
        with pytest.raises(Unavailable, match="Fail point"):
            tier(spark, topic, segment_bytes=5_000, min_age=0)
    finally:
        failpoints.arm("")
    (failed,) = log.pipelines.list("tier", topic)
    assert (failed.state, failed.detail) == (RunState.FAILED, f"Fail point {point} was hit.")
    assert contents(log, topic) == before
    settled = len(log.lake.unverified(topic))
    assert (settled > 0) == (point in ("tier.registered", "tier.before_verified"))
    done = tier(spark, topic, segment_bytes=5_000, min_age=0)
    assert (done.messages, done.settled, done.taken) == (600, settled, 0)
    assert all(hot_from == high for hot_from, high in cold_ends(log, topic))
    assert contents(log, topic) == before
    counted = {segment.path for part in log.lake.plan(topic).partitions for segment in part.segments}
    assert counted <= files(folder)


@pytest.mark.nightly
def test_a_run_that_was_killed_is_gone_on_with(spark: SparkSession, log: lakelog.Lakelog, cli: Cli) -> None:
    publish(log, "killed", 600)
    before = contents(log, "killed")
    killed = Cli(folder=cli.folder, env={**cli.env, "LAKELOG_FAILPOINTS": "tier.registered=kill"})
    wanted = ("--topic", "killed", "--min-age", "0s", "--segment-size", "5000")
    ended = killed.spawn("pipelines", "run", "tier", *wanted, code=None, timeout=SLOW)
    assert ended.code == -signal.SIGKILL, ended.err
    (died,) = log.pipelines.list("tier", "killed")
    assert died.state is RunState.RUNNING, "the run is not known to be dead yet"
    log.pipelines.end(died, {}, failed=True)
    assert contents(log, "killed") == before
    done = tier(spark, "killed", segment_bytes=5_000, min_age=0)
    assert done.messages == 600 and done.settled > 0
    assert contents(log, "killed") == before


def test_a_damaged_file_never_counts(spark: SparkSession, log: lakelog.Lakelog, fleet: Fleet, folder: Path) -> None:
    """S20: a segment that does not read back as it was sealed is removed, and its messages are tiered again."""
    publish(log, "damaged", 600)
    before = contents(log, "damaged")
    plan = log.lake.plan("damaged")
    place = ReadTarget(
        connection=ConnectionSettings(url=url_of(fleet)),
        topic="damaged",
        incarnation=plan.incarnation,
        store=plan.store,
    )
    ranges = log.lake.tierable("damaged", segment_bytes=5_000, min_bytes=1)
    outcomes = write_all(spark, place, plan.environment_id, ranges)
    segments = [outcome.segment for outcome in outcomes if outcome.segment]
    assert len(segments) == len(ranges) > 3
    torn, lost = folder / segments[0].path, folder / segments[1].path
    torn.write_bytes(torn.read_bytes()[:-7])
    lost.unlink()
    answers = log.lake.register("damaged", segments)
    assert {answer.status for answer in answers} == {RegisterStatus.REGISTERED}
    assert contents(log, "damaged") == before
    done = tier(spark, "damaged", segment_bytes=5_000, min_age=0)
    assert (done.settled, done.dropped, done.messages) == (len(segments) - 2, 2, 600)
    assert log.lake.unverified("damaged") == []
    assert all(hot_from == high for hot_from, high in cold_ends(log, "damaged"))
    drop_hot(fleet.url)
    assert contents(log, "damaged") == before
    assert {segments[0].path, segments[1].path}.isdisjoint(
        segment.path for part in log.lake.plan("damaged").partitions for segment in part.segments
    )


def test_two_drivers_on_one_range_leave_each_offset_in_one_place(
    spark: SparkSession, log: lakelog.Lakelog, fleet: Fleet
) -> None:
    """S20: the second registration is refused, and its file is unused."""
    publish(log, "twice", 300)
    plan = log.lake.plan("twice")
    place = ReadTarget(
        connection=ConnectionSettings(url=url_of(fleet)), topic="twice", incarnation=plan.incarnation, store=plan.store
    )
    ranges: list[TierRange] = log.lake.tierable("twice", segment_bytes=5_000, min_bytes=1)
    both = [write_all(spark, place, plan.environment_id, ranges) for _ in range(2)]
    one, other = ([outcome.segment for outcome in outcomes if outcome.segment] for outcomes in both)
    assert [replace(each, path="") for each in one] == [replace(each, path="") for each in other]
    assert {answer.status for answer in log.lake.register("twice", one)} == {RegisterStatus.REGISTERED}
    assert {answer.status for answer in log.lake.register("twice", other)} == {RegisterStatus.TAKEN}
    assert {answer.status for answer in log.lake.register("twice", one)} == {RegisterStatus.KNOWN}
    assert tier(spark, "twice", min_age=0).settled == len(one)


def test_a_file_is_swept_when_it_was_unused_at_two_looks(
    spark: SparkSession, log: lakelog.Lakelog, cli: Cli, fleet: Fleet, folder: Path
) -> None:
    """S21."""
    publish(log, "swept", 300)
    tier(spark, "swept", min_age=0)
    used = {segment.path for part in log.lake.plan("swept").partitions for segment in part.segments}
    (some,) = sorted(used)[:1]
    orphan = some.rpartition("-")[0] + "-0123456789abcdef.parquet"
    (folder / orphan).write_bytes(b"nobody's")
    foreign = folder / "e1" / "notes.txt"
    foreign.write_text("not ours")
    first = sweep(url=url_of(fleet))
    assert first.deleted == 0 and orphan in files(folder)
    assert sweep(url=url_of(fleet)).deleted == 0, "a second look within the day deletes nothing"
    dry = cli.run("pipelines", "run", "sweep", "--min-age", "0s", "--dry-run", "--json").json
    assert dry["deleted"] >= 1 and orphan in files(folder)
    done = cli.run("pipelines", "run", "sweep", "--min-age", "0s", "--json").json
    assert done["deleted"] == dry["deleted"] and orphan not in files(folder)
    assert used <= files(folder) and foreign.exists()
    assert len(contents(log, "swept")) == 2
    assert log.pipelines.list("sweep")[0].progress["deleted"] == done["deleted"]


def test_compacted_segments_read_the_same(spark: SparkSession, log: lakelog.Lakelog, fleet: Fleet, cli: Cli) -> None:
    """S20, S22: also by Spark, and by a DataFrame that was planned before."""
    publish(log, "small")
    before = contents(log, "small")
    tiered = tier(spark, "small", segment_bytes=SMALL, min_age=0).segments
    assert drop_hot(fleet.url)
    early = topic(spark, "small")
    dry = cli.run("pipelines", "run", "compact", "small", "--min-age", "0s", "--dry-run").out
    assert f"small: would rewrite {tiered} segments of {tiered}" in dry and "as 2 files" in dry
    files = cli.run("pipelines", "plan", "compact", "small", "--min-age", "0s", "--json").json["files"]
    assert [(each["partition"], each["first"]) for each in files] == [(0, 0), (1, 0)]
    assert sum(each["segments"] for each in files) == tiered
    told: list[CompactSummary] = []
    done = compact(spark, "small", min_age=0, on_progress=told.append)
    assert (done.messages, done.segments, done.replaced, done.total) == (MESSAGES, 2, tiered, tiered)
    assert (done.taken, done.failed) == (0, 0) and told[-1] == done
    assert [len(part.segments) for part in log.lake.plan("small").partitions] == [1, 1]
    assert contents(log, "small") == before
    assert topic(spark, "small").count() == early.count() == MESSAGES
    (run,) = log.pipelines.list("compact", "small")
    assert (run.state, run.progress["replaced"]) == (RunState.DONE, tiered)
    said = cli.run("pipelines", "run", "compact", "small", "--min-age", "0s").out.strip()
    assert said == "small: nothing to compact among 2 segments"
    waits = cli.run("pipelines", "run", "compact", "small").out
    assert "segments of the last 1h wait, use --min-age 0s" in waits


def test_files_have_the_columns_of_the_topic_and_messages_stay_the_same(
    spark: SparkSession, log: lakelog.Lakelog, fleet: Fleet
) -> None:
    """Files with columns of two versions and without columns are read together with hot messages."""
    typed = log.topic("typed")
    typed.create(partitions=1, columns={"properties": {"n": {"type": "integer"}}})

    def rows(**limits: Any) -> tuple[list[tuple[Any, ...]], bool]:
        """Return the typed columns, and whether some of them were computed of values."""
        frame = topic(spark, "typed", typed=True, columns="offset", **limits)
        found = frame.selectExpr("offset", "v.n", "v.text", "v_error IS NULL").collect()
        plan = frame._jdf.queryExecution().toString()  # type: ignore[operator]
        return sorted(tuple(row) for row in found), "ArrowEvalPython" in plan

    for count in (100, 200):
        typed.publish(b"{", key="broken")
        publish(log, "typed", count)
        tier(spark, "typed", min_age=0)
        typed.alter(columns={"properties": {"text": {"type": "string"}}})
    publish(log, "typed", 50)
    [part] = log.lake.plan("typed").partitions
    assert [columns_of_file(each.path) for each in part.segments] == [1, 2]
    before, (found, computed) = contents(log, "typed"), rows()
    assert computed
    assert sum(row[1] or 0 for row in found) == sum(sum(range(count)) for count in (100, 200, 50))
    assert [row[2] for row in found if row[1] == 42] == [f"{42:064d}"] * 3
    assert [row for row in found if not row[3]] == [(0, None, None, False), (101, None, None, False)]
    compact(spark, "typed", min_age=0)
    [part] = log.lake.plan("typed").partitions
    assert [columns_of_file(each.path) for each in part.segments] == [2]
    cold = rows(start_offsets={0: 3}, end_offsets={0: part.hot_from})
    assert cold == (found[3 : part.hot_from], False)
    tier(spark, "typed", min_age=0)
    typed.alter(columns={"properties": {"m": {"type": "integer"}}})
    assert compact(spark, "typed", min_age=0, fill_columns=True).segments == 1
    [part] = log.lake.plan("typed").partitions
    assert [columns_of_file(each.path) for each in part.segments] == [3]
    assert drop_hot(fleet.url)
    assert contents(log, "typed") == before


def test_a_damaged_segment_is_not_compacted(spark: SparkSession, log: lakelog.Lakelog, folder: Path) -> None:
    """The other partition is; the damaged file stays registered, so that it can be restored."""
    publish(log, "torn")
    tier(spark, "torn", segment_bytes=SMALL, min_age=0)
    torn = log.lake.plan("torn").partitions[0].segments[0]
    data = bytearray((folder / torn.path).read_bytes())
    data[100] ^= 1
    (folder / torn.path).write_bytes(bytes(data))
    with pytest.raises(ObjectStoreUnavailable, match="its bytes differ from the sealed ones"):
        compact(spark, "torn", min_age=0)
    first, second = log.lake.plan("torn").partitions
    assert torn in first.segments and len(second.segments) == 1
    (run,) = log.pipelines.list("compact", "torn")
    assert run.state is RunState.FAILED and run.progress["failed"] == 1


def old_orders(spark: SparkSession, count: int) -> DataFrame:
    """Return orders of three days, with a key and a time, in no order."""
    begin = "timestamp'2020-03-01 20:00:00' + make_interval(0, 0, 0, 0, 0, 0, id * 100)"
    return spark.range(count).selectExpr("id", "concat('c', id % 17) AS customer", f"{begin} AS sold_at")


def messages_of(log: lakelog.Lakelog, topic: str) -> list[tuple[int, bytes, datetime, bytes]]:
    """Return partition, key, time and value of all messages, by partition and offset."""
    found = []
    for part in log.topic(topic).describe().partition_list:
        for batch in log.lake.read_range(topic, part.partition, part.log_start, part.high_watermark):
            columns = [batch.column(name).to_pylist() for name in ("partition", "key", "appended_at", "value")]
            found += list(zip(*columns, strict=True))
    return found


@pytest.mark.nightly
def test_history_is_loaded_once_with_its_times_although_a_run_failed(
    spark: SparkSession, log: lakelog.Lakelog, size: Size, folder: Path
) -> None:
    count = 2_000 if size is Size.CI else 5_000_000
    log.topic("sold").create(partitions=6)
    rows = old_orders(spark, count)
    failpoints.arm("backfill.loaded=error")
    try:
        with pytest.raises(Unavailable, match="Fail point"):
            backfill(rows, "sold", key="customer", time="sold_at", name="old")
    finally:
        failpoints.arm("")
    done = backfill(rows, "sold", key="customer", time="sold_at", name="old")
    assert (done.messages, done.added + done.known, done.remaining) == (count, count, 0)
    assert done.known and done.added and done.is_history
    found = messages_of(log, "sold")
    assert sorted(json.loads(value)["id"] for *_, value in found) == list(range(count))
    for partition, key, at, value in found[:: max(1, count // 2_000)]:
        row = json.loads(value)
        assert key == row["customer"].encode()
        assert at == datetime(2020, 3, 1, 20, tzinfo=UTC) + timedelta(seconds=100 * row["id"])
        assert partition == partition_of(key, 6)
    assert [each[2] for each in found] == [each[2] for each in sorted(found, key=lambda each: (each[0], each[2]))]
    plan = log.lake.plan("sold")
    receipts = read_receipts(open_store(f"file://{folder}"), topic_folder(plan.environment_id, plan.incarnation))
    told = sorted((each.partition, each.first, each.end, each.name, *sorted(each.paths)) for each in receipts)
    assert told == [
        (each.partition, 0, each.high_watermark, "old", *sorted(segment.path for segment in each.segments))
        for each in plan.partitions
    ], "also of the part that was loaded by the run that failed"
    with pytest.raises(Conflict, match=r"The rows of partition \d differ"):
        backfill(rows.where("id > 5"), "sold", key="customer", time="sold_at", name="old")
    with pytest.raises(InvalidRequest, match="have no column 'nothing'"):
        backfill(rows, "sold", key="nothing")


def test_rows_are_published_once_into_a_topic_that_is_in_use(
    spark: SparkSession, log: lakelog.Lakelog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfilling, "SHARE_ROWS", 100)
    publish(log, "used", 100)
    rows = old_orders(spark, 200)
    failpoints.arm("backfill.published=error")
    try:
        with pytest.raises(Unavailable, match="Fail point"):
            backfill(rows, "used", key="customer", time="sold_at", name="old")
    finally:
        failpoints.arm("")
    done = backfill(rows, "used", key="customer", time="sold_at", name="old", rate=100_000)
    assert (done.messages, done.remaining, done.is_history) == (200, 0, False)
    assert 0 < done.added < 200 and done.added + done.known == 200
    ids = [row["id"] for *_, value in messages_of(log, "used") if "id" in (row := json.loads(value))]
    assert sorted(ids) == list(range(200))
    with pytest.raises(Conflict, match="The rows differ from those that backfill 'old'"):
        backfill(rows.where("id > 5"), "used", key="customer", time="sold_at", name="old")


@pytest.mark.nightly
def test_a_topic_is_copied_with_its_times_and_then_into_a_topic_that_is_in_use(
    spark: SparkSession, log: lakelog.Lakelog, fleet: Fleet
) -> None:
    publish(log, "source", 300)
    log.topic("twin").create(partitions=2)
    log.topic("wide").create(partitions=3)
    done = copy(spark, "source", to="twin", name="move", from_url=url_of(fleet))
    assert (done.added, done.is_history) == (300, True)
    assert copy(spark, "source", to="wide", until=datetime.now(UTC)).is_history
    expected = messages_of(log, "source")
    assert messages_of(log, "twin") == expected
    wide = messages_of(log, "wide")
    assert sorted(each[1:] for each in wide) == sorted(each[1:] for each in expected)
    assert all(partition_of(key, 3) == partition for partition, key, *_ in wide)
    more = copy(spark, "source", to="wide", from_url=url_of(fleet), dry_run=True)
    assert (more.remaining, more.is_history) == (300, False), "it would be published"
    with pytest.raises(InvalidRequest, match="into itself"):
        copy(spark, "source", to="source")


@pytest.mark.nightly
def test_a_key_table_is_the_dict_of_the_newest_values_although_runs_fail_and_partitions_are_added(
    spark: SparkSession, log: lakelog.Lakelog, size: Size
) -> None:
    rounds, updates = (2, 300) if size is Size.CI else (20, 250_000)
    chance, expected = random.Random(5), dict[str, int | None]()
    handle = log.topic("prices")
    handle.create(partitions=8)
    for number in range(rounds):
        if number == rounds // 2:
            handle.alter(partitions=12)
        sent = [(f"k{chance.randrange(updates // 3)}", chance.choice([n, n, n, None])) for n in range(updates)]
        expected |= dict(sent)
        for first in range(0, updates, 5_000):
            handle.publish_many([lakelog.Outgoing(n, key=key) for key, n in sent[first : first + 5_000]])
        handle.publish({"no": "key"})
        if number < rounds // 2 + 1:
            failpoints.arm(("latest.written" if number % 2 else "latest.committed") + "=error")
            try:
                with pytest.raises(Unavailable, match="Fail point"):
                    update_latest(spark, "prices", buckets=4)
            finally:
                failpoints.arm("")
        done = update_latest(spark, "prices", buckets=4)
        kept = {key: n for key, n in expected.items() if n is not None}
        assert done.keys == len(kept)
        assert dict(done.covered) == {each.partition: each.high_watermark for each in handle.describe().partition_list}
        rows = latest(spark, "prices").select("key", "value").collect()
        assert {bytes(row["key"]).decode(): json.loads(bytes(row["value"])) for row in rows} == kept
    again = update_latest(spark, "prices")
    assert (again.messages, again.version) == (0, done.version)
    with pytest.raises(NotFound, match="pipelines run latest planned"):
        log.topic("planned").create()
        latest(spark, "planned")


@pytest.mark.nightly
def test_a_key_table_of_few_keys_needs_few_tasks(spark: SparkSession, log: lakelog.Lakelog) -> None:
    """Whatever the number of partitions that Spark shuffles rows to: a task takes longer than its few rows."""
    publish(log, "counted", 20)
    context, name = spark.sparkContext, "spark.sql.shuffle.partitions"
    usual = spark.conf.get(name)
    spark.conf.set(name, "60")
    context.setJobGroup("counted", "")
    try:
        assert update_latest(spark, "counted").keys == 7
    finally:
        spark.conf.set(name, usual)
        context.setLocalProperty("spark.jobGroup.id", None)
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(each) for each in tracker.getJobIdsForGroup("counted")]
    stages = [tracker.getStageInfo(each) for job in jobs if job is not None for each in job.stageIds]
    assert max(each.numTasks for each in stages if each is not None) <= 4 * context.defaultParallelism


def test_it_runs_until_it_is_stopped(log: lakelog.Lakelog, cli: Cli) -> None:
    publish(log, "endless", 200)
    running = cli.popen(
        "pipelines", "run", "tier", "--topic", "endless", "--min-age", "0s", "--every", "200ms", "--json"
    )
    try:
        assert running.stdout is not None
        assert json.loads(running.stdout.readline())["messages"] == 200
        publish(log, "endless", 100)
        assert json.loads(running.stdout.readline())["messages"] > 0
        eventually(lambda: all(hot == high for hot, high in cold_ends(log, "endless")), within=20, what="all is cold")
        eventually(lambda: {run.state for run in log.pipelines.list("tier", "endless")} == {RunState.DONE})
        running.send_signal(signal.SIGINT)
        assert running.wait(30) == 130
    finally:
        running.kill()
        running.communicate()
    assert {run.state for run in log.pipelines.list("tier", "endless")} == {RunState.DONE}


@pytest.mark.nightly
def test_a_service_tiers_and_compacts_and_another_one_takes_over(log: lakelog.Lakelog, cli: Cli) -> None:
    publish(log, "served", 600)
    before = contents(log, "served")
    options = ("--tier-every", "1s", "--min-age", "0s", "--segment-size", "5000", "--compact-every", "1s")
    options += ("--key-table", "served")
    command = ("pipelines", "serve", "served", *options, "--compact-age", "0s", "--json")
    first = cli.popen(*command)
    try:
        assert first.stdout is not None
        done = [json.loads(first.stdout.readline()) for _ in range(3)]
        assert [(each["pipeline"], each["topic"], each["messages"]) for each in done] == [
            ("tier", "served", 600),
            ("compact", "served", 600),
            ("latest", "served", 600),
        ]
        assert done[-1]["keys"] == 7
        assert [len(part.segments) for part in log.lake.plan("served").partitions] == [1, 1]
        assert contents(log, "served") == before
        second = cli.popen(*command, "--sweep-every", "never")
        try:
            (leading,) = log.pipelines.list("serve")
            assert leading.state is RunState.RUNNING
            first.send_signal(signal.SIGTERM)
            assert first.wait(60) == 0
            eventually(lambda: len(log.pipelines.list("serve")) == 2, within=60, what="the other one takes over")
            ended, now = sorted(log.pipelines.list("serve"), key=lambda run: run.started_at)
            assert (ended.state, now.state) == (RunState.DONE, RunState.RUNNING)
            assert (ended.progress["tiered"], ended.progress["waiting"], ended.progress["failures"]) == (600, 0, 0)
            assert len(log.pipelines.list("sweep")) >= 1, "the first one has swept"
            second.send_signal(signal.SIGTERM)
            assert second.wait(30) == 0
        finally:
            second.kill()
            second.communicate()
    finally:
        first.kill()
        first.communicate()


def test_a_missing_object_store_is_reported(cluster: Cluster, tmp_path: Path) -> None:
    with Fleet(cluster, servers=1) as bare:
        cli = Cli(folder=tmp_path, env={"LAKELOG_URL": url_of(bare), **environment()})
        with lakelog.connect(url_of(bare)) as log:
            publish(log, "homeless", 10)
            for wish in (("sweep",), ("tier", "--min-age", "0s")):
                assert "LAKELOG_OBJECT_STORE" in cli.run("pipelines", "run", *wish, code=1).err
            unknown = cli.run("pipelines", "run", "tier", "--topic", "nothing", code=3)
            assert "Topic 'nothing' does not exist" in unknown.err
    gone = cli.run("pipelines", "runs", code=4)
    assert "Cannot connect to" in gone.err
