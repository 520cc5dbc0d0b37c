"""`pipelines serve` without Spark: the order of its pipelines, Iceberg tables, and unused files."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from types import SimpleNamespace

import pytest

import lakelog
from lakelog.errors import LakelogError, PipelineBusy
from lakelog.model.iceberg import IcebergChanges, TableKind
from lakelog.objectstore import ObjectStore, open_store
from lakelog.segments.iceberg import metadata as tables
from lakelog.segments.iceberg.avro import read_avro
from lakelog.segments.iceberg.key_files import Covered, KeyTable
from lakelog.segments.iceberg.table_files import TableFiles
from lakelog.spark.pipelines import latest, serving
from lakelog.spark.pipelines.iceberg import IcebergSummary, iceberg_topic
from lakelog.spark.pipelines.jobs import SparkSessions
from lakelog.spark.pipelines.latest import LatestSummary, uncovered
from lakelog.spark.pipelines.serving import PipelineServer, ServeOptions, ServeSummary
from lakelog.spark.pipelines.sweeping import SweepSummary, sweep
from lakelog.spark.pipelines.tiering import TierSummary
from lakelog.spark.session import ConnectionSettings, client
from tests.acceptance.client_kit import ThreadServer
from tests.kit.cold import tier_by_hand


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ThreadServer]:
    with ThreadServer(tmp_path.as_uri()) as started:
        yield started


@pytest.fixture
def log(server: ThreadServer) -> lakelog.Lakelog:
    opened = client(ConnectionSettings(url=server.url))
    opened.topic("orders").create()
    return opened


class Told:
    """A `ServeListener` that records its calls."""

    def __init__(self) -> None:
        self.done: list[ServeSummary | SweepSummary] = []
        self.passed_over: list[tuple[str, str]] = []

    def leading(self) -> None: ...

    def waiting(self, error: PipelineBusy) -> None: ...

    def begun(self, topic: str, plan: ServeSummary) -> None: ...

    def progress(self, done: ServeSummary) -> None: ...

    def ended(self, done: ServeSummary) -> None:
        self.done.append(done)

    def swept(self, done: SweepSummary) -> None:
        self.done.append(done)

    def passed(self, topic: str, error: LakelogError) -> None:
        self.passed_over.append((topic, error.detail))


def served(server: ThreadServer, **options: object) -> Told:
    """Run each pipeline that is due once."""
    told = Told()

    def stop(seconds: float) -> None:
        raise SystemExit

    given = ServeOptions(tier_every=None, compact_every=None, **options)  # type: ignore[arg-type]
    PipelineServer(ConnectionSettings(url=server.url), SparkSessions(name="none"), given, told, stop).run()
    return told


def publish(log: lakelog.Lakelog, count: int = 10) -> None:
    log.topic("orders").publish_many([{"n": n} for n in range(count)])


def retire(server: ThreadServer, offset: int) -> None:
    """Let retention remove messages, and the trimmer forget their segments."""

    async def remove() -> None:
        await server.store.log_start_raise([(1 << 16, offset)])
        await server.store.cold.trim()

    asyncio.run(remove())


def files(server: ThreadServer, changes: IcebergChanges) -> set[str]:
    """Return the paths of all files of all snapshots that have not expired: lists, manifests and segments."""
    store = open_store(changes.store or "")
    assert changes.metadata is not None
    content = json.loads(store.get(changes.metadata))
    found = {changes.metadata}
    for snapshot in content["snapshots"]:
        for manifest in read_avro(store.get(path_of(store.url, snapshot["manifest-list"]))):
            entries = read_avro(store.get(path_of(store.url, manifest["manifest_path"])))
            found |= {path_of(store.url, each["data_file"]["file_path"]) for each in entries if each["status"] != 2}
    return found


def path_of(root: str, url: str) -> str:
    return url.removeprefix(f"{root.rstrip('/')}/")


def test_existing_tables_are_kept_and_new_ones_are_made_only_if_asked(
    server: ThreadServer, log: lakelog.Lakelog
) -> None:
    log.topic("clicks").create()
    publish(log)
    tier_by_hand(log, "orders")
    assert served(server).done == []
    told = served(server, new_tables=True)
    assert told.done == [IcebergSummary(topic="orders", version=1, added=1, messages=10, commits=1)]
    publish(log)
    tier_by_hand(log, "orders")
    (done,) = served(server).done
    assert isinstance(done, IcebergSummary) and (done.version, done.added) == (2, 1)
    run = log.pipelines.list("serve")[0]
    assert (run.progress["versions"], run.progress["failures"]) == (1, 0)


def test_a_failure_of_one_table_is_counted_and_stops_nothing(
    server: ThreadServer, log: lakelog.Lakelog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(log: lakelog.Lakelog, topic: str, *, creates: bool) -> IcebergSummary:
        raise lakelog.errors.Conflict("It was changed by another run.")

    monkeypatch.setattr(serving, "iceberg_topic", fails)
    told = served(server)
    assert told.passed_over == [("orders", "It was changed by another run.")]
    assert log.pipelines.list("sweep"), "the sweep ran nevertheless"
    assert log.pipelines.list("serve")[0].progress["failures"] == 1


def test_a_key_table_that_exists_is_updated_when_it_lacks_messages(
    server: ThreadServer, log: lakelog.Lakelog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark is replaced by a function that commits a version of the table without files."""

    def update(connection: ConnectionSettings, session: object, topic: str) -> LatestSummary:
        lacked = uncovered(log, topic) or 0
        changes, marks = log.lake.iceberg_changes(topic, TableKind.LATEST), log.lake.watermarks(topic)
        covered = Covered(ends=marks.ends, epoch=marks.epoch, as_of=marks.now)
        commit = KeyTable(open_store(changes.store or ""), changes, 4).next_version([], [], covered)
        return LatestSummary(topic=topic, version=log.lake.commit_iceberg(commit).version, messages=lacked)

    monkeypatch.setattr(serving, "run_latest", update)
    log.topic("clicks").create()
    publish(log)
    assert served(server).done == [] and uncovered(log, "orders") is None, "no table is asked for"
    told = served(server, topics=("clicks",), key_tables=("orders",))
    assert told.done == [LatestSummary(topic="orders", version=1)]
    assert served(server).done == [], "the table has all messages"
    publish(log)
    assert served(server).done == [LatestSummary(topic="orders", version=2, messages=10)]
    assert log.pipelines.list("serve")[0].progress["merged"] == 10
    publish(log, 3)

    def fails(*given: object) -> LatestSummary:
        raise lakelog.errors.Conflict("It was changed by another run.")

    monkeypatch.setattr(serving, "run_latest", fails)
    assert served(server).passed_over == [("orders", "It was changed by another run.")]
    progress = log.pipelines.list("serve")[0].progress
    assert (progress["merged"], progress["unmerged"], progress["failures"]) == (0, 3, 1)


