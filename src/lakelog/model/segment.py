"""A cold segment: what the log knows about one file of sealed messages. The file's format is `lakelog.segments`'."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated

from msgspec import Meta

from lakelog.model.limits import MAX_PARTITIONS
from lakelog.model.structs import Natural, Positive, Time

MAX_PATH_LENGTH = 500

Hash = Annotated[str, Meta(pattern="^[0-9a-f]{1,128}$")]


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedSegment:
    """What a Parquet file of one partition holds: every offset from `first` up to, not including, `end`."""

    partition: Annotated[int, Meta(ge=0, lt=MAX_PARTITIONS)]
    first: Natural
    end: Positive
    bytes: Natural
    file_hash: Hash
    """SHA-256 of the file's bytes, in hex."""
    content_hash: Hash
    """Of the messages, whatever the file's format is; in hex."""
    first_at: Time
    """When its first and its last message were appended."""
    last_at: Time
    epoch: Natural
    """Of its last message."""

    def segment(self, path: str) -> Segment:
        """The segment whose file lies at `path` of the object store."""
        return Segment(**{**asdict(self), "path": path})


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment(SealedSegment):
    """A sealed file that has its place."""

    path: Annotated[str, Meta(min_length=1, max_length=MAX_PATH_LENGTH)]
    """Relative to the object store's root."""
