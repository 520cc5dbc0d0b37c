"""The metadata of tables, read by PyIceberg: it shares no code with the writer."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

from lakelog.engine.lake.iceberg_steps import steps_of
from lakelog.errors import ConfigurationError, SegmentDamaged
from lakelog.model.iceberg import IcebergChanges
from lakelog.model.segment import Segment
from lakelog.model.topic import Scope, Topic, TopicSettings
from lakelog.objectstore import ObjectStore, open_store
from lakelog.segments.iceberg import metadata as tables
from lakelog.segments.iceberg import table_files
from lakelog.segments.iceberg.manifests import write_manifest_list
from lakelog.segments.iceberg.table_files import TableFiles
from lakelog.segments.layout import is_table_file, segment_path
from lakelog.segments.schema import SCHEMA
from lakelog.segments.writer import SegmentWriter
from lakelog.storage.memory import MemoryCatalog

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
DAY = timedelta(days=1)


class Table:
    """A topic of which only the segments exist, and its table."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store: ObjectStore = open_store(f"file://{folder}")
        self.catalog = MemoryCatalog()
        self.topic: Topic
        self.wanted: list[Segment] = []
        self.now = NOON
        self.commits = 0

    async def start(self) -> None:
        scope: Scope = await self.catalog.scope_create("default", "dev")
        self.topic = await self.catalog.topic_create(scope, "orders", TopicSettings(), [0])

    def segment(self, first: int, end: int, partition: int = 0, at: Sequence[datetime] | None = None) -> Segment:
        """Write a segment, and add it to those that the log wants."""
        times = at or (self.now, self.now)
        rows = pa.RecordBatch.from_pylist(
            [
                {
                    "partition": partition,
                    "offset": offset,
                    "appended_at": times[0] if offset < end - 1 else times[1],
                    "epoch": 0,
                    "value": f"{partition}:{offset}".encode(),
                    "headers": [("n", str(offset))],
                }
                for offset in range(first, end)
            ],
            schema=SCHEMA,
        )
        path = segment_path(1, 1, partition, first, end)
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        with SegmentWriter(self.folder / path, partition) as writer:
            writer.write(rows)
            segment = writer.close().segment(path)
        self.wanted.append(segment)
        return segment

    async def changes(self) -> IcebergChanges:
        table = await self.catalog.iceberg.table_read(1)
        steps, rest = steps_of(frozenset() if table is None else table.segments, self.wanted)
        return IcebergChanges(
            topic="orders",
            incarnation=1,
            environment_id=1,
            store=self.store.url,
            version=0 if table is None else table.version,
            metadata=None if table is None else table.metadata,
            steps=steps,
            rest=rest,
            now=self.now,
        )

    async def commit(self) -> bool:
        commit = TableFiles(self.store, await self.changes()).write()
        if commit is None:
            return False
        assert await self.catalog.iceberg.table_commit(commit)
        self.commits += 1
        return True

    async def read(self) -> StaticTable:
        table = await self.catalog.iceberg.table_read(1)
        assert table is not None
        return StaticTable.from_metadata(f"file://{self.folder}/{table.metadata}")

    async def check(self) -> StaticTable:
        """Check that the table has exactly the rows of the log, and that no file of a snapshot may be swept."""
        found = await self.read()
        rows = found.scan(selected_fields=("partition", "offset", "value")).to_arrow().to_pylist()
        expected = {(each.partition, offset) for each in self.wanted for offset in range(each.first, each.end)}
        assert len(rows) == len(expected)
        assert {(row["partition"], row["offset"]) for row in rows} == expected
        assert all(row["value"] == f"{row['partition']}:{row['offset']}".encode() for row in rows)
        await self.check_files(found)
        return found

    async def check_files(self, found: StaticTable) -> None:
        paths = {found.metadata_location}
        for snapshot in found.metadata.snapshots:
            paths.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(found.io):
                paths.add(manifest.manifest_path)
                entries = manifest.fetch_manifest_entry(found.io, discard_deleted=True)
                paths |= {entry.data_file.file_path for entry in entries}
        ours = [path.removeprefix(f"{self.store.url}/") for path in paths]
        assert await self.catalog.iceberg.table_paths_known(ours) == set(ours)
        assert all((self.folder / path).exists() for path in ours)
        assert all(path.endswith(".parquet") or is_table_file(path) for path in ours)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table(tmp_path)
    asyncio.run(made.start())
    return made


