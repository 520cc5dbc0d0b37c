"""Frames: encoded batches in one HTTP body, which are forwarded without decoding.

The body is a sequence of frames, each with a fixed header and a payload of `lakelog.batches`. Producers send one kind
of frame, and fetches return the other. Only lengths are read here; `lakelog.batches` validates payloads.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from lakelog.errors import InvalidBatch
from lakelog.model.fetch import StoredBatch
from lakelog.model.times import EPOCH, MICROSECOND

MEDIA_TYPE = "application/vnd.lakelog.batches"
ARROW_MEDIA_TYPE = "application/vnd.apache.arrow.stream"

_PUBLISH = struct.Struct("<4sIIIQ16sI")
_FETCH = struct.Struct("<4sIIIQqI")
_PUBLISH_MAGIC = b"LKP1"
_FETCH_MAGIC = b"LKF1"
NO_PRODUCER = bytes(16)


@dataclass(frozen=True, slots=True)
class PublishFrame:
    """A batch for one partition, numbered by its producer unless the producer is `NO_PRODUCER`."""

    partition: int
    epoch: int
    count: int
    sequence: int
    producer: bytes
    payload: bytes | memoryview


def write_publish(frames: Iterable[PublishFrame]) -> bytes:
    parts: list[bytes | memoryview] = []
    for frame in frames:
        header = (frame.partition, frame.epoch, frame.count, frame.sequence, frame.producer, len(frame.payload))
        parts += (_PUBLISH.pack(_PUBLISH_MAGIC, *header), frame.payload)
    return b"".join(parts)


def read_publish(body: bytes) -> list[PublishFrame]:
    return [PublishFrame(*fields) for fields in _frames(body, _PUBLISH, _PUBLISH_MAGIC)]


def write_fetch(partition: int, batches: Iterable[StoredBatch]) -> bytes:
    parts: list[bytes | memoryview] = []
    for batch in batches:
        time = (batch.appended_at - EPOCH) // MICROSECOND
        header = (partition, batch.epoch, batch.count, batch.base, time, len(batch.payload))
        parts += (_FETCH.pack(_FETCH_MAGIC, *header), batch.payload)
    return b"".join(parts)


def read_fetch(partition: int, body: bytes) -> list[StoredBatch]:
    """Return the batches of the body, all of which must be of the partition."""
    batches = []
    for found, epoch, count, base, time, payload in _frames(body, _FETCH, _FETCH_MAGIC):
        if found != partition:
            raise InvalidBatch(f"The body holds a batch of partition {found} instead of {partition}.")
        at = EPOCH + time * MICROSECOND
        batches.append(StoredBatch(base=base, count=count, appended_at=at, epoch=epoch, payload=payload))
    return batches


def _frames(body: bytes, header: struct.Struct, magic: bytes) -> Iterator[tuple[Any, ...]]:
    """Yield the fields of each header, and the payload."""
    view = memoryview(body)
    at = 0
    while at < len(view):
        if len(view) - at < header.size:
            raise InvalidBatch("The body ends inside a frame's header.")
        found, *fields, length = header.unpack_from(view, at)
        if found != magic:
            raise InvalidBatch("The body does not hold Lakelog frames of the expected kind.")
        at += header.size
        if length > len(view) - at:
            raise InvalidBatch("The body ends inside a frame's payload.")
        yield (*fields, view[at : at + length])
        at += length
