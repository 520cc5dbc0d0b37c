"""Appends history to a topic as segments. The caller has written the files, and has read them back.

The module reads no files. It checks that the segments of a partition follow each other in offsets and time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise

from lakelog.engine.groups.positions import gathered
from lakelog.engine.lake.plans import another_topic, check_segment, require_store
from lakelog.engine.log.extents import Extents
from lakelog.engine.log.topics import Topics, no_partition
from lakelog.errors import Conflict, InvalidRequest
from lakelog.model.lake import ORPHAN_AGE
from lakelog.model.load import (
    MAX_LOADED_SEGMENTS,
    FindLoadRequest,
    Loaded,
    LoadRequest,
    LoadResults,
    LoadStatus,
    PartitionLoad,
)
from lakelog.model.names import check_name
from lakelog.model.segment import Segment
from lakelog.model.topic import Scope, Topic
from lakelog.storage.cold import REASONS, PlacedLoad
from lakelog.storage.store import Catalog


class Loads:
    """Loads into any topic; one per engine."""

    def __init__(
        self, catalog: Catalog, topics: Topics, extents: Extents, grew: Callable[[int, int, int, int], None]
    ) -> None:
        """Create the loads. `grew` gets the cell, partition, first offset and count of each append."""
        self._catalog = catalog
        self._topics = topics
        self._extents = extents
        self._grew = grew

    async def load(self, scope: Scope, request: LoadRequest) -> LoadResults:
        """Append the parts to their partitions, each as a whole, and return one result for each part."""
        topic = await self._topics.refresh(scope, request.topic)
        if topic.incarnation != request.incarnation:
            raise another_topic(topic)
        require_store(self._extents)
        if topic.settings.schema is not None and not request.is_restore:
            raise Conflict(
                f"Topic '{topic.name}' has a schema, and the values in files are not validated. Publish the messages, "
                "or write them with Spark: lakelog.spark.backfill does so by itself.",
                topic=topic.name,
            )
        _check(topic, request)
        await self._topics.ensure_heads(topic)
        paths = [segment.path for part in request.parts for segment in part.segments]
        # A file that belonged to no segment for half a day may be swept at any moment.
        doomed = await self._catalog.orphans.old(paths, age=ORPHAN_AGE / 2) if paths else set()
        found = {part.partition: _swept(part) for part in request.parts if doomed & {s.path for s in part.segments}}
        shares: dict[int, list[PlacedLoad]] = defaultdict(list)
        for part in request.parts:
            if part.partition not in found:
                shares[topic.cells[part.partition]].append((topic.pid(part.partition), part))
        calls = [self._load(topic, cell, request.name, share) for cell, share in shares.items()]
        for results in await gathered(calls):
            found |= {result.partition: result for result in results}
        if paths:
            # As for registered segments: the time of an earlier check must not count after a later backup mark.
            await self._catalog.orphans.forget(paths)
        return LoadResults(results=[found[part.partition] for part in request.parts])

    async def find(self, scope: Scope, request: FindLoadRequest) -> LoadResults:
        """Return the decisions about a load, by partition."""
        check_name("load", request.name)
        topic = await self._topics.refresh(scope, request.topic)
        shares = (
            self._extents.cells[cell].cold.loaded(request.name, pids) for cell, pids in topic.pids_by_cell().items()
        )
        found = [each for share in await gathered(shares) for each in share]
        return LoadResults(results=sorted(found, key=lambda each: each.partition))

    async def _load(self, topic: Topic, cell: int, name: str, parts: list[PlacedLoad]) -> list[Loaded]:
        results = await self._extents.cells[cell].cold.load(name, parts)
        for result in results:
            if result.status is LoadStatus.LOADED and result.end > result.first:
                self._grew(cell, topic.pid(result.partition), result.first, result.end - result.first)
        return results


def _check(topic: Topic, request: LoadRequest) -> None:
    partitions = {part.partition for part in request.parts}
    if len(partitions) < len(request.parts):
        raise InvalidRequest("A load has two parts for one partition. Send one part for each partition.")
    if sum(len(part.segments) for part in request.parts) > MAX_LOADED_SEGMENTS:
        raise InvalidRequest(
            f"A call loads at most {MAX_LOADED_SEGMENTS} segments. Send the partitions in several calls, or use larger "
            "files."
        )
    for part in request.parts:
        if part.partition >= topic.partitions:
            raise no_partition(topic, part.partition)
        for segment in part.segments:
            check_segment(topic, segment)
            _check_place(part, segment)
        edges = [part.first, *(segment.end for segment in part.segments)]
        if [segment.first for segment in part.segments] != edges[:-1]:
            raise InvalidRequest(
                f"The segments of partition {part.partition} do not follow each other from offset {part.first}.",
                partition=part.partition,
            )
        if any(later.first_at < earlier.last_at for earlier, later in pairwise(part.segments)):
            raise InvalidRequest(
                f"The times of the segments of partition {part.partition} fall. Sort the messages by time.",
                partition=part.partition,
            )


def _check_place(part: PartitionLoad, segment: Segment) -> None:
    if segment.partition != part.partition:
        raise InvalidRequest(f"Segment {segment.path} is not of partition {part.partition}.", path=segment.path)
    if segment.last_at < segment.first_at or _day(segment.first_at) != _day(segment.last_at):
        raise InvalidRequest(
            f"Segment {segment.path} has messages of several days in UTC. Begin a file with each day.",
            path=segment.path,
        )


def _day(time: datetime) -> object:
    return time.astimezone(UTC).date()


def _swept(part: PartitionLoad) -> Loaded:
    return Loaded(
        partition=part.partition,
        status=LoadStatus.REFUSED,
        first=part.first,
        end=part.segments[-1].end,
        fingerprint=part.fingerprint,
        reason=REASONS["swept"],
    )