@pytest.mark.parametrize("works", [True, False])
def test_an_error_of_one_topic_does_not_stop_the_others_unless_spark_has_ended(
    server: ThreadServer, log: lakelog.Lakelog, monkeypatch: pytest.MonkeyPatch, works: bool
) -> None:
    log.topic("zebras").create()
    sessions, told, tried = SparkSessions(name="none"), Told(), []

    def count() -> int:
        if not works:
            raise ConnectionRefusedError
        return 1

    def tier(connection: object, sessions: object, job: object, topic: str, report: object) -> TierSummary:
        tried.append(topic)
        if topic == "orders":
            raise OSError(28, "No space left on device")
        return TierSummary(topic=topic)

    def stop(seconds: float) -> None:
        raise SystemExit

    sessions.__dict__["spark"] = SimpleNamespace(range=lambda end: SimpleNamespace(count=count))
    monkeypatch.setattr(serving, "tier_topic", tier)
    options = ServeOptions(compact_every=None, iceberg_every=None, latest_every=None, sweep_every=None)
    run = PipelineServer(ConnectionSettings(url=server.url), sessions, options, told, stop).run
    if works:
        run()
        assert (tried, told.passed_over) == (
            ["orders", "zebras"],
            [("orders", "OSError: [Errno 28] No space left on device")],
        )
    else:
        with pytest.raises(OSError, match="No space"):
            run()


class Hours:
    """A clock that only advances when the process sleeps. It ends the process after three hours."""

    def __init__(self, ahead: timedelta) -> None:
        self._ahead, self._at = ahead, 0.0

    def monotonic(self) -> float:
        return self._at

    def now(self, zone: tzinfo) -> datetime:
        return datetime.now(zone) + self._ahead + timedelta(seconds=self._at)

    def sleep(self, seconds: float) -> None:
        self._at += 600
        if self._at > 3 * 3600:
            raise SystemExit


@pytest.mark.parametrize(("fails", "hours", "first"), [(False, 23, 3600), (True, 1, 0)])
def test_a_sweep_is_due_an_interval_after_the_last_one_of_any_process_that_did_not_fail(
    server: ThreadServer, log: lakelog.Lakelog, monkeypatch: pytest.MonkeyPatch, fails: bool, hours: int, first: int
) -> None:
    """The process starts some hours after another one swept."""
    log.pipelines.end(log.pipelines.begin("sweep"), {}, failed=fails)
    clock, swept = Hours(timedelta(hours=hours)), []

    def swept_at(**given: object) -> SweepSummary:
        swept.append(clock.monotonic())
        return SweepSummary()

    for name, stand_in in {"time": clock, "datetime": clock, "sweep": swept_at}.items():
        monkeypatch.setattr(serving, name, stand_in)
    options = ServeOptions(tier_every=None, compact_every=None, iceberg_every=None, latest_every=None)
    connection, sessions = ConnectionSettings(url=server.url), SparkSessions(name="none")
    PipelineServer(connection, sessions, options, Told(), clock.sleep).run()
    assert swept and swept[0] == first


