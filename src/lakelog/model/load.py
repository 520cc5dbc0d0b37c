"""Loads: history that goes into a topic as segments, without being published. The values of its calls.

The engine makes them, HTTP carries them, and the client returns them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from lakelog.model.limits import MAX_PARTITIONS
from lakelog.model.segment import Hash, Segment
from lakelog.model.structs import Name, Natural, PartitionNumber, Positive, Request, Value, check_times

MAX_LOADED_SEGMENTS = 4000
"""The largest number of segments in one request. All segments of a partition are in one request."""


class PartitionLoad(Request, frozen=True, kw_only=True):
    """The part of a load for one partition.

    Attributes:
        partition: The partition.
        first: The offset of the first message: the next offset of the partition when the files were written.
        segments: The segments, which follow each other from `first`. They were read back. Default: none, if the load
            has no messages for the partition.
        fingerprint: A hash of the input of this part, in hex. A load that runs again has the same one.
    """

    partition: PartitionNumber
    first: Natural
    segments: Annotated[tuple[Segment, ...], Meta(max_length=MAX_LOADED_SEGMENTS)] = ()
    fingerprint: Hash

    def __post_init__(self) -> None:
        for segment in self.segments:
            check_times(segment, "first_at", "last_at")


class LoadRequest(Request, frozen=True, kw_only=True):
    """A request to append segments to partitions, each as a whole or not at all.

    Attributes:
        topic: The topic.
        name: The name of the load in the topic. The first decision about a name and a partition is final.
        incarnation: The id of the topic for which the files were written.
        parts: The parts of the load, at most one for each partition.
        is_restore: The messages were in the topic before its database was restored from a backup, so their values were
            validated then. Default: False; a topic with a schema refuses other loads.
    """

    topic: Name
    name: Name
    incarnation: Positive
    parts: Annotated[list[PartitionLoad], Meta(min_length=1, max_length=MAX_PARTITIONS)]
    is_restore: bool = False


class LoadStatus(StrEnum):
    """The outcome of a load in a partition."""

    LOADED = "loaded"
    """The messages are in the log now."""
    KNOWN = "known"
    """The load of this name was decided before in this partition. Nothing was added."""
    MOVED = "moved"
    """Messages were published since the files were written. Write them again from the partition's next offset."""
    REFUSED = "refused"
    """Nothing was added, for the reason given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The outcome of a load in one partition.

    Attributes:
        partition: The partition.
        status: Whether the messages are in the log.
        first: The offset of the first message; if the status is `moved`, the next offset of the partition.
        end: The offset after the last message.
        fingerprint: The hash of the input that was loaded.
        reason: Why nothing was added.
    """

    partition: int
    status: LoadStatus
    first: int
    end: int
    fingerprint: str
    reason: str | None = None


class LoadResults(Value, frozen=True, kw_only=True):
    """The outcome of a load, by partition."""

    results: list[Loaded]


class FindLoadRequest(Request, frozen=True, kw_only=True):
    """A request for the partitions in which a load was decided."""

    topic: Name
    name: Name
