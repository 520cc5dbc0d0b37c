"""The history of a group: its lag, age and throughput over time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from msgspec import Meta

from lakelog.model.structs import Name, Request, Time, Value, check_times


class HistoryQuery(Request, frozen=True, kw_only=True):
    """A request for the history of a group."""

    group: Name
    topic: Annotated[Name, Meta(description="Only this topic. Default: the sum of all topics.")] | None = None
    since: Annotated[Time, Meta(description="From this time on. Default: an hour before `until`.")] | None = None
    until: Annotated[Time, Meta(description="Up to this time. Default: now.")] | None = None
    partitions: Annotated[bool, Meta(description="Whether each point has the lag of each partition.")] = False

    def __post_init__(self) -> None:
        check_times(self, "since", "until")


class HistoryPoint(Value, frozen=True, kw_only=True):
    """The figures of a group at one time.

    Attributes:
        at: When the figures were read.
        lag: How many messages were not finished.
        oldest_seconds: The age of the oldest unfinished message; 0 if there was none.
        leased: How many messages were leased.
        waiting: How many messages waited for a retry.
        members: How many members the group had.
        dead_letters: How many dead letters the group had in all topics, counted up to 10,000.
        done_per_second: How many messages were finished per second since the previous point; None if that is unknown,
            because there is no such point, or because a seek moved the group back.
        failed_per_second: How many deliveries failed, exceeded their time or were lost per second in the minute before.
        partition_lags: The lag of each partition, in order; None if it was not asked for, or is not stored because the
            topic has more than 256 partitions.
    """

    at: datetime
    lag: int
    oldest_seconds: float
    leased: int
    waiting: int
    members: int
    dead_letters: int
    done_per_second: float | None = None
    failed_per_second: float = 0.0
    partition_lags: Sequence[int] | None = None


class GroupHistory(Value, frozen=True, kw_only=True):
    """The figures of a group over time.

    Attributes:
        group: The name of the group.
        topic: The topic; None for the sum of all topics that the group reads.
        since: The beginning of the time.
        until: The end of the time.
        step_seconds: The time between two points. It is longer for a longer or an older time.
        points: The points, the oldest first. A point is missing where no process took samples.
    """

    group: str
    topic: str | None = None
    since: datetime
    until: datetime
    step_seconds: int
    points: Sequence[HistoryPoint]
