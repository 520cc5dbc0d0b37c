"""Manifests and manifest lists of Iceberg, version 2: the files of a table with their statistics, from segments.

The statistics are those that PostgreSQL knows, so no segment is opened. An entry is a record of Avro.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any

from lakelog.model.segment import Segment
from lakelog.segments.iceberg.avro import Record, write_avro
from lakelog.segments.iceberg.table_schema import (
    BY_DAY,
    BY_PARTITION,
    DAY_FIELD,
    NEVER_NULL,
    PARTITION_FIELD,
    SORT_ORDER,
    bounds_of,
    day_of,
    iceberg_schema,
    int_bytes,
    partition_specs,
)

PARTITION, DAY = "partition", "appended_at_day"
UNPARTITIONED = -1
"""In place of the id of a partition spec: the table has no partitions."""


class EntryStatus(IntEnum):
    """The effect of a snapshot on a file."""

    EXISTING = 0
    ADDED = 1
    DELETED = 2


def entry_of(segment: Segment, url: str, snapshot_id: int) -> Record:
    """Return the entry of a segment that the snapshot adds.

    Args:
        segment: The segment.
        url: The URL of the object store.
        snapshot_id: The id of the snapshot.
    """
    lower, upper = bounds_of(segment.partition, (segment.first, segment.end - 1), (segment.first_at, segment.last_at))
    partition = {PARTITION: segment.partition}
    if day_of(segment.first_at) == day_of(segment.last_at):
        partition[DAY] = day_of(segment.first_at)
    return {
        "status": EntryStatus.ADDED,
        "snapshot_id": snapshot_id,
        "sequence_number": None,
        "file_sequence_number": None,
        "data_file": {
            "content": 0,
            "file_path": f"{url}/{segment.path}",
            "file_format": "PARQUET",
            "partition": partition,
            "record_count": segment.end - segment.first,
            "file_size_in_bytes": segment.bytes,
            "column_sizes": None,
            "value_counts": _pairs(dict.fromkeys(NEVER_NULL, segment.end - segment.first)),
            "null_value_counts": _pairs(dict.fromkeys(NEVER_NULL, 0)),
            "nan_value_counts": None,
            "lower_bounds": _pairs(lower),
            "upper_bounds": _pairs(upper),
            "key_metadata": None,
            "split_offsets": None,
            "equality_ids": None,
            "sort_order_id": SORT_ORDER,
        },
    }


def spec_of(entry: Record) -> int:
    """Return the id of the partition spec of an entry."""
    return BY_DAY if DAY in entry["data_file"]["partition"] else BY_PARTITION


def known_entry(entry: Record, manifest: Record, removed_by: int | None = None) -> Record:
    """Return an entry of an earlier manifest for a new one.

    Args:
        entry: The entry as it was read.
        manifest: The manifest from which it was read, of which it inherits sequence numbers.
        removed_by: The id of the snapshot that removes the file. Default: None, the file stays.
    """
    numbers = {
        name: manifest["sequence_number"] if entry[name] is None else entry[name]
        for name in ("sequence_number", "file_sequence_number")
    }
    if removed_by is None:
        return {**entry, **numbers, "status": EntryStatus.EXISTING}
    return {**entry, **numbers, "status": EntryStatus.DELETED, "snapshot_id": removed_by}


def write_manifest(spec: int, entries: Iterable[Record]) -> bytes:
    """Return the file of a manifest whose entries have one partition spec, or `UNPARTITIONED`."""
    about = {
        "schema": json.dumps(iceberg_schema()),
        "schema-id": "0",
        "partition-spec": json.dumps([] if spec == UNPARTITIONED else partition_specs()[spec]["fields"]),
        "partition-spec-id": str(max(spec, 0)),
        "format-version": "2",
        "content": "data",
    }
    return write_avro(_ENTRY[spec], entries, about)


def manifest_of(path: str, size: int, entries: Sequence[Record], snapshot_id: int, sequence: int) -> Record:
    """Return the description of a manifest for a manifest list.

    Args:
        path: The URL of the manifest.
        size: The size of the file.
        entries: Its entries, of one partition spec or without partitions.
        snapshot_id: The id of the snapshot that writes it.
        sequence: The sequence number of the snapshot.
    """
    is_partitioned = PARTITION in entries[0]["data_file"]["partition"]
    counts = {status: [each for each in entries if each["status"] == status] for status in EntryStatus}
    found: Record = {
        "manifest_path": path,
        "manifest_length": size,
        "partition_spec_id": spec_of(entries[0]) if is_partitioned else 0,
        "content": 0,
        "sequence_number": sequence,
        "min_sequence_number": min(
            (sequence if each["sequence_number"] is None else each["sequence_number"]) for each in entries
        ),
        "added_snapshot_id": snapshot_id,
        "partitions": _summaries(entries) if is_partitioned else [],
        "key_metadata": None,
    }
    for status in EntryStatus:
        found[f"{status.name.lower()}_files_count"] = len(counts[status])
        found[f"{status.name.lower()}_rows_count"] = sum(each["data_file"]["record_count"] for each in counts[status])
    return found


def live_count(manifest: Record) -> int:
    """Return the number of files of the table that a manifest describes."""
    return int(manifest["added_files_count"] + manifest["existing_files_count"])


def write_manifest_list(manifests: Iterable[Record], snapshot_id: int, parent: int | None, sequence: int) -> bytes:
    """Return the file that lists the manifests of a snapshot."""
    about = {
        "snapshot-id": str(snapshot_id),
        "parent-snapshot-id": "null" if parent is None else str(parent),
        "sequence-number": str(sequence),
        "format-version": "2",
    }
    return write_avro(_MANIFEST, manifests, about)


def _pairs(values: dict[int, Any]) -> list[Record]:
    return [{"key": key, "value": value} for key, value in values.items()]


def _summaries(entries: Sequence[Record]) -> list[Record]:
    names = [PARTITION, DAY] if spec_of(entries[0]) == BY_DAY else [PARTITION]
    found = []
    for name in names:
        values = [each["data_file"]["partition"][name] for each in entries]
        bounds = {"lower_bound": int_bytes(min(values)), "upper_bound": int_bytes(max(values))}
        found.append({"contains_null": False, "contains_nan": False, **bounds})
    return found


# The schemas of the two kinds of files, with the field ids of Iceberg's specification.


def _required(number: int, name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "field-id": number, "type": kind}


def _optional(number: int, name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "field-id": number, "type": ["null", kind], "default": None}


def _map(key: int, value: int, kind: str) -> dict[str, Any]:
    fields = [_required(key, "key", "int"), _required(value, "value", kind)]
    return {
        "type": "array",
        "logicalType": "map",
        "items": {"type": "record", "name": f"k{key}_v{value}", "fields": fields},
    }


def _entry_schema(partition: list[dict[str, Any]]) -> dict[str, Any]:
    file = [
        _required(134, "content", "int"),
        _required(100, "file_path", "string"),
        _required(101, "file_format", "string"),
        _required(102, "partition", {"type": "record", "name": "r102", "fields": partition}),
        _required(103, "record_count", "long"),
        _required(104, "file_size_in_bytes", "long"),
        _optional(108, "column_sizes", _map(117, 118, "long")),
        _optional(109, "value_counts", _map(119, 120, "long")),
        _optional(110, "null_value_counts", _map(121, 122, "long")),
        _optional(137, "nan_value_counts", _map(138, 139, "long")),
        _optional(125, "lower_bounds", _map(126, 127, "bytes")),
        _optional(128, "upper_bounds", _map(129, 130, "bytes")),
        _optional(131, "key_metadata", "bytes"),
        _optional(132, "split_offsets", {"type": "array", "element-id": 133, "items": "long"}),
        _optional(135, "equality_ids", {"type": "array", "element-id": 136, "items": "int"}),
        _optional(140, "sort_order_id", "int"),
    ]
    fields = [
        _required(0, "status", "int"),
        _optional(1, "snapshot_id", "long"),
        _optional(3, "sequence_number", "long"),
        _optional(4, "file_sequence_number", "long"),
        _required(2, "data_file", {"type": "record", "name": "r2", "fields": file}),
    ]
    return {"type": "record", "name": "manifest_entry", "fields": fields}


_PARTITION_FIELD = _optional(PARTITION_FIELD, PARTITION, "int")
_DAY_FIELD = _optional(DAY_FIELD, DAY, {"type": "int", "logicalType": "date"})
_ENTRY = {
    BY_DAY: _entry_schema([_PARTITION_FIELD, _DAY_FIELD]),
    BY_PARTITION: _entry_schema([_PARTITION_FIELD]),
    UNPARTITIONED: _entry_schema([]),
}
_SUMMARY = {
    "type": "record",
    "name": "r508",
    "fields": [
        _required(509, "contains_null", "boolean"),
        _optional(518, "contains_nan", "boolean"),
        _optional(510, "lower_bound", "bytes"),
        _optional(511, "upper_bound", "bytes"),
    ],
}
_MANIFEST = {
    "type": "record",
    "name": "manifest_file",
    "fields": [
        _required(500, "manifest_path", "string"),
        _required(501, "manifest_length", "long"),
        _required(502, "partition_spec_id", "int"),
        _required(517, "content", "int"),
        _required(515, "sequence_number", "long"),
        _required(516, "min_sequence_number", "long"),
        _required(503, "added_snapshot_id", "long"),
        _required(504, "added_files_count", "int"),
        _required(505, "existing_files_count", "int"),
        _required(506, "deleted_files_count", "int"),
        _required(512, "added_rows_count", "long"),
        _required(513, "existing_rows_count", "long"),
        _required(514, "deleted_rows_count", "long"),
        _optional(507, "partitions", {"type": "array", "element-id": 508, "items": _SUMMARY}),
        _optional(519, "key_metadata", "bytes"),
    ],
}
