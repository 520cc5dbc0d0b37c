"""Plans the next read of a stream, compares its checkpoint with its group, and words warnings about its start.

The functions are pure: they use neither Spark nor I/O.

A `StreamOffset` holds the end of a micro-batch and its beginning, so that the first micro-batch reads the same messages
after a crash, and a restart knows which positions of the group are valid.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from lakelog.errors import InvalidRequest, OffsetOutOfRange, PositionRefused
from lakelog.model.lake import Watermarks
from lakelog.model.seek import GroupPosition
from lakelog.spark.streaming.options import LATEST, StreamOptions

Offsets = Mapping[int, int]
"""The next offset to read, by partition."""

_FORMAT = 1
_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOffset:
    """The end of a micro-batch. Without an incarnation, it is the unresolved start of a new stream."""

    topic: str
    incarnation: int | None = None
    begin: Offsets = field(default_factory=dict)
    """The offsets at which the micro-batch began."""
    end: Offsets = field(default_factory=dict)
    epochs: Offsets = field(default_factory=dict)
    """The group's position epochs by partition; 0 by default."""
    read_at: datetime | None = None
    """The database's time of the plan, at which a group's messages expire: a repeated micro-batch has the same rows."""
    lost: int = 0
    """The number of messages that were removed before this query read them, since its first micro-batch."""

    def to_json(self) -> dict[str, Any]:
        """Return the offset as text. Equal offsets have equal texts, because Spark compares texts."""
        if self.incarnation is None:
            return {"format": _FORMAT, "topic": self.topic}
        return {
            "format": _FORMAT,
            "topic": self.topic,
            "incarnation": self.incarnation,
            "begin": _to_json(self.begin),
            "end": _to_json(self.end),
            "epochs": _to_json({partition: epoch for partition, epoch in self.epochs.items() if epoch}),
            **({} if self.read_at is None else {"read_at": self.read_at.isoformat()}),
            **({"lost": self.lost} if self.lost else {}),
        }

    @classmethod
    def of(cls, found: Mapping[str, Any], topic: str) -> StreamOffset:
        """Return the offset of a checkpoint; raise an error if another source, topic or version wrote it."""
        if found.get("format") != _FORMAT:
            raise InvalidRequest(
                "The checkpoint was not written by this version of the source `lakelog`. Use another checkpoint."
            )
        if found.get("topic") != topic:
            raise InvalidRequest(
                f"The checkpoint is of topic {found.get('topic')!r}, and the query reads {topic!r}: "
                "a query that reads another topic needs its own checkpoint."
            )
        return cls(
            topic=topic,
            incarnation=found.get("incarnation"),
            begin=_of_json(found.get("begin", {})),
            end=_of_json(found.get("end", {})),
            epochs=_of_json(found.get("epochs", {})),
            read_at=datetime.fromisoformat(found["read_at"]) if "read_at" in found else None,
            lost=found.get("lost", 0),
        )


def requested_offsets(options: StreamOptions, marks: Watermarks) -> dict[int, int]:
    """Return where the options say that a new stream starts. A time was resolved to offsets before."""
    by_default = marks.ends if options.start == LATEST else marks.starts
    return {**by_default, **options.start_offsets}


def first_offsets(options: StreamOptions, marks: Watermarks) -> dict[int, int]:
    """Return where a stream starts that has no checkpoint and no position of its group."""
    for partition, offset in options.start_offsets.items():
        start, end = marks.starts.get(partition), marks.ends.get(partition)
        if start is None or end is None:
            raise OffsetOutOfRange(
                f"Option `startOffsets` names partition {partition}, and topic '{options.topic}' has partitions 0 to "
                f"{len(marks.ends) - 1}.",
                topic=options.topic,
                partition=partition,
            )
        if not start <= offset <= end:
            raise OffsetOutOfRange(
                f"Option `startOffsets` names offset {offset} of partition {partition}; topic '{options.topic}' has "
                f"offsets {start} to {end} there.",
                topic=options.topic,
                partition=partition,
                offset=offset,
            )
    return requested_offsets(options, marks)


