"""Writes the next version of a key table, which has the newest message of each key: one file for each bucket of keys.

The files have the columns of a segment, ordered by key. The table has one manifest, because it has few files. The
caller writes the files of the buckets, and commits the version.
"""

from __future__ import annotations

import json
import secrets
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from lakelog.errors import ConfigurationError
from lakelog.model.iceberg import IcebergChanges, IcebergCommit, IcebergOperation, TableKind
from lakelog.objectstore import ObjectStore
from lakelog.segments.iceberg import metadata as tables
from lakelog.segments.iceberg.avro import Record, read_avro
from lakelog.segments.iceberg.manifests import (
    UNPARTITIONED,
    EntryStatus,
    known_entry,
    manifest_of,
    write_manifest,
    write_manifest_list,
)
from lakelog.segments.iceberg.table_schema import KEY_COLUMN, SORT_ORDER, micros_of
from lakelog.segments.layout import bucket_of, table_path, topic_folder

BUCKETS = "lakelog.buckets"
"""A property of the table: the number of buckets."""
EPOCH, AS_OF = "lakelog.epoch", "lakelog.as_of"
"""Properties of a snapshot: the epoch of the topic, and the time at which the table has all messages that it covers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFile:
    """A file of a key table.

    Attributes:
        path: Its path in the object store.
        rows: The number of keys.
        bytes: Its size.
    """

    path: str
    rows: int
    bytes: int

    @property
    def bucket(self) -> int:
        return bucket_of(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """The messages that a version of a key table takes into account.

    Attributes:
        ends: The end of the messages by partition, which is not included.
        epoch: The epoch of the topic when they were read.
        as_of: The time when they were all messages of the topic.
    """

    ends: Mapping[int, int]
    epoch: int
    as_of: datetime


class KeyTable:
    """The newest version of a key table, and the writer of the next one."""

    def __init__(self, store: ObjectStore, changes: IcebergChanges, buckets: int) -> None:
        """Read the table. `buckets` is the number of buckets if there is no table yet."""
        self._store = store
        self._changes = changes
        self._url = store.url.rstrip("/")
        self._folder = topic_folder(changes.environment_id, changes.incarnation)
        self._metadata = self._previous(buckets)
        self._manifests = self._read_manifests()
        self._entries = [
            (each, manifest)
            for manifest in self._manifests
            for each in read_avro(store.get(self._path_of(manifest["manifest_path"])))
            if each["status"] != EntryStatus.DELETED
        ]

    @property
    def buckets(self) -> int:
        return int(self._metadata["properties"][BUCKETS])

    @property
    def files(self) -> list[KeyFile]:
        """The files of the table."""
        found = (entry["data_file"] for entry, _ in self._entries)
        return [
            KeyFile(path=self._path_of(each["file_path"]), rows=each["record_count"], bytes=each["file_size_in_bytes"])
            for each in found
        ]

    @property
    def covered(self) -> Covered | None:
        """The messages that the table takes into account; None if there is no table."""
        snapshot = tables.current_snapshot(self._metadata)
        if snapshot is None:
            return None
        summary = snapshot["summary"]
        ranges = json.loads(summary[tables.COVERED])
        return Covered(
            ends={int(partition): found[-1][1] for partition, found in ranges.items()},
            epoch=int(summary[EPOCH]),
            as_of=datetime.fromisoformat(summary[AS_OF]),
        )

    def next_version(self, added: Sequence[KeyFile], rewritten: Collection[int], covered: Covered) -> IcebergCommit:
        """Write the metadata of the next version, and return its commit.

        Args:
            added: The new files.
            rewritten: The buckets whose earlier files they replace. A bucket without keys has no file.
            covered: The messages that the new version takes into account.
        """
        changes, before = self._changes, self._metadata
        now_ms = max(micros_of(changes.now) // 1000, int(before["last-updated-ms"]))
        number, parent = before["last-sequence-number"] + 1, tables.current_snapshot(before)
        gone = [each for each in self.files if each.bucket in rewritten]
        paths = {f"{self._url}/{each.path}" for each in gone}
        entries = [
            *(
                known_entry(entry, manifest, number if entry["data_file"]["file_path"] in paths else None)
                for entry, manifest in self._entries
            ),
            *(_entry_of(each, self._url, number) for each in added),
        ]
        unique, written = secrets.token_hex(8), [each.path for each in added]
        manifests: list[Record] = []
        if entries:
            data = write_manifest(UNPARTITIONED, entries)
            path = self._put(f"{unique}-{number}-m0.avro", data, written)
            manifests.append(manifest_of(f"{self._url}/{path}", len(data), entries, number, number))
        parent_id = None if parent is None else parent["snapshot-id"]
        listed = self._put(
            f"snap-{number}-{unique}.avro", write_manifest_list(manifests, number, parent_id, number), written
        )
        removed = [each.path for each in gone]
        removed += [self._path_of(each["manifest_path"]) for each in self._manifests]
        removed += [] if parent is None else [self._path_of(parent["manifest-list"])]
        kept = [each for each in self.files if each.bucket not in rewritten] + [*added]
        summary = self._summary(kept, added, gone, covered)
        metadata = tables.with_snapshot(before, f"{self._url}/{listed}", summary, now_ms)
        metadata = tables.expired(metadata, now_ms)
        if changes.metadata is not None:
            metadata = tables.followed(metadata, f"{self._url}/{changes.metadata}", before["last-updated-ms"])
            removed.append(changes.metadata)
        name = f"{changes.version + 1:05d}-{uuid.uuid4()}.metadata.json"
        newest = self._put(name, json.dumps(metadata).encode(), written)
        return IcebergCommit(
            topic=changes.topic,
            incarnation=changes.incarnation,
            version=changes.version,
            metadata=newest,
            added=written,
            removed=removed,
            oldest=tables.oldest_version(metadata),
            kind=TableKind.LATEST,
        )

    def _previous(self, buckets: int) -> tables.Metadata:
        location = f"{self._url}/{self._folder}"
        if self._changes.metadata is None:
            properties = {"lakelog.topic": self._changes.topic, BUCKETS: str(buckets)}
            order = {"source-id": KEY_COLUMN, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}
            return {
                **tables.new_metadata(location, str(uuid.uuid4()), properties),
                "partition-specs": [{"spec-id": 0, "fields": []}],
                "default-spec-id": 0,
                "last-partition-id": 999,
                "sort-orders": [{"order-id": SORT_ORDER, "fields": [order]}],
            }
        found: tables.Metadata = json.loads(self._store.get(self._changes.metadata))
        if found["location"] != location:
            raise ConfigurationError(
                f"The key table of topic '{self._changes.topic}' is at {found['location']}, and the object store is "
                f"now {self._url}. A table cannot move, because its metadata names its files by URL."
            )
        return found

    def _read_manifests(self) -> list[Record]:
        current = tables.current_snapshot(self._metadata)
        return [] if current is None else read_avro(self._store.get(self._path_of(current["manifest-list"])))

    def _summary(
        self, kept: Sequence[KeyFile], added: Sequence[KeyFile], gone: Sequence[KeyFile], covered: Covered
    ) -> dict[str, str]:
        operation = IcebergOperation.OVERWRITE if self._changes.version else IcebergOperation.APPEND
        ranges = {str(partition): [[0, end]] for partition, end in sorted(covered.ends.items())}
        figures = {"total": kept, "added": added, "deleted": gone}
        return {
            "operation": operation.value,
            **{f"{name}-data-files": str(len(files)) for name, files in figures.items()},
            **{f"{name}-records": str(sum(each.rows for each in files)) for name, files in figures.items()},
            tables.COVERED: json.dumps(ranges),
            tables.VERSION: str(self._changes.version + 1),
            EPOCH: str(covered.epoch),
            AS_OF: covered.as_of.isoformat(),
        }

    def _put(self, name: str, data: bytes, written: list[str]) -> str:
        path = table_path(self._folder, name)
        self._store.put(path, data)
        written.append(path)
        return path

    def _path_of(self, url: str) -> str:
        return url.removeprefix(f"{self._url}/")


def _entry_of(file: KeyFile, url: str, snapshot_id: int) -> Record:
    unknown = (
        "column_sizes",
        "value_counts",
        "null_value_counts",
        "nan_value_counts",
        "lower_bounds",
        "upper_bounds",
        "key_metadata",
        "split_offsets",
        "equality_ids",
    )
    return {
        "status": EntryStatus.ADDED,
        "snapshot_id": snapshot_id,
        "sequence_number": None,
        "file_sequence_number": None,
        "data_file": {
            "content": 0,
            "file_path": f"{url}/{file.path}",
            "file_format": "PARQUET",
            "partition": {},
            "record_count": file.rows,
            "file_size_in_bytes": file.bytes,
            **dict.fromkeys(unknown),
            "sort_order_id": SORT_ORDER,
        },
    }
