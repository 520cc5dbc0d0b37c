"""The metadata file of an Iceberg table, version 2: its schema, its snapshots, and which of them expire.

The values are the JSON of Iceberg's specification. The id of a snapshot is its sequence number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakelog.model.columns import TopicColumns
from lakelog.segments.iceberg.table_schema import (
    BY_DAY,
    DAY_FIELD,
    LAST_COLUMN_ID,
    SORT_ORDER,
    iceberg_schema,
    last_column_id,
    partition_specs,
    sort_orders,
)

Metadata = dict[str, Any]
Snapshot = dict[str, Any]

KEEP_MS = 86_400_000
"""The age at which a snapshot expires."""
KEEP_SNAPSHOTS = 100
"""Snapshots that are kept at most. Each is about 1 kB of the metadata file, which each reader loads."""
VERSION = "lakelog.version"
"""A property of a snapshot: the version of the metadata file that first had it."""
COVERED = "lakelog.covered"
"""A property of a snapshot: the ranges of offsets that it has, by partition, as JSON."""


def new_metadata(location: str, uuid: str, properties: Mapping[str, str]) -> Metadata:
    """Return the metadata of a table without snapshots."""
    return {
        "format-version": 2,
        "table-uuid": uuid,
        "location": location,
        "last-sequence-number": 0,
        "last-updated-ms": 0,
        "last-column-id": LAST_COLUMN_ID,
        "current-schema-id": 0,
        "schemas": [iceberg_schema()],
        "default-spec-id": BY_DAY,
        "partition-specs": partition_specs(),
        "last-partition-id": DAY_FIELD,
        "default-sort-order-id": SORT_ORDER,
        "sort-orders": sort_orders(),
        "properties": dict(properties),
        "current-snapshot-id": -1,
        "snapshots": [],
        "snapshot-log": [],
        "metadata-log": [],
        "refs": {},
    }


def with_columns(metadata: Metadata, columns: TopicColumns | None, now_ms: int) -> Metadata:
    """Return the metadata with the typed columns of the topic in its schema. Older snapshots keep their schema."""
    if columns is None or columns.version <= metadata["current-schema-id"]:
        return metadata
    return {
        **metadata,
        "last-updated-ms": now_ms,
        "last-column-id": last_column_id(columns),
        "current-schema-id": columns.version,
        "schemas": [*metadata["schemas"], iceberg_schema(columns)],
    }


def current_snapshot(metadata: Metadata) -> Snapshot | None:
    """Return the newest snapshot, if there is one."""
    return metadata["snapshots"][-1] if metadata["snapshots"] else None


def with_snapshot(metadata: Metadata, manifest_list: str, summary: Mapping[str, str], now_ms: int) -> Metadata:
    """Return the metadata with one more snapshot, which becomes the current one.

    Args:
        metadata: The metadata.
        manifest_list: The URL of the list of manifests.
        summary: The properties of the snapshot.
        now_ms: The time in milliseconds since 1970.
    """
    number, parent = metadata["last-sequence-number"] + 1, current_snapshot(metadata)
    snapshot = {
        "snapshot-id": number,
        **({} if parent is None else {"parent-snapshot-id": parent["snapshot-id"]}),
        "sequence-number": number,
        "timestamp-ms": now_ms,
        "manifest-list": manifest_list,
        "summary": dict(summary),
        "schema-id": metadata["current-schema-id"],
    }
    return {
        **metadata,
        "last-sequence-number": number,
        "last-updated-ms": now_ms,
        "current-snapshot-id": number,
        "snapshots": [*metadata["snapshots"], snapshot],
        "snapshot-log": [*metadata["snapshot-log"], {"snapshot-id": number, "timestamp-ms": now_ms}],
        "refs": {"main": {"snapshot-id": number, "type": "branch"}},
    }


def expired(metadata: Metadata, now_ms: int) -> Metadata:
    """Return the metadata without old snapshots. The current snapshot stays."""
    newest = metadata["snapshots"][-KEEP_SNAPSHOTS:]
    kept = [each for each in newest[:-1] if each["timestamp-ms"] > now_ms - KEEP_MS] + newest[-1:]
    if len(kept) == len(metadata["snapshots"]):
        return metadata
    known = {each["snapshot-id"] for each in kept}
    log = [each for each in metadata["snapshot-log"] if each["snapshot-id"] in known]
    return {**metadata, "snapshots": kept, "snapshot-log": log, "last-updated-ms": now_ms}


def oldest_version(metadata: Metadata) -> int:
    """Return the version of the metadata file that first had the oldest snapshot; 0 without snapshots."""
    return min((int(each["summary"][VERSION]) for each in metadata["snapshots"]), default=0)


def followed(metadata: Metadata, previous: str, previous_ms: int) -> Metadata:
    """Return the metadata with the URL of the previous metadata file in its log, which loses expired files."""
    log = [*metadata["metadata-log"], {"timestamp-ms": previous_ms, "metadata-file": previous}]
    oldest = oldest_version(metadata)
    kept = [each for each in log if _version_of(each["metadata-file"]) >= oldest]
    return {**metadata, "metadata-log": kept}


def _version_of(url: str) -> int:
    return int(url.rpartition("/")[2].partition("-")[0])
