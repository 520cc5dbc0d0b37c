"""Searches a topic for messages by key or filter. A search stops at its budget, and continues where it stopped."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from lakelog.client._async.topic import AsyncTopic
from lakelog.client.reading.masking import masks_of
from lakelog.client.reading.selecting import Deadline, Selection
from lakelog.console.message_rows import Row, rows_of
from lakelog.errors import InvalidRequest, OffsetOutOfRange
from lakelog.model.filter import Filter
from lakelog.model.partitioner import partition_of
from lakelog.model.topic_info import TopicInfo

SECONDS = 0.8
"""The budget of a page. With the messages that are fetched when it ends, a page takes a second."""
MAX_FOUND = 50
MAX_BYTES = 64 << 20
"""The size of values after which a search stops."""
PAGE = 10_000
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The messages to search for.

    Attributes:
        key: Only messages with this key; None for all. They are in one partition.
        filter: Only messages that this filter selects; None for all.
        partition: Only this partition; None for all.
        time: Only messages that were appended at this time or later; None for all.
    """

    key: bytes | None = None
    filter: Filter | None = None
    partition: int | None = None
    time: datetime | None = None

    @property
    def selection(self) -> Selection:
        return Selection(key=self.key, filter=self.filter)


@dataclass(slots=True, kw_only=True)
class Search:
    """A search, and how far it got.

    Attributes:
        place: The partition and the offset to continue at; None at the end.
        scanned: How many messages were looked at, those of earlier pages included.
        left: How many messages are left.
        rows: The messages that were found on this page.
        found: How many messages were found, those of earlier pages included.
    """

    place: tuple[int, int] | None = None
    scanned: int = 0
    left: int = 0
    rows: list[Row] = field(default_factory=list)
    found: int = 0

    @property
    def total(self) -> int:
        """How many messages the whole search looks at."""
        return self.scanned + self.left


async def search(
    topic: AsyncTopic[object],
    info: TopicInfo,
    wanted: Wanted,
    begin: Search,
    *,
    clock: Clock = time.monotonic,
    most: int = MAX_FOUND,
) -> Search:
    """Return the next messages that match.

    Args:
        topic: The topic.
        info: The description of the topic.
        wanted: The messages to search for.
        begin: A new search, or one that ended at its budget.
        clock: The clock of the budget.
        most: How many messages to find at most.
    """
    ends = {each.partition: (each.log_start, each.high_watermark) for each in info.partition_list}
    chosen, masks = _partitions(info, wanted), masks_of(info)
    done = Search(scanned=begin.scanned, found=begin.found)
    deadline, size = Deadline(at=clock() + SECONDS, clock=clock), 0
    first = begin.place or (chosen[0], -1)
    if first[0] not in chosen:
        # Partitions were added to the topic since, and the key is in another one now.
        raise InvalidRequest(f"This search does not look at partition {first[0]}. Search again from the beginning.")
    for partition in chosen[chosen.index(first[0]) :]:
        log_start, end = ends[partition]
        is_first = partition == first[0] and first[1] >= 0
        at = max(log_start, first[1]) if is_first else await _start(topic, partition, wanted, log_start)
        while at < end:
            if deadline.is_over or size >= MAX_BYTES or len(done.rows) >= most:
                return _stopped(done, chosen, ends, (partition, at))
            try:
                page = await topic.fetch(partition, offset=at, limit=min(PAGE, end - at))
            except OffsetOutOfRange as error:
                oldest = error.subject.get("log_start")  # Retention was faster.
                at = oldest if isinstance(oldest, int) and oldest > at else end
                continue
            size += sum(len(message.raw or b"") for message in page.messages)
            hits, looked_at = await asyncio.to_thread(
                wanted.selection.select, page.messages, most=most - len(done.rows), deadline=deadline
            )
            done.rows += await asyncio.to_thread(rows_of, hits, masks)
            done.scanned += looked_at
            at = page.next_offset if looked_at == len(page.messages) else page.messages[looked_at].offset
            if not page.messages:
                break
    done.found += len(done.rows)
    return done


def _partitions(info: TopicInfo, wanted: Wanted) -> Sequence[int]:
    if wanted.partition is not None:
        return [wanted.partition]
    if wanted.key is not None:
        return [partition_of(wanted.key, info.partitions)]
    return range(info.partitions)


async def _start(topic: AsyncTopic[object], partition: int, wanted: Wanted, log_start: int) -> int:
    if wanted.time is None:
        return log_start
    page = await topic.fetch(partition, time=wanted.time, limit=1)
    return page.messages[0].offset if page.messages else page.high_watermark


def _stopped(done: Search, chosen: Sequence[int], ends: Mapping[int, tuple[int, int]], at: tuple[int, int]) -> Search:
    later = chosen[chosen.index(at[0]) + 1 :]
    done.place = at
    done.left = ends[at[0]][1] - at[1] + sum(end - log_start for log_start, end in (ends[each] for each in later))
    done.found += len(done.rows)
    return done
