"""A topic as whole ranges of messages: where they are, how far they reach, and reading them as columns.

For readers of much at once, such as Spark. Reading messages one by one is `topic`'s.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from lakelog.client._async.calls import AsyncCalls
from lakelog.client._async.lake_transport import AsyncLakeTransport
from lakelog.client.lake_values import Plan, PlanWish, Registered, Segment, TierRange, TierWish, Watermarks
from lakelog.client.values import Chunk, FetchWish
from lakelog.errors import OffsetOutOfRange, TopicNotFound
from lakelog.model.arguments import check_seconds
from lakelog.model.lake import ORPHAN_AGE
from lakelog.model.limits import MAX_BATCH_MESSAGES, MAX_WAIT_MS
from lakelog.model.position import AtOffset

if TYPE_CHECKING:
    import pyarrow as pa

Found = TypeVar("Found")
Given = TypeVar("Given")

_PAGE = 500
_TIER = TierWish()


class AsyncLake:
    """`log.lake`."""

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls

    async def plan(self, topic: str, wish: PlanWish | None = None) -> Plan:
        """Where the messages are that were asked for: one view of each cell, as it was at one moment."""
        asked = wish or PlanWish()
        return await self._call(lambda lake, left: lake.plan(topic, asked, left))

    async def watermarks(
        self, topic: str, beyond: Mapping[int, int] | None = None, wait_seconds: float = 0.0
    ) -> Watermarks:
        """As soon as a partition reaches further than `beyond` says (0 where it says nothing), or after the time."""
        past = dict(beyond or {})
        while True:
            wait = min(wait_seconds, MAX_WAIT_MS / 1000)

            async def once(left: float, wait: float = wait) -> Watermarks:
                return await self._calls.transport.lake.watermarks(topic, past, wait, left)

            found = await self._calls.run(once, safe=True, wait_seconds=wait)
            wait_seconds -= wait
            if wait_seconds <= 0 or any(end > past.get(partition, 0) for partition, end in found.ends.items()):
                return found

    async def tierable(
        self,
        topic: str,
        *,
        segment_bytes: int = _TIER.segment_bytes,
        min_bytes: int = _TIER.min_bytes,
        min_age: timedelta | float = _TIER.min_age_seconds,
    ) -> list[TierRange]:
        """Ranges of whole hot batches that may become segments, each of about `segment_bytes`.

        What remains comes only if it has `min_bytes`, or its oldest message `min_age`.
        """
        wish = TierWish(
            segment_bytes=segment_bytes, min_bytes=min_bytes, min_age_seconds=check_seconds("min_age", min_age)
        )
        return [*await self._call(lambda lake, left: lake.tierable(topic, wish, left))]

    async def register(self, topic: str, segments: Sequence[Segment]) -> list[Registered]:
        """Makes files known, for exactly their ranges; one answer each. Nobody reads them before `verified`."""
        pages = await self._pages(segments, lambda lake, page, left: lake.register(topic, page, left))
        return [each for page in pages for each in page]

    async def verified(self, topic: str, segments: Sequence[Segment]) -> list[bool]:
        """The files were read again and are what was written: from now on readers use them. Whether each is known."""
        pages = await self._pages(segments, lambda lake, page, left: lake.verified(topic, page, left))
        return [each for page in pages for each in page]

    async def unregister(self, topic: str, segments: Sequence[Segment]) -> list[bool]:
        """Forgets segments that are not verified; whether each is not registered any more."""
        pages = await self._pages(segments, lambda lake, page, left: lake.unregister(topic, page, left))
        return [each for page in pages for each in page]

    async def unverified(self, topic: str) -> list[Segment]:
        """Registered, and not verified: whoever was about it may have died."""
        return [*await self._call(lambda lake, left: lake.unverified(topic, left))]

    async def look(self, paths: Sequence[str], min_age: timedelta | float = ORPHAN_AGE) -> list[str]:
        """Those of the files that may be removed: nobody knows them, now and when they were first looked at.

        The first look must be `min_age` ago. Tell by `swept` which are removed.
        """
        age = check_seconds("min_age", min_age)
        pages = await self._pages(paths, lambda lake, page, left: lake.look(page, age, left))
        return [each for page in pages for each in page]

    async def swept(self, paths: Sequence[str]) -> None:
        """These files are removed."""
        await self._pages(paths, lambda lake, page, left: lake.swept(page, left))

    async def read_range(
        self, topic: str, partition: int, first: int, end: int, *, incarnation: int | None = None
    ) -> AsyncIterator[pa.RecordBatch]:
        """Every message from `first` up to, not including, `end`, in the columns of a segment.

        Never less: what the log does not have (any more, or yet) is an error, as is another topic of the same name.
        """
        from lakelog.client.reading.segment_columns import batches_of

        at = first
        while at < end:
            chunk = await self._chunk(topic, partition, at, end)
            incarnation = chunk.incarnation if incarnation is None else incarnation
            if chunk.incarnation != incarnation:
                raise TopicNotFound(f"Topic '{topic}' was deleted and made anew while it was read.", topic=topic)
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

    async def _chunk(self, topic: str, partition: int, at: int, end: int) -> Chunk:
        wish = FetchWish(limit=min(MAX_BATCH_MESSAGES, end - at))

        async def once(left: float) -> Chunk:
            return await self._calls.transport.fetch(topic, partition, AtOffset(at), wish, left)

        return await self._calls.run(once, safe=True)

    async def _pages(
        self,
        items: Sequence[Given],
        verb: Callable[[AsyncLakeTransport, Sequence[Given], float], Awaitable[Found]],
    ) -> list[Found]:
        """The verb's answers, to as much at once as fits into one call."""
        found: list[Found] = []
        for first in range(0, len(items), _PAGE):
            page = items[first : first + _PAGE]

            async def once(lake: AsyncLakeTransport, left: float, page: Sequence[Given] = page) -> Found:
                return await verb(lake, page, left)

            found.append(await self._call(once))
        return found

    async def _call(self, verb: Callable[[AsyncLakeTransport, float], Awaitable[Found]]) -> Found:
        """All verbs may be repeated: a repeat finds what the first one did."""
        lake = self._calls.transport.lake

        async def once(left: float) -> Found:
            return await verb(lake, left)

        return await self._calls.run(once, safe=True)
