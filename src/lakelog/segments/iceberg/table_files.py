"""Writes the next version of a topic's Iceberg table to the object store: manifests, lists and a metadata file.

The caller commits the version. Until then no reader knows the files, and a killed attempt leaves orphans, which the
sweep deletes. Segments are neither opened nor copied.
"""

from __future__ import annotations

import json
import secrets
import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lakelog.errors import ConfigurationError, SegmentDamaged
from lakelog.model.iceberg import IcebergChanges, IcebergCommit, IcebergStep
from lakelog.objectstore import ObjectStore
from lakelog.segments.iceberg import metadata as tables
from lakelog.segments.iceberg.avro import Record, read_avro
from lakelog.segments.iceberg.manifests import (
    DAY,
    PARTITION,
    EntryStatus,
    entry_of,
    known_entry,
    live_count,
    manifest_of,
    spec_of,
    write_manifest,
    write_manifest_list,
)
from lakelog.segments.iceberg.table_schema import micros_of
from lakelog.segments.layout import table_path, topic_folder

MANIFEST_FILES = 2_000
"""Files that a manifest describes at most, so that a reader can pass over the manifests of other days."""
SMALL_MANIFESTS = 40
"""With more manifests that are not full than this, they are merged. A reader opens each of them."""


class _Names(NamedTuple):
    """The properties of a snapshot that hold one figure."""

    total: str
    added: str
    removed: str


_FIGURES = (
    _Names("total-data-files", "added-data-files", "deleted-data-files"),
    _Names("total-records", "added-records", "deleted-records"),
    _Names("total-files-size", "added-files-size", "removed-files-size"),
)