def begin_at(start: StreamOffset, resolved: Offsets, ends: Offsets) -> dict[int, int]:
    """Return where the next micro-batch begins: at `start`, and at `resolved` for partitions that it does not contain.

    A partition that was added later begins at 0.
    """
    known = resolved if start.incarnation is None else start.end
    return {partition: known.get(partition, 0) for partition in sorted(ends)}


Removed = Mapping[int, tuple[int, int]]
"""Offsets that a query did not read before they were removed, by partition: the first one and the end."""


def removed(begin: Offsets, log_starts: Offsets, ends: Offsets | None = None) -> Removed:
    """Return the offsets from `begin` that are below the log start, up to `ends` if given."""
    found = {}
    for partition, first in sorted(begin.items()):
        end = log_starts.get(partition, 0)
        if ends is not None:
            end = min(end, ends.get(partition, end))
        if end > first:
            found[partition] = (first, end)
    return found


def count_of(lost: Removed) -> int:
    """Return the number of removed messages."""
    return sum(end - first for first, end in lost.values())


def past(begin: Offsets, log_starts: Offsets) -> dict[int, int]:
    """Return the offsets, raised to the log starts."""
    return {partition: max(offset, log_starts.get(partition, 0)) for partition, offset in begin.items()}


def removal_text(topic: str, lost: Removed) -> str:
    """Return a sentence that names the removed messages."""
    ranges = ", ".join(f"partition {each}: {lost[each][0]} to {lost[each][1] - 1}" for each in [*lost][:_SHOWN])
    more = f", and in {len(lost) - _SHOWN} more partitions" if len(lost) > _SHOWN else ""
    return (
        f"Retention or a purge removed {count_of(lost)} messages of topic '{topic}' before this query read them "
        f"({ranges}{more})."
    )


def data_loss(topic: str, lost: Removed) -> OffsetOutOfRange:
    """Return the error of a query that must not skip removed messages."""
    partition, (first, _) = next(iter(lost.items()))
    return OffsetOutOfRange(
        f"{removal_text(topic, lost)} To continue at the oldest messages, start the query with the same checkpoint and "
        ".option('failOnDataLoss', 'false'): it logs and counts the removed messages.",
        topic=topic,
        partition=partition,
        offset=first,
    )


