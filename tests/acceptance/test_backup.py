"""Backup and restore: a restored database continues with the files that are newer, and no offset has two contents."""

from __future__ import annotations

import asyncio
import contextlib
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import lakelog
from lakelog.client.restoring.restoration import LOST, RestoredTopic, restore_topics
from lakelog.client.verifying.verification import VerifyOptions, verify_topics
from lakelog.model.load import LoadRequest, LoadStatus, PartitionLoad
from lakelog.model.segment import Segment
from lakelog.objectstore import ObjectStore, open_store
from lakelog.segments.day_files import DayFiles
from lakelog.segments.layout import topic_folder
from lakelog.segments.load_receipts import LoadReceipt, write_receipt
from lakelog.segments.schema import SCHEMA, conform
from lakelog.spark.pipelines.iceberg import iceberg_topic
from lakelog.spark.pipelines.sweeping import sweep_of
from lakelog.storage.postgres import open_store as open_cell
from tests.acceptance.cli_kit import Cli
from tests.kit.cold import tier_by_hand
from tests.kit.postgres import Cluster
from tests.unit.docs.markdown import DOCS, blocks

pytestmark = pytest.mark.timeout(120)
OPTIONS = VerifyOptions(unused_age=timedelta(days=1))


class Installation:
    """A database, a copy of it that plays the backup, and a folder with files."""

    def __init__(self, cluster: Cluster, url: str, folder: Path) -> None:
        self.url = url
        self.copy = ""
        self._copies: list[str] = []
        self.objects = (folder / "objects").as_uri()
        self.cli = Cli(folder=folder, env={"LAKELOG_OBJECT_STORE": self.objects})
        self._cluster = cluster

    @property
    def store(self) -> ObjectStore:
        return open_store(self.objects)

    @contextmanager
    def open(self, url: str | None = None) -> Iterator[lakelog.Lakelog]:
        with lakelog.connect(url or self.url, object_store=self.objects, allow_not_durable=True) as log:
            yield log

    def back_up(self) -> None:
        """Copy the database. Nothing is connected to it."""
        self.copy = self.another_copy()

    def another_copy(self) -> str:
        """Copy the database, and return the URL of the copy."""
        self._copies.append(self._cluster.create_database(template=(self.copy or self.url).rpartition("/")[2]))
        return self._copies[-1]

    def trim(self) -> None:
        """Let the trimmer forget segments below the log start."""

        async def run() -> None:
            store = await open_cell(self.url)
            try:
                assert await store.cold.trim() == 1
            finally:
                await store.close()

        asyncio.run(run())

    def close(self) -> None:
        for copy in self._copies:
            self._cluster.drop_database(copy)


@pytest.fixture
def here(cluster: Cluster, migrated_database: str, tmp_path: Path) -> Iterator[Installation]:
    made = Installation(cluster, migrated_database, tmp_path)
    yield made
    made.close()


def publish(log: lakelog.Lakelog, first: int, end: int) -> None:
    log.topic("orders").publish_many([lakelog.Outgoing({"n": n}, key=f"k{n % 5}") for n in range(first, end)])


def contents(log: lakelog.Lakelog) -> dict[tuple[int, int], bytes | None]:
    """Return the value of each offset."""
    found = {}
    for part in log.topic("orders").describe().partition_list:
        for batch in log.lake.read_range("orders", part.partition, part.log_start, part.high_watermark):
            columns = [batch.column(name).to_pylist() for name in ("offset", "value", "headers")]
            for offset, value, headers in zip(*columns, strict=True):
                found[part.partition, offset] = b"lost" if LOST in dict(headers or ()) else value
    return found


