"""Opens a segment in the object store for reading in parts, or verifies it by reading all of it. Repairs nothing."""

from __future__ import annotations

import hashlib

import pyarrow as pa

from lakelog.errors import ObjectStoreUnavailable, SegmentDamaged
from lakelog.model.segment import Segment
from lakelog.objectstore import ObjectStore
from lakelog.segments.hashing import ContentHash
from lakelog.segments.reader import SegmentFile
from lakelog.segments.schema import conform


def opened(store: ObjectStore, segment: Segment) -> SegmentFile:
    """Open the file of a segment. A file that is shorter than the sealed one is damaged: a retry would not help."""
    file = store.open_file(segment.path, segment.bytes)
    try:
        return SegmentFile(file, segment)
    except BaseException as error:
        file.close()
        if isinstance(error, ObjectStoreUnavailable) and (size := store.size(segment.path)) < segment.bytes:
            raise _damaged(segment, f"it has {size} bytes instead of {segment.bytes}") from error
        raise


def verify(store: ObjectStore, segment: Segment) -> None:
    """Raise `SegmentDamaged` unless the store returns exactly the sealed bytes.

    A missing file raises `ObjectNotFound`, and a store that does not respond raises `ObjectStoreUnavailable`; neither
    says anything about the messages.
    """
    data = store.get(segment.path)
    if len(data) != segment.bytes:
        raise _damaged(segment, f"it has {len(data)} bytes instead of {segment.bytes}")
    # Checked before Arrow reads the bytes: it may crash the process on damaged data.
    if hashlib.sha256(data).hexdigest() != segment.file_hash:
        raise _damaged(segment, "its bytes differ from the sealed ones")
    file = SegmentFile(pa.BufferReader(data), segment)
    content, ends = ContentHash(), []
    for batch in file.read():
        if batch.column("partition").unique().to_pylist() != [segment.partition]:
            raise _damaged(segment, "it has messages of another partition")
        content.update(conform(batch))
        ends += [batch.column("appended_at")[0].as_py(), batch.column("appended_at")[-1].as_py()]
        epoch = batch.column("epoch")[-1].as_py()
    if content.hexdigest() != segment.content_hash:
        raise _damaged(segment, "its messages differ from the sealed ones")
    if (ends[0], ends[-1], epoch) != (segment.first_at, segment.last_at, segment.epoch):
        raise _damaged(segment, f"it holds offsets {ends[0]} to {ends[-1]} and ends in epoch {epoch}")


def _damaged(segment: Segment, why: str) -> SegmentDamaged:
    return SegmentDamaged(f"{segment.path} is damaged: {why}.", path=segment.path, partition=segment.partition)
