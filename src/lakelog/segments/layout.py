"""The paths of files in the object store: segments, and the metadata of Iceberg tables.

Names are unique: two attempts never share a name.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass

_PATH = re.compile(r"e(\d+)/t(\d+)/p(\d{5,})/(\d{20})-(\d{20})-([0-9a-f]{16})(?:-c(\d+))?\.parquet")
_RECEIPT = re.compile(r"e\d+/t\d+/loads/\d{5,}-[0-9a-f]{16}\.json")
_TABLE_FILE = re.compile(r"e\d+/t\d+/(metadata/[0-9a-z-]+\.(avro|metadata\.json)|latest/\d{5,}-[0-9a-f]{16}\.parquet)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentPath:
    """The parts of a segment path."""

    environment_id: int
    incarnation: int
    partition: int
    first: int
    end: int
    unique: str
    columns: int
    """The version of the topic's columns that the file has; 0 if it has none."""


def segment_path(
    environment_id: int,
    incarnation: int,
    partition: int,
    first: int,
    end: int,
    unique: str | None = None,
    *,
    columns: int = 0,
) -> str:
    """Return the path for a new file.

    Args:
        environment_id: The id of the environment.
        incarnation: The id of the topic.
        partition: The partition.
        first: The first offset.
        end: The end offset, not included.
        unique: 16 hex digits. Default: random.
        columns: The version of the topic's columns that the file has, so that readers know it without opening the file.
            Default: 0, none.
    """
    name = f"{first:020d}-{end:020d}-{unique or secrets.token_hex(8)}{f'-c{columns}' if columns else ''}"
    return f"e{environment_id}/t{incarnation}/p{partition:05d}/{name}.parquet"


def parse_segment_path(path: str) -> SegmentPath | None:
    """Return the parts of the path, or None if it is not a segment path."""
    match = _PATH.fullmatch(path)
    if match is None:
        return None
    environment_id, incarnation, partition, first, end = map(int, match.groups()[:5])
    return SegmentPath(
        environment_id=environment_id,
        incarnation=incarnation,
        partition=partition,
        first=first,
        end=end,
        unique=match[6],
        columns=int(match[7] or 0),
    )


def columns_of_file(path: str) -> int:
    """Return the version of the topic's columns that the file of a segment has; 0 if it has none."""
    place = parse_segment_path(path)
    return 0 if place is None else place.columns


def topic_folder(environment_id: int, incarnation: int) -> str:
    """Return the folder of a topic's files, which is also the location of its Iceberg table."""
    return f"e{environment_id}/t{incarnation}"


def table_path(folder: str, name: str) -> str:
    """Return the path of a file with metadata of the Iceberg table in a folder."""
    return f"{folder}/metadata/{name}"


def key_path(environment_id: int, incarnation: int, bucket: int) -> str:
    """Return the path for a new file of a key table."""
    folder = topic_folder(environment_id, incarnation)
    return f"{folder}/latest/{bucket:05d}-{secrets.token_hex(8)}.parquet"


def receipt_path(folder: str, partition: int) -> str:
    """Return the path for a new receipt of a load into a partition of the topic with this folder."""
    return f"{folder}/loads/{partition:05d}-{secrets.token_hex(8)}.json"


def is_receipt(path: str) -> bool:
    """Return whether this is the path of a receipt of a load."""
    return _RECEIPT.fullmatch(path) is not None


def bucket_of(path: str) -> int:
    """Return the bucket of a file of a key table."""
    return int(path.rpartition("/")[2].partition("-")[0])


def is_table_file(path: str) -> bool:
    """Return whether this is the path of a file that only Iceberg tables have: metadata, or a file of a key table."""
    return _TABLE_FILE.fullmatch(path) is not None
