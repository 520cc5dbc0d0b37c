"""Bulk access to a topic: where its messages are, its watermarks, and its messages as columns.

It is for readers of many messages at once, such as Spark. `topic` reads messages one by one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import asdict

from lakelog.client._async.calls import AsyncCalls
from lakelog.errors import OffsetOutOfRange, TopicNotFound
from lakelog.model.arguments import check_seconds
from lakelog.model.fetch import FetchedBatches, FetchLimits
from lakelog.model.iceberg import IcebergChanges, IcebergChangesRequest, IcebergCommit, IcebergTable, TableKind
from lakelog.model.lake import (
    ORPHAN_AGE,
    FindOrphansRequest,
    Plan,
    PlanOptions,
    PlanRequest,
    Registered,
    ReplaceSegmentsRequest,
    SegmentsRequest,
    SweptRequest,
    TierableRequest,
    TierOptions,
    TierRange,
    UnverifiedRequest,
    Watermarks,
    WatermarksRequest,
)
from lakelog.model.limits import MAX_BATCH_MESSAGES, MAX_WAIT_MS
from lakelog.model.load import FindLoadRequest, Loaded, LoadRequest
from lakelog.model.position import AtOffset
from lakelog.model.segment import Segment
from lakelog.wire.operations import iceberg as iceberg_operations
from lakelog.wire.operations import lake as operations

if TYPE_CHECKING:
    import pyarrow as pa

Given = TypeVar("Given")

_PAGE = 500
_TIER = TierOptions()
_EVERYTHING = PlanOptions()


class AsyncLake:
    """Bulk access to messages, as `log.lake`."""

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls

    async def plan(self, topic: str, options: PlanOptions = _EVERYTHING) -> Plan:
        """Return where the messages of a topic are stored, up to the high watermarks at the time of the call.

        A long history is planned in several calls. A segment that is replaced between them is in hot batches as well.

        Args:
            topic: The name of the topic.
            options: The part of the topic to read. Default: all of it.
        """
        from lakelog.client.reading.plans import PAGE_SEGMENTS, joined, rest_of

        request = PlanRequest(topic=topic, max_segments=PAGE_SEGMENTS, **asdict(options))
        plan = await self._calls.call(operations.PLAN, request)
        while (request_of_rest := rest_of(plan)) is not None:
            plan = joined(plan, await self._calls.call(operations.PLAN, request_of_rest))
        return plan

    async def watermarks(
        self, topic: str, beyond: Mapping[int, int] | None = None, wait_seconds: float = 0.0
    ) -> Watermarks:
        """Return log starts and high watermarks when a partition grows past an offset, or when the time has passed.

        Args:
            topic: The name of the topic.
            beyond: The offset by partition; 0 for partitions that are missing.
            wait_seconds: How long to wait. Default: 0, which returns immediately.
        """
        past = dict(beyond or {})
        while True:
            wait = min(wait_seconds, MAX_WAIT_MS / 1000)
            request = WatermarksRequest(topic=topic, beyond=past, wait_ms=int(wait * 1000))
            found = await self._calls.call(operations.WATERMARKS, request, wait_seconds=wait)
            wait_seconds -= wait
            if wait_seconds <= 0 or any(end > past.get(partition, 0) for partition, end in found.ends.items()):
                return found

    async def tierable(
        self,
        topic: str,
        *,
        segment_bytes: int = _TIER.segment_bytes,
        min_bytes: int = _TIER.min_bytes,
        min_age: timedelta | float = _TIER.min_age_ms / 1000,
    ) -> list[TierRange]:
        """Return ranges of whole hot batches that may become segments.

        Args:
            topic: The name of the topic.
            segment_bytes: The approximate number of stored bytes of a segment. Default: 128 MiB.
            min_bytes: The stored bytes that a remainder needs to be returned. Default: 32 MiB.
            min_age: The age of its oldest message, in seconds or as a timedelta, at which a smaller remainder is
                returned. Default: an hour.
        """
        request = TierableRequest(
            topic=topic,
            segment_bytes=segment_bytes,
            min_bytes=min_bytes,
            min_age_ms=int(check_seconds("min_age", min_age) * 1000),
        )
        return (await self._calls.call(operations.TIERABLE, request)).ranges

    async def register(self, topic: str, segments: Sequence[Segment]) -> list[Registered]:
        """Register the files of segments. Return one outcome for each. Readers do not use them before `verified`.

        Args:
            topic: The name of the topic.
            segments: The segments.
        """
        requests = [SegmentsRequest(topic=topic, segments=page) for page in _pages(segments)]
        pages = [await self._calls.call(operations.REGISTER_SEGMENTS, request) for request in requests]
        return [result for page in pages for result in page.results]

    async def verified(self, topic: str, segments: Sequence[Segment]) -> list[bool]:
        """Mark segments as verified, so that readers use them. Return whether each one is registered.

        Args:
            topic: The name of the topic.
            segments: The segments whose files were read back and match what was written.
        """
        requests = [SegmentsRequest(topic=topic, segments=page) for page in _pages(segments)]
        pages = [await self._calls.call(operations.VERIFIED_SEGMENTS, request) for request in requests]
        return [result for page in pages for result in page.results]

    async def unregister(self, topic: str, segments: Sequence[Segment]) -> list[bool]:
        """Unregister segments that are not verified. Return whether each one is now unregistered.

        Args:
            topic: The name of the topic.
            segments: The segments.
        """
        requests = [SegmentsRequest(topic=topic, segments=page) for page in _pages(segments)]
        pages = [await self._calls.call(operations.UNREGISTER_SEGMENTS, request) for request in requests]
        return [result for page in pages for result in page.results]

    async def replace(self, topic: str, old: Sequence[Segment], new: Sequence[Segment]) -> Registered:
        """Replace verified segments by others that hold the same messages. Return the outcome.

        The files of the old segments remain until they are swept, so that readers with an earlier plan still find them.

        Args:
            topic: The name of the topic.
            old: The segments to replace: up to 1,000 of one partition, by offset, without a gap.
            new: The segments that replace them: up to 1,000 of the same range, whose files were read back.
        """
        request = ReplaceSegmentsRequest(topic=topic, old=list(old), new=list(new))
        return await self._calls.call(operations.REPLACE_SEGMENTS, request)

    async def unverified(self, topic: str) -> list[Segment]:
        """Return the segments that are registered and not verified: the process that wrote them may have died.

        Args:
            topic: The name of the topic.
        """
        return (await self._calls.call(operations.UNVERIFIED_SEGMENTS, UnverifiedRequest(topic=topic))).segments

    async def load(self, request: LoadRequest) -> list[Loaded]:
        """Append segments to partitions: history that was written to files and never published.

        Each partition gets its part whole, or nothing. A repeat under the same name adds nothing.

        Args:
            request: The topic, the name of the load, and its parts. Their files were read back.
        """
        return (await self._calls.call(operations.LOAD, request)).results

    async def find_load(self, topic: str, name: str) -> list[Loaded]:
        """Return the partitions in which a load was decided, with the status `known`.

        Args:
            topic: The name of the topic.
            name: The name of the load.
        """
        return (await self._calls.call(operations.FIND_LOAD, FindLoadRequest(topic=topic, name=name))).results

    async def look(self, paths: Sequence[str], min_age: timedelta | float = ORPHAN_AGE) -> list[str]:
        """Return the files that may be removed: those that belong to no segment, now and when first checked.

        Args:
            paths: The files to check.
            min_age: The least time since the first check, in seconds or as a timedelta. Default: 24 hours.
        """
        age = int(check_seconds("min_age", min_age) * 1000)
        found: list[str] = []
        for page in _pages(paths):
            request = FindOrphansRequest(paths=page, min_age_ms=age)
            found += (await self._calls.call(operations.FIND_ORPHANS, request)).paths
        return found

    async def swept(self, paths: Sequence[str]) -> None:
        """Report that files were removed.

        Args:
            paths: The files.
        """
        for page in _pages(paths):
            await self._calls.call(operations.SWEPT, SweptRequest(paths=page))

    async def iceberg_changes(self, topic: str, kind: TableKind = TableKind.MESSAGES) -> IcebergChanges:
        """Return what an Iceberg table of a topic lacks, and its version.

        Args:
            topic: The name of the topic.
            kind: The table. Default: that of the messages, which has the verified segments. The content of the table
                of keys is computed by its pipeline, so it has no steps.
        """
        request = IcebergChangesRequest(topic=topic, kind=kind.value)
        return await self._calls.call(iceberg_operations.ICEBERG_CHANGES, request)

    async def commit_iceberg(self, commit: IcebergCommit) -> IcebergTable:
        """Make a metadata file the newest one of a topic's Iceberg table, and return the table.

        Args:
            commit: The new version, whose files are in the object store.

        Raises:
            Conflict: Another run has changed the table. Begin again with `iceberg_changes`.
        """
        return await self._calls.call(iceberg_operations.COMMIT_ICEBERG, commit)

    async def read_range(
        self, topic: str, partition: int, first: int, end: int, *, incarnation: int | None = None
    ) -> AsyncIterator[pa.RecordBatch]:
        """Yield every message from `first` up to, not including, `end`, in the columns of a segment.

        Args:
            topic: The name of the topic.
            partition: The partition.
            first: The offset of the first message.
            end: The offset after the last message.
            incarnation: Refuse another topic of the same name. Default: accept any, but only one.

        Raises:
            OffsetOutOfRange: The log does not have all of the messages, because some were removed or do not exist yet.
            TopicNotFound: The topic was deleted, or recreated.
        """
        from lakelog.client.reading.decoding import batches_of

        at = first
        while at < end:
            chunk = await self._chunk(topic, partition, at, end)
            incarnation = chunk.incarnation if incarnation is None else incarnation
            if chunk.incarnation != incarnation:
                raise TopicNotFound(f"Topic '{topic}' was deleted and recreated while it was read.", topic=topic)
            if chunk.until <= at:
                raise OffsetOutOfRange(
                    f"Offset {at} of topic '{topic}' partition {partition} is not in the log yet; "
                    f"its high watermark is {chunk.high_watermark}.",
                    offset=at,
                    log_start=chunk.log_start,
                    high_watermark=chunk.high_watermark,
                )
            for batch in batches_of(chunk, end):
                yield batch
            at = chunk.until

    async def _chunk(self, topic: str, partition: int, at: int, end: int) -> FetchedBatches:
        limits = FetchLimits(max_messages=min(MAX_BATCH_MESSAGES, end - at))

        async def once(left: float) -> FetchedBatches:
            return await self._calls.transport.fetch(topic, partition, AtOffset(at), limits, left)

        return await self._calls.run(once, safe=True)


def _pages(items: Sequence[Given]) -> Iterator[list[Given]]:
    """Return the items in parts that fit into one call."""
    for first in range(0, len(items), _PAGE):
        yield list(items[first : first + _PAGE])
