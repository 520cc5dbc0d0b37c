"""Plans where bulk readers find the messages of a topic, and registers cold segments.

The module reads no messages. Its callers write, verify and remove files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TypeVar

from lakelog.engine.groups.positions import gathered, heads_of
from lakelog.engine.log.extents import Extents
from lakelog.engine.log.topics import Topics, no_partition
from lakelog.engine.waiters import Waiters
from lakelog.errors import Conflict, InvalidRequest, TopicNotFound
from lakelog.model import lake
from lakelog.model.message import partition_of_id
from lakelog.model.segment import Segment
from lakelog.model.topic import Scope, Topic
from lakelog.segments.layout import parse_segment_path
from lakelog.storage.cold import ColdPlan, ColdPlanRequest, ColdStore, Placed, taken
from lakelog.storage.store import Catalog, Head, HeadState

Found = TypeVar("Found")


class Lake:
    """Plans for all topics; one per engine."""

    def __init__(self, catalog: Catalog, topics: Topics, extents: Extents, waiters: Waiters) -> None:
        self._catalog = catalog
        self._topics = topics
        self._extents = extents
        self._cells = extents.cells
        self._waiters = waiters

    async def plan(self, scope: Scope, request: lake.PlanRequest) -> lake.Plan:
        topic = await self._topics.refresh(scope, request.topic)
        _check_plan(topic, request)
        lows, highs = await self._times(topic, request.since), await self._times(topic, request.until)
        starts = {n: max((request.starts or {}).get(n, 0), lows.get(n, 0)) for n in range(topic.partitions)}
        ends = {**(request.ends or {})}
        for partition, end in highs.items():
            ends[partition] = min(end, ends.get(partition, end))
        limit = None
        if request.max_segments is not None:
            asked = sum(partition not in ends or starts[partition] < ends[partition] for partition in starts)
            limit = max(1, request.max_segments // max(1, asked))
        found = await self._plans(topic, starts, ends, limit)
        return lake.Plan(
            topic=topic.name,
            incarnation=topic.incarnation,
            epoch=topic.epoch,
            environment_id=scope.environment_id,
            store=self._extents.url,
            partitions=tuple(_planned(n, found[n], (starts[n], ends.get(n)), limit) for n in range(topic.partitions)),
        )

    async def watermarks(self, scope: Scope, request: lake.WatermarksRequest) -> lake.Watermarks:
        """Return the watermarks when a partition grows past `beyond`, or when the time has passed."""
        topic = await self._topics.find(scope, request.topic)
        grown = asyncio.Event()
        pids = [topic.pid(partition) for partition in range(topic.partitions)]

        def wake(_: int) -> None:
            grown.set()

        for pid in pids:
            self._waiters.watch(pid, wake)
        deadline = asyncio.get_running_loop().time() + request.wait_ms / 1000
        try:
            while True:
                grown.clear()
                found = await self._watermarks(topic)
                if found is None:
                    # The topic was recreated, so the caller's offsets do not apply to it.
                    return await self.watermarks(scope, lake.WatermarksRequest(topic=request.topic))
                left = deadline - asyncio.get_running_loop().time()
                if left <= 0 or any(end > request.beyond.get(partition, 0) for partition, end in found.ends.items()):
                    return found
                try:
                    async with asyncio.timeout(left):
                        await grown.wait()
                except TimeoutError:
                    # No growth was announced, so reading again would only cost. The next call reads.
                    return found
        finally:
            for pid in pids:
                self._waiters.unwatch(pid, wake)

    # Segments ---------------------------------------------------------------------------------------------------------

    async def tierable(self, scope: Scope, request: lake.TierableRequest) -> lake.Tierable:
        """Return the ranges that can become segments, by partition and offset."""
        topic = await self._topics.refresh(scope, request.topic)
        age = timedelta(milliseconds=request.min_age_ms)
        shares = [
            self._cells[cell].cold.tierable(
                pids, segment_bytes=request.segment_bytes, min_bytes=request.min_bytes, min_age=age
            )
            for cell, pids in topic.pids_by_cell().items()
        ]
        found = [each for share in await gathered(shares) for _, each in share]
        return lake.Tierable(ranges=sorted(found, key=lambda each: (each.partition, each.first)))

    async def register(self, scope: Scope, request: lake.SegmentsRequest) -> lake.Registrations:
        """Register segments, and return one result for each.

        Files must be where `segment_path` says, in the caller's environment.
        """
        topic, segments = await self._topics.refresh(scope, request.topic), request.segments
        require_store(self._extents)
        for segment in segments:
            check_segment(topic, segment)
        # A file that was unregistered for half a day may be swept at any moment.
        doomed = await self._catalog.orphans.old([each.path for each in segments], age=lake.ORPHAN_AGE / 2)
        fresh = [each for each in segments if _is_of(topic, each) and each.path not in doomed]
        answers = await self._each(topic, fresh, lambda store, placed: store.register(placed))
        found = dict(zip([each.path for each in fresh], answers, strict=True))
        # A check that ran between the upload and now must not date the file before a later backup mark.
        await self._catalog.orphans.forget([each.path for each in fresh])
        gone = {each.path: taken("swept" if each.path in doomed else "deleted") for each in segments}
        return lake.Registrations(results=[found.get(each.path, gone[each.path]) for each in segments])

    async def verified(self, scope: Scope, request: lake.SegmentsRequest) -> lake.SegmentResults:
        """Let readers use these segments, and return whether each is registered under its path."""
        return await self._settled(scope, request, lambda store, placed: store.verified(placed))

    async def unregister(self, scope: Scope, request: lake.SegmentsRequest) -> lake.SegmentResults:
        """Unregister segments that are not verified, and return whether each is now unregistered."""
        return await self._settled(scope, request, lambda store, placed: store.unregister(placed))

    async def replace(self, scope: Scope, request: lake.ReplaceSegmentsRequest) -> lake.Registered:
        """Replace verified segments of a partition by others of the same range, in one transaction."""
        topic, old, new = await self._topics.refresh(scope, request.topic), request.old, request.new
        for segment in (*old, *new):
            check_segment(topic, segment)
        _check_replacement(old, new)
        if not all(_is_of(topic, segment) for segment in (*old, *new)):
            return taken("deleted")
        # As in `register`: a file that was unused for half a day may be swept at any moment.
        if await self._catalog.orphans.old([each.path for each in new], age=lake.ORPHAN_AGE / 2):
            return taken("swept")
        partition = new[0].partition
        await self._catalog.orphans.forget([each.path for each in new])
        return await self._cells[topic.cells[partition]].cold.replace(topic.pid(partition), old, new)

    async def unverified(self, scope: Scope, request: lake.UnverifiedRequest) -> lake.Segments:
        topic = await self._topics.refresh(scope, request.topic)
        shares = (self._cells[cell].cold.unverified(pids) for cell, pids in topic.pids_by_cell().items())
        found = [segment for share in await gathered(shares) for _, segment in share]
        return lake.Segments(segments=sorted(found, key=lambda each: (each.partition, each.first)))

    # Unregistered files ----------------------------------------------------------------------------------------------

    async def find_orphans(self, scope: Scope, request: lake.FindOrphansRequest) -> lake.Orphans:
        """Return the files that can be removed: unknown to every cell and table, now and at an earlier
        check.
        """
        paths, min_age = request.paths, timedelta(milliseconds=request.min_age_ms)
        for path in paths:
            _check_path(scope, path)
        known: set[str] = set()
        for share in await gathered(store.cold.paths_known(paths) for store in self._cells.values()):
            known |= share
        known |= await self._catalog.iceberg.table_paths_known(paths)
        if known:
            await self._catalog.orphans.forget(known)
        unknown = [path for path in paths if path not in known]
        old = await self._catalog.orphans.look(unknown, min_age=min_age) if unknown else set()
        return lake.Orphans(paths=[path for path in paths if path in old])

    async def swept(self, scope: Scope, request: lake.SweptRequest) -> None:
        """Record that these files are removed."""
        for path in request.paths:
            _check_path(scope, path)
        await self._catalog.orphans.forget(request.paths)

    # ------------------------------------------------------------------------------------------------------------------

    async def _settled(
        self,
        scope: Scope,
        request: lake.SegmentsRequest,
        verb: Callable[[ColdStore, list[Placed]], Coroutine[object, object, Sequence[bool]]],
    ) -> lake.SegmentResults:
        topic, segments = await self._topics.refresh(scope, request.topic), request.segments
        for segment in segments:
            check_segment(topic, segment)
        if not all(_is_of(topic, segment) for segment in segments):
            raise another_topic(topic)
        return lake.SegmentResults(results=await self._each(topic, segments, verb))

    async def _each(
        self,
        topic: Topic,
        segments: Sequence[Segment],
        verb: Callable[[ColdStore, list[Placed]], Coroutine[object, object, Sequence[Found]]],
    ) -> list[Found]:
        """Return the results in the order of the segments, each from its own cell."""
        shares: dict[int, list[int]] = {}
        for number, segment in enumerate(segments):
            shares.setdefault(topic.cells[segment.partition], []).append(number)
        calls = [
            verb(self._cells[cell].cold, [(topic.pid(segments[n].partition), segments[n]) for n in numbers])
            for cell, numbers in shares.items()
        ]
        found: dict[int, Found] = {}
        for numbers, answers in zip(shares.values(), await gathered(calls), strict=True):
            found.update(zip(numbers, answers, strict=True))
        return [found[number] for number in range(len(segments))]

    async def _plans(
        self, topic: Topic, starts: Mapping[int, int], ends: Mapping[int, int], limit: int | None
    ) -> dict[int, ColdPlan]:
        """Return the plan by partition, each with up to `limit` segments, with one snapshot per cell."""
        for _ in range(2):
            calls = [
                self._cells[cell].cold.plans(
                    [
                        ColdPlanRequest(pid=pid, start=starts[partition_of_id(pid)], end=ends.get(partition_of_id(pid)))
                        for pid in pids
                    ],
                    limit=limit,
                )
                for cell, pids in topic.pids_by_cell().items()
            ]
            found = {partition_of_id(plan.head.pid): plan for share in await gathered(calls) for plan in share}
            if len(found) == topic.partitions:
                break
            await self._topics.ensure_heads(topic)
        if any(plan.head.state is HeadState.DELETED for plan in found.values()):
            raise another_topic(topic)
        return found

    async def _watermarks(self, topic: Topic) -> lake.Watermarks | None:
        """Return the topic; None if it was recreated. Raise `TopicNotFound` if it is deleted."""
        heads = await self._heads(topic)
        if any(head.state is HeadState.DELETED for head in heads.values()):
            if (await self._topics.refresh(topic.scope, topic.name)).incarnation == topic.incarnation:
                raise another_topic(topic)
            return None
        return lake.Watermarks(
            incarnation=topic.incarnation,
            epoch=topic.epoch,
            starts={partition: head.log_start for partition, head in heads.items()},
            ends={partition: head.next_offset for partition, head in heads.items()},
            now=await self._cells[topic.cells[0]].clock(),
            bytes={partition: head.total_bytes for partition, head in heads.items()},
        )

    async def _heads(self, topic: Topic) -> dict[int, Head]:
        """Create missing heads, and return all heads by partition."""
        heads = await heads_of(self._cells, topic)
        if len(heads) < topic.partitions:
            await self._topics.ensure_heads(topic)
            heads = await heads_of(self._cells, topic)
        return heads

    async def _times(self, topic: Topic, time: datetime | None) -> dict[int, int]:
        """Return the first offset of each partition that was appended at this time or later."""
        if time is None:
            return {}
        every = range(topic.partitions)
        stores = [self._cells[cell] for cell in topic.cells]
        calls = (self._extents.offset_at_time(stores[one], topic.pid(one), time) for one in every)
        return dict(zip(every, await gathered(calls), strict=True))


def _planned(partition: int, found: ColdPlan, asked: tuple[int, int | None], limit: int | None) -> lake.PartitionPlan:
    head, (start, end) = found.head, asked
    start = min(max(start, head.log_start), head.next_offset)
    end = head.next_offset if end is None else max(start, min(end, head.next_offset))
    segments: list[Segment] = []
    later: list[Segment] = []
    hot_from = start
    for segment in found.segments:
        if segment.end <= start or segment.first >= end:
            continue
        if segment.first <= hot_from:
            segments.append(segment)
            hot_from = segment.end
        else:
            later.append(segment)
    last = found.segments[-1].end if found.segments else end
    return lake.PartitionPlan(
        partition=partition,
        log_start=head.log_start,
        high_watermark=head.next_offset,
        start=start,
        end=end,
        segments=tuple(segments),
        hot_from=min(hot_from, end),
        later=tuple(later),
        rest_from=last if len(found.segments) == limit and start < last < end else None,
    )


def _check_plan(topic: Topic, options: lake.PlanOptions) -> None:
    if options.incarnation is not None and options.incarnation != topic.incarnation:
        raise another_topic(topic)
    for partition in {*(options.starts or {}), *(options.ends or {})}:
        if not 0 <= partition < topic.partitions:
            raise no_partition(topic, partition)


def require_store(extents: Extents) -> None:
    """Refuse segments if readers could not read them."""
    if extents.url is None:
        raise Conflict(
            "Segments need an object store that all servers know: set LAKELOG_OBJECT_STORE, or connect with "
            "object_store=, to file:///folder or s3://bucket/prefix."
        )


def check_segment(topic: Topic, segment: Segment) -> None:
    """Refuse a segment whose path, offsets and partition do not belong together."""
    place = parse_segment_path(segment.path)
    mine = (topic.scope.environment_id, segment.partition, segment.first, segment.end)
    if place is None or mine != (place.environment_id, place.partition, place.first, place.end):
        raise InvalidRequest(
            f"{segment.path[:200]!r} is not the path of a segment of partition {segment.partition} with the offsets "
            f"{segment.first} to {segment.end} in this environment.",
            path=segment.path[:200],
        )
    if not 0 <= segment.first < segment.end:
        raise InvalidRequest(f"Segment {segment.path} has no messages.", path=segment.path)
    if _is_of(topic, segment) and not 0 <= segment.partition < topic.partitions:
        raise no_partition(topic, segment.partition)


def _check_replacement(old: Sequence[Segment], new: Sequence[Segment]) -> None:
    """Raise `InvalidRequest` unless both lists have no gap, and the same partition, bounds, times and epoch."""
    is_dense = all(before.end == after.first for each in (old, new) for before, after in pairwise(each))
    ends = [(each[0].first, each[-1].end, each[0].first_at, each[-1].last_at, each[-1].epoch) for each in (old, new)]
    if not is_dense or ends[0] != ends[1] or len({each.partition for each in (*old, *new)}) != 1:
        raise InvalidRequest(
            "The old and the new segments of a replacement must be of one partition, sorted by offset without gaps, "
            "and begin and end at the same messages."
        )


def _is_of(topic: Topic, segment: Segment) -> bool:
    """Return whether the file belongs to the current topic and not to an earlier one with its name."""
    place = parse_segment_path(segment.path)
    return place is not None and place.incarnation == topic.incarnation


def _check_path(scope: Scope, path: str) -> None:
    if not path.startswith(f"e{scope.environment_id}/") or "\0" in path:
        raise InvalidRequest(f"{path[:200]!r} is not a file of this environment.", path=path[:200])


def another_topic(topic: Topic) -> TopicNotFound:
    """Return the error of a caller whose offsets are those of an earlier topic with this name."""
    return TopicNotFound(
        f"Topic '{topic.name}' was deleted and created again; its offsets begin at 0 again.",
        topic=topic.name,
        incarnation=topic.incarnation,
    )