def written_for_load(here: Installation, log: lakelog.Lakelog, first: int, name: str) -> list[Segment]:
    """Write twenty messages for a load to a file."""
    plan = log.lake.plan("orders")
    now = log.lake.watermarks("orders").now
    rows = pa.RecordBatch.from_pydict(
        {
            "partition": pa.array([0] * 20, pa.int32()),
            "offset": pa.array(range(first, first + 20), pa.int64()),
            "appended_at": pa.array([now] * 20, SCHEMA.field("appended_at").type),
            "epoch": pa.array([plan.epoch] * 20, pa.int32()),
            "value": pa.array([f"{name} {n}".encode() for n in range(20)]),
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        files = DayFiles(
            store=here.store, environment_id=plan.environment_id, incarnation=plan.incarnation, folder=Path(folder)
        )
        return [*files.add(0, conform(rows)), *files.close()]


def load_history(here: Installation, log: lakelog.Lakelog, first: int, name: str) -> None:
    """Load twenty messages, as a backfill does."""
    segments = written_for_load(here, log, first, name)
    plan = log.lake.plan("orders")
    part = PartitionLoad(partition=0, first=first, segments=tuple(segments), fingerprint="ab")
    (answer,) = log.lake.load(LoadRequest(topic="orders", name=name, incarnation=plan.incarnation, parts=[part]))
    assert answer.status is LoadStatus.LOADED
    paths = tuple(each.path for each in segments)
    receipt = LoadReceipt(name=name, partition=0, first=first, end=first + 20, fingerprint="ab", paths=paths)
    write_receipt(here.store, topic_folder(plan.environment_id, plan.incarnation), receipt)


def restored(log: lakelog.Lakelog, **options: bool) -> RestoredTopic:
    (done,) = restore_topics(log, ["orders"], watch=lambda each: None, **options)
    return done


def test_a_restored_log_continues_with_the_messages_of_files(here: Installation) -> None:
    """Segments of before the backup, one that crosses its end, later ones, and more partitions."""
    with here.open() as log:
        log.topic("orders").create(partitions=2, schema={"type": "object"})
        publish(log, 0, 40)
        tier_by_hand(log, "orders")
        publish(log, 40, 60)
    here.back_up()
    with here.open() as log:
        publish(log, 60, 80)
        tier_by_hand(log, "orders")
        log.topic("orders").alter(partitions=3)
        publish(log, 80, 120)
        tier_by_hand(log, "orders")
        tiered = contents(log)
        publish(log, 120, 130)
    with here.open(here.copy) as log:
        before = contents(log)
        assert len(before) == 60
        plan = restored(log, dry_run=True)
        assert (plan.messages, plan.lost, plan.partitions, plan.ignored) == (60, 0, 1, ())
        assert contents(log) == before
    said = here.cli.run("backup", "restore", "--database-url", here.copy).out
    page = (DOCS / "howto" / "back-up-and-restore.md").read_text()
    assert [said.strip()] == [text.strip() for kind, text in blocks(page) if kind == "text"]
    with here.open(here.copy) as log:
        assert contents(log) == tiered
        assert restored(log).is_nothing
        publish(log, 200, 210)
        assert len(contents(log)) == 130
        tier_by_hand(log, "orders")
        assert verify_topics(log, options=OPTIONS).problems == ()
    assert here.cli.run("backup", "restore", "--database-url", here.copy).out.startswith("No file has messages")


def publish_to(log: lakelog.Lakelog, partition: int, first: int, end: int) -> None:
    """Publish messages to one partition, and tier them."""
    log.topic("orders").publish_many([lakelog.Outgoing({"n": n}, partition=partition) for n in range(first, end)])
    tier_by_hand(log, "orders")


def test_messages_from_before_and_after_added_partitions_are_restored(here: Installation) -> None:
    """Partition 0 got its last message before the topic grew, partition 2 its first one long after it."""
    with here.open() as log:
        log.topic("orders").create(partitions=2)
    here.back_up()
    with here.open() as log:
        publish_to(log, 0, 0, 10)
        log.topic("orders").alter(partitions=3)
        log.topic("orders").alter(partitions=4)
        publish_to(log, 2, 10, 20)
        before = contents(log)
    with here.open(here.copy) as log:
        done = restored(log)
        assert (done.messages, done.lost, done.partitions) == (20, 0, 1)
        assert contents(log) == before
        for partition in range(3):
            publish_to(log, partition, 20, 22)
        assert len(contents(log)) == 26
        assert verify_topics(log, options=OPTIONS).problems == ()


def test_a_restored_partition_accepts_messages_if_no_added_partition_has_files(here: Installation) -> None:
    with here.open() as log:
        log.topic("orders").create(partitions=2)
    here.back_up()
    with here.open() as log:
        log.topic("orders").alter(partitions=3)
        publish_to(log, 0, 0, 10)
    with here.open(here.copy) as log:
        done = restored(log)
        assert (done.messages, done.lost, done.partitions) == (10, 0, 0)
        publish_to(log, 0, 10, 12)
        assert len(contents(log)) == 12


def test_a_load_that_was_decided_after_the_backup_is_restored_under_its_name(here: Installation) -> None:
    """Published messages before and after it, and files of a load that was never decided beside it."""
    with here.open() as log:
        log.topic("orders").create(partitions=1)
        publish(log, 0, 10)
    here.back_up()
    with here.open() as log:
        publish(log, 10, 20)
        tier_by_hand(log, "orders")
        written_for_load(here, log, 20, "undecided")
        load_history(here, log, 20, "archive-2025")
        publish(log, 40, 50)
        tier_by_hand(log, "orders")
        before = contents(log)
    with here.open(here.copy) as log:
        done = restored(log)
        assert (done.messages, done.lost) == (40, 0)
        assert contents(log) == before
        (known,) = log.lake.find_load("orders", "archive-2025")
        assert (known.first, known.end, known.fingerprint) == (20, 40, "ab")
        assert log.lake.find_load("orders", "undecided") == []
        assert restored(log).is_nothing
        assert verify_topics(log, options=OPTIONS).problems == ()


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_a_restore_that_is_killed_three_times_and_repeated_loses_and_doubles_nothing(here: Installation) -> None:
    """Killed at a fail point, or a random time after its start."""
    chance, loads = random.Random(20), [f"archive-{number}" for number in range(6)]
    with here.open() as log:
        log.topic("orders").create(partitions=2)
        publish(log, 0, 200)
    here.back_up()
    with here.open() as log:
        for number, name in enumerate(loads, 2):
            publish(log, number * 100, number * 100 + 100)
            tier_by_hand(log, "orders", segment_bytes=1_000)
            load_history(here, log, log.lake.watermarks("orders").ends[0], name)
        before = contents(log)
    arguments = ["backup", "restore", "--database-url", here.copy]
    began = time.monotonic()
    here.cli.spawn(*arguments, "--dry-run")
    usual = time.monotonic() - began
    told = []
    for point in chance.sample(["restore.loaded", "load.before_put", "load.before_put", "", ""], 3):
        hit = f"{point}=kill@{chance.randint(1, 4)}" if point else ""
        killed = Cli(folder=here.cli.folder, env={**here.cli.env, "LAKELOG_FAILPOINTS": hit})
        process = killed.process("restore", arguments, None).start()
        with contextlib.suppress(TimeoutError):
            process.wait(timeout=60 if point else chance.uniform(usual / 2, usual * 2))
        process.kill9()
        told.append((hit, process.wait()))
    assert any(code == -9 for _, code in told), told
    here.cli.run(*arguments)
    assert here.cli.run(*arguments).out.startswith("No file has messages")
    with here.open(here.copy) as log:
        assert contents(log) == before, told
        assert all(log.lake.find_load("orders", name) for name in loads), told
        assert verify_topics(log, options=OPTIONS).problems == ()


def test_files_of_a_load_without_its_receipt_are_not_used(here: Installation) -> None:
    with here.open() as log:
        log.topic("orders").create(partitions=1)
    here.back_up()
    with here.open() as log:
        written_for_load(here, log, 0, "undecided")
    with here.open(here.copy) as log:
        done = restored(log)
        assert (done.messages, done.lost) == (0, 20)
        assert "a load that did not finish" in done.ignored[0]


def test_a_second_restore_from_the_same_backup_uses_what_the_first_one_appended(here: Installation) -> None:
    """Also behind placeholders, which only files of the first restore have."""
    with here.open() as log:
        log.topic("orders").create(partitions=1)
    here.back_up()
    with here.open() as log:
        publish(log, 0, 10)
        tier_by_hand(log, "orders")
        written_for_load(here, log, 10, "undecided")
    first = here.another_copy()
    with here.open(first) as log:
        assert restored(log).lost == 20
        publish(log, 30, 40)
        tier_by_hand(log, "orders")
        before = contents(log)
    with here.open(here.copy) as log:
        done = restored(log)
        assert (done.messages, done.lost) == (40, 0)
        assert contents(log) == before
        assert verify_topics(log, options=OPTIONS).problems == ()


def test_a_topic_that_was_created_after_the_backup_is_named_and_its_id_is_not_used_again(here: Installation) -> None:
    with here.open() as log:
        log.topic("orders").create(partitions=1)
        log.topic("deleted").create(partitions=1)
        log.topic("deleted").publish({"n": 0})
        tier_by_hand(log, "deleted")
        log.topic("deleted").delete()
    here.back_up()
    with here.open() as log:
        for name in ("clicks", "views"):
            log.topic(name).create(partitions=2)
            log.topic(name).publish_many([{"n": n} for n in range(10)])
            tier_by_hand(log, name)
        iceberg_topic(log, "clicks")
        lost = {name: log.topic(name).describe().incarnation for name in ("clicks", "views")}
    database = ("--database-url", here.copy)
    for arguments in (["--dry-run"], []):
        said = here.cli.run("backup", "restore", *database, *arguments)
        clicks, views = said.err.splitlines()
        assert "Topic 'clicks' that was created after the backup is lost. Its folder" in clicks
        assert f"e1/t{lost['clicks']} in the object store has 1 file with 10 messages" in clicks
        assert views.startswith("lakelog: A topic that was created after the backup is lost.") and said.out == ""
    assert here.cli.run("backup", "restore", *database).out.startswith("No file has messages")
    with here.open(here.copy) as log:
        log.topic("views").create(partitions=2)
        assert log.topic("views").describe().incarnation > max(lost.values())
        assert restore_topics(log, ["views"], watch=lambda each: None)[0].is_nothing
        assert verify_topics(log, options=OPTIONS).problems == ()


def test_offsets_whose_messages_are_lost_are_not_used_again(here: Installation) -> None:
    """A damaged file, a file of a load, and a file of another history are not used, but their offsets are."""
    with here.open() as log:
        log.topic("orders").create(partitions=1)
        publish(log, 0, 10)
    here.back_up()
    with here.open() as log:
        publish(log, 10, 20)
        tier_by_hand(log, "orders")
        publish(log, 20, 30)
        (last,) = tier_by_hand(log, "orders")
    damaged = bytearray(here.store.get(last.path))
    damaged[50] ^= 1
    here.store.delete(last.path)
    here.store.put(last.path, bytes(damaged))
    with here.open(here.copy) as log:
        done = restored(log)
        assert (done.messages, done.lost) == (10, 10)
        assert [reason.partition(":")[0] for reason in done.ignored] == [last.path]
        found = contents(log)
        assert [found[0, n] for n in range(20, 30)] == [b"lost"] * 10
        publish(log, 30, 31)
        assert contents(log)[0, 30] == b'{"n":30}'
        with log.consumer("orders", group="billing", start_from="earliest") as consumer:
            received: list[int] = []
            while len(received) < 21:
                batch = consumer.batch(50, timeout=20)
                received += [message.offset for message in batch]
                batch.ack()
        assert sorted(received) == [*range(20), 30], "placeholders reach no group"


def test_a_log_that_differs_from_a_file_is_not_continued_by_it(here: Installation) -> None:
    with here.open() as log:
        log.topic("orders").create(partitions=1)
    here.back_up()
    with here.open() as log:
        publish(log, 0, 20)
        tier_by_hand(log, "orders")
    with here.open(here.copy) as log:
        publish(log, 100, 110)
        done = restored(log)
        assert (done.messages, done.lost) == (0, 10)
        assert "it differs from the log" in done.ignored[0]
        assert [contents(log)[0, n] for n in (0, 9, 10)] == [b'{"n":100}', b'{"n":109}', b"lost"]


def test_a_mark_keeps_the_files_of_a_backup(here: Installation) -> None:
    with here.open() as log:
        log.topic("orders").create(partitions=1)
        publish(log, 0, 10)
        (kept,) = tier_by_hand(log, "orders")
        orphan = kept.path.rpartition("-")[0] + "-0123456789abcdef.parquet"
        here.store.put(orphan, b"unused before the backup")
        assert sweep_of(log, min_age=timedelta(0)).deleted == 0
    database = ("--database-url", here.url)
    told = here.cli.run("backup", "begin", "nightly", *database, "--keep", "1h").out
    assert "Back up PostgreSQL now." in told
    assert "has not ended" in here.cli.run("backup", "begin", "nightly", *database, code=1).err
    assert [each["name"] for each in here.cli.run("backup", "list", *database, "--json").json["marks"]] == ["nightly"]
    here.back_up()
    with here.open() as log:
        log.topic("orders").purge()
        here.trim()
        assert [sweep_of(log, min_age=timedelta(0)).deleted for _ in range(3)] == [1, 0, 0], "only the older one"
    assert {each.path for each in here.store.list()} == {kept.path}
    with here.open(here.copy) as log:
        assert len(contents(log)) == 10
        assert verify_topics(log, options=OPTIONS).problems == ()
    assert here.cli.run("backup", "end", "nightly", *database).out == "ended nightly\n"
    assert "There is no mark" in here.cli.run("backup", "end", "nightly", *database, code=3).err
    with here.open() as log:
        assert sweep_of(log, min_age=timedelta(0)).deleted == 1
