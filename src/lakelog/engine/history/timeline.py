"""Reads the history of a group: chooses the resolution, and makes points from samples. It changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from lakelog.engine.groups.group_directory import GroupDirectory
from lakelog.engine.history.samples import SampleBody, unpack
from lakelog.errors import InvalidRequest, TopicNotFound
from lakelog.model.group import GroupTopic
from lakelog.model.history import GroupHistory, HistoryPoint, HistoryQuery
from lakelog.model.times import to_ms, to_time
from lakelog.model.topic import Scope, Topic
from lakelog.storage.history import Resolution, StoredSample
from lakelog.storage.store import DEFAULT_CELL, Catalog, PartitionStore

MAX_POINTS = 1500
"""The most points of a history."""
MAX_SAMPLES = 100_000
"""The most samples that a history of all topics of a group is made from."""
LAGS, LAG_MINUTES = 12, 5
"""How many lags of a group a list shows, and the minutes between them."""
_DEFAULT = timedelta(hours=1)
_MINUTE = timedelta(minutes=1)
_STEPS: Sequence[tuple[int, Resolution]] = (
    (1, Resolution.MINUTE),
    (10, Resolution.TEN_MINUTES),
    (60, Resolution.HOUR),
    (360, Resolution.HOUR),
    (1440, Resolution.HOUR),
)
"""The minutes between two points, and the samples that they are made from, the finest first."""
_GAP = 3
"""Two points that are further apart than this number of steps have no throughput between them."""


@dataclass(frozen=True, slots=True)
class Span:
    """The time of a history in minutes since 1970, both ends included, and its resolution."""

    first: int
    last: int
    every: int
    resolution: Resolution


class Timeline:
    """The history of groups; one per engine."""

    def __init__(self, catalog: Catalog, cells: Mapping[int, PartitionStore], directory: GroupDirectory) -> None:
        self._catalog = catalog
        self._clock = cells[DEFAULT_CELL].clock
        self._directory = directory

    async def read(self, scope: Scope, asked: HistoryQuery) -> GroupHistory:
        """Return the points of the time that is asked for, by default of the last hour."""
        group = await self._directory.find(scope, asked.group)
        topics = [topic for topic, _ in await self._catalog.groups.group_topic_list(group)]
        if asked.topic is not None:
            topics = [topic for topic in topics if topic.name == asked.topic]
            if not topics:
                raise TopicNotFound(f"Group '{group.name}' does not read topic '{asked.topic}'.", topic=asked.topic)
        now = await self._clock()
        until = min(asked.until or now, now)
        since = asked.since or until - _DEFAULT
        span = span_of(since, until, now)
        if len(topics) * (span.last - span.first) // span.every > MAX_SAMPLES:
            raise InvalidRequest(f"Group '{group.name}' reads {len(topics):,} topics. Give a topic, or a shorter time.")
        with_lags = asked.partitions and asked.topic is not None
        points = await self._points(group.group_id, topics, span, with_lags=with_lags)
        return GroupHistory(
            group=group.name,
            topic=asked.topic,
            since=since,
            until=until,
            step_seconds=span.every * 60,
            points=points,
        )

    async def lags(self, read: Sequence[tuple[Topic, GroupTopic]]) -> dict[int, list[int | None]]:
        """Return the lags of the last hour by group id, summed over these topics: one each `LAG_MINUTES`.

        A lag is None where no process took a sample. Groups without samples are left out.
        """
        pairs = {(each.group_id, topic.incarnation) for topic, each in read}
        last = to_ms(await self._clock()) // 60_000 // LAG_MINUTES * LAG_MINUTES
        first = last - LAG_MINUTES * (LAGS - 1)
        found = await self._catalog.samples.samples_read(
            sorted({group_id for group_id, _ in pairs}),
            sorted({incarnation for _, incarnation in pairs}),
            Resolution.MINUTE,
            first,
            last,
            LAG_MINUTES,
        )
        lags: dict[int, list[int | None]] = {}
        for each in found:
            if (each.group_id, each.incarnation) in pairs:
                own = lags.setdefault(each.group_id, [None] * LAGS)
                place = (each.minute - first) // LAG_MINUTES
                own[place] = (own[place] or 0) + unpack(each.body).lag
        return lags

    async def _points(
        self, group_id: int, topics: Sequence[Topic], span: Span, *, with_lags: bool
    ) -> list[HistoryPoint]:
        # One step earlier, for the throughput of the first point.
        found = await self._catalog.samples.samples_read(
            [group_id],
            [topic.incarnation for topic in topics],
            span.resolution,
            span.first - span.every,
            span.last,
            span.every,
        )
        by_topic: dict[int, list[StoredSample]] = {}
        for each in found:
            by_topic.setdefault(each.incarnation, []).append(each)
        by_minute: dict[int, list[HistoryPoint]] = {}
        for samples in by_topic.values():
            for minute, point in _with_rates(samples, span.every, with_lags=with_lags):
                if minute >= span.first:
                    by_minute.setdefault(minute, []).append(point)
        return [_sum(by_minute[minute]) for minute in sorted(by_minute)]


def span_of(since: datetime, until: datetime, now: datetime) -> Span:
    """Return the span with the finest resolution that is kept for the time, and has at most `MAX_POINTS` points."""
    if since > until:
        raise InvalidRequest("`since` is after `until`, or in the future.")
    since = max(since, now - Resolution.HOUR.kept)
    first, last = (to_ms(each) // 60_000 for each in (since, until))
    for every, resolution in _STEPS:
        if since >= now - resolution.kept - _MINUTE and (last - first) // every < MAX_POINTS:
            break
    # A sample has the minute at which its period begins.
    return Span(first - first % every, last, every, resolution)


def _with_rates(samples: Sequence[StoredSample], every: int, *, with_lags: bool) -> Iterable[tuple[int, HistoryPoint]]:
    """Yield the minute and the point of each sample of one topic."""
    bodies = [(each.minute, unpack(each.body)) for each in samples]
    rates: list[float | None] = [None]
    for (before, old), (minute, new) in pairwise(bodies):
        is_known = new.finished >= old.finished and minute - before <= _GAP * every
        rates.append((new.finished - old.finished) / (60 * (minute - before)) if is_known else None)
    for (minute, body), rate in zip(bodies, rates, strict=False):
        yield minute, _point(minute, body, rate, with_lags=with_lags)


def _point(minute: int, body: SampleBody, rate: float | None, *, with_lags: bool) -> HistoryPoint:
    return HistoryPoint(
        at=to_time(minute * 60_000),
        lag=body.lag,
        oldest_seconds=body.oldest_seconds,
        leased=body.leased,
        waiting=body.waiting,
        members=body.members,
        dead_letters=body.dead_letters,
        done_per_second=rate,
        failed_per_second=body.failed / 60,
        partition_lags=tuple(body.lags) if with_lags and body.lags else None,
    )


def _sum(points: Sequence[HistoryPoint]) -> HistoryPoint:
    """Return the sum of the points of several topics. Members and dead letters are those of the group in each."""
    if len(points) == 1:
        return points[0]
    rates = [each.done_per_second for each in points if each.done_per_second is not None]
    return HistoryPoint(
        at=points[0].at,
        lag=sum(each.lag for each in points),
        oldest_seconds=max(each.oldest_seconds for each in points),
        leased=sum(each.leased for each in points),
        waiting=sum(each.waiting for each in points),
        members=max(each.members for each in points),
        dead_letters=max(each.dead_letters for each in points),
        done_per_second=sum(rates) if rates else None,
        failed_per_second=sum(each.failed_per_second for each in points),
    )
