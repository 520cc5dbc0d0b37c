"""The JSON bodies about plans, watermarks and segments: each has the fields of its value in the model."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from lakelog.model import limits
from lakelog.model.lake import ORPHAN_AGE
from lakelog.wire.shapes import BodyShape, Natural, Positive, ReplyShape

Offsets = Annotated[dict[int, Natural], Meta(max_length=limits.MAX_PARTITIONS)]
Time = Annotated[datetime, Meta(tz=True)]
Age = Annotated[int, Meta(ge=0, le=100 * 365 * 86_400_000)]


class PlanAsk(BodyShape, frozen=True, kw_only=True):
    """POST /v1/topics/{topic}/plan"""

    starts: Offsets | None = None
    ends: Offsets | None = None
    since: Time | None = None
    until: Time | None = None
    incarnation: Positive | None = None


class SegmentShape(BodyShape, frozen=True, kw_only=True):
    """A Parquet file with every message of a partition from `first` up to, not including, `end`."""

    partition: Annotated[int, Meta(ge=0, lt=limits.MAX_PARTITIONS)]
    first: Natural
    end: Positive
    path: Annotated[str, Meta(min_length=1, max_length=500)]
    bytes: Natural
    file_hash: Annotated[str, Meta(pattern="^[0-9a-f]{1,128}$")]
    content_hash: Annotated[str, Meta(pattern="^[0-9a-f]{1,128}$")]
    first_at: Time
    last_at: Time
    epoch: Natural


class PartitionPlanShape(ReplyShape, frozen=True, kw_only=True):
    """Segments hold what is from `start` up to `hot_from`, hot batches the rest up to `end`."""

    partition: int
    log_start: int
    high_watermark: int
    start: int
    end: int
    segments: list[SegmentShape]
    hot_from: int


class PlanShape(ReplyShape, frozen=True, kw_only=True):
    """Where the messages of a topic are."""

    topic: str
    incarnation: int
    epoch: int
    environment_id: int
    store: str | None
    partitions: list[PartitionPlanShape]


class WatermarksAsk(BodyShape, frozen=True, kw_only=True):
    """POST /v1/topics/{topic}/watermarks"""

    beyond: Offsets = msgspec.field(default_factory=dict)
    wait_ms: Annotated[int, Meta(ge=0, le=limits.MAX_WAIT_MS)] = 0


class WatermarksShape(ReplyShape, frozen=True, kw_only=True):
    """Log starts and high watermarks by partition."""

    incarnation: int
    epoch: int
    starts: dict[int, int]
    ends: dict[int, int]


class TierAsk(BodyShape, frozen=True, kw_only=True):
    """POST /v1/topics/{topic}/segments/tierable"""

    segment_bytes: Positive = 128 << 20
    min_bytes: Natural = 32 << 20
    min_age_ms: Age = 3_600_000


class TierRangeShape(ReplyShape, frozen=True, kw_only=True):
    """Whole hot batches that may become one segment."""

    partition: int
    first: int
    end: int
    bytes: int


class Tierable(ReplyShape, frozen=True, kw_only=True):
    ranges: list[TierRangeShape]


class Segments(BodyShape, frozen=True, kw_only=True):
    """POST /v1/topics/{topic}/segments, and what is done to registered ones"""

    segments: Annotated[list[SegmentShape], Meta(min_length=1, max_length=1000)]


class RegisteredShape(ReplyShape, frozen=True, kw_only=True):
    """What became of one registration; `taken` has a reason."""

    status: Literal["registered", "known", "taken"]
    reason: str | None = None


class RegisterAnswer(ReplyShape, frozen=True, kw_only=True):
    results: list[RegisteredShape]


class Settled(ReplyShape, frozen=True, kw_only=True):
    """Whether it is so now, by segment."""

    results: list[bool]


class SegmentList(ReplyShape, frozen=True, kw_only=True):
    segments: list[SegmentShape]


Paths = Annotated[list[Annotated[str, Meta(min_length=1, max_length=500)]], Meta(min_length=1, max_length=10_000)]


class LookAsk(BodyShape, frozen=True, kw_only=True):
    """POST /v1/sweep/look"""

    paths: Paths
    min_age_ms: Age = ORPHAN_AGE // timedelta(milliseconds=1)


class LookAnswer(ReplyShape, frozen=True, kw_only=True):
    """Files that may be removed."""

    paths: list[str]


class Swept(BodyShape, frozen=True, kw_only=True):
    """POST /v1/sweep/swept"""

    paths: Paths