def test_a_key_table_is_read_with_the_settings_of_the_session(
    server: ThreadServer, log: lakelog.Lakelog, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = []

    def opened(url: str, options: Mapping[str, str] | None = None) -> ObjectStore:
        given.append(options)
        return open_store(url)

    class Conf:
        def get(self, name: str, default: str | None) -> str | None:
            return "http://minio:9000" if name == "spark.hadoop.fs.s3a.endpoint" else default

    marks = log.lake.watermarks("orders")
    changes = log.lake.iceberg_changes("orders", TableKind.LATEST)
    covered = Covered(ends=marks.ends, epoch=marks.epoch, as_of=marks.now)
    log.lake.commit_iceberg(KeyTable(open_store(changes.store or ""), changes, 4).next_version([], [], covered))
    monkeypatch.setattr(latest, "open_store", opened)
    latest.update_latest(SimpleNamespace(conf=Conf()), "orders", url=server.url)  # type: ignore[arg-type]
    assert given == [{"endpoint": "http://minio:9000", "allow_http": "true"}]


def test_s25_retention_takes_files_from_the_table_then_from_its_snapshots_and_then_from_the_store(
    server: ThreadServer, log: lakelog.Lakelog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S25: no pass of the service deletes a file that a snapshot has."""
    monkeypatch.setattr(serving, "sweep", lambda **given: sweep(min_age=timedelta(0), **given))
    every = {"sweep_every": timedelta(microseconds=1), "new_tables": True}
    for _ in range(3):
        publish(log)
        tier_by_hand(log, "orders")
        served(server, **every)
    first = log.lake.plan("orders").partitions[0].segments[0].path
    retire(server, 10)
    store = open_store(log.lake.plan("orders").store or "")
    for _ in range(3):
        served(server, **every)
        changes = log.lake.iceberg_changes("orders")
        stored = {each.path for each in store.list("e1")}
        assert files(server, changes) <= stored
        assert first in stored, "a snapshot that has not expired has it"
    monkeypatch.setattr(tables, "KEEP_SNAPSHOTS", 1)
    for _ in range(3):
        served(server, **every)
    publish(log)
    tier_by_hand(log, "orders")
    for _ in range(3):
        served(server, **every)
        stored = {each.path for each in store.list("e1")}
        assert files(server, log.lake.iceberg_changes("orders")) <= stored
    assert first not in stored


def test_a_backup_keeps_a_file_of_a_table_that_a_sweep_saw_before_its_commit(
    server: ThreadServer, log: lakelog.Lakelog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "KEEP_SNAPSHOTS", 1)
    publish(log)
    tier_by_hand(log, "orders")
    store = open_store(log.lake.plan("orders").store or "")
    commit = TableFiles(store, log.lake.iceberg_changes("orders")).write()
    assert commit is not None
    assert log.lake.look(commit.added, min_age=0) == [], "no check has seen them before"
    log.lake.commit_iceberg(commit)
    assert asyncio.run(server.catalog.orphans.backup_mark("nightly", timedelta(days=1)))
    for _ in range(2):
        publish(log)
        tier_by_hand(log, "orders")
        iceberg_topic(log, "orders")
    for _ in range(2):
        sweep(min_age=timedelta(0), url=server.url)
    assert set(commit.added) <= {each.path for each in store.list("e1")}


def test_s26_a_table_has_no_segment_before_it_is_verified_and_none_that_the_log_has_not(
    log: lakelog.Lakelog, server: ThreadServer
) -> None:
    """S26: also for a run that planned before retention passed, and commits after it."""
    publish(log)
    tier_by_hand(log, "orders", unverified={0})
    assert iceberg_topic(log, "orders").version == 0
    log.lake.verified("orders", log.lake.unverified("orders"))
    publish(log)
    tier_by_hand(log, "orders")
    store = open_store(log.lake.plan("orders").store or "")
    late = TableFiles(store, log.lake.iceberg_changes("orders")).write()
    assert late is not None
    retire(server, 10)
    assert log.lake.commit_iceberg(late).version == 1
    done = iceberg_topic(log, "orders")
    assert (done.version, done.added, done.removed) == (2, 0, 1)
    segments = {each.path for part in log.lake.plan("orders").partitions for each in part.segments}
    changes = log.lake.iceberg_changes("orders")
    assert not changes.steps
    table = json.loads(store.get(changes.metadata or ""))
    assert table["snapshots"][-1]["summary"]["lakelog.covered"] == '{"0": [[10, 20]]}'
    assert len(segments) == 1
