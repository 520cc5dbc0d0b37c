"""Key tables: PyIceberg reads what was written, buckets are exchanged, and files of kept snapshots are known."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

from lakelog.errors import ConfigurationError
from lakelog.model.iceberg import IcebergChanges, TableKind
from lakelog.model.topic import TopicSettings
from lakelog.objectstore import open_store
from lakelog.segments.iceberg import metadata as tables
from lakelog.segments.iceberg.key_files import Covered, KeyFile, KeyTable
from lakelog.segments.layout import is_table_file, key_path
from lakelog.segments.schema import SCHEMA
from lakelog.storage.memory import MemoryCatalog

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Keys:
    """A topic, its key table, and a dict with the same content."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = open_store(f"file://{folder}")
        self.catalog = MemoryCatalog()
        self.now = NOON
        self.expected: dict[int, dict[str, str]] = {}

    async def start(self) -> None:
        scope = await self.catalog.scope_create("default", "dev")
        await self.catalog.topic_create(scope, "orders", TopicSettings(), [0])

    async def table(self) -> KeyTable:
        stored = await self.catalog.iceberg.table_read(1, TableKind.LATEST)
        changes = IcebergChanges(
            topic="orders",
            incarnation=1,
            environment_id=1,
            store=self.store.url,
            version=0 if stored is None else stored.version,
            metadata=None if stored is None else stored.metadata,
            steps=[],
            rest=0,
            now=self.now,
        )
        return KeyTable(self.store, changes, 4)

    def file(self, bucket: int, rows: dict[str, str]) -> KeyFile:
        path = key_path(1, 1, bucket)
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        content = [{"key": key.encode(), "value": value.encode()} for key, value in sorted(rows.items())]
        pq.write_table(pa.Table.from_pylist(content, schema=SCHEMA), self.folder / path, store_schema=False)
        return KeyFile(path=path, rows=len(rows), bytes=(self.folder / path).stat().st_size)

    async def commit(self, buckets: dict[int, dict[str, str]], end: int) -> None:
        """Write these buckets again; one without keys has no file."""
        self.expected |= buckets
        self.now += timedelta(minutes=1)
        files = [self.file(bucket, rows) for bucket, rows in buckets.items() if rows]
        covered = Covered(ends={0: end}, epoch=3, as_of=self.now)
        commit = (await self.table()).next_version(files, set(buckets), covered)
        assert await self.catalog.iceberg.table_commit(commit)

    async def check(self) -> StaticTable:
        stored = await self.catalog.iceberg.table_read(1, TableKind.LATEST)
        assert stored is not None
        found = StaticTable.from_metadata(f"file://{self.folder}/{stored.metadata}")
        rows = found.scan(selected_fields=("key", "value")).to_arrow().to_pylist()
        expected = {key: value for bucket in self.expected.values() for key, value in bucket.items()}
        assert len(rows) == len(expected)
        assert {row["key"].decode(): row["value"].decode() for row in rows} == expected
        paths = {found.metadata_location}
        for snapshot in found.metadata.snapshots:
            paths.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(found.io):
                paths.add(manifest.manifest_path)
                entries = manifest.fetch_manifest_entry(found.io, discard_deleted=True)
                paths |= {entry.data_file.file_path for entry in entries}
        ours = [path.removeprefix(f"{self.store.url}/") for path in paths]
        assert await self.catalog.iceberg.table_paths_known(ours) == set(ours)
        assert all(is_table_file(path) for path in ours)
        return found


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    made = Keys(tmp_path)
    asyncio.run(made.start())
    return made


async def test_rewritten_buckets_replace_their_files_and_others_stay(keys: Keys) -> None:
    await keys.commit({0: {"a": "1", "b": "1"}, 2: {"c": "1"}}, 3)
    found = await keys.check()
    before = {each.bucket: each.path for each in (await keys.table()).files}
    await keys.commit({2: {"c": "2", "d": "1"}, 3: {"e": "1"}}, 6)
    await keys.commit({0: {"b": "2"}, 3: {}}, 8)
    found = await keys.check()
    assert [each.summary.operation.value for each in found.metadata.snapshots if each.summary] == [
        "append",
        "overwrite",
        "overwrite",
    ]
    assert [field.name for field in found.spec().fields] == []
    table = await keys.table()
    assert table.buckets == 4
    assert table.covered == Covered(ends={0: 8}, epoch=3, as_of=keys.now)
    assert sorted((each.bucket, each.rows) for each in table.files) == [(0, 1), (2, 2)]
    assert {each.path for each in table.files}.isdisjoint(before.values())
    assert await keys.catalog.iceberg.table_paths_known(before.values()) == set(before.values()), "a snapshot has them"


async def test_files_of_expired_snapshots_may_be_swept(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "KEEP_SNAPSHOTS", 2)
    await keys.commit({0: {"a": "1"}}, 1)
    (first,) = (await keys.table()).files
    for number in range(2, 5):
        await keys.commit({0: {"a": str(number)}}, number)
        await keys.check()
    assert not await keys.catalog.iceberg.table_paths_known([first.path])


async def test_a_table_without_keys_and_one_at_another_place(keys: Keys, tmp_path: Path) -> None:
    await keys.commit({}, 0)
    assert (await keys.check()).scan().to_arrow().num_rows == 0
    (tmp_path / "other").mkdir()
    stored = await keys.catalog.iceberg.table_read(1, TableKind.LATEST)
    assert stored is not None
    other = open_store(f"file://{tmp_path}/other")
    other.put(stored.metadata, keys.store.get(stored.metadata))
    keys.store = other
    with pytest.raises(ConfigurationError, match="cannot move"):
        await keys.table()
