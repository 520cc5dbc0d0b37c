"""A cold segment: what the log knows about one file of sealed messages. The file's format is `lakelog.segments`'."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedSegment:
    """What a Parquet file of one partition holds: every offset from `first` up to, not including, `end`."""

    partition: int
    first: int
    end: int
    bytes: int
    file_hash: str
    """SHA-256 of the file's bytes, in hex."""
    content_hash: str
    """Of the messages, whatever the file's format is; in hex."""
    first_at: datetime
    """When its first and its last message were appended."""
    last_at: datetime
    epoch: int
    """Of its last message."""

    def segment(self, path: str) -> Segment:
        """The segment whose file lies at `path` of the object store."""
        return Segment(**{**asdict(self), "path": path})


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment(SealedSegment):
    """A sealed file that has its place."""

    path: str
    """Relative to the object store's root."""
