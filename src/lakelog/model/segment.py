"""Cold segments: the description of one file of sealed messages. `lakelog.segments` defines the file format."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from lakelog.model.structs import Natural, PartitionNumber, Positive, Request, Time

MAX_PATH_LENGTH = 500
MAX_GROUPS = 10_000
"""The largest number of row groups of which the offsets are stored."""

Hash = Annotated[str, Meta(pattern="^[0-9a-f]{1,128}$")]


class SealedSegment(Request, frozen=True, kw_only=True):
    """A Parquet file with every offset of a partition from `first` up to, not including, `end`.

    Attributes:
        partition: The partition.
        first: The first offset.
        end: The end offset, not included.
        bytes: The size of the file.
        file_hash: SHA-256 of the file, in hex.
        content_hash: Hash of the messages, independent of the file format, in hex.
        first_at: When the first message was appended.
        last_at: When the last message was appended.
        epoch: The epoch of the last message.
        groups: The first offset of each row group, in order. Default: empty, if they are not known, as for files of
            earlier versions.
    """

    partition: PartitionNumber
    first: Natural
    end: Positive
    bytes: Natural
    file_hash: Hash
    content_hash: Hash
    first_at: Time
    last_at: Time
    epoch: Natural
    groups: Annotated[tuple[Natural, ...], Meta(max_length=MAX_GROUPS)] = ()

    def segment(self, path: str) -> Segment:
        """Return the segment with the path of its file.

        Args:
            path: The path relative to the root of the object store.
        """
        return Segment(**{**msgspec.structs.asdict(self), "path": path})


class Segment(SealedSegment, frozen=True, kw_only=True):
    """A sealed segment with the path of its file."""

    path: Annotated[str, Meta(min_length=1, max_length=MAX_PATH_LENGTH)]
    """Path relative to the root of the object store."""
