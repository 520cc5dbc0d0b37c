"""The sealed segment: a range of one partition as a Parquet file.

It is written once, read in parts, and verified as a whole.

This package does not choose the offsets of a file and registers nothing.
"""

from lakelog.segments.hashing import ContentHash
from lakelog.segments.layout import SegmentPath, parse_segment_path, segment_path
from lakelog.segments.reader import SegmentFile, opened, verify
from lakelog.segments.schema import FORMAT, SCHEMA, conform
from lakelog.segments.segment_batches import SegmentBatch, split_batches
from lakelog.segments.writer import SegmentWriter

__all__ = [
    "FORMAT",
    "SCHEMA",
    "ContentHash",
    "SegmentBatch",
    "SegmentFile",
    "SegmentPath",
    "SegmentWriter",
    "conform",
    "opened",
    "parse_segment_path",
    "segment_path",
    "split_batches",
    "verify",
]
