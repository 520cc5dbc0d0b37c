"""Plans, watermarks and segments: the values for readers of whole ranges and for tiering.

The engine makes them, HTTP carries them, and the client returns them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from lakelog.model.limits import MAX_PARTITIONS, MAX_WAIT_MS
from lakelog.model.segment import MAX_PATH_LENGTH, Segment
from lakelog.model.structs import Name, Natural, Positive, Request, Time, Value, check_times

ORPHAN_AGE = timedelta(hours=24)
"""The default time for which a file must be unknown before a sweep removes it."""
MAX_SEGMENTS = 1000
"""The largest number of segments in one request."""
MAX_PATHS = 10_000
"""The largest number of paths in one request."""

Offsets = Annotated[Mapping[int, Natural], Meta(max_length=MAX_PARTITIONS)]
"""An offset by partition."""
Age = Annotated[int, Meta(ge=0, le=100 * 365 * 86_400_000)]
Paths = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=MAX_PATH_LENGTH)]], Meta(min_length=1, max_length=MAX_PATHS)
]


class PlanOptions(Request, frozen=True, kw_only=True):
    """The part of a topic to read: all of it, unless offsets by partition or times limit it.

    Attributes:
        starts: The first offset by partition. Default: the oldest message.
        ends: The offset by partition at which to end; it is not included. Default: the end of the log.
        since: Begin at the first message that was appended at this time or later.
        until: End before the first message that was appended at this time or later.
        incarnation: Refuse another topic of the same name. Default: accept any.
    """

    starts: Offsets | None = None
    ends: Offsets | None = None
    since: Time | None = None
    until: Time | None = None
    incarnation: Positive | None = None

    def __post_init__(self) -> None:
        check_times(self, "since", "until")


class PlanRequest(PlanOptions, frozen=True, kw_only=True):
    """A request for the plan of a topic.

    Attributes:
        topic: The name of the topic.
        max_segments: The largest number of segments in the reply, shared by the partitions that are requested; each
            gets at least one. Default: no limit.
    """

    topic: Name
    max_segments: Positive | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    """The location of a partition's messages.

    It covers the part of the requested range that the log has. The segments hold all messages from `start` up to
    `hot_from`, and may extend beyond either end; hot batches hold the rest.

    Attributes:
        partition: The partition.
        log_start: The first offset that can be read.
        high_watermark: The offset of the next message to be published.
        start: The first offset of the plan.
        end: The end of the plan, not included.
        segments: The segments of the plan, by offset.
        hot_from: The first offset that is in hot batches.
        later: Segments after `hot_from`, by offset. Hot batches hold the messages between them, such as those of a
            damaged segment.
        rest_from: The offset from which segments are missing, because the reply has no room for them. Default: None, if
            the plan is complete.
    """

    partition: int
    log_start: int
    high_watermark: int
    start: int
    end: int
    segments: tuple[Segment, ...]
    hot_from: int
    later: tuple[Segment, ...] = ()
    rest_from: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The locations of a topic's messages, by partition.

    Attributes:
        topic: The name of the topic.
        incarnation: The id of the topic, which a recreated topic does not share.
        epoch: The number of times that partitions were added.
        environment_id: The id of the environment.
        store: The URL of the object store, if there is one.
        partitions: The plan of each partition.
    """

    topic: str
    incarnation: int
    epoch: int
    environment_id: int
    store: str | None
    partitions: tuple[PartitionPlan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermarks:
    """Log starts and high watermarks, by partition.

    Attributes:
        incarnation: The id of the topic, which a recreated topic does not share.
        epoch: The number of times that partitions were added.
        starts: The log start of each partition.
        ends: The high watermark of each partition.
        now: The database's time.
        bytes: The stored bytes of all messages that were ever appended to each partition; empty from a server that
            does not report them.
    """

    incarnation: int
    epoch: int
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    now: datetime
    bytes: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TierRange:
    """Whole hot batches of one day in UTC that can become one segment.

    Attributes:
        partition: The partition.
        first: The first offset.
        end: The end offset, not included.
        bytes: The size of the stored payloads.
    """

    partition: int
    first: int
    end: int
    bytes: int


class WatermarksRequest(Request, frozen=True, kw_only=True):
    """A request for watermarks. The reply comes when one exceeds `beyond`, or after `wait_ms`."""

    topic: Name
    beyond: Offsets = msgspec.field(default_factory=dict)
    wait_ms: Annotated[int, Meta(ge=0, le=MAX_WAIT_MS)] = 0


class TierOptions(Request, frozen=True, kw_only=True):
    """The size of segments, and the size or age at which a remainder becomes a segment.

    Attributes:
        segment_bytes: The approximate number of stored bytes of a segment. Default: 128 MiB.
        min_bytes: The stored bytes that a remainder needs to become a segment. Default: 32 MiB.
        min_age_ms: The age of its oldest message at which a smaller remainder becomes a segment. Default: an hour.
    """

    segment_bytes: Positive = 128 << 20
    min_bytes: Natural = 32 << 20
    min_age_ms: Age = 3_600_000


class TierableRequest(TierOptions, frozen=True, kw_only=True):
    """A request for the ranges of a topic that may become segments."""

    topic: Name


class Tierable(Value, frozen=True, kw_only=True):
    """Ranges that may become segments, by partition and offset."""

    ranges: list[TierRange]


class SegmentsRequest(Request, frozen=True, kw_only=True):
    """Segments of a topic to register, to mark as verified or to unregister."""

    topic: Name
    segments: Annotated[list[Segment], Meta(min_length=1, max_length=MAX_SEGMENTS)]

    def __post_init__(self) -> None:
        for segment in self.segments:
            check_times(segment, "first_at", "last_at")


class ReplaceSegmentsRequest(Request, frozen=True, kw_only=True):
    """Segments of a topic to replace by others of the same partition and range.

    Attributes:
        topic: The name of the topic.
        old: The segments to replace, by offset, without a gap.
        new: The segments that replace them, by offset, without a gap. Their files were read back.
    """

    topic: Name
    old: Annotated[list[Segment], Meta(min_length=1, max_length=MAX_SEGMENTS)]
    new: Annotated[list[Segment], Meta(min_length=1, max_length=MAX_SEGMENTS)]

    def __post_init__(self) -> None:
        for segment in (*self.old, *self.new):
            check_times(segment, "first_at", "last_at")


class UnverifiedRequest(Request, frozen=True, kw_only=True):
    """A request for the segments of a topic that are registered and not verified."""

    topic: Name


class Segments(Value, frozen=True, kw_only=True):
    """Segments of a topic."""

    segments: list[Segment]


class SegmentResults(Value, frozen=True, kw_only=True):
    """One result for each segment, in order: whether it is now verified, or unregistered."""

    results: list[bool]


class RegisterStatus(StrEnum):
    """The outcome of a registration or replacement."""

    REGISTERED = "registered"
    """The segment is registered now."""
    KNOWN = "known"
    """The call is a repeat: the same path and range was registered before."""
    TAKEN = "taken"
    """The segment was not registered, for the reason given. Its file belongs to no segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """The outcome for one segment.

    Attributes:
        status: Whether the segment is registered.
        reason: Why it was not registered.
    """

    status: RegisterStatus
    reason: str | None = None


class Registrations(Value, frozen=True, kw_only=True):
    """The outcome for each segment, in order."""

    results: list[Registered]


class FindOrphansRequest(Request, frozen=True, kw_only=True):
    """A request for the unknown files among these paths, if they were first seen at least `min_age_ms` ago."""

    paths: Paths
    min_age_ms: Age = ORPHAN_AGE // timedelta(milliseconds=1)


class Orphans(Value, frozen=True, kw_only=True):
    """Files that may be removed."""

    paths: list[str]


class SweptRequest(Request, frozen=True, kw_only=True):
    """Files that were removed."""

    paths: Paths