class TableFiles:
    """One new version of one table. Call `write` once."""

    def __init__(self, store: ObjectStore, changes: IcebergChanges) -> None:
        self._store = store
        self._changes = changes
        self._url = store.url.rstrip("/")
        self._folder = topic_folder(changes.environment_id, changes.incarnation)
        self._unique = secrets.token_hex(8)
        self._added: list[str] = []
        self._removed: list[str] = []
        self._manifests: list[Record] = []
        self._metadata = self._previous()

    @property
    def is_current(self) -> bool:
        """Return whether there is nothing to write: no snapshot or column to add, and no snapshot that expires."""
        return not self._changes.steps and self._refreshed(self._metadata, self._now_ms) is self._metadata

    @property
    def _now_ms(self) -> int:
        # The times of snapshots never fall, also after a failover to a database with another clock.
        return max(micros_of(self._changes.now) // 1000, int(self._metadata["last-updated-ms"]))

    def write(self) -> IcebergCommit | None:
        """Write the files of the new version, and return its commit. Return None if nothing has changed."""
        changes, before, now_ms = self._changes, self._metadata, self._now_ms
        self._metadata = tables.with_columns(before, changes.columns, now_ms)
        if changes.steps:
            self._read_manifests()
        for step in changes.steps:
            self._add_snapshot(step, now_ms)
        self._metadata = tables.expired(self._metadata, now_ms)
        if self._metadata is before:
            return None
        if changes.metadata is not None:
            previous = f"{self._url}/{changes.metadata}"
            self._metadata = tables.followed(self._metadata, previous, before["last-updated-ms"])
            self._removed.append(changes.metadata)
        path = self._put(f"{changes.version + 1:05d}-{uuid.uuid4()}.metadata.json", json.dumps(self._metadata).encode())
        return IcebergCommit(
            topic=changes.topic,
            incarnation=changes.incarnation,
            version=changes.version,
            metadata=path,
            added=list(dict.fromkeys(self._added)),
            removed=list(dict.fromkeys(self._removed)),
            oldest=tables.oldest_version(self._metadata),
        )

    def _refreshed(self, metadata: tables.Metadata, now_ms: int) -> tables.Metadata:
        return tables.expired(tables.with_columns(metadata, self._changes.columns, now_ms), now_ms)

    def _previous(self) -> tables.Metadata:
        location = f"{self._url}/{self._folder}"
        if self._changes.metadata is None:
            properties = {"lakelog.topic": self._changes.topic, "lakelog.incarnation": str(self._changes.incarnation)}
            return tables.new_metadata(location, str(uuid.uuid4()), properties)
        found: tables.Metadata = json.loads(self._store.get(self._changes.metadata))
        if found["location"] != location:
            raise ConfigurationError(
                f"The table of topic '{self._changes.topic}' is at {found['location']}, and the object store is now "
                f"{self._url}. A table cannot move, because its metadata names its files by URL."
            )
        return found

    def _read_manifests(self) -> None:
        current = tables.current_snapshot(self._metadata)
        if current is not None:
            self._manifests = read_avro(self._store.get(self._path_of(current["manifest-list"])))

    def _add_snapshot(self, step: IcebergStep, now_ms: int) -> None:
        number = self._metadata["last-sequence-number"] + 1
        current = tables.current_snapshot(self._metadata)
        parent = None if current is None else current["snapshot-id"]
        carried = [each for each in self._manifests if live_count(each)]
        # Manifests whose files are all removed belong to the snapshot that removed them only.
        self._removed += [self._path_of(each["manifest_path"]) for each in self._manifests if not live_count(each)]
        gone: list[Record] = []
        if step.removed:
            carried, gone = self._without(carried, step.removed, number)
        else:
            carried = self._merged(carried, number)
        entries = [entry_of(segment, self._url, number) for segment in step.added]
        self._manifests = carried + self._written(entries, number)
        data = write_manifest_list(self._manifests, number, parent, number)
        path = self._put(f"snap-{number}-{self._unique}.avro", data)
        if current is not None:
            self._removed.append(self._path_of(current["manifest-list"]))
        self._added += [segment.path for segment in step.added]
        self._removed += step.removed
        summary = self._summary(step, current, gone)
        self._metadata = tables.with_snapshot(self._metadata, f"{self._url}/{path}", summary, now_ms)

    def _without(
        self, manifests: Iterable[Record], removed: Sequence[str], number: int
    ) -> tuple[list[Record], list[Record]]:
        """Return the manifests without these files, and the entries of the files."""
        wanted = {f"{self._url}/{path}" for path in removed}
        kept: list[Record] = []
        gone: list[Record] = []
        for manifest in manifests:
            entries = self._entries(manifest)
            lost = [each for each in entries if each["data_file"]["file_path"] in wanted]
            if not lost:
                kept.append(manifest)
                continue
            gone += lost
            self._removed.append(self._path_of(manifest["manifest_path"]))
            changed = [
                known_entry(each, manifest, number if each["data_file"]["file_path"] in wanted else None)
                for each in entries
            ]
            kept += self._written(changed, number)
        if len(gone) != len(wanted):
            raise SegmentDamaged(
                f"The Iceberg table of topic '{self._changes.topic}' has {len(gone)} of {len(wanted)} files that the "
                "catalog lists. Its metadata was changed by another program."
            )
        return kept, gone

    def _merged(self, manifests: list[Record], number: int) -> list[Record]:
        """Return the manifests, with the small ones merged if there are many."""
        small = [each for each in manifests if live_count(each) < MANIFEST_FILES]
        if len(small) <= SMALL_MANIFESTS:
            return manifests
        entries = [known_entry(entry, manifest) for manifest in small for entry in self._entries(manifest)]
        self._removed += [self._path_of(manifest["manifest_path"]) for manifest in small]
        full = [each for each in manifests if live_count(each) >= MANIFEST_FILES]
        return full + self._written(entries, number)

    def _entries(self, manifest: Record) -> list[Record]:
        """Return the files of the table that a manifest describes."""
        found = read_avro(self._store.get(self._path_of(manifest["manifest_path"])))
        return [each for each in found if each["status"] != EntryStatus.DELETED]

    def _written(self, entries: Iterable[Record], number: int) -> list[Record]:
        """Write the entries to manifests by partition spec, in the order of days, and describe these."""
        by_spec: dict[int, list[Record]] = defaultdict(list)
        for entry in entries:
            by_spec[spec_of(entry)].append(entry)
        made = []
        for spec, those in by_spec.items():
            those.sort(key=_place)
            for part in (those[at : at + MANIFEST_FILES] for at in range(0, len(those), MANIFEST_FILES)):
                data = write_manifest(spec, part)
                path = self._put(f"{self._unique}-{number}-m{len(self._added)}.avro", data)
                made.append(manifest_of(f"{self._url}/{path}", len(data), part, number, number))
        return made

    def _summary(self, step: IcebergStep, current: tables.Snapshot | None, gone: Sequence[Record]) -> dict[str, str]:
        lost = [each["data_file"] for each in gone]
        added = (len(step.added), sum(e.end - e.first for e in step.added), sum(e.bytes for e in step.added))
        removed = (len(lost), sum(e["record_count"] for e in lost), sum(e["file_size_in_bytes"] for e in lost))
        summary = {"operation": step.operation.value}
        for names, more, less in zip(_FIGURES, added, removed, strict=True):
            before = 0 if current is None else int(current["summary"][names.total])
            summary |= {names.added: str(more)} if more else {}
            summary |= {names.removed: str(less)} if less else {}
            summary[names.total] = str(before + more - less)
        covered = {str(partition): ranges for partition, ranges in sorted(step.covered.items())}
        return {**summary, tables.COVERED: json.dumps(covered), tables.VERSION: str(self._changes.version + 1)}

    def _put(self, name: str, data: bytes) -> str:
        path = table_path(self._folder, name)
        self._store.put(path, data)
        self._added.append(path)
        return path

    def _path_of(self, url: str) -> str:
        return url.removeprefix(f"{self._url}/")


def _place(entry: Record) -> tuple[int, int, str]:
    """Return the order of the entries of a manifest: by day, partition and offset."""
    file = entry["data_file"]
    return file["partition"].get(DAY, 0), file["partition"][PARTITION], file["file_path"]
