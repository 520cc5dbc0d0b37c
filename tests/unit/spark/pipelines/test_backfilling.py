"""The parts of a backfill that need no Spark: the files that a task writes, and how rows get into a topic."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import lakelog
from lakelog.errors import Conflict, InvalidRequest, TooLarge
from lakelog.model.limits import MAX_KEY_BYTES
from lakelog.model.load import LoadRequest, PartitionLoad
from lakelog.objectstore import open_store
from lakelog.segments.reader import fetched
from lakelog.spark.pipelines.backfill_rows import AT, PLACE
from lakelog.spark.pipelines.backfill_tasks import HistoryFiles, HistoryTarget
from lakelog.spark.pipelines.backfilling import SHARE_ROWS, BackfillJob, is_loadable, shares_of
from lakelog.spark.reading.range_reader import ReadTarget
from lakelog.spark.session import ConnectionSettings, client
from tests.acceptance.client_kit import ThreadServer

LATE = datetime(2026, 1, 31, 23, 59, 59, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def target(folder: Path, file_bytes: int = 1 << 30) -> HistoryTarget:
    place = ReadTarget(
        connection=ConnectionSettings(url="http://unused"), topic="orders", incarnation=7, store=folder.as_uri()
    )
    return HistoryTarget(place=place, environment_id=1, epoch=2, firsts={0: 5, 3: 0}, file_bytes=file_bytes)


def rows(partitions: list[int], times: list[datetime], **columns: list[object]) -> pa.RecordBatch:
    values = columns.pop("value", [f"v{n}".encode() for n in range(len(times))])
    return pa.RecordBatch.from_pydict(
        {
            PLACE: pa.array(partitions, pa.int32()),
            AT: pa.array(times, pa.timestamp("us", "Europe/Berlin")),
            "value": pa.array(values, pa.binary()),
            **{name: pa.array(column) for name, column in columns.items()},
        }
    )


def test_files_have_one_partition_and_day_and_dense_offsets(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    files = HistoryFiles(target(tmp_path), tmp_path / "work")
    days = [LATE, LATE + SECOND, LATE + SECOND]
    found = [*files.add(rows([0, 0, 0], days)), *files.add(rows([0, 3, 3], [LATE + 2 * SECOND, *days[:2]]))]
    found += files.close()
    assert [(each.partition, each.first, each.end) for each in found] == [(0, 5, 6), (0, 6, 9), (3, 0, 1), (3, 1, 2)]
    assert {each.epoch for each in found} == {2}
    with fetched(open_store(tmp_path.as_uri()), found[1]) as file:
        (batch,) = file.read()
    assert batch.column("value").to_pylist() == [b"v1", b"v2", b"v0"]
    assert batch.column("appended_at").to_pylist() == [LATE + SECOND, LATE + SECOND, LATE + 2 * SECOND]
    assert batch.column("key").null_count == 3
    assert list((tmp_path / "work").iterdir()) == [], "files that are stored are removed"


def test_a_large_file_is_closed(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    files = HistoryFiles(target(tmp_path, file_bytes=0), tmp_path / "work")
    found = [*files.add(rows([0], [LATE])), *files.add(rows([0], [LATE])), *files.close()]
    assert [(each.first, each.end) for each in found] == [(5, 6), (6, 7)]


def test_a_row_that_no_message_can_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    files = HistoryFiles(target(tmp_path), tmp_path / "work")
    with pytest.raises(TooLarge, match="'key' has"):
        list(files.add(rows([0], [LATE], key=[b"k" * (MAX_KEY_BYTES + 1)])))


def test_the_number_of_shares_is_a_power_of_two() -> None:
    assert [shares_of(count) for count in (0, 1, SHARE_ROWS, SHARE_ROWS + 1, 5 * SHARE_ROWS)] == [1, 1, 1, 2, 8]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[lakelog.Lakelog]:
    with ThreadServer(tmp_path.as_uri()) as server:
        yield client(ConnectionSettings(url=server.url))


def loadable(log: lakelog.Lakelog, name: str | None = None, **job: object) -> bool:
    known = log.lake.find_load("orders", name) if name else []
    given = BackfillJob(topic="orders", name=name, **job)  # type: ignore[arg-type]
    return is_loadable(log.topic("orders").describe(), log.lake.plan("orders"), given, known)


def test_rows_are_loaded_into_empty_partitions_only(log: lakelog.Lakelog) -> None:
    topic = log.topic("orders")
    topic.create(partitions=2)
    assert loadable(log)
    assert not loadable(log, history=False)
    assert not loadable(log, rate=10.0)
    part = PartitionLoad(partition=0, first=0, fingerprint="0a")
    incarnation = topic.describe().incarnation
    log.lake.load(LoadRequest(topic="orders", name="old", incarnation=incarnation, parts=[part]))
    topic.publish({"n": 1}, partition=0)
    assert loadable(log, "old"), "partition 0 is decided, and partition 1 is empty"
    assert not loadable(log)
    with pytest.raises(Conflict, match=r"partition 0 has messages already. Publish them, with `history=False`"):
        loadable(log, history=True)
    topic.publish({"n": 2}, partition=1)
    with pytest.raises(Conflict, match="partition 1 has messages already"):
        loadable(log, "old")
    assert not loadable(log, "old", history=False)
    topic.purge()
    assert loadable(log)
    topic.set_schema({"type": "object"})
    assert not loadable(log)
    with pytest.raises(Conflict, match="the topic has a schema"):
        loadable(log, history=True)


def test_a_history_has_no_rate() -> None:
    with pytest.raises(InvalidRequest, match="have no rate"):
        BackfillJob(topic="orders", history=True, rate=5.0)