def advance(begin: Offsets, ends: Offsets, limit: int | None) -> dict[int, int]:
    """Return where the next micro-batch ends: at the end of the topic, or after `limit` messages.

    The limit is shared in proportion to the lag of each partition. If there are messages, the end is always past the
    start.
    """
    behind = {partition: max(0, ends.get(partition, at) - at) for partition, at in begin.items()}
    total = sum(behind.values())
    if limit is None or total <= limit:
        shares = behind
    else:
        shares = {partition: limit * count // total for partition, count in behind.items()}
        left = limit - sum(shares.values())
        # Give the rest of the rounding to the partitions with the largest lag, so that the limit is used up exactly.
        for partition in sorted(behind, key=lambda each: (shares[each] - behind[each], each)):
            more = min(left, behind[partition] - shares[partition])
            shares[partition] += more
            left -= more
    return {partition: at + shares[partition] for partition, at in begin.items()}


def message_limit(begin: Offsets, marks: Watermarks, max_bytes: int | None, max_messages: int | None) -> int | None:
    """Return the number of messages after which the next micro-batch ends; None for no limit.

    The size of the unread messages is an estimate: their number, times the average size in their partition.
    """
    if max_bytes is None:
        return max_messages
    count, size = 0, 0.0
    for partition, at in begin.items():
        end = marks.ends.get(partition, at)
        if end > at:
            count += end - at
            size += (end - at) * marks.bytes.get(partition, 0) / end
    if size <= max_bytes:
        return max_messages
    limit = max(1, int(count * max_bytes / size))
    return limit if max_messages is None else min(limit, max_messages)


def grown(positions: Mapping[int, GroupPosition], offsets: Offsets) -> dict[int, int]:
    """Return those of the offsets that the group has not reached."""
    return {
        partition: offset
        for partition, offset in sorted(offsets.items())
        if partition not in positions or offset > positions[partition].offset
    }


def by_epoch(offsets: Offsets, positions: Mapping[int, GroupPosition]) -> dict[int, dict[int, int]]:
    """Return the offsets by position epoch: a seek of one partition does not change the epochs of the others."""
    found: dict[int, dict[int, int]] = {}
    for partition, offset in offsets.items():
        epoch = positions[partition].epoch if partition in positions else 0
        found.setdefault(epoch, {})[partition] = offset
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """The last micro-batch of a checkpoint, and whether it was finished."""

    planned: StreamOffset
    finished: bool

    @property
    def goes_on_at(self) -> Offsets:
        """The offsets at which the query continues."""
        return self.planned.end if self.finished else self.planned.begin


def reconcile(group: str, restart: Restart, positions: Mapping[int, GroupPosition], log_starts: Offsets) -> None:
    """Raise an error if the group's position is outside the last planned micro-batch, unless retention moved it.

    The position is committed after Spark's own commit and before the next planning. A killed query therefore leaves
    each partition at the beginning or at the end of the last planned micro-batch. Any other position was set by a seek
    or by another reader. After a seek, the position must be exactly where the query continues.
    """
    planned = restart.planned
    for partition, position in sorted(positions.items()):
        low, high = planned.begin.get(partition, 0), planned.end.get(partition, 0)
        on = restart.goes_on_at.get(partition, 0)
        sought = position.epoch != planned.epochs.get(partition, 0)
        if position.offset == on if sought else low <= position.offset <= high:
            continue
        if not sought and high < position.offset <= log_starts.get(partition, 0):
            # The plan of the next micro-batch decides about removed messages.
            continue
        raise PositionRefused(
            f"Group '{group}' is at offset {position.offset} of partition {partition} of '{planned.topic}', and the "
            f"checkpoint of this query is at {_range(low, high)}: a seek or another reader moved the group. To "
            f"continue from the checkpoint, move the group: `lakelog groups seek {group} {planned.topic} --partition "
            f"{partition} --to {on}`. To continue from the group's position, start the query with a new checkpoint.",
            group=group,
            topic=planned.topic,
            partition=partition,
            offset=position.offset,
        )


def _range(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"


def _to_json(offsets: Offsets) -> dict[str, int]:
    return {str(partition): offset for partition, offset in sorted(offsets.items())}


def _of_json(found: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): offset for partition, offset in found.items()}


def skipping(options: StreamOptions, begin: Offsets, marks: Watermarks) -> str | None:
    """Return the warning that a stream skips existing messages, unless its options say where to start."""
    count = sum(offset - marks.starts.get(partition, offset) for partition, offset in begin.items())
    if options.has_start or not count:
        return None
    skipped = "1 existing message is" if count == 1 else f"{count:,} existing messages are"
    return (
        f"The stream starts at the end of topic '{options.topic}': {skipped} skipped. To read them, "
        "use .option('start', 'earliest') and a new checkpoint."
    )


def ignoring(options: StreamOptions, positions: Offsets, marks: Watermarks) -> str | None:
    """Return the warning that the group's position overrides the options, if that makes a difference."""
    if not options.has_start or requested_offsets(options, marks) == positions:
        return None
    if options.start_time is not None:
        named, to = f"start={options.start_time.isoformat()}", f"--to {options.start_time.isoformat()}"
    elif options.start_offsets:
        named = "startOffsets"
        partition, offset = min(options.start_offsets.items())
        to = f"--partition {partition} --to {offset}"
    else:
        named, to = f"start={options.start}", f"--to {options.start}"
    return (
        f"Group '{options.group}' already exists and resumes at its committed offsets; option {named} is ignored. To "
        f"start over, stop the query, run `lakelog groups seek {options.group} {options.topic} {to}`, and start the "
        "query with a new checkpoint."
    )
