"""Searches messages of a topic by reading them: within a budget, and from the newest unless a position is given."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from lakelog.client._async.topic import AsyncTopic
from lakelog.client.reading.messages import ReceivedMessage
from lakelog.client.reading.selecting import Deadline, Selection
from lakelog.errors import InvalidRequest, OffsetOutOfRange
from lakelog.model.filter import Filter

SCAN_BUDGET = 20_000
"""Messages that one search looks at."""
MAX_PARTITIONS = 64
"""Partitions that one search covers."""
SECONDS = 10.0
"""The time after which a search stops."""
_PAGE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The messages to search for.

    Attributes:
        partition: The only partition. Default: all.
        offset: Begin at this offset. Needs `partition`.
        since: Begin at messages appended at this time.
        key: The key of the messages, as text.
        where: A filter.
        limit: The most messages to return.
    """

    partition: int | None = None
    offset: int | None = None
    since: datetime | None = None
    key: str | None = None
    where: Filter | None = None
    limit: int = 20

    @property
    def is_forward(self) -> bool:
        """Whether the search begins at a position, and returns the first matches instead of the newest."""
        return self.offset is not None or self.since is not None

    @property
    def selection(self) -> Selection:
        return Selection(key=None if self.key is None else self.key.encode(), filter=self.where)


@dataclass(slots=True, kw_only=True)
class Found:
    """The result of a search.

    Attributes:
        messages: The matches: the first ones from a position on, otherwise the newest ones.
        scanned: How many messages were looked at.
        continue_at: Where a search from a position on ended before the end, by partition.
    """

    messages: Sequence[ReceivedMessage[Any]] = ()
    scanned: int = 0
    continue_at: dict[int, int] = field(default_factory=dict)


async def find_messages(
    topic: AsyncTopic[Any], wanted: Wanted, *, clock: Callable[[], float] = time.monotonic
) -> Found:
    """Return the messages that match.

    Args:
        topic: The topic.
        wanted: The messages to search for.
        clock: The clock of the time limit. At the limit, a search from a position on says where to continue. A search
            for the newest messages raises `InvalidRequest`, because it looks at the newest ones last.
    """
    if wanted.offset is not None and wanted.partition is None:
        raise InvalidRequest("An offset needs a partition.")
    partitions = [wanted.partition] if wanted.partition is not None else await _partitions(topic)
    found, matches = Found(), list[ReceivedMessage[Any]]()
    deadline = Deadline(at=clock() + SECONDS, clock=clock)
    for partition in partitions:
        budget = SCAN_BUDGET // len(partitions)
        matches += await _scan(topic, partition, wanted, budget, deadline, found)
    matches.sort(key=lambda message: message.appended_at)
    found.messages = matches[: wanted.limit] if wanted.is_forward else matches[-wanted.limit :]
    if wanted.is_forward:
        # A match that did not fit is where the next search of its partition begins.
        for left_out in reversed(matches[wanted.limit :]):
            found.continue_at[left_out.partition] = left_out.offset
    return found


async def _partitions(topic: AsyncTopic[Any]) -> Sequence[int]:
    count = (await topic.describe()).partitions
    if count > MAX_PARTITIONS:
        raise InvalidRequest(
            f"Topic '{topic.name}' has {count} partitions; a search covers {MAX_PARTITIONS}. Give one."
        )
    return range(count)


async def _scan(
    topic: AsyncTopic[Any], partition: int, wanted: Wanted, budget: int, deadline: Deadline, found: Found
) -> Sequence[ReceivedMessage[Any]]:
    """Return the matches of one partition, and add what was scanned to `found`."""
    matches: deque[ReceivedMessage[Any]] = deque(maxlen=None if wanted.is_forward else wanted.limit)
    start: Mapping[str, Any] = _start(wanted, budget)
    end: int | None = None
    while budget > 0:
        page = await _page(topic, partition, start, min(budget, _PAGE))
        end = page.high_watermark if end is None else end
        most = wanted.limit - len(matches) if wanted.is_forward else _PAGE
        some, examined = await asyncio.to_thread(wanted.selection.select, page.messages, most=most, deadline=deadline)
        matches += some
        found.scanned += examined
        budget -= examined
        is_stopped = examined < len(page.messages) or (wanted.is_forward and len(matches) == wanted.limit)
        at = page.messages[examined - 1].offset + 1 if is_stopped else page.next_offset
        if at >= end:
            return matches
        start = {"offset": at}
        if is_stopped or deadline.is_over:
            break
    if wanted.is_forward:
        found.continue_at[partition] = start["offset"]
    elif deadline.is_over:
        raise InvalidRequest(
            f"The search took longer than {SECONDS:g} s. Give a partition, an offset or a time, or use a filter "
            "that needs less work."
        )
    return matches


def _start(wanted: Wanted, budget: int) -> Mapping[str, Any]:
    if wanted.offset is not None:
        return {"offset": wanted.offset}
    if wanted.since is not None:
        return {"time": wanted.since}
    return {"last": budget if wanted.key is not None or wanted.where is not None else min(wanted.limit, budget)}


async def _page(topic: AsyncTopic[Any], partition: int, start: Mapping[str, Any], limit: int) -> Any:
    """Fetch from a position on, or from the log start if retention has removed the messages there."""
    try:
        return await topic.fetch(partition, **start, limit=limit)
    except OffsetOutOfRange as error:
        log_start, offset = error.subject.get("log_start"), start.get("offset")
        if not isinstance(log_start, int) or offset is None or offset >= log_start:
            raise
        return await topic.fetch(partition, offset="earliest", limit=limit)
