"""Follows a topic for a page: the newest messages of every second, and how many were left out.

The work of one look is bounded, no matter how many messages arrive. The others are counted by the ends of the
partitions, and never read. The browser keeps the place, so that it can continue after a pause or a lost connection.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from lakelog.client._async.topic import AsyncTopic
from lakelog.client.reading.masking import masks_of
from lakelog.client.reading.messages import ReceivedMessage
from lakelog.client.reading.selecting import Deadline, Selection
from lakelog.console.message_rows import SHORT, row_of
from lakelog.console.page import Stream, View
from lakelog.errors import LakelogError, NotAllowed, OffsetOutOfRange
from lakelog.model.display import show_time
from lakelog.model.filter import parse
from lakelog.model.masks import Masks
from lakelog.model.topic_info import TopicInfo

SHOWN = 50
"""The most messages that one look shows."""
EXAMINED = 2_000
"""The most messages that one look examines with a filter."""
MAX_PARTITIONS = 50
"""The most partitions that one look reads."""
MAX_BYTES = 16 << 20
"""The size of values after which a look stops."""
FILTER_SECONDS = 0.2
LOOK_SECONDS, LONGEST_SECONDS = 1.0, 10.0
"""The time between two looks. It is longer if looks take long, so that a stream costs a bounded share of a core."""
_REST = 19
HEARTBEAT_SECONDS = 10.0
MAX_PLACES = 200
"""With more partitions, a place is only the number of messages: the offsets are too long for a header."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """How far a viewer has followed a topic.

    Attributes:
        incarnation: The incarnation of the topic.
        ends: The offset to continue at, by partition; None if only their sum is known.
        total: The sum of these offsets.
    """

    incarnation: int
    ends: Mapping[int, int] | None
    total: int

    @classmethod
    def end_of(cls, info: TopicInfo) -> Place:
        """Return the present end of a topic."""
        ends = {each.partition: each.high_watermark for each in info.partition_list}
        return cls(incarnation=info.incarnation, ends=ends, total=sum(ends.values()))

    @classmethod
    def parse(cls, text: str) -> Place | None:
        """Return the place that a text names; None if the text names none."""
        incarnation, _, rest = text.partition(":")
        parts = [incarnation, *rest.lstrip("+").split(".")]
        if not all(part.isascii() and part.isdigit() and len(part) <= 18 for part in parts):
            return None
        first, *ends = map(int, parts)
        known = None if rest.startswith("+") else dict(enumerate(ends))
        return cls(incarnation=first, ends=known, total=sum(ends))

    def __str__(self) -> str:
        if self.ends is None or len(self.ends) > MAX_PLACES:
            return f"{self.incarnation}:+{self.total}"
        return f"{self.incarnation}:{'.'.join(str(self.ends[partition]) for partition in sorted(self.ends))}"


class ShownMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message as the browser draws it."""

    id: str
    position: str
    key: str
    value: str
    time: str
    headers: int


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """The messages that arrived since the last look.

    Attributes:
        rows: The messages to show, the oldest first.
        skipped: How many messages are not shown because too many arrived. It is not known which of them match.
        filtered: How many messages do not match the filter.
    """

    rows: Sequence[ShownMessage]
    skipped: int
    filtered: int


async def look(topic: AsyncTopic[object], since: Place | None, selection: Selection) -> tuple[Look, Place]:
    """Return what arrived since a place, and the place to continue at. Without a place, nothing has arrived."""
    info = await topic.describe()
    end = Place.end_of(info)
    if since is None:
        return Look(rows=[], skipped=0, filtered=0), end
    is_same = since.incarnation == end.incarnation
    arrived = max(0, end.total - (since.total if is_same else 0))
    if is_same and since.ends is None:
        return Look(rows=[], skipped=arrived, filtered=0), end
    begin = since.ends if is_same and since.ends is not None else {}
    found = _Found(masks=masks_of(info))
    await _read(found, topic, _ranges(info, begin, SHOWN if selection.filter is None else EXAMINED), selection)
    rows = [row for _, row in sorted(found.rows, key=lambda each: each[0])[-SHOWN:]]
    filtered = found.examined - found.matched
    return Look(rows=rows, skipped=max(0, arrived - filtered - len(rows)), filtered=filtered), end