@pytest.fixture
def small_manifests(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(table_files, "MANIFEST_FILES", 4)
    monkeypatch.setattr(table_files, "SMALL_MANIFESTS", 3)
    yield


def summary(table: StaticTable) -> dict[str, Any]:
    snapshot = table.current_snapshot()
    assert snapshot is not None and snapshot.summary is not None
    return {"operation": snapshot.summary.operation.value, **snapshot.summary.additional_properties}


async def test_a_table_has_the_rows_the_schema_and_the_statistics_of_its_segments(table: Table) -> None:
    one, two = table.segment(0, 10), table.segment(0, 5, partition=1, at=(NOON + DAY, NOON + DAY))
    assert await table.commit()
    found = await table.check()
    assert [(field.field_id, field.name) for field in found.schema().fields][:5] == [
        (1, "partition"),
        (2, "offset"),
        (3, "appended_at"),
        (4, "epoch"),
        (10, "key"),
    ]
    headers = found.scan(row_filter="offset = 7").to_arrow().column("headers").to_pylist()
    assert headers == [[("n", "7")]]
    assert summary(found) == {
        "operation": "append",
        "added-data-files": "2",
        "added-records": "15",
        "added-files-size": str(one.bytes + two.bytes),
        "total-data-files": "2",
        "total-records": "15",
        "total-files-size": str(one.bytes + two.bytes),
        "lakelog.covered": '{"0": [[0, 10]], "1": [[0, 5]]}',
        "lakelog.version": "1",
    }
    for condition, files in {
        "partition = 1": 1,
        "offset >= 5": 1,
        "offset >= 10": 0,
        "appended_at < '2026-02-01T00:00:00+00:00'": 1,
        "appended_at < '2026-01-31T00:00:00+00:00'": 0,
    }.items():
        assert len(list(found.scan(row_filter=condition).plan_files())) == files, condition


async def test_a_repeat_writes_nothing(table: Table) -> None:
    table.segment(0, 10)
    assert await table.commit()
    before = sorted(table.folder.rglob("*"))
    changes = await table.changes()
    assert TableFiles(table.store, changes).is_current
    assert not await table.commit()
    assert sorted(table.folder.rglob("*")) == before


async def test_a_file_that_crosses_midnight_has_no_day_and_is_found_by_its_times(table: Table) -> None:
    table.segment(0, 10, at=(NOON, NOON + DAY))
    table.segment(10, 20, at=(NOON + DAY, NOON + DAY))
    assert await table.commit()
    found = await table.check()
    specs = {each["spec_id"]: each["partition"] for each in found.inspect.files().to_pylist()}
    assert specs[1]["partition"] == 0 and specs[1].get("appended_at_day") is None
    assert str(specs[0]["appended_at_day"]) == "2026-02-01"
    late = found.scan(row_filter="appended_at >= '2026-02-01T00:00:00+00:00'")
    assert len(list(late.plan_files())) == 2
    assert late.to_arrow().num_rows == 11


async def test_snapshots_expire_by_age_and_number_and_take_their_files_with_them(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "KEEP_SNAPSHOTS", 3)
    for first in range(0, 50, 10):
        table.segment(first, first + 10)
        assert await table.commit()
        assert len((await table.check()).metadata.snapshots) <= 3
    gone = table.wanted.pop(0)
    assert await table.commit()
    found = await table.check()
    assert summary(found)["operation"] == "delete"
    assert [each.snapshot_id for each in found.metadata.snapshots] == [4, 5, 6]
    assert await table.catalog.iceberg.table_paths_known([gone.path]), "snapshots have it that have not expired"
    table.now += DAY + timedelta(seconds=1)
    assert not TableFiles(table.store, await table.changes()).is_current
    assert await table.commit(), "snapshots expire without new segments too"
    found = await table.check()
    assert [each.snapshot_id for each in found.metadata.snapshots] == [6]
    assert not await table.commit()
    table.segment(50, 60)
    assert await table.commit()
    assert not await table.catalog.iceberg.table_paths_known([gone.path]), "the sweep may delete it now"


async def test_any_course_of_events_leaves_the_rows_of_the_log(table: Table, small_manifests: None) -> None:
    chance = random.Random(7)
    ends, operations = [0, 0], set()
    for _ in range(40):
        partition = chance.randrange(2)
        mine = [each for each in table.wanted if each.partition == partition]
        match chance.choice(["append", "append", "compact", "retire", "commit"]):
            case "append":
                end = ends[partition] + chance.randrange(1, 5)
                crosses = chance.random() < 0.3
                table.segment(ends[partition], end, partition, (table.now, table.now + (DAY if crosses else DAY * 0)))
                ends[partition] = end
            case "compact" if len(mine) > 1:
                at = chance.randrange(len(mine) - 1)
                for each in mine[at : at + 2]:
                    table.wanted.remove(each)
                table.segment(mine[at].first, mine[at + 1].end, partition)
                table.wanted.sort(key=lambda each: (each.partition, each.first))
            case "retire" if mine:
                table.wanted.remove(mine[0])
            case "commit":
                table.now += timedelta(minutes=1)
                if await table.commit():
                    found = await table.check()
                    operations |= {each.summary.operation.value for each in found.metadata.snapshots if each.summary}
    await table.commit()
    await table.check()
    assert operations == {"append", "replace", "overwrite", "delete"}


async def test_many_commits_keep_manifests_and_metadata_small(table: Table, small_manifests: None) -> None:
    for number in range(12):
        table.segment(number, number + 1)
        await table.commit()
    found = await table.check()
    snapshot = found.current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(found.io)) <= 6
    assert len(found.metadata.metadata_log) == 11


async def test_a_table_that_another_program_changed_is_refused(table: Table) -> None:
    table.segment(0, 10)
    await table.commit()
    stored = await table.catalog.iceberg.table_read(1)
    assert stored is not None
    place = table.folder / stored.metadata
    content = json.loads(place.read_text())
    place.write_text(json.dumps({**content, "location": "s3://elsewhere/t1"}))
    with pytest.raises(ConfigurationError, match="cannot move"):
        TableFiles(table.store, await table.changes())
    place.write_text(json.dumps(content))
    table.wanted.clear()
    changes = await table.changes()
    list_path = table.folder / content["snapshots"][0]["manifest-list"].removeprefix(f"{table.store.url}/")
    list_path.write_bytes(write_manifest_list([], 1, None, 1))
    with pytest.raises(SegmentDamaged, match="0 of 1 files"):
        TableFiles(table.store, changes).write()