def _ranges(info: TopicInfo, begin: Mapping[int, int], budget: int) -> dict[int, tuple[int, int]]:
    """Return the offsets to read, by partition: the newest ones, with the same share for each partition."""
    new = []
    for each in info.partition_list:
        count = each.high_watermark - max(begin.get(each.partition, 0), each.log_start)
        if count > 0:
            new.append((count, each.partition, each.high_watermark))
    ranges = {}
    chosen = sorted(new)[-MAX_PARTITIONS:]
    for place, (count, partition, end) in enumerate(chosen):
        share = min(count, budget // (len(chosen) - place))
        budget -= share
        ranges[partition] = (end - share, end)
    return ranges


@dataclass(slots=True, kw_only=True)
class _Found:
    """The rows with their times, how many messages match, and how many were examined."""

    masks: Masks
    rows: list[tuple[datetime, ShownMessage]] = field(default_factory=list)
    matched: int = 0
    examined: int = 0


async def _read(
    found: _Found, topic: AsyncTopic[object], ranges: Mapping[int, tuple[int, int]], selection: Selection
) -> None:
    size = 0
    deadline = Deadline(at=time.monotonic() + FILTER_SECONDS, clock=time.monotonic)
    for partition, (at, end) in ranges.items():
        while at < end:
            if size >= MAX_BYTES or (selection.filter is not None and deadline.is_over):
                return
            try:
                page = await topic.fetch(partition, offset=at, limit=end - at)
            except OffsetOutOfRange:
                break  # Retention was faster.
            if not page.messages:
                break
            at = page.next_offset
            size += sum(len(message.raw or b"") for message in page.messages)
            await asyncio.to_thread(_examine, found, selection, page.messages, deadline)


def _examine(
    found: _Found, selection: Selection, messages: Sequence[ReceivedMessage[object]], deadline: Deadline
) -> None:
    matching, examined = selection.select(messages, most=len(messages), deadline=deadline)
    found.rows += [(message.appended_at, _shown(message, found.masks)) for message in matching[-SHOWN:]]
    found.matched += len(matching)
    found.examined += examined


def _shown(message: ReceivedMessage[object], masks: Masks) -> ShownMessage:
    row = row_of(message, masks)
    return ShownMessage(
        id=row.id,
        position=f"{row.partition}:{row.offset}",
        key=(row.key_text or "")[:SHORT],
        value=row.short,
        time=show_time(row.appended_at),
        headers=len(row.headers),
    )


async def _follow(view: View) -> AsyncGenerator[bytes]:
    """Yield server-sent events: one for each look that found messages, and heartbeats."""
    if not view.viewer.may("read"):
        raise NotAllowed("The token has no right to read messages.")
    topic = view.log.topic(view.path["topic"])
    where = view.query.get("where", "").strip()
    selection = Selection(filter=parse(where) if where else None)
    place = Place.parse(view.query.get("after", ""))
    beat_at = 0.0
    is_first, goes_on = True, True
    while goes_on:
        began = time.monotonic()
        try:
            async with view.turns:
                seen, place = await look(topic, place, selection)
        except LakelogError:
            if is_first:
                raise
            return  # The browser connects again, and learns the reason then.
        ended = time.monotonic()
        if is_first or seen.rows or seen.skipped or seen.filtered:
            yield b"retry: 1000\nid: %s\ndata: %s\n\n" % (str(place).encode(), msgspec.json.encode(seen))
            is_first, beat_at = False, ended + HEARTBEAT_SECONDS
        elif ended >= beat_at:
            yield b":\n\n"
            beat_at = ended + HEARTBEAT_SECONDS
        goes_on = await view.wait(min(LONGEST_SECONDS, max(LOOK_SECONDS, _REST * (ended - began))))


STREAM = Stream(name="tail", path="topics/{topic}/tail", run=_follow)
